"""Monitor files for tests: a minimal one, one with every kind of value, and variations."""

import re
from pathlib import Path

import pytest

from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ConfigError

MINIMAL = """\
model:
  name: digits
source:
  path: windows/
  timestamp: served_at
"""

FULL = """\
name: digits-daily
model:
  name: digits
  alias: production
  tracking_uri: https://mlflow.example.com/
  columns: [height, width, "5", "no"]
  fit: team.training:fit
  allow_pickle: true
  trusted_types: [team.Model]
source:
  path: s3://bucket/windows/*.parquet
  format: parquet
  csv: {delimiter: "\\t", decimal: ",", encoding: latin-1, null_values: ["", n/a]}
  storage_options: &store {endpoint_url: http://localhost:9000, secret_env: STORE, retries: 3}
  on_bad_file: skip
  max_bytes: 1000000000
  timestamp: served_at
  timezone: Europe/Zurich
  key: request_id
  label: truth
reference:
  query: SELECT * FROM training
  url_env: TRAINING_URL
  label: class
  digest: "0123"
labels:
  table: public.labels
  url: sqlite:///labels.db
  storage_options: *store
  key: id
  label: truth
baseline:
  start: 2026-01-05
  end: 2026-01-12T06:00:00+01:00
rectify:
  alpha: 1e-3
  gate: forest
  cv: 5
  sample_rate: 1
  unknown_label: 10
  seed: 7
  min_rows: 100
  max_rows: 1000
drift: {num_method: ks, num_threshold: .05, cat_method: chisquare}
alert:
  on: [unknowns]
  windows: 2
  of: 3
  cooldown: 36h
  webhook_url: https://example.com/alerts
  email: {to: [team@example.com], user_env: SMTP_USER, password_env: SMTP_PASSWORD, tls: true}
review: {max_class_loss: 0, expires: 3d}
report: {columns: [height], max_unknowns: 0}
"""


def write_monitor(folder: Path, text: str | bytes, name: str = "digits.yaml") -> Path:
    """Write a monitor file, and return where it is."""
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def refusal(file):
    """The mistakes of a file as (line, text), in the order in which they are listed."""
    with pytest.raises(ConfigError) as caught:
        load_monitor(file)
    head, *listing = str(caught.value).splitlines()
    assert head == f"{file} cannot be used:"
    found = [re.fullmatch(rf"  {re.escape(str(file))}:(\d+): (.+)", line) for line in listing]
    return [(int(match[1]), match[2]) for match in found]


def with_lines(**sections):
    """The minimal file, with lines added below its sections or as further sections."""
    lines = {"model": ["name: digits"], "source": ["path: windows/", "timestamp: served_at"]}
    for section, more in sections.items():
        lines[section] = [*lines.get(section, ()), *more.splitlines()]
    return "".join(f"{name}:\n" + "".join(f"  {one}\n" for one in of) for name, of in lines.items())

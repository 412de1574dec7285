"""Broken files and broken monitors, by the ten thousand: a result or an error of ours comes out.

Mutants of good texts and files go through the config parser and the readers in a child process
that may not take more memory than a cap. The parent ends a child that stands still. Each case is
made from its number alone, so one that failed can be made again; its bytes are kept too.
"""

import gzip
import io
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import track

from benchmarks.faults.tally import Tally
from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import RtscvError
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval

MEMORY = 1 << 30
"""Bytes of address space that a child may take beside what it has when it begins."""
PATIENCE = 5.0
"""Seconds after which a case hangs."""
BATCH = 5_000
KEPT = Path(tempfile.gettempdir()) / "rtscv-fuzz-failures"
CONFIGS, FILES = 110_000, 33_000
QUICK_CONFIGS, QUICK_FILES = 1_500, 600
NIGHTS = "the goal of 1,000,000 takes nights; this run is what fits ten minutes"

MONITORS = (
    b"model: {name: digits}\nsource: {path: served/, timestamp: served_at}\n",
    b"""\
# Which model, and where its traffic lands.
name: digits-daily
model:
  name: digits
  alias: champion
  tracking_uri: http://localhost:5000
  columns: [height, width, 'tail length']
  trusted_types: ["numpy.dtype"]
source:
  path: s3://served/date=2026-01-05/*.csv.gz
  format: csv
  csv: {delimiter: ";", decimal: ",", encoding: latin-1, null_values: ["", "n/a"]}
  storage_options: {endpoint_url: "http://localhost:9000", secret_env: STORE_SECRET}
  timestamp: served_at
  timezone: Europe/Zurich
  key: request_id
  label: true_class
  on_bad_file: skip
  max_bytes: 2000000
labels: &late
  table: served.labels
  url: sqlite:///requests.db
  key: request_id
  label: class
baseline: {start: 2026-01-05, end: "2026-01-12T00:00:00+01:00"}
rectify:
  alpha: 0.01
  gate: kernel
  cv: 3
  sample_rate: 0.2
  unknown_label: unknown
  seed: 7
  min_rows: 50
  max_rows: 20000
drift: {num_method: psi, num_threshold: 0.1}
alert:
  on: [unknowns, drift]
  windows: 2
  of: 3
  cooldown: 12h
  email: {to: [team@example.com], port: 25, user_env: SMTP_USER, password_env: SMTP_PASSWORD}
review: {max_class_loss: 0.05, expires: 2w}
report:
  columns:
    - height
    - "tail length"
airflow:
  schedule: "0 2 * * *"
  timezone: America/Sao_Paulo
  start: 2026-01-05T00:00Z
  catchup: true
  notifiers:
    airflow.providers.smtp.notifications.smtp.SmtpNotifier:
      to: team@example.com
      subject: |
        {{ rtscv.subject }}
""",
)
WORDS = (
    *(b"model", b"source", b"name: ", b"path: ", b"timestamp: ", b"null", b"~", b"no", b"012"),
    *(b"1e999", b".nan", b"-.inf", b"0x1f", b"1_000", b"9" * 25, b"2026-13-45", b"1:60:60"),
    *(b"&a ", b"*a", b"<<: *late", b"!!python/object:os.system ", b"!!binary ", b"--- ", b"..."),
    *(b"{", b"}", b"[", b"]", b": ", b"- ", b"? ", b"|\n", b">-\n", b"'", b'"', b"\\", b"%YAML 9"),
    *(b"\t", b"\0", b"\r", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\\ud800", b"\\U0011ffff"),
    *(b"\xed\xa0\x80", "\u202e".encode(), "\u2028".encode(), b"[" * 40, b"a" * 5_000, b"../" * 9),
    *(b"https://user:secret@host/", b"sqlite:////etc/passwd", b"file:///etc/passwd", b"${HOME}"),
    *(b"{{ 7*7 }}", b"99999999w", b"0s", b"-1", b"latest", b"@", b"#", b"=", b"\n\n", b"\n  "),
)
BYTES = (
    *(b"\0", b"\xff", b"\x80", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\0\0\0\x80"),
    *(b"PAR1", b"PARE", b"\x1f\x8b\x08", b"\xef\xbb\xbf", b"\xff\xfe", b'"', b'""', b",", b";"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"NaN", b"nan", b"inf", b"1e999", b"-0", b"9" * 30, b"0x1"),
    *(b"2026-01-05", b"9999-12-31T23:59:59.999999999Z", b"0000-00-00", b"+25:99", b"\xe2\x80\xae"),
    *(b"served_at", b"amount", b",,,,,,,,", b"a" * 3_000, b"true", b"None", b"\xed\xa0\x80"),
)
COLUMNS = [
    Column("amount", "float"),
    Column("visits", "integer"),
    Column("country", "text"),
    Column("member", "boolean"),
    Column("since", "datetime", optional=True),
]
DAY = Interval.day("2026-01-05")


def run(quick: bool) -> Iterator[Tally]:
    """Fuzz the config parser, then the readers."""
    configs, files = (QUICK_CONFIGS, QUICK_FILES) if quick else (CONFIGS, FILES)
    yield _tally("a mutated monitor file: a monitor or our error, within memory and time", configs)
    yield _tally("a mutated Parquet, CSV or gzip file: read, or our error", files, "file")


def _tally(what: str, cases: int, kind: str = "config") -> Tally:
    hunt = Hunt(kind)
    batches = range(0, cases, BATCH)
    for first in track(batches, description=f"{kind}s"):
        hunt.cover(first, min(cases, first + BATCH))
    told = [f"{number}: {how}" for number, how in sorted(hunt.failures.items())]
    if told:
        told.append(f"inputs kept in {KEPT}")
    told.append(f"{hunt.taken:,} taken, {hunt.refused:,} refused; {NIGHTS}")
    return Tally("input", what, hunt.taken + hunt.refused + len(hunt.failures),
                 len(hunt.failures), "; ".join(told))  # fmt: skip


@dataclass
class Hunt:
    """What came of the cases of one kind so far; `failures` says how each went wrong."""

    kind: str
    taken: int = 0
    refused: int = 0
    failures: dict[int, str] = field(default_factory=dict)

    def cover(self, first: int, last: int) -> None:
        """Try every case of a range; a child that dies or hangs is followed by another one."""
        while first < last:
            first = self._child(first, last)

    def _child(self, first: int, last: int) -> int:
        """Let one child try cases; return the first that is left."""
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        ours, theirs = context.Pipe(duplex=False)
        with tempfile.TemporaryDirectory(prefix="rtscv-fuzz-") as folder:
            child = context.Process(target=try_cases, args=(self.kind, first, last, folder, theirs))
            child.start()
            theirs.close()
            try:
                return self._listen(ours, first, last)
            finally:
                child.kill()
                child.join()

    def _listen(self, child: Connection, first: int, last: int) -> int:
        number = first
        try:
            child.recv()  # it is ready
            for number in range(first, last):
                if not child.poll(PATIENCE):
                    return self._fail(number, f"took more than {PATIENCE:.0f} s") + 1
                self._note(number, child.recv())
        except EOFError:
            return self._fail(number, "ended the process") + 1
        return last

    def _note(self, number: int, how: str) -> None:
        self.taken += how == "taken"
        self.refused += how == "refused"
        if how not in ("taken", "refused"):
            self._fail(number, how)

    def _fail(self, number: int, how: str) -> int:
        self.failures[number] = how
        KEPT.mkdir(exist_ok=True)
        name, content = case_of(self.kind, number)
        (KEPT / f"{self.kind}-{number}-{name}").write_bytes(content)
        return number


def try_cases(kind: str, first: int, last: int, folder: str, parent: Connection) -> None:
    """Try cases in this process, with little memory left; tell the parent of each."""
    for name, content in good_inputs(kind):  # imports and caches are not the fault of a case
        ATTEMPTS[kind](Path(folder), name, content)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, hard))
    parent.send("ready")
    for number in range(first, last):
        parent.send(outcome_of(kind, number, Path(folder)))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def outcome_of(kind: str, number: int, folder: Path) -> str:
    """Try one case; return `taken`, `refused`, or what no input should lead to."""
    return judged(ATTEMPTS[kind], folder, *case_of(kind, number))


def judged(
    attempt: Callable[[Path, str, bytes], None], folder: Path, name: str, data: bytes
) -> str:
    """Return whether an input was taken or refused, or the name of an error that is not ours."""
    try:
        attempt(folder, name, data)
    except RtscvError as error:
        return "refused" if str(error).strip() else "an error without a sentence"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:120]}"
    return "taken"


def read_config(folder: Path, name: str, content: bytes) -> None:
    """Read a monitor."""
    path = folder / name
    path.write_bytes(content)
    load_monitor(path)


def read_file(folder: Path, name: str, content: bytes) -> None:
    """Look at a file, then read the window in it, whatever the first look said."""
    path = folder / name
    path.write_bytes(content)
    source = SourceSettings(
        path=str(path), timestamp="served_at", timezone="Europe/Zurich", key="request",
        label="class", max_bytes=100_000_000,
    )  # fmt: skip
    try:
        peek(source, COLUMNS)
    finally:
        read_window(source, DAY, COLUMNS, max_rows=100, seed=0)


ATTEMPTS = {"config": read_config, "file": read_file}


def case_of(kind: str, number: int) -> tuple[str, bytes]:
    """Make the input of a number: a file name and its bytes."""
    chance = random.Random(f"{kind} {number}")
    if kind == "config":
        return "a.yaml", mutated(chance, chance.choice(MONITORS), MONITORS, WORDS)
    name, content = chance.choice(good_files())
    if not name.endswith(".csv.gz"):
        others = tuple(other for known, other in good_files() if known == name)
        return name, mutated(chance, content, others, BYTES)
    if chance.random() < 0.5:  # broken as gzip, or whole and with broken text inside
        return name, mutated(chance, content, (content,), BYTES)
    return name, gzip.compress(mutated(chance, gzip.decompress(content), (content,), BYTES), 1)


def good_inputs(kind: str) -> tuple[tuple[str, bytes], ...]:
    """Return what the cases of a kind are mutants of."""
    return good_files() if kind == "file" else tuple(("a.yaml", text) for text in MONITORS)


def mutated(
    chance: random.Random, content: bytes, others: tuple[bytes, ...], words: tuple[bytes, ...]
) -> bytes:
    """Change some bytes: flip, put in, take out, repeat, cut, or splice with another input."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 8))):
        at = chance.randrange(len(changed) + 1)
        end = at + chance.choice((1, 1, 2, 4, 8, 40))
        chance.choice(CHANGES)(
            chance, changed, at, end, chance.choice((chance.choice(words), _part(chance, others)))
        )
    return bytes(changed)


def _part(chance: random.Random, others: tuple[bytes, ...]) -> bytes:
    other = chance.choice(others)
    start = chance.randrange(len(other) + 1)
    return other[start : start + chance.choice((4, 40, 400))]


def _set_byte(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    changed[at : at + 1] = bytes([chance.randrange(256)])


def _flip_bit(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    if at < len(changed):
        changed[at] ^= 1 << chance.randrange(8)


def _put_in(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    changed[at:at] = piece


def _replace(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    changed[at:end] = piece


def _take_out(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    del changed[at:end]


def _repeat(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    changed[at:at] = changed[at:end] * chance.choice((1, 2, 30))


def _cut(chance: random.Random, changed: bytearray, at: int, end: int, piece: bytes) -> None:
    if chance.random() < 0.3:
        del changed[at:]


CHANGES = (_set_byte, _flip_bit, _flip_bit, _put_in, _replace, _take_out, _repeat, _cut)


@cache
def good_files() -> tuple[tuple[str, bytes], ...]:
    """Small good files of every format, with values of every kind of column."""
    rows = pd.DataFrame(
        {
            "served_at": pd.date_range("2026-01-05", periods=12, freq="1h", tz="UTC"),
            "request": range(12),
            "amount": [0.5, -1.25, None, 1e300] * 3,
            "visits": [0, 7, 2**53 + 1] * 4,
            "country": ["CH", "NA", 'a "b", c', "line\nend"] * 3,
            "member": [True, False] * 6,
            "since": pd.Timestamp("2020-02-29"),
            "class": ["cat", "dog"] * 6,
        }
    )
    text = rows.to_csv(index=False).encode()
    local = rows.assign(served_at=rows["served_at"].dt.tz_localize(None))
    nested = {**rows.to_dict("list"), "more": [[1, 2]] * 12, "extra": [{"a": 1}] * 12}
    return (
        ("a.csv", text),
        ("a.csv", local.to_csv(index=False, lineterminator="\r\n").encode("utf-8-sig")),
        ("a.csv.gz", gzip.compress(text)),
        ("a.parquet", _parquet(pa.Table.from_pandas(rows))),
        ("a.parquet", _parquet(pa.Table.from_pandas(local), compression="zstd")),
        ("a.parquet", _parquet(pa.table(nested), compression="none", row_group_size=5)),
        (
            "a.parquet",
            _parquet(pa.Table.from_pandas(rows), write_page_checksum=True, use_dictionary=False),
        ),
    )


def _parquet(table: pa.Table, **how: object) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, **how)
    return stream.getvalue()

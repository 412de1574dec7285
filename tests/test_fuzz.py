"""A short run of the fuzzer, and every input that it has found.

`python -m benchmarks.faults fuzz` is the long run, with a cap on memory and on time.
"""

import base64
import faulthandler

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults import fuzz
from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import ConfigError, WindowError
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column

CASES = {"config": 500, "file": 250}


@pytest.mark.parametrize("kind", CASES)
def test_mutants_are_read_or_refused(kind):
    """Every mutant of a good input gives a result or an error of ours, in bounded memory."""
    hunt = fuzz.Hunt(kind)

    hunt.cover(0, CASES[kind])

    assert hunt.failures == {}
    assert hunt.taken + hunt.refused == CASES[kind]
    assert min(hunt.taken, hunt.refused) > CASES[kind] / 50


def test_the_fuzzer_notices(monkeypatch, tmp_path):
    """An error that is not ours is a failure, told by its name."""

    def break_down(*_):
        raise KeyError("surprise")

    monkeypatch.setitem(fuzz.ATTEMPTS, "config", break_down)

    assert fuzz.outcome_of("config", 0, tmp_path) == "KeyError: 'surprise'"


# What it has found


def test_a_mistake_of_the_whole_file_is_told(tmp_path):
    """A key that stands for the whole file left no place to mend, and an IndexError."""
    content = b"? name: digits}\nsource: {path: served/, time1:60:60stamp: served_at}\n"

    with pytest.raises(ConfigError, match="is not text"):
        fuzz.read_config(tmp_path, "a.yaml", content)


@pytest.mark.parametrize(
    ("good", "bad"), [(b"country", b"c\xc7untry"), (b"line\nend", b"line\n\xffnd")]
)
def test_parquet_text_that_is_none_is_refused(tmp_path, good, bad):
    """Names and values of Parquet that are not UTF-8 met pyarrow's errors and pandas'."""
    plain = fuzz.good_files()[5][1]
    assert good in plain

    with pytest.raises(WindowError, match="cannot be read as Parquet"):
        fuzz.read_file(tmp_path, "a.parquet", plain.replace(good, bad))


ENDLESS = base64.b64decode(
    """
    UEFSMRUEFRAVEEwVAhUAEgAAAGQRlJlHBgAVABUSFRIsFRgVEBUGFQYcGAgAZBGUmUcGABgIAGQRlJlHBgAWACgIAGQR
    lJlHBgAYCABkEZSZRwYAEREAAAACAAAAGAEBGAAVBBUgFSBMFQQVABIAAAAAAAAAAPA/AAAAAAAAAEAVABUUFRQsFRgV
    EBUGFQYcGAgAAAAAAAAAQBgIAAAAAAAA8D8WACgIAAAAAAAAAEAYCAAAAAAAAPA/EREAAAACAAAAGAEBBaoKFQQZPDUA
    GAZzY2hlbWEVBAAVBCUCGAlzZXJ2ZWRfYXQlFEyMERwsAAAAAAAVCiUCGAZhbW91bnQAFhgZHBksJgAcFQQZNQAGEBkY
    CXNlcnZlZF9hdBUAFhgWvAEWvAEmNCYIHBgIAGQRlJlHBgAYCABkEZSZRwYAFgAoCABkEZSZRwYAGAgAZBGUmUcGABER
    ABksFQQVABUCABUAFRAVAgA8CQYZJgAYAAAAJgAcFQoZNQAGEBkYBmFtb3VudBUAFhgWzgEWzgEmgAImxAEcGAgAAAAA
    AAAAQBgIAAAAAAAA8D8WACgIAAAAAAAAAEAYCAAAAAAAAPA/EREAGSwVBBUAFQIAFQAVEBUCADwpBhkmABgAAAAWigMW
    GCYIFooDACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNS4wLjEZLBwAABwAAABMAQAAUEFSMQ==
    """
)
"""One flipped bit in the description of `served_at`: pyarrow's filters wait without end at it, and
its statistics end the process."""


def read_all(source, columns):
    """Read the day's window."""
    return read_window(source, fuzz.DAY, columns, max_rows=9, seed=0)


@pytest.mark.parametrize("look", [read_all, peek])
def test_a_damaged_description_of_a_column_is_refused(tmp_path, look):
    """Neither a run nor `check` hangs or dies."""
    (tmp_path / "a.parquet").write_bytes(ENDLESS)
    source = SourceSettings(path=str(tmp_path / "a.parquet"), timestamp="served_at")
    columns = [Column("amount", "float")]

    faulthandler.dump_traceback_later(60, exit=True)  # nothing else ends such a wait
    try:
        with pytest.raises(WindowError, match="histogram size mismatch"):
            look(source, columns)
    finally:
        faulthandler.cancel_dump_traceback_later()


def test_years_that_python_lacks_do_not_stop_the_look(tmp_path):
    """`check` tells no first and last moment where one is beyond year 9999, and goes on."""
    times = pa.array([0, 10**15], pa.timestamp("ms"))
    pq.write_table(pa.table({"served_at": times, "amount": [0.5, 1.5]}), tmp_path / "a.parquet")
    source = SourceSettings(path=str(tmp_path), timestamp="served_at", timezone="UTC")

    seen = peek(source, [Column("amount", "float")])

    assert (seen.rows, seen.first, seen.last) == (2, None, None)

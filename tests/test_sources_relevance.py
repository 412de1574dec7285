"""A file that cannot be used matters only to the windows in which it has rows."""

import pandas as pd
import pyarrow.parquet as pq
import pytest

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
from tests.services import COLUMNS, traffic

BAD_DAY, DAYS = "2026-01-05", [f"2026-01-{day:02d}" for day in range(4, 8)]
FORMATS = ("csv", "parquet")


def write(rows: pd.DataFrame, path) -> None:
    """Write rows in the format that the name says."""
    rows.to_csv(path, index=False) if path.suffix == ".csv" else rows.to_parquet(path)


def lacking_a_column(rows, path):
    write(rows.drop(columns="amount"), path)


def with_words_for_numbers(rows, path):
    write(rows.assign(amount=[*rows["amount"].astype(str)[:-1], "n/a"]), path)


def with_a_doubled_column(rows, path):
    doubled = rows.assign(more=1).rename(columns={"more": "amount"})
    doubled.to_csv(path, index=False)


def with_damaged_pages(rows, path):
    rows.to_parquet(path, compression="none")
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(rows.columns.get_loc("amount"))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)


FAULTS = [
    pytest.param(spoil, suffix, message, id=f"{suffix}-{spoil.__name__}")
    for spoil, suffix, message in [
        (lacking_a_column, "csv", "lacks 1 column .*'amount'"),
        (lacking_a_column, "parquet", "lacks 1 column .*'amount'"),
        (with_words_for_numbers, "csv", "'amount' .*should hold numbers.*'n/a'"),
        (with_words_for_numbers, "parquet", "'amount' .*(should hold numbers.*'n/a'|holds text)"),
        (with_a_doubled_column, "csv", "more than one column called 'amount'"),
        (with_damaged_pages, "parquet", "cannot be read as Parquet"),
    ]
]


def serve(folder, suffix, spoil=None) -> None:
    """Write a file per day; that of the bad day is spoiled."""
    for number, day in enumerate(DAYS):
        path, rows = folder / f"{day}.{suffix}", traffic(20 + number, day)
        (spoil if spoil and day == BAD_DAY else write)(rows, path)


def read(folder, day, columns=COLUMNS, **settings):
    """Read the window of a day."""
    source = SourceSettings(path=str(folder), timestamp="served_at", **settings)
    return read_window(source, Interval.day(day), columns, max_rows=1_000, seed=0)


@pytest.mark.parametrize(("spoil", "suffix", "message"), FAULTS)
def test_other_days_are_read(tmp_path, spoil, suffix, message):
    """Windows before and after a bad file are as if it were not there; they name what they saw."""
    serve(tmp_path, suffix, spoil)

    for day in ("2026-01-04", "2026-01-06", "2026-01-07"):
        window = read(tmp_path, day)

        assert window.digest == read(tmp_path / f"{day}.{suffix}", day).digest
        told = [words for words in window.findings if words.startswith("Ignored 1 unusable file")]
        assert all(f"'{BAD_DAY}.{suffix}'" in words for words in told)
        assert told or spoil in (with_words_for_numbers, with_damaged_pages)


@pytest.mark.parametrize(("spoil", "suffix", "message"), FAULTS)
def test_the_bad_day_is_an_error(tmp_path, spoil, suffix, message):
    """A bad file with rows in the window stops it, and skipping its only file is no quiet day."""
    serve(tmp_path, suffix, spoil)

    with pytest.raises(WindowError, match=f"(?s){message}"):
        read(tmp_path, BAD_DAY)
    with pytest.raises(WindowError, match=f"(?s)No file can be read, of 1 .*{message}"):
        read(tmp_path, BAD_DAY, on_bad_file="skip")


@pytest.mark.parametrize(("spoil", "suffix", "message"), FAULTS)
def test_any_bad_file_can_be_skipped(tmp_path, spoil, suffix, message):
    """Asked to skip, a window goes on with its other files, and tells the list and the share."""
    serve(tmp_path, suffix, spoil)
    write(traffic(30, BAD_DAY), tmp_path / f"again.{suffix}")
    write(traffic(31, BAD_DAY), tmp_path / f"0.{suffix}")

    with pytest.raises(WindowError, match=f"(?s){message}"):
        read(tmp_path, BAD_DAY)
    window = read(tmp_path, BAD_DAY, on_bad_file="skip")

    assert window.rows == 61
    told = f"Skipped 1 file of 6 (17%) that cannot be read: '{BAD_DAY}.{suffix}'."
    assert told in window.findings


@pytest.mark.parametrize("suffix", FORMATS)
def test_in_doubt_a_bad_file_matters(tmp_path, suffix):
    """A bad file whose timestamps cannot all be read may have rows of any window."""
    serve(tmp_path, suffix)
    rows = traffic(20, BAD_DAY).drop(columns="amount")
    rows["served_at"] = [*rows["served_at"].astype(str)[:-1], "yesterday"]
    write(rows, tmp_path / f"{BAD_DAY}.{suffix}")

    with pytest.raises(WindowError, match=r"lacks 1 column"):
        read(tmp_path, "2026-01-07")
    assert read(tmp_path, "2026-01-07", on_bad_file="skip").rows == 23


@pytest.mark.parametrize("suffix", FORMATS)
def test_bad_values_outside_the_window_do_not_matter(tmp_path, suffix):
    """Only rows inside are turned to the model's types, in the same file too."""
    good, bad = traffic(20, "2026-01-06"), traffic(20, BAD_DAY)
    rows = pd.concat([bad.assign(amount="n/a"), good.astype({"amount": str})])
    write(rows, tmp_path / f"all.{suffix}")

    assert sorted(read(tmp_path, "2026-01-06").sample["amount"]) == sorted(good["amount"])
    with pytest.raises(WindowError, match="'n/a'"):
        read(tmp_path, BAD_DAY)


def test_a_file_without_rows_in_the_window_is_no_yardstick(tmp_path):
    """Files are compared with the first one that has rows in the window, not with older ones."""
    with_words_for_numbers(traffic(20, "2026-01-01"), tmp_path / "0.parquet")
    serve(tmp_path, "parquet")

    assert read(tmp_path, "2026-01-06").rows == 22


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_no_file_has_is_an_error_in_every_window(tmp_path, suffix):
    """A column that all files lack is not mistaken for a day without rows."""
    serve(tmp_path, suffix)

    with pytest.raises(WindowError, match=r"lacks 1 column .*'absent'"):
        read(tmp_path, "2026-02-01", [Column("absent", "float")])


def test_rows_of_a_skipped_file_are_not_told_of(tmp_path):
    """What was odd about a file that is left out is no oddity of the window."""
    rows = traffic(20, BAD_DAY)
    rows.to_csv(tmp_path / "a.csv", index=False)
    bad = rows.assign(served_at=[None, *rows["served_at"][1:]], amount="n/a")
    bad.to_csv(tmp_path / "b.csv", index=False)

    window = read(tmp_path, BAD_DAY, on_bad_file="skip")

    assert window.rows == 20
    assert not any("without a timestamp" in words for words in window.findings)


@pytest.mark.parametrize(
    ("spoil", "suffix", "message"),
    [
        (lacking_a_column, "csv", "lacks 1 column that the monitor needs: 'amount'"),
        (lacking_a_column, "parquet", "lacks 1 column that the monitor needs: 'amount'"),
        (with_words_for_numbers, "parquet", "'amount' holds text, not numbers"),
        (with_a_doubled_column, "csv", "more than one column called 'amount'"),
    ],
)
def test_a_look_names_files_that_cannot_be_used(tmp_path, spoil, suffix, message):
    """What the header or footer of an older file tells is a finding with the file and the fault."""
    serve(tmp_path, suffix, spoil)

    (told,) = peek(SourceSettings(path=str(tmp_path), timestamp="served_at"), COLUMNS).findings

    assert told.startswith(f"'{BAD_DAY}.{suffix}' cannot be used: ")
    assert message in told


def test_a_look_refuses_a_newest_file_that_cannot_be_used(tmp_path):
    """The next window would need it."""
    serve(tmp_path, "csv")
    lacking_a_column(traffic(20, "2026-01-08"), tmp_path / "2026-01-08.csv")

    with pytest.raises(WindowError, match=r"2026-01-08.csv lacks 1 column .*'amount'"):
        peek(SourceSettings(path=str(tmp_path), timestamp="served_at"), COLUMNS)


def test_a_look_survives_a_broken_old_file(tmp_path):
    """Rows are then estimated from the files that can be read."""
    serve(tmp_path, "parquet", lambda rows, path: path.write_bytes(b""))

    seen = peek(SourceSettings(path=str(tmp_path), timestamp="served_at"), COLUMNS)

    assert "2026-01-05.parquet has 0 bytes" in seen.findings[0]
    assert (seen.rows, seen.exact) == (20 + 22 + 23, False)


def test_partition_keys_are_no_extra_columns(tmp_path):
    """The name of a folder is not told as a column that was ignored."""
    (tmp_path / f"day={BAD_DAY}").mkdir()
    names = ["served_at", *(column.name for column in COLUMNS)]
    write(traffic(20, BAD_DAY)[names], tmp_path / f"day={BAD_DAY}" / "a.parquet")

    assert read(tmp_path, BAD_DAY).findings == ()

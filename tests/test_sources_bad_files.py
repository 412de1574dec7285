"""Files that cannot be trusted: each kind has an outcome that names the file and the remedy."""

import gzip
import os
import time
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import ConfigError, NotAssessed, ServiceError, WindowError
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column
from tests.services import DAY, traffic

COLUMNS = [Column("amount", "float"), Column("country", "text")]
HEADER = "served_at,amount,country\n"
ROW = "2026-01-05T00:00:00Z,1.5,CH\n"


def read(path, columns=COLUMNS, *, progress=None, **settings):
    """Read the window of `DAY` from a path."""
    source = SourceSettings(path=str(path), timestamp="served_at", **settings)
    return read_window(source, DAY, columns, max_rows=1_000, seed=0, progress=progress)


def settled(path):
    """The path of a file that nobody has written to for a day."""
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def parquet_bytes(tmp_path) -> bytes:
    traffic().to_parquet(tmp_path / "whole.tmp")
    return (tmp_path / "whole.tmp").read_bytes()


BAD_CSV = {
    "0 bytes": (b"", "0 bytes"),
    "row longer than the header": (HEADER + ROW + ROW[:-1] + ",x\n", "Row 3 of .* has 4 fields"),
    "row shorter than the header": (HEADER + ROW + "2026-01-05,1\n", "Row 3 of .* has 2 fields"),
    "latin-1": ((HEADER + ROW).encode() + ROW.replace("CH", "Zürich").encode("latin-1"), "byte 79"),
    "utf-16": ((HEADER + ROW).encode("utf-16"), "byte 0 .*looks like UTF-16.*`csv.encoding:`"),
    "utf-16 without mark": ((HEADER + ROW).encode("utf-16-le"), "NUL bytes"),
    "NUL bytes": (HEADER + ROW.replace("CH", "C\0H"), "NUL bytes"),
    "unclosed quote, row too short": (
        HEADER + ROW.replace("1.5", '"1.5') + ROW,
        "has 2 fields|quote",
    ),
    "unclosed quote in the last field": (HEADER + ROW.replace("CH", '"CH') + ROW, "never closed"),
    "several gzip members": (gzip.compress((HEADER + ROW).encode()) * 2, "several gzip members"),
    "gzip cut short": (gzip.compress((HEADER + ROW * 999).encode())[:-20], "cut short"),
    "gzip damaged": (gzip.compress((HEADER + ROW).encode())[:10] + b"\xff" * 40, "damaged gzip"),
    "a line without end": (HEADER + "x" * 9_000_000, "not valid CSV|has 1 fields"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_is_refused(tmp_path, case):
    """A CSV file that cannot be read whole is refused by name, with the place of the fault."""
    content, message = BAD_CSV[case]
    file = tmp_path / "served.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(WindowError, match=f"(?s){message}") as refusal:
        read(file)

    assert "served.csv" in str(refusal.value)
    assert refusal.value.code == "bad_file"


BAD_COLUMNS = {
    "semicolons": (
        HEADER.replace(",", ";") + ROW.replace(",", ";"),
        "delimiter ';'.*csv.delimiter",
    ),
    "no header": (ROW * 3, "first line reads '2026-01-05T00:00:00Z,1.5,CH'; if that is data"),
    "duplicate names": (
        "served_at,amount,amount,country\n",
        "more than one column called 'amount'",
    ),
    "an index of pandas": ("," + HEADER + "0," + ROW, "Column 1 of .* has no name.*index=False"),
    "other case": (HEADER.replace("amount", "Amount "), "'Amount ' looks like 'amount'"),
    "misspelt": (HEADER.replace("amount", "ammount"), "'ammount' looks like 'amount'"),
    "missing": ("served_at\n", "lacks 2 columns that the monitor needs: 'amount', 'country'"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_columns_that_are_not_there_are_named(tmp_path, case):
    """A missing, doubled or nameless column is an error that offers the nearest name."""
    content, message = BAD_COLUMNS[case]
    (tmp_path / "served.csv").write_text(content)

    with pytest.raises(WindowError, match=f"(?s){message}"):
        read(tmp_path / "served.csv")


GOOD_CSV = {
    "byte order mark": (HEADER + ROW, {"encoding": "utf-8"}, "utf-8-sig"),
    "latin-1, declared": (HEADER + ROW.replace("CH", "Zürich"), {"encoding": "latin-1"}, "latin-1"),
    "utf-16, declared": (HEADER + ROW, {"encoding": "utf-16"}, "utf-16"),
    "quoted line end": (HEADER + ROW.replace("CH", '"C\nH"'), {}, "utf-8"),
    "windows line ends": ((HEADER + ROW).replace("\n", "\r\n"), {}, "utf-8"),
    "no line end at the end": ((HEADER + ROW)[:-1], {}, "utf-8"),
    "tabs": ((HEADER + ROW).replace(",", "\t"), {"delimiter": "\t"}, "utf-8"),
    "declared gap": (HEADER + ROW.replace("1.5", "n/a"), {"null_values": ["", "n/a"]}, "utf-8"),
}


@pytest.mark.parametrize("case", GOOD_CSV)
def test_odd_but_clear_csv_is_read(tmp_path, case):
    """What has one meaning is read without a word."""
    content, settings, encoding = GOOD_CSV[case]
    (tmp_path / "served.csv").write_bytes(content.encode(encoding))

    window = read(tmp_path / "served.csv", csv=settings)

    assert window.rows == 1
    assert window.sample["country"][0] in {"CH", "Zürich", "C\nH"}
    assert window.findings == ()


def bad_parquet(tmp_path, case) -> bytes:
    whole = parquet_bytes(tmp_path)
    damage = whole[: len(whole) // 3] + b"\xff" * 64 + whole[len(whole) // 3 + 64 :]
    return {
        "0 bytes": b"",
        "cut short": whole[:-100],
        "CSV by another name": (HEADER + ROW).encode(),
        "something else": b"\x89PNG" + whole,
        "encrypted": b"PARE" + whole[4:-4] + b"PARE",
        "damaged footer": whole[:-60] + b"\xff" * 52 + whole[-8:],
        "damaged pages": damage,
    }[case]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("0 bytes", "served.parquet has 0 bytes"),
        ("cut short", "served.parquet is cut short"),
        ("CSV by another name", "served.parquet is not Parquet: it looks like CSV"),
        ("something else", "served.parquet is not Parquet: it is something else"),
        ("encrypted", "served.parquet is encrypted"),
        ("damaged footer", "served.parquet cannot be read as Parquet"),
        ("damaged pages", "served.parquet cannot be read as Parquet"),
    ],
)
def test_bad_parquet_is_refused(tmp_path, case, message):
    """A Parquet file that cannot be decoded is refused by name."""
    file = tmp_path / "served.parquet"
    file.write_bytes(bad_parquet(tmp_path, case))

    with pytest.raises(WindowError, match=message) as refusal:
        read(settled(file))

    assert refusal.value.code == "bad_file"


def test_an_upload_that_runs_is_waited_for(tmp_path):
    """A file that ends too early and was just written to may be whole on the next try."""
    path = tmp_path / "served.parquet"
    path.write_bytes(bad_parquet(tmp_path, "cut short"))
    os.utime(path, (time.time(), time.time()))  # the disk's clock may be another than ours

    with pytest.raises(ServiceError, match="upload seems to be running"):
        read(path)


def test_a_flipped_bit_is_seen_where_pages_have_checksums(tmp_path):
    """Parquet changes values silently otherwise; writers that store checksums are heeded."""
    rows = pa.Table.from_pandas(traffic(5_000, every="1s"), preserve_index=False)
    path = tmp_path / "served.parquet"
    pq.write_table(rows, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    value = rows["amount"][2_500].as_py()
    at = content.index(memoryview(pa.array([value]).buffers()[1])[:8].tobytes())
    content[at] ^= 1
    path.write_bytes(content)

    with pytest.raises(WindowError, match=r"cannot be read as Parquet .*CRC"):
        read(path)


def test_nothing_matches(tmp_path):
    """A pattern, folder or file without data is an outcome that names it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "_temporary").mkdir()
    traffic(3).to_parquet(tmp_path / "_temporary" / "a.parquet")
    traffic(3).to_parquet(tmp_path / "_temporary" / ".hidden.parquet")

    for name in ("*.parquet", "empty", "absent.parquet", "absent/*.csv", ""):
        with pytest.raises(NotAssessed, match=f"{tmp_path}/{name}".replace("*", r"\*")) as outcome:
            read(f"{tmp_path}/{name}")
        assert outcome.value.code == "no_input"


def test_hidden_files_and_strangers_are_ignored(tmp_path):
    """What writers and people leave beside data is not read; strangers are told of."""
    traffic(3).to_parquet(tmp_path / "a.parquet")
    traffic(9).to_parquet(tmp_path / "_metadata.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".a.parquet.crc").write_text("x")
    (tmp_path / "README.md").write_text("x")

    window = read(tmp_path)

    assert window.rows == 3
    assert window.findings[0] == "Ignored 1 file, neither Parquet nor CSV: 'README.md'."


def test_one_bad_file_among_many_stops_the_run_by_default(tmp_path):
    """Nothing is left out unless that was asked for; then the list and the share are told."""
    for part in range(4):
        traffic(10 + part).to_parquet(tmp_path / f"{part}.parquet")
    (tmp_path / "2.parquet").write_bytes(b"")
    damaged = bytearray((tmp_path / "3.parquet").read_bytes())
    damaged[4:200] = b"\xff" * 196
    (tmp_path / "3.parquet").write_bytes(damaged)

    with pytest.raises(WindowError, match=r"2.parquet has 0 bytes"):
        read(tmp_path)
    window = read(tmp_path, on_bad_file="skip")

    assert window.rows == 10 + 11
    told = "Skipped 2 files of 4 (50%) that cannot be read: '2.parquet', '3.parquet'."
    assert window.findings[0] == told


def test_rows_of_a_skipped_file_leave_no_trace(tmp_path):
    """A file that breaks after its first batch counts as if it had never been there."""
    (tmp_path / "a.csv").write_text(HEADER + ROW)
    (tmp_path / "b.csv").write_text(HEADER + ROW.replace("1.5", "7") * 400_000 + "broken\n")

    window = read(tmp_path, on_bad_file="skip")
    alone = read(tmp_path / "a.csv")

    assert (window.rows, window.digest) == (1, alone.digest)


def test_only_bad_files_are_an_error_even_if_skipped(tmp_path):
    """Skipping everything would look like a quiet day."""
    (tmp_path / "a.parquet").write_bytes(b"")

    with pytest.raises(WindowError, match="No file can be read, of 1"):
        read(tmp_path, on_bad_file="skip")


def test_repeated_files_are_counted_once(tmp_path):
    """The same bytes under two names are one delivery; equal size alone is not enough."""
    traffic(10).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "again.csv").write_bytes((tmp_path / "a.csv").read_bytes())
    same_size = (tmp_path / "a.csv").read_bytes().replace(b"2026-01-05", b"2026-01-06")
    (tmp_path / "next_day.csv").write_bytes(same_size)

    window = read(tmp_path)

    assert window.rows == 10
    told = "Left out 1 file, the same byte for byte as another: 'again.csv'."
    assert window.findings[0] == told


def test_the_same_bytes_in_two_partitions_are_two_deliveries(tmp_path):
    """Where the folder's name is part of the rows, equal files hold different rows."""
    for shop in "ab":
        (tmp_path / f"shop={shop}").mkdir()
        traffic(10).to_parquet(tmp_path / f"shop={shop}" / "a.parquet")

    assert read(tmp_path).rows == 20


def test_schemas_that_differ_are_shown(tmp_path):
    """Files that mean different things by a name are refused with the difference."""
    traffic(10).to_parquet(tmp_path / "a.parquet")
    other = traffic(11).drop(columns="country").assign(amount="1.5")
    other.to_parquet(tmp_path / "b.parquet")

    with pytest.raises(WindowError, match=r"b.parquet lacks 1 column.*'country'"):
        read(tmp_path)
    with pytest.raises(WindowError, match=r"b.parquet does not match .*a.parquet.*holds text, not"):
        read(tmp_path, COLUMNS[:1])


def test_order_and_width_of_columns_may_differ(tmp_path):
    """Whole numbers in one file and fractions in the next are the same column of numbers."""
    traffic(10).to_parquet(tmp_path / "a.parquet")
    narrow = traffic(11).assign(amount=1)
    narrow[narrow.columns[::-1]].astype({"amount": "int32"}).to_parquet(tmp_path / "b.parquet")
    empty = pd.DataFrame(traffic(12).assign(amount=None))
    empty.to_parquet(tmp_path / "c.parquet")

    assert read(tmp_path).rows == 33


def test_a_file_that_changes_while_it_is_read(tmp_path):
    """Rows of two states are not judged; the next try may find one state."""
    traffic(10).to_parquet(tmp_path / "a.parquet")

    with pytest.raises(ServiceError, match="changed while it was read"):
        read(tmp_path, progress=lambda _: traffic(11).to_parquet(tmp_path / "a.parquet"))


def test_bombs_meet_the_cap(tmp_path):
    """A small file that unpacks to more than the cap is refused before memory is full."""
    rows = pa.table(
        {
            "served_at": pa.array([DAY.start] * 300_000, pa.timestamp("us", "UTC")),
            "amount": pa.array([1.0] * 300_000),
            "country": pa.array(["x" * 100] * 300_000),
        }
    )
    pq.write_table(rows, tmp_path / "bomb.parquet")
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress((HEADER + ROW * 300_000).encode()))

    for name in ("bomb.parquet", "bomb.csv.gz"):
        assert (tmp_path / name).stat().st_size < 100_000
        with pytest.raises(WindowError, match="more than 1,000,000 bytes") as refusal:
            read(tmp_path / name, max_bytes=1_000_000)
        assert refusal.value.code == "size_cap"


def test_archives_are_refused(tmp_path):
    """An archive may hold anything; it is not opened."""
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("a.csv", HEADER + ROW)

    with pytest.raises(WindowError, match="is an archive"):
        read(tmp_path)


def test_links_that_lead_out_of_the_folder_are_refused(tmp_path):
    """Data must not choose what else is read; a link that the monitor itself names is fine."""
    (tmp_path / "inside").mkdir()
    traffic(3).to_parquet(tmp_path / "secret.parquet")
    (tmp_path / "inside" / "a.parquet").symlink_to(tmp_path / "secret.parquet")

    for path in ("inside", "inside/*.parquet"):
        with pytest.raises(WindowError, match=r"Links below .* lead out") as refusal:
            read(tmp_path / path)
        assert refusal.value.code == "outside_root"
    assert read(tmp_path / "inside" / "a.parquet").rows == 3


TABLES = {
    "Delta Lake": ("orders/part-0.parquet", "orders/_delta_log/00000000000000000000.json"),
    "Apache Iceberg": ("orders/data/a.parquet", "orders/metadata/00000-9f2c.metadata.json"),
    "Apache Hudi": ("orders/day=2026-01-05/a.parquet", "orders/.hoodie/hoodie.properties"),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "path", ["", "orders", "orders/", "{file}", "{folder}", "{folder}/*.parquet", "**/*.parquet"]
)
def test_the_files_of_a_table_are_not_read_as_loose_files(tmp_path, kind, path):
    """Only a table's log says which rows exist, so no path into or around a table is read."""
    file, log = TABLES[kind]
    for name in (file, log, "others/a.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    traffic().to_parquet(tmp_path / file)
    traffic().to_parquet(tmp_path / "others/a.parquet")
    (tmp_path / log).write_text("{}")

    with pytest.raises(WindowError, match=f"orders is a table of {kind}, .*snapshot") as refusal:
        read(f"{tmp_path}/{path.format(file=file, folder=os.path.dirname(file))}")

    assert refusal.value.code == "table_format"
    assert read(tmp_path / "others").rows == 300


def test_a_link_into_a_table_is_not_read(tmp_path):
    """A link does not hide that files belong to a table."""
    (tmp_path / "orders/_delta_log").mkdir(parents=True)
    (tmp_path / "orders/day=2026-01-05").mkdir()
    traffic().to_parquet(tmp_path / "orders/day=2026-01-05/a.parquet")
    (tmp_path / "today").symlink_to(tmp_path / "orders/day=2026-01-05")

    with pytest.raises(WindowError, match="orders is a table of Delta Lake"):
        read(tmp_path / "today")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("http://169.254.169.254/latest", "has an unsupported scheme"),
        ("simplecache::s3://served/a.parquet", "has an unsupported scheme"),
        ("zip://a.csv", "has an unsupported scheme"),
        ("ftp://host/a.csv", "has an unsupported scheme"),
    ],
)
def test_addresses_of_other_kinds_are_refused(path, message):
    """A fixed list of stores: nothing else in the network can be reached through a path."""
    with pytest.raises(ConfigError, match=message):
        read(path)


def test_a_name_that_does_not_tell_the_format(tmp_path):
    """A single file of unknown ending needs `format:`, and is read with it."""
    traffic(3).to_parquet(tmp_path / "data")

    with pytest.raises(ConfigError, match="set `format:`"):
        read(tmp_path / "data")
    assert read(tmp_path / "data", format="parquet").rows == 3


def test_two_formats_in_one_folder(tmp_path):
    """The same rows may be there twice, so the path must be narrowed to one format."""
    traffic(3).to_parquet(tmp_path / "a.parquet")
    traffic(3).to_csv(tmp_path / "a.csv", index=False)

    with pytest.raises(WindowError, match="several formats: Parquet and CSV"):
        read(tmp_path)


def test_duplicate_names_in_parquet(tmp_path):
    """Two columns of one name are refused, since nobody can say which is meant."""
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["amount", "amount"])
    pq.write_table(table, tmp_path / "a.parquet")

    with pytest.raises(WindowError, match="more than one column called 'amount'"):
        read(tmp_path)


def test_names_of_any_length_are_shown_shortened(tmp_path):
    """A hostile column name neither breaks reading nor floods a message."""
    name = "<script>\n\"'😀" + "x" * 10_000
    traffic(3).assign(**{name: 1.5}).to_parquet(tmp_path / "a.parquet")

    assert read(tmp_path, [Column(name, "float")]).sample[name].tolist() == [1.5] * 3
    with pytest.raises(WindowError, match="lacks 1 column") as refusal:
        read(tmp_path, [Column("absent", "float")])
    assert len(str(refusal.value)) < 600

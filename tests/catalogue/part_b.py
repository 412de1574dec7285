"""Rows 16 to 39: files, object stores and databases."""

import gzip
import os
import sqlite3
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rtscv_mlops.errors import ServiceError
from rtscv_mlops.pipeline.stages import take_window
from tests.catalogue.bench import DAY, Bench, Part, error_of, traffic

PART = Part()


def csv(rows: int = 60) -> str:
    return traffic(rows).to_csv(index=False)


def put_csv(text: str | bytes, file: str = "a.csv"):
    """Put a CSV file there."""
    return lambda bench: bench.put(text, file)


def parquet(bench: Bench) -> bytes:
    return bench.put(traffic()).read_bytes()


def settle(bench: Bench, file: str = "a.parquet") -> None:
    """Let a file look as if nobody had written to it for an hour."""
    an_hour_ago = time.time() - 3_600
    os.utime(bench.source / file, (an_hour_ago, an_hour_ago))


# Not tried again by us: a folder may be empty for good. The same window can be run later.
PART.refused(
    16,
    "no-file",
    lambda bench: bench.source,
    "no_input",
    r"No Parquet or CSV file matches .*windows",
)


@PART.row(16, "glob-without-match")
def glob_without_match(bench):
    bench.put(traffic())
    pattern = str(bench.source / "*.pq")
    bench.refused("no_input", r"matches .*windows/\*\.pq", source={"path": pattern})


@PART.row(16, "no-folder")
def no_folder(bench):
    bench.refused("no_input", "nothing at .*absent", source={"path": str(bench.folder / "absent")})


for file in ("a.parquet", "a.csv"):
    PART.refused(
        17, f"no-bytes-{file[2:]}", put_csv(b"", file), "bad_file", rf"{file} has 0 bytes. Write it"
    )


@PART.row(18, "upload-still-running")
def upload_still_running(bench):
    bench.put(parquet(bench)[:-100])
    # The disk's clock may be another than ours.
    os.utime(bench.source / "a.parquet", (time.time(), time.time()))
    bench.retried("file_changed", r"a\.parquet ends too early.* Try again later")


@PART.row(18, "cut-short")
def cut_short(bench):
    bench.put(parquet(bench)[:-100])
    settle(bench)
    bench.refused("bad_file", r"a\.parquet is cut short.* Write it again")


PART.refused(
    19,
    "csv-called-parquet",
    put_csv(csv(), "a.parquet"),
    "bad_file",
    r"a\.parquet is not Parquet: it looks like CSV. Rename it or set `format:`",
)


def flipped(bench: Bench, **options: Any) -> None:
    """Put a Parquet file there in which one bit of one value is another."""
    path = bench.source / "a.parquet"
    table = pa.Table.from_pandas(traffic(), preserve_index=False)
    pq.write_table(table, path, compression="none", use_dictionary=False, **options)
    value = np.float64(traffic()["height"][30]).tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(value)] ^= 1
    path.write_bytes(content)


PART.refused(
    20,
    "flipped-bit-with-checksum",
    lambda bench: flipped(bench, write_page_checksum=True),
    "bad_file",
    r"a\.parquet cannot be read as Parquet .*checksum.* write it again",
)


@PART.row(20, "flipped-bit-without-checksum")
def flipped_bit_without_checksum(bench):
    # Not warned about: nearly all Parquet files lack checksums, and a warning that is always there
    # is not read. What is left is that other rows are another digest, hence another result.
    bench.put(traffic())
    before = bench.taken()
    flipped(bench)
    assert bench.taken().window.digest != before.window.digest


@PART.row(21, "file-changes-while-read")
def file_changes_while_read(bench):
    bench.put(traffic())
    bench.retried(
        "file_changed",
        r"a\.parquet changed while it was read.* Try again",
        tell=lambda stage: bench.put(traffic(70)) if "rows read" in stage else None,
    )


def one_bad_of_fifty(bench: Bench) -> None:
    for number in range(49):
        bench.put(traffic(2, seed=number), f"{number:02}.parquet")
    bench.put(b"PAR1 nothing PAR1", "49.parquet")


PART.refused(
    22, "one-bad-of-fifty", one_bad_of_fifty, "bad_file", r"49\.parquet cannot be read as Parquet"
)
PART.taken(
    22,
    "one-bad-of-fifty-skipped",
    one_bad_of_fifty,
    r"Skipped 1 file of 50 \(2%\) that cannot be read: '49\.parquet'",
    rows=98,
    source={"on_bad_file": "skip"},
)


def parquet_bomb(bench: Bench) -> None:
    rows = traffic(1).iloc[np.zeros(100_000, dtype=int)]
    assert bench.put(rows).stat().st_size < 50_000


def csv_bomb(bench: Bench) -> None:
    line = csv(1).splitlines()[1]
    bench.put(gzip.compress((csv(1) + f"{line}\n" * 50_000).encode()), "a.csv.gz")


for name, bomb in (("parquet-bomb", parquet_bomb), ("csv-bomb", csv_bomb)):
    PART.refused(
        23,
        name,
        bomb,
        "size_cap",
        "more than 1,000,000 bytes.* raise `max_bytes:`; otherwise look for a damaged or hostile",
        source={"max_bytes": 1_000_000},
    )


def archive(bench: Bench) -> None:
    with zipfile.ZipFile(bench.source / "a.csv.zip", "w") as file:
        file.writestr("a.csv", csv())
        file.writestr("b.csv", csv())


PART.refused(24, "zip", archive, "bad_file", r"a\.csv\.zip is an archive.*Unpack it")
PART.refused(
    24,
    "gzip-of-many-members",
    lambda bench: bench.put(gzip.compress(csv().encode()) * 2, "a.csv.gz"),
    "bad_file",
    r"a\.csv\.gz has several gzip members.* Compress each file by itself",
)
PART.refused(
    24,
    "nested-gzip",
    lambda bench: bench.put(gzip.compress(gzip.compress(csv().encode())), "a.csv.gz"),
    "bad_file",
    r"a\.csv\.gz .*(encoding|UTF-8|utf-8)",
)


def two_files(second: pd.DataFrame):
    def put(bench: Bench) -> None:
        bench.put(traffic(30))
        bench.put(second, "b.parquet")

    return put


PART.refused(
    25,
    "schemas-differ",
    two_files(traffic(30, seed=2).astype({"visits": str})),
    "mixed_schemas",
    r"b\.parquet does not match .*a\.parquet.*'visits' holds text, not numbers.* same way",
)
PART.taken(25, "other-order", two_files(traffic(30, seed=2).iloc[:, ::-1]))
PART.taken(
    26,
    "repeated-file",
    lambda bench: [bench.put(traffic(), file) for file in ("a.parquet", "b.parquet")],
    r"Left out 1 file, the same byte for byte as another: 'b\.parquet'",
)


def in_encoding(encoding: str) -> bytes:
    return traffic().assign(country="Zürich").to_csv(index=False).encode(encoding)


PART.refused(
    27,
    "latin-1",
    put_csv(in_encoding("latin-1")),
    "bad_file",
    r"a\.csv is not utf-8: byte \d+ cannot be read.* Set `csv\.encoding:`, such as latin-1",
)
PART.refused(
    27, "utf-16", put_csv(in_encoding("utf-16")), "bad_file", r"a\.csv .*byte 0 .*UTF-16\. Set"
)
PART.taken(
    27,
    "latin-1-declared",
    put_csv(in_encoding("latin-1")),
    source={"csv": {"encoding": "latin-1"}},
)
PART.taken(28, "byte-order-mark", put_csv(in_encoding("utf-8-sig")))
PART.refused(
    29,
    "semicolons",
    put_csv(traffic().to_csv(index=False, sep=";", decimal=",")),
    "missing_columns",
    r"a\.csv lacks .*is the delimiter ';'\? Set `csv\.delimiter:`",
)
PART.refused(
    29,
    "decimal-commas",
    put_csv(traffic().to_csv(index=False, sep=";", decimal=",")),
    "bad_values",
    r"'height' of the file .*a\.csv should hold numbers.*decimal comma is `csv\.decimal:`",
    source={"csv": {"delimiter": ";"}},
)
PART.taken(
    29,
    "semicolons-and-commas-declared",
    put_csv(traffic().to_csv(index=False, sep=";", decimal=",")),
    source={"csv": {"delimiter": ";", "decimal": ","}},
)


def with_line(line: str) -> str:
    """Sixty-one lines, of which the eleventh is this one."""
    lines = csv().splitlines(keepends=True)
    return "".join([*lines[:10], line + "\n", *lines[10:]])


WHEN = "2026-01-05T10:00:00+00:00"
LINES = {
    30: ("row-too-long", f"{WHEN},1,2,3,True,CH,odd", r"Row 11 of .*a\.csv has 7 fields .* 6"),
    31: ("row-too-short", f"{WHEN},1,2", r"Row 11 of .*a\.csv has 3 fields .* 6"),
    33: ("nul-bytes", f"{WHEN},1,2,3,True,C\0H", r"a\.csv has NUL bytes.* Set `csv\.encoding:`"),
}
for number, (name, line, says) in LINES.items():
    PART.refused(number, name, put_csv(with_line(line)), "bad_file", says)


@PART.row(30, "every-row-too-long")
def every_row_too_long(bench):
    # pandas would silently take the first column for an index here.
    header, *lines = csv().splitlines()
    bench.put("\n".join([header, *(f"{line},odd" for line in lines)]), "a.csv")
    bench.refused("bad_file", r"Row 2 of .*a\.csv has 7 fields where the header has 6")


PART.taken(32, "newline-in-quotes", put_csv(with_line(f'{WHEN},1,2,3,True,"C\nH"')), rows=61)
PART.refused(
    32,
    "quote-never-closed",
    put_csv(with_line(f'{WHEN},1,2,3,True,"CH')),
    "bad_file",
    r"a\.csv.* (quote that is never closed|close every quote)",
)
PART.refused(34, "header-only", put_csv(csv(0)), "empty_window", "no rows in the window")
PART.refused(
    35,
    "no-header",
    put_csv("".join(csv().splitlines(keepends=True)[1:])),
    "missing_columns",
    r"first line reads '2026-01-05 .*if that is data, the file has no header: write one",
)


def encrypted(bench: Bench) -> None:
    content = parquet(bench)
    bench.put(b"PARE" + content[4:-4] + b"PARE")


PART.refused(36, "encrypted", encrypted, "bad_file", r"a\.parquet is encrypted Parquet.*decrypted")


def unknown_codec(bench: Bench) -> None:
    # LZO is a codec of the format for which pyarrow has no reader.
    path = bench.source / "a.parquet"
    table = pa.Table.from_pandas(traffic(), preserve_index=False)
    pq.write_table(table, path, compression="lz4")
    content = path.read_bytes()
    codec, lzo = b"\x15\x0e", b"\x15\x06"  # the footer's field for LZ4_RAW, and for LZO
    assert codec in content
    path.write_bytes(content.replace(codec, lzo))


PART.refused(
    36,
    "unknown-codec",
    unknown_codec,
    "bad_file",
    r"a\.parquet cannot be read as Parquet .*unknown codec",
)


@PART.row(37, "link-out-of-the-folder")
def link_out_of_the_folder(bench):
    traffic().to_parquet(bench.folder / "secret.parquet")
    bench.put(traffic())
    (bench.source / "b.parquet").symlink_to(bench.folder / "secret.parquet")
    bench.refused("outside_root", r"lead out of it: 'b\.parquet'. Replace them by the files")


@PART.row(37, "folder-as-file")
def folder_as_file(bench):
    # A folder called like a file is what Spark writes, so it is read. `..` in `path:` is the word
    # of whoever wrote the monitor, who may read what the monitor may read.
    bench.put(traffic(), "a.parquet/part-0.parquet")
    bench.taken()
    bench.taken(source={"path": str(bench.source / "a.parquet" / ".." / "a.parquet")})


# -- services


@contextmanager
def answering(status: int, body: str = "", after: float = 0) -> Iterator[str]:
    """A server that gives everybody this answer, some seconds later."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(after)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_HEAD = do_POST = do_PUT = do_GET

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def hanging_up() -> Iterator[int]:
    """A port at which somebody answers, and hangs up."""

    class HangUp(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)

    with ThreadingTCPServer(("127.0.0.1", 0), HangUp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def store_says(bench: Bench, status: int, code: str):
    """Settings of an object store that answers like this, whatever it is asked."""
    bench.patch.setenv("AWS_MAX_ATTEMPTS", "1")
    bench.patch.setenv("TEST_STORE_SECRET", "canary-store-secret")
    return answering(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>")


def in_store(address: str) -> dict[str, Any]:
    options = {"endpoint_url": address, "key_env": "TEST_STORE_SECRET", "secret_env": STORE_SECRET}
    return {"path": "s3://served/a.parquet", "storage_options": options}


STORE_SECRET = "TEST_STORE_SECRET"


@PART.row(38, "store-403")
def store_403(bench):
    with store_says(bench, 403, "AccessDenied") as address:
        says = "Reading s3://served/a.parquet is not allowed. Give the monitor's user"
        bench.refused("no_access", says, source=in_store(address))


@PART.row(38, "store-404")
def store_404(bench):
    # Nothing there is the same in a store as in a folder: row 16.
    with store_says(bench, 404, "NoSuchKey") as address:
        says = "nothing at s3://served/a.parquet"
        bench.refused("no_input", says, source=in_store(address))


@PART.row(38, "store-slow-down")
def store_slow_down(bench):
    with store_says(bench, 503, "SlowDown") as address:
        says = "Reading s3://served/a.parquet failed.* trying again may help"
        bench.retried("service", says, source=in_store(address))


def database(bench: Bench, table: str = "requests") -> dict[str, Any]:
    """Put the rows into a database; return the settings that name it."""
    file = bench.source / "served.db"
    rows = traffic().assign(served_at=lambda rows: rows["served_at"].astype(str))
    with closing(sqlite3.connect(file)) as connection:
        rows.to_sql("requests", connection, index=False)
    return {"path": None, "table": table, "url": f"sqlite:///{file}?timeout=0.2"}


@PART.row(39, "missing-table")
def missing_table(bench):
    says = "no table 'request'. Did you mean 'requests'.* Correct `table:`"
    bench.refused("missing_table", says, source=database(bench, "request"))


@PART.row(39, "database-locked")
def database_locked(bench):
    settings = database(bench)
    with closing(sqlite3.connect(bench.source / "served.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        bench.retried("service", "the table requests .*trying again may help", source=settings)
    bench.taken(source=settings)


@PART.row(39, "connection-dropped")
def connection_dropped(bench):
    secret = "canary-database-secret"
    with hanging_up() as port:
        url = f"postgresql+psycopg2://reader:{secret}@127.0.0.1:{port}/served"
        bench.patch.setenv("TEST_DATABASE_URL", url)
        place = {"path": None, "table": "requests", "url_env": "TEST_DATABASE_URL"}
        monitor = bench.monitor(source=place)
        with error_of(ServiceError, "service", "the table requests .*trying again may help"):
            take_window(monitor, DAY)
        bench.retried("service", "database did not answer", source=place)
    (recorded,) = bench.outcomes(DAY)
    assert secret not in str(bench.client.get_run(recorded.run_id).to_dictionary())

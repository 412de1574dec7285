"""Hostile places, bounds and sizes: nothing is injected, no root is left, no worker dies.

Names of tables and columns as SQL are tried in `test_sources_database`, on both databases.
"""

import gzip
import os
import subprocess
import sys
import textwrap
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ConfigError, RtscvError, WindowError
from rtscv_mlops.sources import delimited
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
from tests.monitors import MINIMAL, write_monitor
from tests.services import DAY, statements, traffic

COLUMNS = [Column("amount", "float"), Column("country", "text")]


def read(path, **settings):
    """Read the window of `DAY` from a path."""
    source = SourceSettings(path=str(path), timestamp="served_at", **settings)
    return read_window(source, DAY, COLUMNS, max_rows=1_000, seed=0)


# -- addresses: which kinds are read, and that none is looked up

ADDRESSES = (
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/latest/meta-data/x.parquet",
    "http://127.0.0.1:{port}/x.parquet",
    "http://localhost:{port}/x.csv",
    "http://2130706433:{port}/x.parquet",
    "http://0x7f000001:{port}/x.parquet",
    "http://017700000001:{port}/x.parquet",
    "http://127.1:{port}/x.parquet",
    "http://0.0.0.0:{port}/x.parquet",
    "http://[::1]:{port}/x.parquet",
    "http://[::ffff:127.0.0.1]:{port}/x.parquet",
    "http://127.0.0.1.nip.io:{port}/x.parquet",
    "http://metadata.google.internal/computeMetadata/v1/x.csv",
    "HTTP://127.0.0.1:{port}/x.parquet",
    "ftp://127.0.0.1:{port}/x.parquet",
    "sftp://127.0.0.1:{port}/x.parquet",
    "ssh://127.0.0.1:{port}/x.parquet",
    "smb://127.0.0.1/x.parquet",
    "webhdfs://127.0.0.1:{port}/x.parquet",
    "hdfs://127.0.0.1:{port}/x.parquet",
    "dask://127.0.0.1:{port}/x.parquet",
    "github://a:b@main/x.parquet",
    "git://x.parquet",
    "jar://x.parquet",
    "zip://x.parquet::http://127.0.0.1:{port}/x.zip",
    "simplecache::http://127.0.0.1:{port}/x.parquet",
    "filecache::s3://bucket/x.parquet",
    "reference://x.parquet",
    "data:text/csv,a",
    "data://text/csv,a",
    "memory://x.parquet",
    "gopher://127.0.0.1:{port}/x.parquet",
    "dict://127.0.0.1:{port}/x.parquet",
    "file://127.0.0.1/etc/passwd.csv",
)


@pytest.fixture
def listener():
    """A port on which nobody may call; it tells whether somebody did."""
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0)
        yield server


def test_no_address_of_another_kind_is_asked(listener, record_property):
    """Only local paths and object stores are read; all else is refused before it is looked up."""
    port = listener.getsockname()[1]
    for address in ADDRESSES:
        with pytest.raises(
            RtscvError, match=r"unsupported scheme|no Parquet|nothing at|contains a user"
        ):
            read_or_load(address.format(port=port))
    with pytest.raises(BlockingIOError):
        listener.accept()
    record_property("trials", len(ADDRESSES))


def read_or_load(address):
    try:
        return read(address)
    except ValueError as error:  # the settings refuse addresses that hold a user
        if isinstance(error, RtscvError):
            raise
        raise ConfigError(str(error)) from error


# -- paths

PATHS = (
    "../secret.parquet",
    "inside/../../secret.parquet",
    "inside/%2e%2e/%2e%2e/secret.parquet",
    "inside/..%2fsecret.parquet",
    "inside/\uff0e\uff0e/secret.parquet",
    "inside/\u2024\u2024/secret.parquet",
    "inside/..\\secret.parquet",
    "C:\\secret.parquet",
    "inside/secret.parquet\0.csv",
    "inside/" + "a" * 300 + ".parquet",
    "inside/" + "a/" * 3_000 + "x.parquet",
    "~/secret.parquet",
    "file:///../secret.parquet",
    "inside/[.][.]/secret.parquet",
    "inside/link/secret.parquet",
    "inside/**/secret.parquet",
)


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_a_path_is_taken_as_it_is_written(tmp_path, monkeypatch, path):
    """Nothing is decoded or folded: only `..` that the monitor's author wrote leads up.

    A link is followed where the author names it, and never where a folder is searched; each end
    is an error of ours.
    """
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    traffic(3).to_parquet(tmp_path / "secret.parquet")
    (home / "inside" / "link").symlink_to(tmp_path)
    monkeypatch.chdir(home)
    plainly_up = os.path.normpath(path) == "../secret.parquet"

    expected = {3} if plainly_up or path == "inside/link/secret.parquet" else REFUSED
    assert ending(path) in expected


REFUSED = {"no_input", "outside_root", "service", "bad_config", "bad_window", "no_access"}


def ending(path):
    """Return how many rows were read, or the code of the refusal; no other error may come."""
    try:
        return read(path).rows
    except RtscvError as error:
        return error.code


# -- bounds

BOUNDS = (
    "2026-01-05' OR '1'='1",
    "2026-01-05; DROP TABLE served",
    "2026-01-05\u2019; --",
    "2026-01-05/**/UNION SELECT 1",
    "';shutdown;--",
    "2026-01-05\0",
    "\uff12026-01-05",
    "0000-01-01' --",
    '2026-01-05"',
    "now()",
    "{{ ds }}",
    "$(date)",
)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_is_a_moment_or_nothing(bound):
    """A window's bounds are parsed to moments before any source is asked."""
    with pytest.raises(WindowError, match=r".+"):
        Interval.day(bound)
    with pytest.raises(WindowError, match=r".+"):
        Interval.parse("2026-01-05", bound)
    with pytest.raises(WindowError, match=r".+"):
        Interval.parse(bound, "2026-01-06")


def test_bounds_travel_as_parameters(tmp_path):
    """The statement that a database gets has no moment in it; hostile rows are only compared."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/served.db")
    rows = traffic(10)
    rows["served_at"] = rows["served_at"].map(lambda moment: moment.isoformat())
    rows["country"] = "x'; DROP TABLE served; --"
    rows.to_sql("served", engine, index=False)
    source = SourceSettings(
        table="served", url=f"sqlite:///{tmp_path}/served.db", timestamp="served_at"
    )
    with statements() as asked:
        window = read_window(source, DAY, COLUMNS, max_rows=100, seed=0)

    assert (window.rows, set(window.sample["country"])) == (10, {"x'; DROP TABLE served; --"})
    assert any("served_at >=" in text for text in asked)
    assert not [text for text in asked if "2026" in text]
    engine.dispose()


# -- sizes

LIMIT_MB = 1_500
READ_BOMB = """
import resource, sys
limit = {limit} * 1024 * 1024
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
columns = [Column("amount", "float"), Column("country", "text")]
for name in sys.argv[1:]:
    source = SourceSettings(path=name, timestamp="served_at", max_bytes=200_000_000)
    try:
        read_window(source, Interval.day("2026-01-05"), columns, max_rows=1_000, seed=0)
        print("read")
    except WindowError as error:
        print(error.code)
print("alive", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_bombs_leave_the_worker_alive(tmp_path, record_property):
    """Small files that unpack to gigabytes end in size_cap, in a process of bounded memory."""
    bombs = [parquet_bomb(tmp_path), csv_bomb(tmp_path), long_line_bomb(tmp_path)]
    assert max(os.path.getsize(bomb) for bomb in bombs) < 3_000_000
    program = textwrap.dedent(READ_BOMB.format(limit=LIMIT_MB))

    done = subprocess.run(
        [sys.executable, "-c", program, *bombs],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    *codes, alive = done.stdout.split("\n")[:-1]
    assert done.returncode == 0, done.stderr[-2_000:]
    assert codes[:2] == ["size_cap", "size_cap"]
    assert codes[2] in ("size_cap", "bad_file")
    assert int(alive.removeprefix("alive ")) < LIMIT_MB
    record_property("trials", len(bombs))


def parquet_bomb(folder):
    """One value, written once and repeated: its footer says kilobytes, its rows are gigabytes."""
    rows = 2_000_000
    one = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * 1_000], pa.string())
    )
    moments = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array([DAY.start], pa.timestamp("us", "UTC"))
    )
    table = pa.table(
        {"served_at": moments.dictionary_decode(), "amount": pa.array([1.0] * rows), "country": one}
    )
    # Without its schema the dictionary is no column type any more, only a way to pack.
    pq.write_table(table, folder / "bomb.parquet", compression="zstd", store_schema=False)
    return str(folder / "bomb.parquet")


def csv_bomb(folder):
    """Rows that are all alike, packed by gzip to a thousandth."""
    with gzip.open(folder / "bomb.csv.gz", "wb", compresslevel=9) as file:
        file.write(b"served_at,amount,country\n")
        block = b"2026-01-05T00:00:00Z,1.5,CH\n" * 100_000
        for _ in range(80):
            file.write(block)
    return str(folder / "bomb.csv.gz")


def long_line_bomb(folder):
    """One field without end."""
    with gzip.open(folder / "line.csv.gz", "wb", compresslevel=9) as file:
        file.write(b"served_at,amount,country\n2026-01-05T00:00:00Z,1.5,")
        for _ in range(300):
            file.write(b"x" * 1_000_000)
    return str(folder / "line.csv.gz")


# -- ends: pyarrow's thread lets go of our objects before the process may end

END_REFUSED = """
import os, sys
from collections import Counter
from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
columns = [Column("amount", "float"), Column("country", "text")]

def end(name):
    source = SourceSettings(path=name, timestamp="served_at", max_bytes=9_000_000)
    try:
        read_window(source, Interval.day("2026-01-05"), columns, max_rows=1_000, seed=0)
    except WindowError as error:
        sys.exit(error.code)

for name in sys.argv[1:]:
    ends = Counter()
    for trial in range(100):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            end(name)
        ends[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    print(dict(ends))
"""


ROW = "2026-01-05T00:00:00Z,1.5,CH\n"
REFUSED_BODIES = {
    "too-long": ROW * 500_000,
    "broken-row": "1.5,CH\n" + ROW * 200_000,
    "bad-value": "2026-01-05T00:00:00Z,many,CH\n" + ROW * 200_000,
    "bad-encoding": ROW * 200_000 + "\udcff",
}


def write_refused(folder):
    """Write a CSV file of each kind that is refused while pyarrow reads ahead."""
    files = [folder / f"{name}.csv" for name in REFUSED_BODIES]
    for file, body in zip(files, REFUSED_BODIES.values(), strict=True):
        file.write_text("served_at,amount,country\n" + body, errors="surrogateescape")
    return files


def test_a_refused_file_leaves_no_object_to_another_thread(tmp_path, monkeypatch):
    """After the error, pyarrow's thread holds no object of ours."""
    all_loans = []

    class Remembered(delimited._Loans):
        def __init__(self):
            super().__init__()
            all_loans.append(self)

    monkeypatch.setattr(delimited, "_Loans", Remembered)
    for file in write_refused(tmp_path):
        with pytest.raises(WindowError, match=rf"unpack to more|{file.name}"):
            read(file, max_bytes=9_000_000)
        assert [thing() for loans in all_loans for thing in loans._lent if thing()] == []
    assert len(all_loans) >= len(REFUSED_BODIES)


def test_the_lender_waits_for_the_other_thread():
    """The lender continues only after the other thread has released the object."""
    loans = delimited._Loans()
    may_end = threading.Event()
    held = [loans.lend(memoryview(b"text"))]
    holder = threading.Thread(target=lambda: may_end.wait() and held.clear())
    holder.start()
    waiter = threading.Thread(target=loans.__exit__)
    waiter.start()
    waiter.join(0.2)
    waited = waiter.is_alive()
    may_end.set()
    waiter.join()
    holder.join()

    assert waited


@pytest.mark.slow
def test_a_process_exits_normally_after_a_refused_file(tmp_path):
    """A process that refused a CSV file exits normally: no thread is left that aborts it."""
    files = write_refused(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", END_REFUSED, *files],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines() == ["{1: 100}"] * len(files)


# -- formulas: no table is written that a spreadsheet opens


def test_no_file_of_a_window_is_csv():
    """What is kept of rows is Parquet, whose cells no spreadsheet takes for formulas."""
    from tests.deployments import judged

    kept = [file for file in judged().folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".parquet" for file in kept)
    assert not [file for file in kept if file.suffix in (".csv", ".tsv", ".xls", ".xlsx")]


def test_a_monitor_cannot_name_an_address_by_data(tmp_path):
    """The source is written in the monitor's file: no variable, template or row is put into it."""
    text = MINIMAL.replace("windows/", "windows/{{ ds }}/${HOME}/$(id)")
    monitor = load_monitor(write_monitor(tmp_path, text))

    assert str(monitor.source.path).endswith("windows/{{ ds }}/${HOME}/$(id)")

"""Parquet files: what is wrong with a bad one, and rows in batches from a good one.

Knows pyarrow's reader; knows nothing of windows and samples.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from rtscv_mlops.errors import Code, ServiceError
from rtscv_mlops.sources.columns import family
from rtscv_mlops.sources.files import BadFile, File, modified, reaching

MAGIC, ENCRYPTED = b"PAR1", b"PARE"
# An upload that stopped is told from one that goes on by how long nothing was written.
SETTLED = timedelta(minutes=10)
# Values in one batch, over all columns: some 16 MB of numbers.
BATCH_VALUES = 2_000_000


def batch_rows(columns: int) -> int:
    """Return how many rows of so many columns make a batch of moderate size."""
    return max(1_024, min(32_768, BATCH_VALUES // max(1, columns)))


def open_parquet(file: File) -> ds.Fragment:
    """Return a file that can be read, or say what is wrong with it."""
    _check_marks(file)
    with decoding(file):
        fragment = ds.ParquetFileFormat().make_fragment(file.path, _filesystem(file))
        fragment.ensure_complete_metadata()
        _ = fragment.physical_schema.names  # which may be no text
    return fragment


def parquet_batches(
    file: File, fragment: ds.Fragment, names: Sequence[str], condition: Any
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all groups in which some may meet a condition, in memory for one batch.

    Not by the fragment's own batches: those are cut from whole row groups, and a group of a few
    kilobytes may unpack to more than there is memory.
    """
    with decoding(file):
        groups = fragment if condition is None else fragment.subset(condition)
        opened = pq.ParquetFile(
            file.path,
            filesystem=_filesystem(file),
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=_texts(fragment.physical_schema, names),
        )
        with opened:
            for batch in opened.iter_batches(
                batch_rows(len(names)),
                row_groups=[group.id for group in groups.row_groups],
                columns=list(names),
                use_threads=False,
            ):
                batch.validate(full=True)  # text may be none, and lengths may be negative
                yield batch


def _texts(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    return [name for name in names if family(schema.field(name).type) == "text"]


def check_statistics(file: File, name: str) -> None:
    """Read one value of a column from each row group, before anybody asks for its statistics.

    At a damaged description of a column pyarrow's reader raises an error; its filters wait without
    end, and its statistics end the process.
    """
    with decoding(file):
        whole = pq.ParquetFile(file.path, filesystem=_filesystem(file))
        for group in range(whole.num_row_groups):
            next(whole.iter_batches(1, [group], [name], use_threads=False), None)


def parquet_metadata(file: File) -> pq.FileMetaData:
    """Return the footer: rows, types and the smallest and largest value of each column."""
    with decoding(file):
        return pq.read_metadata(file.path, filesystem=_filesystem(file))


@contextmanager
def decoding(file: File) -> Iterator[None]:
    """Tell a file that cannot be decoded from a store that does not answer."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _undecodable(file, error) from error
    except OSError as error:
        # pyarrow's own decoding errors carry no number; those of a system or a store do.
        if error.errno is None:
            raise _undecodable(file, error) from error
        with reaching(file.name):
            raise


def _undecodable(file: File, error: Exception) -> BadFile:
    return BadFile(
        f"{file.path} cannot be read as Parquet ({str(error).splitlines()[0][:200]}). It is "
        "damaged, encrypted or of an unknown codec; write it again."
    )


def _filesystem(file: File) -> Any:
    if isinstance(file.filesystem, LocalFileSystem):
        return pa.fs.LocalFileSystem()
    return PyFileSystem(FSSpecHandler(file.filesystem))


def _check_marks(file: File) -> None:
    if file.size == 0:
        raise BadFile(f"{file.path} has 0 bytes. Write it again, or remove it.")
    with reaching(file.name), file.filesystem.open(file.path, "rb") as stream:
        head = stream.read(4)
        stream.seek(max(0, file.size - 4))
        tail = stream.read(4)
    if ENCRYPTED in (head, tail):
        raise BadFile(f"{file.path} is encrypted Parquet, which is not read. Store it decrypted.")
    if head != MAGIC:
        kind = "looks like CSV" if head.isascii() else "is something else"
        raise BadFile(f"{file.path} is not Parquet: it {kind}. Rename it or set `format:`.")
    if tail != MAGIC:
        raise _cut_short(file)


def _cut_short(file: File) -> BadFile | ServiceError:
    if datetime.now(UTC) - modified(file).astimezone(UTC) < SETTLED:
        return ServiceError(
            f"{file.path} ends too early and was written to just now: an upload seems to be "
            "running. Try again later.",
            code=Code.FILE_CHANGED,
        )
    return BadFile(f"{file.path} is cut short: Parquet's end mark is missing. Write it again.")

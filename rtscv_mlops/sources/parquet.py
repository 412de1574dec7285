"""Parquet files, read in batches of bounded memory. A bad file is refused with its reason."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from rtscv_mlops.config.inputs import TableSettings
from rtscv_mlops.errors import Code, ServiceError
from rtscv_mlops.sources.columns import family
from rtscv_mlops.sources.files import BadFile, File, reaching
from rtscv_mlops.sources.stream import Batches, Budget, RowStream, Summary, batch_rows
from rtscv_mlops.sources.times import Span

MAGIC, ENCRYPTED = b"PAR1", b"PARE"
# A file without its end may still be uploading, unless nothing was written for this long.
SETTLED = timedelta(minutes=10)


def open_parquet(
    file: File, settings: TableSettings, span: Span | None, budget: Budget
) -> RowStream:
    """Open a Parquet file. Row groups that are wholly outside the span are not read."""
    _check_magic(file)
    with _decoding(file):
        fragment = ds.ParquetFileFormat().make_fragment(file.path, _filesystem(file))
        fragment.ensure_complete_metadata()
        schema = fragment.physical_schema
        names: list[str] = schema.names  # Raises an error if a name is not valid UTF-8.
    condition = None
    if span is not None and span.column in names:
        condition = span.row_filter(schema.field(names.index(span.column)).type, file.name)
        if condition is not None:
            _check_statistics(file, span.column)

    def read(columns: Sequence[str]) -> Batches:
        return budget.meter(_read_batches(file, fragment, columns, condition))

    return file.stream(names, schema.types, read, summarize=partial(_summarize, file, names))


def _read_batches(
    file: File, fragment: ds.Fragment, columns: Sequence[str], condition: Any
) -> Batches:
    """Yield the rows of each row group that may meet the condition.

    The fragment's own batches are slices of whole row groups, and a row group of a few kilobytes
    may unpack to more than there is memory. `ParquetFile` decodes one batch at a time.
    """
    with _decoding(file):
        groups = fragment if condition is None else fragment.subset(condition)
        schema = fragment.physical_schema
        opened = pq.ParquetFile(
            file.path,
            filesystem=_filesystem(file),
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=[name for name in columns if family(schema.field(name).type) == "text"],
        )
        with opened:
            for batch in opened.iter_batches(
                batch_rows(len(columns)),
                row_groups=[group.id for group in groups.row_groups],
                columns=list(columns),
                use_threads=False,
            ):
                batch.validate(full=True)  # Text may be invalid UTF-8, and lengths negative.
                yield batch


def _check_statistics(file: File, column: str) -> None:
    """Read one value of a column from each row group before its statistics are used.

    If the metadata of a column is damaged, pyarrow's reader raises an error. Its filters hang, and
    its statistics crash the process.
    """
    with _decoding(file):
        whole = pq.ParquetFile(file.path, filesystem=_filesystem(file))
        for group in range(whole.num_row_groups):
            next(whole.iter_batches(1, [group], [column], use_threads=False), None)


def _summarize(file: File, names: Sequence[str], column: str) -> Summary:
    if column in names:
        _check_statistics(file, column)
    with _decoding(file):
        footer = pq.read_metadata(file.path, filesystem=_filesystem(file))
    paths = [footer.schema.column(index).path for index in range(footer.num_columns)]
    bounds: list[Any] = []
    for group in range(footer.num_row_groups if column in paths else 0):
        statistics = footer.row_group(group).column(paths.index(column)).statistics
        if statistics is not None and statistics.has_min_max:
            with suppress(OverflowError):  # Python's years end at 9999; a run refuses such a row.
                bounds += (statistics.min, statistics.max)
    return Summary(footer.num_rows, bounds)


@contextmanager
def _decoding(file: File) -> Iterator[None]:
    """Distinguish a damaged file from a store that does not answer."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        # An OSError of pyarrow's decoder has no errno; one of the system or a store does.
        if isinstance(error, OSError) and error.errno is not None:
            with reaching(file.name):
                raise
        raise BadFile(
            f"{file.path} cannot be read as Parquet ({str(error).splitlines()[0][:200]}). It is "
            "damaged, encrypted, or uses an unknown codec; write it again."
        ) from error


def _filesystem(file: File) -> Any:
    if isinstance(file.filesystem, LocalFileSystem):
        return pa.fs.LocalFileSystem()
    return PyFileSystem(FSSpecHandler(file.filesystem))


def _check_magic(file: File) -> None:
    """Check the first and last four bytes, which say more than pyarrow's errors do."""
    if file.size == 0:
        raise BadFile(f"{file.path} has 0 bytes. Write it again, or remove it.")
    with reaching(file.name), file.filesystem.open(file.path, "rb") as stream:
        head = stream.read(4)
        stream.seek(max(0, file.size - 4))
        tail = stream.read(4)
    if ENCRYPTED in (head, tail):
        raise BadFile(
            f"{file.path} is encrypted Parquet, which is not supported. Store it decrypted."
        )
    if head != MAGIC:
        kind = "looks like CSV" if head.isascii() else "is something else"
        raise BadFile(f"{file.path} is not Parquet: it {kind}. Rename it or set `format:`.")
    if tail != MAGIC:
        if datetime.now(UTC) - file.modified().astimezone(UTC) < SETTLED:
            raise ServiceError(
                f"{file.path} ends too early and was written to just now: an upload seems to be "
                "running. Try again later.",
                code=Code.FILE_CHANGED,
            )
        raise BadFile(f"{file.path} is cut short: Parquet's end mark is missing. Write it again.")

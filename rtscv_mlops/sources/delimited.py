"""CSV files, read strictly: every value as the text in the file, every row of full length."""

import codecs
import csv
import io
import threading
import weakref
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.csv as pacsv

from rtscv_mlops.config.inputs import CsvSettings, TableSettings
from rtscv_mlops.sources.files import BadFile, File, reaching
from rtscv_mlops.sources.stream import Batches, Budget, RowStream
from rtscv_mlops.sources.times import Span

GZIP = b"\x1f\x8b"
GZIP_FORMAT = 16 + zlib.MAX_WBITS
BLOCK = 1 << 20
LINE_LIMIT = 4 << 20
# Seconds that pyarrow's thread gets to give back what it holds of ours.
THREAD_TIMEOUT = 60
T = TypeVar("T")
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_csv(file: File, settings: TableSettings, span: Span | None, budget: Budget) -> RowStream:
    """Open a CSV file. All its columns are text, so the span cannot leave out rows yet."""
    if file.size == 0:
        raise BadFile(f"{file.path} has 0 bytes. Write it again, or remove it.")
    delimiter = settings.csv.delimiter
    with _Text(file, settings.csv, Budget()) as stream:
        text = io.TextIOWrapper(io.BufferedReader(stream), "utf-8", newline="")
        lines = csv.reader(text, delimiter=delimiter)
        try:
            header = next((line for line in lines if line), [])
        except csv.Error as error:
            raise BadFile(
                f"The first line of {file.path} is not a valid CSV header: {error}."
            ) from error

    # For the message about missing columns: a wrong delimiter or a missing header is likely then.
    line = delimiter.join(header)[:120]
    hint = f" Its first line reads {line!r}; if that is data, the file has no header: write one."
    others = [sign for sign in ",;\t|" if sign != delimiter and sign in line]
    if len(header) == 1 and others:
        hint = (
            f" Its first line, {line!r}, is one column: is the delimiter {others[0]!r}? Set "
            "`csv.delimiter:`."
        )
    read = partial(_read_batches, file, settings.csv, budget)
    return file.stream(header, [pa.string()] * len(header), read, hint=hint, untyped=True)


def _read_batches(
    file: File, settings: CsvSettings, budget: Budget, columns: Sequence[str]
) -> Batches:
    """Yield the rows as text. The null values of the settings become missing.

    Close the iterator if you do not read it to its end: pyarrow reads ahead until then.
    """
    invalid_rows: list[Any] = []
    last: pa.RecordBatch | None = None
    with _Text(file, settings, budget) as text, _Loans() as loans:
        try:
            for batch in pacsv.open_csv(
                loans.lend(_Loan(text, loans)),
                read_options=pacsv.ReadOptions(use_threads=False, block_size=LINE_LIMIT),
                parse_options=pacsv.ParseOptions(
                    delimiter=settings.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=loans.lend(partial(_note_row, invalid_rows)),
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types={name: pa.string() for name in columns},
                    include_columns=list(columns),
                    null_values=list(settings.null_values),
                    strings_can_be_null=True,
                ),
            ):
                # A text that fails ends within a row, so the last batch waits for its end.
                if last is not None:
                    yield last
                last = batch
        except pa.ArrowInvalid as error:
            text.check()
            if not invalid_rows:
                reason = str(error).splitlines()[0][:200]
                raise BadFile(f"{file.path} is not valid CSV: {reason}.") from error
            row = invalid_rows[0]
            raise BadFile(
                f"Row {row.number} of {file.path} has {row.actual_columns} fields where the header "
                f"has {row.expected_columns}: {row.text[:80]!r}. Quote fields that hold the "
                "delimiter, and close every quote."
            ) from error
        finally:
            text.close()
        text.check()
        if last is not None:
            yield last


def _note_row(invalid_rows: list[Any], row: Any) -> str:
    invalid_rows.append(row)
    return "error"


class _Loans:
    """Objects of ours that pyarrow's threads hold. The context ends when all are given back.

    pyarrow reads ahead in a thread of its own and releases our objects there, under Python's lock.
    A thread that asks for this lock while Python exits aborts the process, so the lender waits.
    The queue's `put` runs in C, so the lock is not passed on between notice and release.
    """

    def __init__(self) -> None:
        self._returned: SimpleQueue[Any] = SimpleQueue()
        self._lent: list[Any] = []

    def lend(self, thing: T) -> T:
        """Return an object that must be given back."""
        self._lent.append(weakref.ref(thing, self._returned.put))
        return thing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(Empty):
            for _ in self._lent:
                self._returned.get(timeout=THREAD_TIMEOUT)


class _Loan:
    """The stream that pyarrow holds."""

    def __init__(self, text: "_Text", loans: _Loans) -> None:
        self._text = text
        # Not a method: an error keeps the frames it passed, and a method's frame keeps its object.
        self.read = lambda size: loans.lend(text.take(size))

    @property
    def closed(self) -> bool:
        return self._text.closed

    def close(self) -> None:
        """Do nothing: the lender closes the text."""


class _Text(io.RawIOBase):
    """A file's text as UTF-8, checked while it streams: encoding, NUL bytes, quotes, size.

    One thread may read it while another closes it. Once closed, it is at its end.
    """

    def __init__(self, file: File, settings: CsvSettings, budget: Budget) -> None:
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._file, self._encoding, self._budget = file, settings.encoding, budget
        name = codecs.lookup(settings.encoding).name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)()
        with reaching(file.name):
            self._raw = file.filesystem.open(file.path, "rb")
        self._unzip: Any = None
        self._read = self._quotes = 0
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self._raw.close()
            super().close()

    def readinto(self, target: Any) -> int:
        with self._lock:
            if self.closed:
                return 0
            while not self._ready and not self._ended:
                self._ready = self._next()
            view = memoryview(target).cast("B")
            size = min(len(view), len(self._ready))
            view[:size], self._ready = self._ready[:size], self._ready[size:]
            return size

    def take(self, size: int) -> memoryview:
        """Return some bytes; on an error return none, as at the end, and keep the error.

        pyarrow would hold an error in its thread, beyond our reach.
        """
        try:
            return memoryview(self.read(size) or b"")
        except BaseException as error:
            self._error = error
            return memoryview(b"")

    def check(self) -> None:
        """Raise the error that ended the text, if there was one."""
        if self._error is not None:
            raise self._error

    def _next(self) -> bytes:
        data = self._data()
        self._budget.spend(len(data))
        text = self._decoded(data)
        self._read += len(data)
        if "\0" in text:
            raise BadFile(
                f"{self._file.path} has NUL bytes, so it is not text in {self._encoding}. Set "
                "`csv.encoding:` if it is UTF-16; otherwise write it again."
            )
        self._quotes += text.count('"')
        if self._ended and self._quotes % 2:
            raise BadFile(f"{self._file.path} has a quote that is never closed, so rows are lost.")
        return text.encode()

    def _data(self) -> bytes:
        rest = self._unzip.unconsumed_tail if self._unzip else b""
        with reaching(self._file.name):
            block = rest or self._raw.read(BLOCK)
        if self._unzip is None and self._read == 0 and block.startswith(GZIP):
            self._unzip = zlib.decompressobj(GZIP_FORMAT)
        data = self._unzipped(block) if self._unzip else block
        self._ended = not block and not data
        return data

    def _unzipped(self, block: bytes) -> bytes:
        try:
            # In pieces, so that the budget is exceeded before the memory is full.
            data: bytes = self._unzip.decompress(block, 4 * BLOCK)
        except zlib.error as error:
            raise BadFile(f"{self._file.path} is damaged gzip: {error}. Write it again.") from error
        if self._unzip.unused_data:
            raise BadFile(
                f"{self._file.path} has several gzip members, or bytes after the end. Compress "
                "each file by itself."
            )
        if not block and not data and not self._unzip.eof:
            raise BadFile(f"{self._file.path} is cut short: its gzip end is missing.")
        return data

    def _decoded(self, data: bytes) -> str:
        carried = len(self._decoder.getstate()[0])
        try:
            return self._decoder.decode(data, self._ended)
        except UnicodeDecodeError as error:
            looks = " It looks like UTF-16." if error.object.startswith(UTF16) else ""
            offset = self._read - carried + error.start
            raise BadFile(
                f"{self._file.path} is not {self._encoding}: byte {offset} cannot be "
                f"read.{looks} Set `csv.encoding:`, such as latin-1 or utf-16."
            ) from error

"""Files on disks and in object stores: which ones a path names, and whether they can be read."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import fsspec
import pyarrow as pa
from fsspec.core import split_protocol
from fsspec.implementations.local import LocalFileSystem

from rtscv_mlops.config.inputs import TableSettings, resolve_options
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, RtscvError, ServiceError, WindowError
from rtscv_mlops.sources.stream import Batches, Budget, RowStream
from rtscv_mlops.sources.times import Span
from rtscv_mlops.text import counted, listed

# A fixed list: other fsspec protocols could reach into the network behind the monitor.
SCHEMES = {"file", "local", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
WILDCARDS = "*?["
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar", ".bz2", ".xz")
TABLE_SIGNS = {"_delta_log": "Delta Lake", ".hoodie": "Apache Hudi"}
ICEBERG_SNAPSHOT = ".metadata.json"
BLOCK = 1 << 20
END = 1 << 16


class BadFile(WindowError):
    """A file that cannot be read at all. `on_bad_file: skip` continues without it."""

    code = Code.BAD_FILE


@contextmanager
def reaching(name: str) -> Iterator[None]:
    """Translate the errors of a filesystem. Messages never show its options, which hold secrets."""
    try:
        yield
    except RtscvError:
        raise
    except FileNotFoundError as error:
        raise NotAssessed(Code.NO_INPUT, f"There is nothing at {name}.") from error
    except PermissionError as error:
        raise WindowError(
            f"Reading {name} is not allowed. Give the monitor's user or role read access.",
            code=Code.NO_ACCESS,
        ) from error
    except Exception as error:  # The errors of object stores have no common base class.
        raise ServiceError(
            f"Reading {name} failed with {type(error).__name__}. Check the address and the "
            "network; trying again may help."
        ) from error


class Format(NamedTuple):
    """A file format: its name in `format:`, its title in messages, its suffixes, its opener."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    open: Callable[["File", TableSettings, Span | None, Budget], RowStream]


@dataclass(frozen=True, slots=True)
class File:
    """A file, with the size and version that it had when it was listed."""

    filesystem: Any
    path: str
    relative_path: str
    format: Format
    size: int
    version: str

    @property
    def name(self) -> str:
        """What messages call the file."""
        return f"the file {self.path}"

    @property
    def partitions(self) -> dict[str, str | None]:
        """Columns in the names of folders, as Hive writes them: `date=2026-01-05`."""
        folders = self.relative_path.split("/")[:-1]
        pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
        return {
            unquote(key): None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
            for key, value in pairs
        }

    def open(self, settings: TableSettings, span: Span | None, budget: Budget) -> RowStream:
        """Open the file by its format. A span may leave out rows outside it, but need not."""
        return self.format.open(self, settings, span, budget)

    def stream(
        self,
        columns: Sequence[str],
        types: Sequence[pa.DataType],
        read: Callable[[Sequence[str]], Batches],
        **details: Any,
    ) -> RowStream:
        """Return the stream of an opener, with the columns of the folder names added."""
        stored = dict(zip(columns, types, strict=True))
        constants = {name: value for name, value in self.partitions.items() if name not in stored}
        every_type = {**dict.fromkeys(self.partitions, pa.string()), **stored}
        return RowStream(self.name, columns, every_type, read, constants, **details)

    def check_unchanged(self) -> None:
        """Raise an error if the file was written to since it was listed."""
        with reaching(self.name):
            self.filesystem.invalidate_cache()
            info = self.filesystem.info(self.path)
        if (info["size"], _version(info)) != (self.size, self.version):
            raise ServiceError(
                f"{self.name.capitalize()} changed while it was read, so its rows may be "
                "inconsistent. Try again when it is no longer written to.",
                code=Code.FILE_CHANGED,
            )

    def modified(self) -> datetime:
        """Return when the file was last written to."""
        with reaching(self.name):
            time: datetime = self.filesystem.modified(self.path)
        return time

    def digest(self, last: int | None = None) -> str:
        """Return a digest of the file's bytes, or of the last ones only."""
        digest = hashlib.blake2b(digest_size=16)
        with reaching(self.name), self.filesystem.open(self.path, "rb") as stream:
            stream.seek(0 if last is None else max(0, self.size - last))
            while block := stream.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class FileListing:
    """Files in a fixed order, and findings about others that were left out."""

    files: tuple[File, ...]
    findings: tuple[str, ...] = ()


def find_files(settings: TableSettings, formats: Sequence[Format]) -> FileListing:
    """Return the files that `path:` names: one file, a glob, or everything below a folder."""
    address = settings.path or ""
    titles = [format_.title for format_ in formats]
    filesystem, path = _open_filesystem(address, settings)
    with reaching(address):
        root, entries = _list_entries(filesystem, path)
    files, ignored = [], []
    for name, info in sorted(entries.items()):
        parts = name.removeprefix(root).strip("/").split("/")
        if name != root and any(part.startswith((".", "_")) for part in parts):
            continue  # Spark and other writers leave such files next to the data.
        relative_path = "/".join(parts) or name.rpartition("/")[2]
        format_ = _choose_format(name, settings, formats, alone=name == root)
        if format_ is None:
            ignored.append(relative_path)
            continue
        files.append(File(filesystem, name, relative_path, format_, info["size"], _version(info)))
    if not files:
        raise NotAssessed(Code.NO_INPUT, f"No {' or '.join(titles)} file matches {address}.")
    with reaching(address):
        _refuse_tables(files)
    mixed = [title for title in titles if title in {file.format.title for file in files}]
    if len(mixed) > 1:
        raise WindowError(
            f"{address} has files of several formats: {' and '.join(mixed)}. Narrow the path to "
            "one of them, such as with *.parquet."
        )
    if isinstance(filesystem, LocalFileSystem) and files[0].path != root:
        _check_links(files, Path(root).resolve())
    finding = (
        f"Ignored {counted(len(ignored), 'file')}, neither {' nor '.join(titles)}: "
        f"{listed(ignored, 3)}."
    )
    return FileListing(tuple(files), (finding,) if ignored else ())


def drop_copies(files: Iterable[File]) -> FileListing:
    """Leave out files with the same bytes as another.

    Only files of the same size are compared. Most of them already differ near the end, where
    Parquet has its statistics.
    """
    kept: list[File] = []
    copies: list[File] = []
    for same_size in _group(files, lambda file: (file.size, *file.partitions.items())):
        for same_end in _group(same_size, partial(File.digest, last=END)):
            for same_bytes in _group(same_end, File.digest):
                kept.append(same_bytes[0])
                copies += same_bytes[1:]
    finding = (
        f"Left out {counted(len(copies), 'file')}, the same byte for byte as another: "
        f"{listed([file.relative_path for file in copies], 3)}."
    )
    return FileListing(
        tuple(sorted(kept, key=lambda file: file.path)), (finding,) if copies else ()
    )


def _group(files: Iterable[File], key: Callable[[File], object]) -> Iterable[list[File]]:
    """Group files by a key, which is not computed for a single file."""
    members = list(files)
    if len(members) == 1:
        return [members]
    groups: dict[object, list[File]] = defaultdict(list)
    for file in members:
        # Empty files are damaged. They are not copies of each other.
        groups[key(file) if file.size else file.path].append(file)
    return groups.values()


def _open_filesystem(address: str, settings: TableSettings) -> tuple[Any, str]:
    scheme = split_protocol(address)[0] or "file"
    if scheme not in SCHEMES or "::" in address:
        raise ConfigError(
            f"`path:` {address} has an unsupported scheme. Use a local path, s3://, gs:// or "
            "abfs://."
        )
    options = resolve_options(settings.storage_options)
    try:
        filesystem, path = fsspec.url_to_fs(address, **options)
    except ImportError as error:
        raise ConfigError(
            f"Reading {scheme}:// needs a package that is not installed: {error}"
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"`storage_options:` do not fit {scheme}://: {type(error).__name__}."
        ) from error
    return filesystem, path


def _list_entries(filesystem: Any, path: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the folder that was searched, or the file itself, and the entries found."""
    filesystem.invalidate_cache()
    if any(sign in path for sign in WILDCARDS) and not filesystem.exists(path):
        entries = filesystem.glob(path, detail=True)
        root = path[: min(path.find(sign) for sign in WILDCARDS if sign in path)].rpartition("/")[0]
    elif filesystem.isdir(path):
        entries, root = filesystem.find(path, detail=True), path.rstrip("/")
    else:
        return path, {path: filesystem.info(path)}
    return root, {
        name: info for name, info in entries.items() if info["type"] == "file" or info.get("islink")
    }


def _choose_format(
    name: str, settings: TableSettings, formats: Sequence[Format], *, alone: bool
) -> Format | None:
    """Return the format that the settings or the file's name give, or None if it is unknown."""
    lowered = name.lower()
    if lowered.endswith(ARCHIVES):
        raise BadFile(
            f"{name} is an archive, or has a compression that is not supported. Unpack it. Single "
            ".csv.gz files and Parquet's own compression are fine."
        )
    if settings.format != "auto":
        return next(format_ for format_ in formats if format_.name == settings.format)
    chosen = next((format_ for format_ in formats if lowered.endswith(format_.suffixes)), None)
    if chosen is None and alone:
        suffixes = ", ".join(suffix for format_ in formats for suffix in format_.suffixes)
        raise ConfigError(
            f"The name {name} does not say its format. End it with one of {suffixes}, or set "
            "`format:` in the monitor."
        )
    return chosen


def _version(info: Mapping[str, Any]) -> str:
    """Return a version tag or a time, which changes when the file is written to."""
    for name in ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime"):
        if info.get(name) is not None:
            return str(info[name])
    return ""


def _refuse_tables(files: Sequence[File]) -> None:
    """Refuse files that belong to a table, whose log decides which of their rows still exist.

    The folder of a table may be the one of `path:`, below it or above it.
    """
    filesystem = files[0].filesystem
    paths = {file.path for file in files}
    if isinstance(filesystem, LocalFileSystem):
        paths |= {Path(path).resolve().as_posix() for path in paths}
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in sorted(folders):
        kind = _table_kind(filesystem, folder)
        if kind is not None:
            raise WindowError(
                f"{folder} is a table of {kind}, so its files still hold rows that were deleted or "
                "replaced. Export a snapshot of the table to Parquet files and set `path:` to "
                "them, or set `query:` to read it through a database that knows such tables.",
                code=Code.TABLE_FORMAT,
            )


def _table_kind(filesystem: Any, folder: str) -> str | None:
    """Return which format's log a folder has; None if it has none."""
    try:
        for sign, kind in TABLE_SIGNS.items():
            if filesystem.exists(f"{folder}/{sign}"):
                return kind
        names = filesystem.ls(f"{folder}/metadata", detail=False)
        return "Apache Iceberg" if any(ICEBERG_SNAPSHOT in name for name in names) else None
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # Folders above `path:` need not be readable.


def _check_links(files: Sequence[File], root: Path) -> None:
    """Refuse links that lead out of the folder: data must not decide what else is read."""
    outside = [
        file.relative_path for file in files if not Path(file.path).resolve().is_relative_to(root)
    ]
    if outside:
        raise WindowError(
            f"Links below {root} lead out of it: {listed(outside, 3)}. Replace them by the files, "
            "or set `path:` to the folder they lead to.",
            code=Code.OUTSIDE_ROOT,
        )

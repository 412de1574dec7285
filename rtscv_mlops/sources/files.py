"""The bytes that one source may unpack to, counted as they stream by.

Knows a number; the sizes that files declare are not believed.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
from fsspec.core import split_protocol
from fsspec.implementations.local import LocalFileSystem

from rtscv_mlops.config.inputs import TableSettings, resolve_options
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, RtscvError, ServiceError, WindowError
from rtscv_mlops.text import count, listed


@dataclass(slots=True)
class Budget:
    """Bytes spent so far, of those allowed."""

    allowed: int | None = None
    spent: int = 0

    def spend(self, size: int) -> None:
        """Count bytes; one too many is an error."""
        self.spent += size
        if self.allowed is not None and self.spent > self.allowed:
            raise WindowError(
                f"The rows unpack to more than {self.allowed:,} bytes. If that is right, raise "
                "`max_bytes:`; otherwise look for a damaged or hostile file.",
                code=Code.SIZE_CAP,
            )


# A fixed list: an address of another kind could reach into the network behind the monitor.
SCHEMES = {"file", "local", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
MAGIC = "*?["
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
}
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar", ".bz2", ".xz")
BLOCK = 1 << 20
END = 1 << 16


class BadFile(WindowError):
    """A file that cannot be read at all; `on_bad_file: skip` goes on without it."""

    code = Code.BAD_FILE


@dataclass(frozen=True, slots=True)
class File:
    """A file that was found, as it was then; `below` is its path in the folder looked through."""

    filesystem: Any
    path: str
    below: str
    format: str
    size: int
    mark: str
    partitions: Mapping[str, str | None]

    @property
    def name(self) -> str:
        """What messages call the file."""
        return f"the file {self.path}"

    def check_unchanged(self) -> None:
        """Refuse rows of a file that was written to while it was read."""
        with reaching(self.name):
            self.filesystem.invalidate_cache()
            now = self.filesystem.info(self.path)
        if (now["size"], _mark(now)) != (self.size, self.mark):
            raise ServiceError(
                f"{self.name.capitalize()} changed while it was read, so its rows are of two "
                "states. Try again when it is no longer written to.",
                code=Code.FILE_CHANGED,
            )


@dataclass(frozen=True, slots=True)
class Found:
    """The files that a path names, in a fixed order, and what was odd about them."""

    files: tuple[File, ...]
    findings: tuple[str, ...] = ()


@contextmanager
def reaching(place: str) -> Iterator[None]:
    """Name the failures of a filesystem; secrets of its options are never shown."""
    try:
        yield
    except RtscvError:
        raise
    except FileNotFoundError as error:
        raise NotAssessed(Code.NO_INPUT, f"There is nothing at {place}.") from error
    except PermissionError as error:
        raise WindowError(
            f"Reading {place} is not allowed. Give the monitor's user or role read access.",
            code=Code.NO_ACCESS,
        ) from error
    except Exception as error:  # each object store has errors of its own, with no common root
        raise ServiceError(
            f"Reading {place} failed with {type(error).__name__}. Check the address and the "
            "network; trying again may help."
        ) from error


def find_files(settings: TableSettings) -> Found:
    """Return the files that `path:` names: one file, a glob, or all below a folder."""
    address = settings.path or ""
    filesystem, path = _open(address, settings)
    with reaching(address):
        root, entries = _entries(filesystem, path)
    visible = {name: info for name, info in entries.items() if not _is_hidden(name, root)}
    kinds = {name: _format(name, settings, alone=root == name) for name in visible}
    strangers = ["/".join(_below(name, root)) for name, kind in kinds.items() if kind is None]
    files = [
        _file(filesystem, name, root, kind, info)
        for name, info in sorted(visible.items())
        if (kind := kinds[name]) is not None
    ]
    if not files:
        raise NotAssessed(Code.NO_INPUT, f"No Parquet or CSV file matches {address}.")
    _check(files, root, address)
    ignored = f"Ignored {count(len(strangers), 'file')}, neither Parquet nor CSV: "
    return Found(tuple(files), (f"{ignored}{listed(strangers, 3)}.",) if strangers else ())


def without_repeats(files: Iterable[File]) -> Found:
    """Leave out files that hold the same bytes as another.

    Only files of one size are compared, and most of those differ at the end already, where Parquet
    has its statistics.
    """
    kept: list[File] = []
    repeats: list[File] = []
    for alike in _grouped(files, lambda file: (file.size, *file.partitions.items())):
        for same_end in _grouped(alike, partial(_content, last=END)):
            for same in _grouped(same_end, _content):
                kept.append(same[0])
                repeats += same[1:]
    finding = (
        f"Left out {count(len(repeats), 'file')}, the same byte for byte as another: "
        f"{listed([file.below for file in repeats], 3)}."
    )
    return Found(tuple(sorted(kept, key=lambda file: file.path)), (finding,) if repeats else ())


def _grouped(files: Iterable[File], mark: Callable[[File], object]) -> Iterable[list[File]]:
    """Return the files by a mark; one file alone is not looked at."""
    listed = list(files)
    if len(listed) == 1:
        return [listed]
    groups: dict[object, list[File]] = defaultdict(list)
    for file in listed:
        # Empty files are damaged, and not copies of each other.
        groups[mark(file) if file.size else file.path].append(file)
    return groups.values()


def _open(address: str, settings: TableSettings) -> tuple[Any, str]:
    scheme = split_protocol(address)[0] or "file"
    if scheme not in SCHEMES or "::" in address:
        raise ConfigError(
            f"`path:` {address} is of a kind that is not read. Use a local path, s3://, gs:// or "
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


def _entries(filesystem: Any, path: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the folder that was looked through, or the file itself, and the files found."""
    filesystem.invalidate_cache()
    if any(sign in path for sign in MAGIC) and not filesystem.exists(path):
        entries = filesystem.glob(path, detail=True)
        root = path[: min(path.find(sign) for sign in MAGIC if sign in path)].rpartition("/")[0]
    elif filesystem.isdir(path):
        entries, root = filesystem.find(path, detail=True), path.rstrip("/")
    else:
        return path, {path: filesystem.info(path)}
    return root, {name: info for name, info in entries.items() if _is_file(info)}


def _is_file(info: Mapping[str, Any]) -> bool:
    return info["type"] == "file" or bool(info.get("islink"))


def _file(filesystem: Any, name: str, root: str, kind: str, info: Mapping[str, Any]) -> File:
    below = "/".join(_below(name, root)) or name.rpartition("/")[2]
    partitions = _partitions(name, root)
    return File(filesystem, name, below, kind, info["size"], _mark(info), partitions)


def _below(name: str, root: str) -> list[str]:
    return name.removeprefix(root).strip("/").split("/")


def _is_hidden(name: str, root: str) -> bool:
    """Tell whether a file is one of those that writers leave beside data, as Spark does."""
    return name != root and any(part.startswith((".", "_")) for part in _below(name, root))


def _format(name: str, settings: TableSettings, alone: bool) -> str | None:
    lowered = name.lower()
    if lowered.endswith(ARCHIVES):
        raise BadFile(
            f"{name} is an archive or of a compression that is not read. Unpack it; single .csv.gz "
            "files and Parquet's own compression are fine."
        )
    if settings.format != "auto":
        return settings.format
    kind = next((kind for end, kind in SUFFIXES.items() if lowered.endswith(end)), None)
    if kind is None and alone:
        raise ConfigError(f"The name {name} does not say its format. Set `format:` in the monitor.")
    return kind


def _partitions(name: str, root: str) -> dict[str, str | None]:
    pairs = [part.split("=", 1) for part in _below(name, root)[:-1] if "=" in part]
    return {
        unquote(key): None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
        for key, value in pairs
    }


def _mark(info: Mapping[str, Any]) -> str:
    """Return what changes when a file is written to: a version tag or a time."""
    for name in ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime"):
        if info.get(name) is not None:
            return str(info[name])
    return ""


def modified(file: File) -> datetime:
    """Return when a file was last written to."""
    with reaching(file.name):
        moment: datetime = file.filesystem.modified(file.path)
    return moment


def _check(files: list[File], root: str, address: str) -> None:
    formats = {file.format for file in files}
    if len(formats) > 1:
        raise WindowError(
            f"{address} holds both Parquet and CSV files. Narrow the path to one of them, such as "
            "with *.parquet."
        )
    if isinstance(files[0].filesystem, LocalFileSystem) and files[0].path != root:
        _check_inside(files, Path(root).resolve())


def _check_inside(files: list[File], root: Path) -> None:
    """Refuse links that lead out of the folder: data must not choose what else is read."""
    outside = [file.below for file in files if not Path(file.path).resolve().is_relative_to(root)]
    if outside:
        raise WindowError(
            f"Links below {root} lead out of it: {listed(outside, 3)}. Replace them by the files, "
            "or name their own folder.",
            code=Code.OUTSIDE_ROOT,
        )


def _content(file: File, last: int | None = None) -> str:
    """Return a name for the bytes of a file, or for the last of them."""
    digest = hashlib.blake2b(digest_size=16)
    with reaching(file.name), file.filesystem.open(file.path, "rb") as stream:
        stream.seek(0 if last is None else max(0, file.size - last))
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()

"""Keeps checkpoints of the record of decisions outside of MLflow, a line each."""

import sys

import fsspec

from rtscv_mlops.errors import InputError
from rtscv_mlops.sources.files import SCHEMES
from rtscv_mlops.text import redact
from rtscv_mlops.tracking.journal import Checkpoint

STANDARD_INPUT = "-"


def write_checkpoint(checkpoint: Checkpoint, address: str) -> None:
    """Add a checkpoint to a file, here or in an object store; earlier lines stay."""
    filesystem, path = _open(address)
    # Object stores cannot append.
    before = filesystem.cat_file(path).decode() if filesystem.exists(path) else ""
    filesystem.pipe_file(path, f"{before}{checkpoint.text}\n".encode())


def read_checkpoint(address: str) -> Checkpoint:
    """Return the last checkpoint of a file, here or in an object store."""
    if address == STANDARD_INPUT:
        text = sys.stdin.read()
    else:
        filesystem, path = _open(address)
        if not filesystem.exists(path):
            raise InputError(f"No checkpoint was found at {redact(address)}. Check the address.")
        text = filesystem.cat_file(path).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return Checkpoint.parse(lines[-1] if lines else "")


def _open(address: str) -> tuple[fsspec.AbstractFileSystem, str]:
    scheme = address.partition("://")[0] if "://" in address else "file"
    if scheme not in SCHEMES:
        raise InputError(
            f"A checkpoint cannot be kept at {redact(address)}: use a local path, s3://, gs:// or "
            "abfs://."
        )
    filesystem, path = fsspec.url_to_fs(address)
    return filesystem, path

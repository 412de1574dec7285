"""The command `rtscv-mlops`."""

from rtscv_mlops.cli.commands import app, main

__all__ = ["app", "main"]

"""Reads deployment data, training data and late labels; the only part that knows where they lie.

Rows stream in batches from Parquet, CSV or a database, and only a sample of them is kept.
"""

from rtscv_mlops.sources.peek import Peek, peek
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.tables import Reference, read_labels, read_reference
from rtscv_mlops.sources.windows import read_window

__all__ = [
    "Peek",
    "Profile",
    "Reference",
    "peek",
    "read_labels",
    "read_reference",
    "read_window",
]

"""Write the published schema and reference page: `python -m rtscv_mlops.config docs`."""

import sys
from pathlib import Path

from rtscv_mlops.config.schema import REFERENCE_FILE, SCHEMA_FILE, monitor_reference, schema_text


def write_published(folder: Path) -> None:
    """Write both files into a folder."""
    (folder / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
    (folder / REFERENCE_FILE).write_text(monitor_reference(), encoding="utf-8")


if __name__ == "__main__":
    write_published(Path(sys.argv[1]))

"""`python -m tools.golden record|compare [--only PART]`: write golden files, or hold to them."""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.golden.compare import GOLDEN, PARTS, difference, make, names_of


def main() -> int:
    """Record or compare; return 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden", description=__doc__)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("--only", action="append", choices=PARTS, help="part; may be repeated")
    parser.add_argument("--exact", action="store_true", help="let no digit differ")
    given = parser.parse_args()
    parts = given.only or PARTS
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        make(fresh, parts)
        if given.action == "record":
            return record(fresh, parts)
        return compare(fresh, parts, exact=given.exact)


def record(fresh: Path, parts: Sequence[str]) -> int:
    """Put the fresh files in the place of those that were recorded."""
    for name in names_of(GOLDEN, parts):
        (GOLDEN / name).unlink()
    shutil.copytree(fresh, GOLDEN, dirs_exist_ok=True)
    print(f"Recorded {len(names_of(fresh, parts))} files in {GOLDEN}.")
    return 0


def compare(fresh: Path, parts: Sequence[str], *, exact: bool) -> int:
    """Print how fresh files differ from those that were recorded."""
    names = sorted({*names_of(GOLDEN, parts), *names_of(fresh, parts)})
    differences = [found for name in names if (found := difference(name, fresh, exact=exact))]
    print(*differences, sep="\n", end="")
    print(f"{len(differences)} of {len(names)} golden files differ.")
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())

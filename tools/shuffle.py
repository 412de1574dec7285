"""A plugin for pytest that runs files, and the tests in each, in an order drawn from a seed.

Load it with `-p tools.shuffle`. The seed is in the environment, so that every process of
pytest-xdist draws the same order.
"""

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

SEED = "RTSCV_ORDER_SEED"


class Test(Protocol):
    """What the order needs to know of a test."""

    @property
    def path(self) -> Path:
        """The file that holds it."""


T = TypeVar("T", bound=Test)


def shuffled(tests: Sequence[T], seed: str) -> list[T]:
    """Return the tests in another order; those of a file stay together, since they share much."""
    by_file: defaultdict[Path, list[T]] = defaultdict(list)
    for test in tests:
        by_file[test.path].append(test)
    drawn = random.Random(seed)
    files = list(by_file.values())
    drawn.shuffle(files)
    for file in files:
        drawn.shuffle(file)
    return [test for file in files for test in file]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Put the collected tests in the order of the seed."""
    items[:] = shuffled(items, os.environ[SEED])

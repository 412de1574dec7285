"""Every row of the catalogue of bad inputs has its outcome, tried for real or named as later work.

In every row the inputs stay as they were, the champion stays where it was, and a window that was
run has exactly one recorded outcome. A row that names several inputs is tried once for each.
Where the catalogue says "retry", the window is recorded as failed and the error says that trying
again may help; to try again is the scheduler's part.
"""

import pytest

from tests.catalogue.bench import Bench, Row, add_champions, part_of
from tests.catalogue.part_a import PART as A
from tests.catalogue.part_b import PART as B
from tests.catalogue.part_c import PART as C
from tests.catalogue.part_d import PART as D
from tests.catalogue.part_e import PART as E
from tests.catalogue.part_f import PART as F
from tests.registries import client_of, new_database

ROWS: list[Row] = [*A, *B, *C, *D, *E, *F]
LATER: dict[int, str] = {}
"""Rows that need what does not exist yet, with the reason; none at present."""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    client = client_of(new_database(folder))
    add_champions(client)
    return client


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row(client, tmp_path, monkeypatch, row):
    """The row's input has the outcome that the catalogue gives it."""
    row.act(Bench(client_of(client.tracking_uri), tmp_path, row.id, monkeypatch))


def test_every_row_is_there():
    """Rows 1 to 114 are each tried or named as later work, none is both, and ids are unique."""
    tried = {row.number for row in ROWS}

    assert tried | LATER.keys() == set(range(1, 115))
    assert not tried & LATER.keys()
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert [part_of(number) for number in (1, 15, 16, 39, 40, 66, 67, 82, 83, 100, 101, 114)] == [
        *"AABBCCDDEEFF"
    ]

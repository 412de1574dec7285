"""The record of decisions: one byte is edited somewhere in it, and the edit must be found."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.progress import track

from benchmarks.faults.tally import Tally
from benchmarks.registries import (
    MODEL,
    add_champion,
    client_of,
    log_model,
    new_database,
    seal_window,
)
from rtscv_mlops.tracking.registry import ModelRegistry

Undo = Callable[[], object]
Edit = Callable[[random.Random, Path], Undo]

EDITS = 500
LONG = "seen by the lab; " * 200


def run(quick: bool) -> Iterator[Tally]:
    """Edit records in the database, and their copies among the artifacts."""
    with TemporaryDirectory(prefix="audit-") as folder:
        decide_much(Path(folder))
        edits = 20 if quick else EDITS
        yield _tally("one byte of a record is changed in the database", folder, edits, edit_record)
        yield _tally("one byte of a record's files is changed", folder, edits, edit_copy)
        yield _tally("a record, or all from it on, is deleted", folder, edits, delete_record)
        yield _tally("nothing is changed: no complaint", folder, 5 if quick else 50, None)


def decide_much(folder: Path) -> None:
    """Make a model with a dozen decisions and moves."""
    client = client_of(new_database(folder))
    champion = add_champion(client)
    registry = ModelRegistry(client, MODEL)
    for day in range(1, 5):
        key = f"{day:064d}"
        run_id = registry.runs.open(key).run_id
        model_id = log_model(client, run_id)
        seal = seal_window(client, key, run_id, model_id, day=day, champion=champion)
        version = registry.versions.register(seal)
        registry.versions.offer(version)
        registry.decisions.record(
            version,
            True,
            "ann",
            LONG,
            seen_champion=champion,
            seen_seal=seal.digest,
        )
        registry.decisions.promote(version)
        registry.decisions.roll_back("bob", "too slow")


def _tally(what: str, folder: str, edits: int, edit: Edit | None) -> Tally:
    chance = random.Random(0)
    client = client_of(f"sqlite:///{folder}/mlflow.db")
    missed = []
    for number in track(range(edits), what[:40]):
        undo = edit(chance, Path(folder)) if edit else None
        found = ModelRegistry(client, MODEL).decisions.history().problems
        if undo is not None:
            undo()
        if bool(found) != bool(undo):
            missed.append(number)
    return Tally("audit", what, edits, len(missed), f"missed: {missed[:5]}" if missed else "")


def edit_record(chance: random.Random, folder: Path) -> Undo:
    """Change one letter of a record in the database; return how to put it back."""
    with sqlite3.connect(folder / "mlflow.db") as database:
        records = database.execute("SELECT key, value FROM params WHERE key LIKE 'record.%'")
        key, text = chance.choice(sorted(records.fetchall()))
        _write_record(folder, key, _edited(chance, text))
    return lambda: _write_record(folder, key, text)


def delete_record(chance: random.Random, folder: Path) -> Undo:
    """Delete a record, or it and all later ones, from the database; return how to put them back."""
    with sqlite3.connect(folder / "mlflow.db") as database:
        records = database.execute("SELECT * FROM params WHERE key LIKE 'record.%' ORDER BY key")
        kept = records.fetchall()
        place = chance.randrange(len(kept))
        gone = kept[place:] if chance.random() < 0.5 else kept[place : place + 1]
        database.executemany("DELETE FROM params WHERE key = ?", [(row[0],) for row in gone])
    database.close()
    return lambda: _put_back(folder, gone)


def _put_back(folder: Path, rows: list[tuple[object, ...]]) -> None:
    marks = ", ".join("?" * len(rows[0]))
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.executemany(f"INSERT INTO params VALUES ({marks})", rows)
    database.close()


def _write_record(folder: Path, key: str, text: str) -> None:
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.execute("UPDATE params SET value = ? WHERE key = ?", (text, key))
    database.close()


def edit_copy(chance: random.Random, folder: Path) -> Undo:
    """Change one letter of a file of the record; return how to put it back."""
    file = chance.choice(sorted(folder.rglob("decisions/*")))
    text = file.read_text()
    file.write_text(_edited(chance, text))
    return lambda: file.write_text(text)


def _edited(chance: random.Random, text: str) -> str:
    place = chance.randrange(len(text))
    letter = chance.choice([sign for sign in "abcXYZ0189 ,:{}" if sign != text[place]])
    return text[:place] + letter + text[place + 1 :]

"""What holds of any order of claims, records and edits in a model's ledger."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rtscv_mlops.tracking.journal import (
    NAME_LIMIT,
    OUTCOMES,
    REASON_LIMIT,
    Entry,
    Journal,
    outcome,
    shortened,
)
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from tests.properties import TEXTS, tried
from tests.registries import add_champion, client_of, new_database


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """The address of an MLflow that the properties of this module share."""
    return new_database(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture(scope="module")
def client(uri):
    """A client of it."""
    client = client_of(uri)
    add_champion(client)
    return client


@pytest.fixture(scope="module")
def numbers():
    """A new number for each example: they share a database."""
    return iter(range(10**6))


@tried(0.1)
@given(st.lists(st.tuples(TEXTS, TEXTS.filter(bool)), min_size=1, max_size=4), st.data())
def test_the_first_claim_holds(client, numbers, claims, data):
    """In any order, with any repeats, a name keeps the value that was claimed first."""
    ledger = Ledger.open(client, f"claims {next(numbers)}")
    again = data.draw(st.lists(st.sampled_from(claims), max_size=3))
    held = {}
    for name, value in [*claims, *again]:
        assume(value.encode("utf-8", "ignore").decode() == value and "\0" not in value)
        assert ledger.claim(name, value) == held.setdefault(name, value)

    assert sorted(ledger.claims().values()) == sorted(held.values())


ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from(OUTCOMES),
        st.integers(1, 3).map(str),
        st.sampled_from(["k1", "k2"]),
        TEXTS,
        TEXTS,
    ),
    min_size=1,
    max_size=3,
)


@tried(0.06)
@given(ENTRIES)
def test_records_keep_what_was_said(client, numbers, entries):
    """Whoever says whatever: it is kept in order, the chain is whole, the first outcome counts."""
    ledger = Ledger.open(client, f"records {next(numbers)}")
    for entry in entries:
        Journal(ledger).append(lambda _, entry=entry: entry)
    kept = Journal(ledger).read()

    assert [each.number for each in kept] == list(range(1, len(entries) + 1))
    for entry, record in zip(entries, kept, strict=True):
        assert (record.kind, record.version, record.key) == (entry.kind, entry.version, entry.key)
        assert record.who == shortened(entry.who, NAME_LIMIT)
        assert record.reason == shortened(entry.reason, REASON_LIMIT)
    assert Journal(ledger).find_damage() == []
    kinds = [entry.kind for entry in entries if (entry.version, entry.key) == ("1", "k1")]
    first = outcome(kept, "1", "k1")
    assert [first.kind] == kinds[:1] if first else not kinds


@pytest.fixture(scope="module")
def sealed(client):
    """A ledger with three records."""
    ledger = Ledger.open(client, "sealed")
    for kind in ("rejected", "expired", "approved"):
        Journal(ledger).append(lambda _, kind=kind: Entry(kind, "1", kind, "ann", "because é"))
    assert Journal(ledger).find_damage() == []
    return ledger


@tried(0.2)
@given(number=st.integers(1, 3), at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_one_edited_byte_is_found(uri, sealed, number, at, byte):
    """Any byte of any record, set to any other value in the database, is told by its number."""
    text = Journal(sealed).read()[number - 1].text
    changed = bytearray(text.encode())
    assume(changed[at % len(changed)] != byte)
    changed[at % len(changed)] = byte
    edited = changed.decode("utf-8", "surrogateescape")
    assume(edited.isprintable())

    write_record(uri, sealed, number, edited)
    try:
        damage = Journal(sealed).find_damage()
    finally:
        write_record(uri, sealed, number, text)
    assert f"Record {number}" in " ".join(damage)
    assert Journal(sealed).find_damage() == []


def write_record(uri, ledger, number, text):
    """Edit a record where nobody should."""
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        database.execute(
            "UPDATE params SET value = ? WHERE run_uuid = ? AND key = ?",
            (text, ledger.run_id, f"record.{number:06d}"),
        )
        database.commit()


@tried(0.1)
@given(number=st.integers(1, 3), at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_one_edited_byte_of_a_copy_is_found(sealed, number, at, byte):
    """The same of the copies that people read."""
    run = WindowRun(sealed.client, sealed.run_id)
    file = run.address(f"decisions/{number:06d}.json").removeprefix("file://")
    with open(file, "rb") as stream:
        whole = stream.read()
    assume(whole[at % len(whole)] != byte)
    changed = bytearray(whole)
    changed[at % len(whole)] = byte

    try:
        with open(file, "wb") as stream:
            stream.write(changed)
        damage = Journal(sealed).find_damage()
    finally:
        with open(file, "wb") as stream:
            stream.write(whole)
    assert damage == [f"Record {number} and its copy differ."]


@tried(0.06)
@given(st.lists(st.sampled_from(["a" * 32, "b" * 32, "c" * 32]), min_size=2, max_size=6))
def test_a_key_has_one_run(client, numbers, keys):
    """Keys in any order, each as often as it comes, have one run each."""
    model = f"runs {next(numbers)}"
    found = [(key, ModelRegistry(client, model).runs.open(key).run_id) for key in keys]

    assert len(set(found)) == len(set(keys)) == len({run_id for _, run_id in found})

"""No answer of a person is lost: it is carried out, or the record says what became of it."""

import threading
import time
from contextlib import suppress

import pytest

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import ReviewError
from rtscv_mlops.outcomes import NOT_CARRIED_OUT
from rtscv_mlops.review.answers import (
    collect_answered,
    find_answer,
    review_challenger,
    roll_back,
    undo_roll_back,
)
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.registries import add_champion, client_of
from tests.test_registry_versions import MODEL, register

DELAYS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


@pytest.fixture
def uri(tmp_path):
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def registry(uri):
    client = client_of(uri)
    add_champion(client, MODEL)
    return ModelRegistry(client, MODEL)


def monitor_of(uri, reason="required"):
    return Monitor(
        model={"name": MODEL, "tracking_uri": uri},
        source={"path": "windows/", "timestamp": "served_at"},
        review={"reason": reason},
    )


def offer(registry, monitor, day):
    """Offer the challenger of a day as a window does; return its version."""
    version = register(registry.client, key=f"{day:032d}", day=day)
    registry.versions.offer(version, collect=lambda older: collect_answered(monitor, older.version))
    return version


def tag_answer(client, version, status, who="ann", reason="not ours"):
    named = {tags.REVIEWER: who, tags.REASON: reason, tags.REVIEW: status}
    for name, text in named.items():
        if text:
            client.set_model_version_tag(MODEL, version, name, text)


def answer_here(uri, version):
    """Answer as the page and the command do; a refusal is told, and kept in the record."""
    with suppress(ReviewError):
        review_challenger(
            monitor_of(uri), version, approve=False, reviewer="ann", reason="not ours"
        )


def answer_by_tag(uri, version):
    tag_answer(client_of(uri), version, "rejected")


@pytest.mark.parametrize("answer", [answer_here, answer_by_tag])
def test_no_answer_is_lost_to_a_newer_challenger(registry, uri, answer):
    """Whichever comes first, the record names who answered, what, why, and what became of it."""
    monitor, became = monitor_of(uri), []
    waiting = offer(registry, monitor, 1)
    for number, delay in enumerate(DELAYS, start=2):
        answering = threading.Thread(target=answer, args=(uri, waiting))
        answering.start()
        time.sleep(delay)
        newer = offer(registry, monitor, number)
        answering.join()
        registry.versions.keep_late_answers()  # as the next look at any answer does

        records = registry.decisions.history().records
        (kept,) = [one for one in records if one.version == waiting and one.who == "ann"]
        assert kept.reason == "not ours"
        assert kept.kind in ("rejected", NOT_CARRIED_OUT)
        if kept.kind == NOT_CARRIED_OUT:
            assert kept.what == (
                f"rejected, but not carried out (too late: version {newer} had superseded it)"
            )
        became.append(kept.kind)
        waiting = newer
    assert registry.decisions.history().problems == ()
    assert len(became) == len(DELAYS)


def test_a_newer_challenger_supersedes_none_that_was_answered_by_tag(registry, uri):
    """An approval that waits in MLflow goes before the newer challenger, which then waits."""
    monitor = monitor_of(uri)
    older = offer(registry, monitor, 1)
    tag_answer(registry.client, older, "rejected")

    newer = offer(registry, monitor, 2)

    assert registry.versions.get(older).review == "rejected"
    assert registry.versions.get(older).reviewer == "ann"
    assert registry.versions.pending().version == newer


def test_an_answer_without_its_reason_waits_for_it(registry, uri):
    """A tag without a reason is not carried out and says so; superseded, it is in the record."""
    monitor, told = monitor_of(uri), []
    older = offer(registry, monitor, 1)
    tag_answer(registry.client, older, "approved", reason="")

    assert find_answer(monitor, older, told.append) is None
    assert told == [
        f"Version {older} was approved by tag and waits for its reason: set the tag rtscv.reason. "
        "Until then nothing is carried out."
    ]
    assert find_answer(monitor_of(uri, "optional"), older).status == "approved"
    offer(registry, monitor, 2)

    assert registry.versions.get(older).review == "superseded"
    (kept,) = [one for one in registry.decisions.history().records if one.who == "ann"]
    assert kept.what.startswith("approved, but not carried out (too late")


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_decision_needs_a_reason(registry, uri, reason):
    """Approval, rejection, rollback and its undo are refused without one; a setting lifts that."""
    monitor = monitor_of(uri)
    version = offer(registry, monitor, 1)

    for decide in (
        lambda: review_challenger(monitor, version, approve=True, reviewer="ann", reason=reason),
        lambda: review_challenger(monitor, version, approve=False, reviewer="ann", reason=reason),
        lambda: roll_back(monitor, "ann", reason),
        lambda: undo_roll_back(monitor, "ann", reason),
    ):
        with pytest.raises(ReviewError, match="A decision needs a reason") as refused:
            decide()
        assert refused.value.code == "no_reason"
    assert registry.decisions.history().records == ()
    decided = review_challenger(
        monitor_of(uri, "optional"), version, approve=False, reviewer="ann", reason=reason
    )
    assert decided.review == "rejected"


def test_a_second_answer_is_in_the_record(registry, uri):
    """The first answer counts; the second is refused, told so, and kept once however often sent."""
    monitor = monitor_of(uri)
    version = offer(registry, monitor, 1)
    words = {"approve": False, "reason": "not ours"}
    review_challenger(monitor, version, reviewer="ann", **words)

    for _ in range(2):
        with pytest.raises(ReviewError, match="was rejected by ann"):
            review_challenger(monitor, version, reviewer="bob", **words)

    (kept,) = [one for one in registry.decisions.history().records if one.who == "bob"]
    assert "rejected, but not carried out" in str(kept)
    assert registry.versions.get(version).reviewer == "ann"

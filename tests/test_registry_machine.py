"""Any order of claims, crashes, retries and decisions keeps the promises about champions.

A machine draws what happens next, to a real MLflow. A crash ends a call before or after its n-th
write, as a kill would; the call is made again at once or when others have acted.
"""

import os
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mlflow.tracking import MlflowClient

from rtscv_mlops.errors import ReviewError
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.tracking import tags, versions
from rtscv_mlops.tracking.journal import OUTCOMES, last_move
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.properties import PROFILE
from tests.registries import MODEL, add_champion, client_of, log_model, new_database, seal_window

WRITES = (
    *("create_experiment", "create_run", "log_param", "log_batch", "log_artifact", "set_tag"),
    *(
        "set_terminated",
        "delete_run",
        "restore_run",
        "create_model_version",
        "delete_model_version",
    ),
    *("set_model_version_tag", "set_registered_model_alias", "delete_registered_model_alias"),
)
DAYS = st.integers(1, 3)
CRASHES = st.none() | st.none() | st.none() | st.tuples(st.integers(1, 9), st.booleans())
"""None, or which write a crash meets, and whether the write was done by then."""
REFUSALS = {
    *("decided", "stale", "blocked", "superseded", "expired", "not_offered", "not_approved"),
    *("digest_mismatch", "nothing_to_restore", "no_version"),
}
EXAMPLES = {"quick": (2, 8), "ci": (10, 14), "long": (40, 20)}[
    os.environ.get("RTSCV_PROPERTIES", "ci")
]


class Killed(BaseException):
    """The process ended here; nothing of ours may catch this."""


class MortalClient(MlflowClient):
    """A client whose process dies at a write that was chosen before."""

    crash = None

    def meet(self, write, *args, **kwargs):
        """Do a write, unless the process dies before it, or dies right after it."""
        if self.crash is None:
            return write(*args, **kwargs)
        left, done = self.crash
        self.crash = (left - 1, done)
        if left != 1:
            return write(*args, **kwargs)
        self.crash = None
        if done:
            write(*args, **kwargs)
        raise Killed


def _mortal(name):
    def write(self, *args, **kwargs):
        return self.meet(partial(getattr(MlflowClient, name), self), *args, **kwargs)

    return write


for _name in WRITES:
    setattr(MortalClient, _name, _mortal(_name))


class Reviews(RuleBasedStateMachine):
    """One model, windows of three days, two reviewers, and somebody with rights in MLflow."""

    def __init__(self):
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        uri = new_database(Path(self.place.name))
        self.plain = client_of(uri)
        self.client = MortalClient(uri, uri)
        self.registry = ModelRegistry(self.plain, MODEL)
        self.mortal = ModelRegistry(self.client, MODEL)
        add_champion(self.plain)
        self.models, self.unfinished = {}, []
        self.champion, self.by_hand = "1", None

    def teardown(self):
        """What was cut short is finished by the next try, and then all promises hold."""
        while self.unfinished:
            self.retry(None)
        self.promises_hold()
        self.place.cleanup()

    # What happens

    def attempt(self, act, crash):
        """Do something that may be cut short; what was cut short is left for a retry.

        Tell whether it was done.
        """
        self.client.crash = crash
        try:
            act()
            return True
        except Killed:
            self.unfinished.append(act)
        except ReviewError as refused:
            # To be refused is one of several right ends, so that `pytest.raises` cannot say it.
            assert refused.code in REFUSALS, refused  # noqa: PT017
        finally:
            self.client.crash = None
        return False

    @initialize(answered=st.booleans())
    def begin(self, answered):
        """A challenger is offered already, and perhaps approved: courses are short."""
        key = key_of(2)
        version = self._register(key, 2, "1")
        self.registry.versions.offer(version)
        if answered:
            self.registry.decisions.record(version, True, "ann", "because",
                seen_champion="1", seen_seal=self._seal(version),
            )  # fmt: skip

    @rule(day=DAYS, crash=CRASHES)
    def open(self, day, crash):
        """A window's task opens its run."""
        self.attempt(partial(self.mortal.runs.open, key_of(day)), crash)

    @rule(day=DAYS, crash=CRASHES)
    def register(self, day, crash):
        """A window's task registers its challenger of the champion of now."""
        champion = self.registry.versions.aliases()["champion"]
        self.attempt(partial(self._register, key_of(day, champion), day, champion), crash)

    @rule(day=DAYS, crash=CRASHES, blocked=st.sampled_from(["", "", "Class 'q' loses too much."]))
    def offer(self, day, crash, blocked):
        """A window's task registers and offers its challenger."""
        champion = self.registry.versions.aliases()["champion"]

        def act():
            version = self._register(key_of(day, champion), day, champion)
            self.mortal.versions.offer(version, blocked=blocked)

        self.attempt(act, crash)

    def _register(self, key, day, champion):
        run = self.mortal.runs.open(key)
        if key not in self.models:
            self.models[key] = log_model(self.plain, run.run_id)
        given = key, run.run_id, self.models[key]
        seal = seal_window(self.mortal.client, *given, day=day, champion=champion)
        return self.mortal.versions.register(seal)

    def _seal(self, version):
        known = {each.version: each.seal.digest for each in self.registry.versions.all()}
        return known.get(version, "")

    @rule(
        data=st.data(),
        approved=st.sampled_from([True, True, False]),
        who=st.sampled_from(["ann", "bob"]),
        seen=st.sampled_from(["", "", "", "champion", "model"]),
        crash=CRASHES,
    )
    def decide(self, data, approved, who, seen, crash):
        """A reviewer answers, by what is there or by a page that is no longer true."""
        version = self._some_version(data)
        champion = self.registry.versions.aliases()["champion"]
        act = partial(
            self.mortal.decisions.record, version, approved, who, "because",
            seen_champion="77" if seen == "champion" else champion,
            seen_seal="x" if seen == "model" else self._seal(version),
        )  # fmt: skip
        before = len(self.registry.decisions.history().records)
        self.attempt(act, crash)
        if seen:
            made = self.registry.decisions.history().records[before:]
            assert not [each for each in made if each.kind in ("approved", "rejected")]

    def _some_version(self, data):
        known = [each.version for each in self.registry.versions.all()]
        return data.draw(st.sampled_from([*known, "99"]))

    @rule(data=st.data(), crash=CRASHES)
    def promote(self, data, crash):
        """A task, or somebody by command, promotes."""
        version = self._some_version(data)
        if self.attempt(partial(self.mortal.decisions.promote, version), crash):
            assert self.registry.versions.aliases()["champion"] == version
            self.by_hand = None

    @rule(data=st.data(), crash=CRASHES)
    def expire(self, data, crash):
        """Nobody answered in time."""
        version, status = self._some_version(data), ReviewStatus.EXPIRED
        act = partial(self.mortal.versions.close_review, version, status, "3 days")
        self.attempt(act, crash)

    @rule(who=st.sampled_from(["ann", "bob"]), crash=CRASHES)
    def roll_back(self, who, crash):
        """Somebody wants the champion of before."""
        if self.attempt(partial(self.mortal.decisions.roll_back, who, "worse"), crash):
            self.by_hand = None

    @rule(data=st.data())
    def move_by_hand(self, data):
        """Somebody sets the alias in MLflow, past the review."""
        existing = [str(each.version) for each in self.plain.search_model_versions()]
        self.by_hand = data.draw(st.sampled_from(existing))
        self.plain.set_registered_model_alias(MODEL, "champion", self.by_hand)
        self.champion = self.by_hand

    @precondition(lambda self: self.unfinished)
    @rule(crash=CRASHES)
    def retry(self, crash):
        """What was cut short is tried again, and may be cut short again."""
        self.attempt(self.unfinished.pop(0), crash)

    # What holds

    @invariant()
    def promises_hold(self):
        """Those that hold at any moment, and those that hold when nothing is cut short."""
        told, aliases = self.registry.decisions.history(), self.registry.versions.aliases()
        self._check_champion(told.records, aliases["champion"])
        check_decisions(told.records)
        check_offers(self.plain)
        if not self.unfinished:
            self._check_registry(told, aliases)

    def _check_champion(self, records, now):
        """The alias changed by hand, or to what the last record of a move says."""
        move = last_move(list(records))
        assert now == self.champion or (move and now == move.version)
        self.champion = now

    def _check_registry(self, told, aliases):
        """One run and version a key, one that waits, a whole record that is the registry."""
        runs = [run.key for run in self.registry.runs.find()]
        assert len(runs) == len(set(runs))
        found = self.registry.versions.all()
        assert len({each.key for each in found}) == len(found)
        waiting = [each.version for each in found if each.is_pending]
        assert len(waiting) <= 1
        assert aliases.get("challenger") in (*waiting, None)
        move = last_move(list(told.records))
        if move and move.version != aliases["champion"]:
            assert aliases["champion"] == self.by_hand
            assert len(told.problems) == 1
            assert "The alias was moved outside of the review" in told.problems[0]
        else:
            assert told.problems == ()


def check_decisions(records):
    """One outcome a version; a promotion names an approval that saw this champion and model."""
    assert [each.number for each in records] == list(range(1, len(records) + 1))
    ended = [(each.version, each.key) for each in records if each.kind in OUTCOMES]
    assert len(ended) == len(set(ended))
    for move in (each for each in records if each.kind == "promoted"):
        decision = records[int(move.details["decision"]) - 1]
        assert (decision.kind, decision.version) == ("approved", move.version)
        assert decision.details["champion"] == move.details["from"]
        assert len(decision.details["seal"]) == 64


def check_offers(client):
    """Of one key at most one version was ever offered."""
    offered = [
        each.tags[tags.KEY]
        for each in client.search_model_versions()
        if each.tags.get(tags.STATE) == tags.COMPLETE and tags.DUPLICATE_OF not in each.tags
    ]
    assert len(offered) == len(set(offered))


def key_of(day, champion="1"):
    """The key of a day's window, judged against a champion."""
    return f"{day:032d}{champion:>032}"


@pytest.fixture
def _impatient(monkeypatch):
    """A concurrent writer that was killed is not waited for."""
    monkeypatch.setattr(versions, "CREATION_TIMEOUT", 0.0)


@pytest.mark.usefixtures("_impatient")
class TestReviews(Reviews.TestCase):
    """Runs the machine."""

    # A course is not made shorter once it failed: each try of that costs seconds.
    settings = settings(
        PROFILE,
        max_examples=EXAMPLES[0],
        stateful_step_count=EXAMPLES[1],
        phases=[Phase.explicit, Phase.generate],
    )

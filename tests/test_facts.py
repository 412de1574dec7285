"""The facts about a window: findings with codes, earlier file formats, and checked changes."""

import json
import pickle

import pytest
from pydantic import ValidationError

from rtscv_mlops.facts import DriftFacts, Finding, FindingCode, WindowFacts
from rtscv_mlops.text import class_rows
from tests.report_example import not_assessed
from tests.test_review import window_facts

CANARY = Finding(FindingCode.CANARY_MISSED, "The monitor is blind today.")


def test_a_finding_is_stored_as_its_text():
    """The file holds sentences as before, and a finding that is read back has no own code."""
    facts = not_assessed(findings=(CANARY,))

    stored = json.loads(facts.model_dump_json())

    assert stored["findings"] == ["The monitor is blind today."]
    (finding,) = WindowFacts.model_validate(stored).findings
    assert (finding, finding.code) == (CANARY, FindingCode.STORED)


def test_a_finding_keeps_its_code():
    """Facts that are changed, and findings that another process gets, still have it."""
    (after, added) = not_assessed(findings=(CANARY,)).with_findings(after=[CANARY]).findings
    sent = pickle.loads(pickle.dumps(CANARY))
    (grouped,) = Finding.all_of(FindingCode.SOURCE, [CANARY])

    codes = {finding.code for finding in (after, added, sent, grouped)}
    assert codes == {FindingCode.CANARY_MISSED}
    assert sent == CANARY


def test_a_finding_must_be_text():
    """A number in the file is refused rather than shown."""
    with pytest.raises(ValidationError, match="a finding must be text"):
        not_assessed(findings=(3,))


def test_changes_are_validated():
    """Facts are changed by their constructor, which refuses what is not of the right type."""
    with pytest.raises(ValidationError, match="drift"):
        not_assessed().with_drift("a lot")

    changed = not_assessed().with_drift(DriftFacts(share=0.5))
    assert changed.drift.share == 0.5
    assert not_assessed().drift is None


OLD = {
    "folds (k)": 3,
    "most rows looked at": 20_000,
    "seed": 7,
    "class shares over training": "8 1.62, 5 1.3, …",
}


def test_settings_of_schema_1_are_read():
    """Titles become keys, text stays text, and what people read does not change."""
    stored = json.loads(not_assessed().model_dump_json())
    stored |= {"schema_version": 1, "settings": OLD}

    facts = WindowFacts.model_validate(stored)

    assert (facts.schema_version, facts.settings["max_rows"], facts.settings["seed"]) == (
        3,
        20_000,
        7,
    )
    assert facts.shown_settings() == OLD


def test_a_later_schema_is_refused():
    """Facts of a release that does not exist yet are not guessed at."""
    stored = json.loads(not_assessed().model_dump_json()) | {"schema_version": 4}

    with pytest.raises(ValidationError, match="schema_version"):
        WindowFacts.model_validate(stored)


def test_a_challenger_of_schema_2_is_a_refit():
    """Before there were two kinds of challenger, each was a refit; it is read as one."""
    stored = json.loads(window_facts(blocked="Class 'cat' loses too much.").model_dump_json())
    del stored["challenger"]
    for known in stored["comparison"]["classes"]:
        del known["loss_interval"], known["taught_loss"]
    del stored["comparison"]["groups"], stored["comparison"]["unstable"]

    facts = WindowFacts.model_validate(stored | {"schema_version": 2})

    assert facts.schema_version == 3
    assert (facts.challenger.kind, facts.challenger.other) == ("refit", None)
    assert facts.challenger.blocked == "Class 'cat' loses too much."
    assert class_rows(facts.comparison)[0].change == "-1.0 points"

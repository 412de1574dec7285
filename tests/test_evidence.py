"""Statistics on margins with a known law: what the verdict rests on, without any model."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from rtscv_mlops.estimator.statistics import (
    Assessment,
    Excess,
    Margins,
    change_p_value,
    decide,
    estimate_rate,
    estimate_shift,
    extract_rows,
    stratified_p_value,
)
from rtscv_mlops.outcomes import Verdict

N_CLASSES = 4


def draw(rng, n_rows, n_unknown=0, shares=None, near=None):
    """Margins of known rows, whose level depends on the class, and of unknowns, 4 sd above."""
    nearest = rng.choice(N_CLASSES, n_rows, p=shares)
    margin = rng.normal(size=n_rows) + nearest
    if n_unknown:
        nearest[:n_unknown] = rng.integers(N_CLASSES, size=n_unknown) if near is None else near
        margin[:n_unknown] = rng.normal(4, 1, n_unknown) + nearest[:n_unknown]
    return Margins.of(margin, nearest, np.arange(n_rows))


def excess(**changes):
    """A new class of a tenth of the window, and no drift."""
    plain = Excess(
        forward=0.1,
        reverse=0.0,
        beyond=0.08,
        beyond_interval=(0.06, 0.1),
        beyond_p_value=1e-9,
        unmatched=0.95,
        reverse_p_value=0.6,
    )
    return replace(plain, **changes)


@pytest.mark.parametrize("shares", [None, (0.7, 0.1, 0.1, 0.1)], ids=["same", "other shares"])
def test_level(shares):
    """Windows without news are called out about as often as alpha says, whatever their shares."""
    rng = np.random.default_rng(0)
    p_values = np.array(
        [stratified_p_value(draw(rng, 1500), draw(rng, 800, shares=shares)) for _ in range(400)]
    )

    assert np.mean(p_values < 0.05) <= 0.07
    assert np.mean(p_values < 0.01) <= 0.02


def test_power():
    """Three unknowns in a hundred, four standard deviations up, are found in every window."""
    rng = np.random.default_rng(1)
    p_values = [stratified_p_value(draw(rng, 1500), draw(rng, 800, 24)) for _ in range(20)]

    assert max(p_values) < 0.01


def test_ties_at_the_top_still_count():
    """Where a third of the window shares the largest margin, that is evidence and no reason to
    look away."""
    null = Margins.of(np.zeros(500), np.zeros(500, dtype=int), np.arange(500))
    margin = np.repeat([0.0, 1.0], [200, 100])
    window = Margins.of(margin, np.zeros(300, dtype=int), np.arange(300))

    assert stratified_p_value(null, window) < 1e-6


@pytest.mark.parametrize("n_unknown", [0, 50, 200, 500])
def test_interval_covers_the_rate(n_unknown):
    """The interval of the unknown rate covers the truth in at least nine windows of ten."""
    rng = np.random.default_rng(2)
    covered = []
    for _ in range(100):
        rate, (low, high) = estimate_rate(draw(rng, 1500), draw(rng, 1000, n_unknown))
        assert low <= rate <= high
        covered.append(low <= n_unknown / 1000 <= high)

    assert np.mean(covered) >= 0.9


def test_a_sink_class_does_not_bias_the_rate():
    """Unknowns that all look like one class are counted as if they were spread over all."""
    rng = np.random.default_rng(3)
    rates = [estimate_rate(draw(rng, 3000), draw(rng, 2000, 400, near=2))[0] for _ in range(20)]

    assert np.mean(rates) == pytest.approx(0.2, abs=0.02)


def test_extracted_rows_hold_few_known_ones():
    """The share of known rows among the extracted stays near a tenth, on average over windows."""
    rng = np.random.default_rng(4)
    false = []
    for _ in range(40):
        null, window = draw(rng, 2000), draw(rng, 1000, 150, near=3)
        flagged, threshold = extract_rows(null, window, 0.15)
        assert flagged.sum() == np.sum(window.margin >= threshold)
        false.append(np.mean(np.flatnonzero(flagged) >= 150))

    assert np.mean(false) <= 0.12


def test_nothing_to_extract():
    """Without any unknown, hardly a row is more likely unknown than known."""
    rng = np.random.default_rng(5)
    flagged, _ = extract_rows(draw(rng, 2000), draw(rng, 1000), 0.0)

    assert flagged.mean() <= 0.01


def test_shift_is_found_through_confusion():
    """Class shares come out right although a fifth of each class is taken for the next."""
    rng = np.random.default_rng(6)

    def confuse(labels):
        strays = rng.random(len(labels)) < 0.2
        return np.where(strays, (labels + 1) % 3, labels)

    known, window = rng.choice(3, 6000), rng.choice(3, 6000, p=(0.6, 0.3, 0.1))
    shift = estimate_shift(confuse(known), known, confuse(window), 3)

    assert shift.weight == pytest.approx([1.8, 0.9, 0.3], abs=0.1)
    assert shift.own.tolist() == [True, False, False]


def test_only_mixed_classes_are_joined():
    """Two classes that a model takes for each other are compared as one, beside the clear one."""
    rng = np.random.default_rng(7)

    def confuse(labels):
        swapped = (labels > 0) & (rng.random(len(labels)) < 0.4)
        return np.where(swapped, 3 - labels, labels)

    known, window = rng.choice(3, 3000), rng.choice(3, 3000)
    shift = estimate_shift(confuse(known), known, confuse(window), 3)

    assert shift.own.tolist() == [True, False, False]
    assert shift.stratum[1] == shift.stratum[2] != shift.stratum[0]


def test_a_class_without_any_null_row_is_compared_all_the_same():
    """Window rows that look like a class no known row looks like are compared with the others."""
    known = np.repeat([0, 1], [900, 100])
    window = np.repeat([0, 1], [700, 300])
    shift = estimate_shift(np.zeros(1000, dtype=int), known, window, 2)
    null = Margins.of(np.zeros(1000), np.zeros(1000, dtype=int), np.arange(1000))
    seen = Margins.of(window.astype(float), window, np.arange(1000))

    assert change_p_value(null, seen, shift) < 1e-6


def blurred(rng, n_rows, n_unknown=0):
    """Four classes that a model guesses at: two rows of three look like any class."""
    labels = rng.integers(N_CLASSES, size=n_rows)
    guessed = rng.random(n_rows) < 0.67
    nearest = np.where(guessed, rng.integers(N_CLASSES, size=n_rows), labels)
    margin = rng.normal(size=n_rows) + labels / 2
    margin[:n_unknown] = rng.normal(4, 1, n_unknown)
    return labels, Margins.of(margin, nearest, np.arange(n_rows))


def blurred_p_value(rng, n_unknown):
    (labels, null), (_, window) = blurred(rng, 2000), blurred(rng, 1000, n_unknown)
    shift = estimate_shift(null.nearest, labels, window.nearest, N_CLASSES)
    assert np.mean(shift.own) <= 0.25
    weighted = replace(null, weight=np.maximum(shift.weight[labels], 1e-6))
    return change_p_value(weighted, window, shift)


def test_a_weak_model_does_not_switch_the_test_off():
    """Where hardly a class has rows of its own, unknowns are found, and no window is accused."""
    rng = np.random.default_rng(8)
    quiet = np.array([blurred_p_value(rng, 0) for _ in range(200)])
    unknown = [blurred_p_value(rng, 60) for _ in range(20)]

    assert np.mean(quiet < 0.05) <= 0.07
    assert max(unknown) < 0.01


def test_one_null_row_does_not_widen_the_interval_to_everything():
    """A sixth of the window that has one null row to compare with is all that it leaves open."""
    rng = np.random.default_rng(9)
    null, window = draw(rng, 2000), draw(rng, 1200, 200, near=3)
    few = (null.nearest != 3) | (np.arange(2000) == np.flatnonzero(null.nearest == 3)[0])
    null = Margins(null.margin[few], null.nearest[few], null.weight[few], null.rows[few])
    share = np.mean(window.nearest == 3)
    rate, (low, high) = estimate_rate(null, window)

    assert low <= 200 / 1200 <= high
    assert high <= rate + share + 0.15


@pytest.mark.parametrize(
    ("p_value", "facts", "verdict"),
    [
        (0.5, None, Verdict.NO_CHANGE),
        (1e-9, excess(), Verdict.UNKNOWNS),
        # No more than a drift of that size would do forward.
        (1e-3, excess(beyond_p_value=0.02), Verdict.DRIFT),
        # Proven in the reverse, but minute: not worth the word.
        (1e-9, excess(reverse=0.01, reverse_p_value=1e-9), Verdict.UNKNOWNS),
        (
            1e-9,
            excess(
                reverse=0.1,
                reverse_p_value=1e-9,
                beyond=0.0,
                beyond_interval=(-0.02, 0.02),
                unmatched=0.2,
            ),
            Verdict.DRIFT,
        ),
        # A small window: the reverse proves nothing, but plainly half of the change is drift.
        (
            1e-9,
            excess(reverse=0.06, reverse_p_value=0.2, beyond_interval=(0.0, 0.1), unmatched=0.4),
            Verdict.DRIFT,
        ),
        (
            1e-9,
            excess(forward=0.3, reverse=0.15, reverse_p_value=1e-9, unmatched=0.5),
            Verdict.UNKNOWNS_AND_DRIFT,
        ),
        # One class vanished while another came: what is flagged falls to classes that stayed.
        (
            1e-9,
            excess(reverse=0.12, reverse_p_value=1e-9, beyond_interval=(-0.1, 0.0), unmatched=0.9),
            Verdict.UNKNOWNS_AND_DRIFT,
        ),
        # Everything moved: nothing can be seen behind it.
        (1e-9, excess(forward=0.9, reverse=0.8, reverse_p_value=1e-9), Verdict.DRIFT),
    ],
)
def test_verdicts(p_value, facts, verdict):
    """Forward alone is a new class, both ways is drift, and more than drift explains is both."""
    assert decide(p_value, facts, alpha=0.01) is verdict


def test_an_assessment_is_a_sentence_and_stays_as_it_is():
    """The facts read as one sentence, and nobody can change them afterwards."""
    facts = Assessment(Verdict.UNKNOWNS, 1e-5, True, 0.07, (0.04, 0.1), 0.01, {"gate": "kernel"})

    assert str(facts) == (
        "About 7 % (4-10 %) of this window belongs to something the model was never taught."
    )
    with pytest.raises(FrozenInstanceError):
        facts.detected = False
    with pytest.raises(TypeError, match="does not support item assignment"):
        facts.diagnostics["gate"] = "forest"

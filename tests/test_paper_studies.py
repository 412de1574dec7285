"""The supplement's studies: what is planned, what a record holds, what the page says of it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.paper.planes import N_KNOWN, place_known, place_outside
from benchmarks.paper.studies import STUDIES, compare_csi, plan, rectify_real
from benchmarks.paper.study_plots import draw
from benchmarks.paper.study_texts import mean_interval, rank_correlation, sections


@pytest.fixture(autouse=True)
def one_thread():
    """Threads for tiny fits only wait for each other: on a busy machine, for minutes."""
    with threadpool_limits(1):
        yield


def fake_csi(**csi_by_panel):
    """Records of two problems in which RTSCV always reaches 90."""
    return [
        {"study": "csi", "panel": panel.replace("_", " "), "value": 4, "seed": seed}
        | {"csi": csi + seed, "paper": 90.0 + seed, "monitor": 91.0 + seed}
        for panel, csi in csi_by_panel.items()
        for seed in (0, 1)
    ]


def fake_curve(f_by_ratio, monitor=95.0):
    """Records of two removals of classes from Pendigits, at some ratios."""
    common = {"study": "sample_ratio", "data": "pendigits", "hidden": 3}
    modes = [("pre", 0.0, 70.0), ("monitor", None, monitor)]
    modes += [("paper", ratio, f) for ratio, f in f_by_ratio.items()]
    return [
        common | {"mode": mode, "ratio": ratio, "f": f + seed, "seed": seed}
        for mode, ratio, f in modes
        for seed in (0, 1)
    ]


def fake_folds(f_by_folds, before=70.0):
    """Records of two removals of classes from the digits, at some numbers of folds."""
    common = {"study": "folds", "data": "digits", "hidden": 3, "ratio": 0.1}
    rows = [("pre", "3", before), *(("paper", folds, f) for folds, f in f_by_folds.items())]
    return [
        common | {"mode": mode, "folds": folds, "f": f + seed, "seed": seed}
        for mode, folds, f in rows
        for seed in (0, 1)
    ]


def fake_j1(slope):
    """Records of ten problems in which F follows J1 up or down."""
    return [
        {"study": "j1", "varied": varied, "seed": seed, "j1": 1.0 + seed}
        | {name: 80 + slope * seed for name in ("paper", "monitor")}
        | {name: 100.0 for name in ("paper_unknown", "monitor_unknown")}
        for varied in ("known", "unknown")
        for seed in range(10)
    ]


def fake_boundaries(**f_by_model):
    """Records of an SVM in two planes."""
    return [
        {"study": "boundaries", "learner": "SVM", "model": model, "seed": seed}
        | {"f": f + seed, "black": 0.1}
        for model, f in f_by_model.items()
        for seed in (0, 1)
    ]


def test_quick_plan_has_every_study():
    """A sanity run leaves no study out, and each job can be sent to another process."""
    planned = {study: list(plan(True, (study,))) for study in STUDIES}

    assert len(list(plan(True))) == sum(map(len, planned.values()))
    for jobs in planned.values():
        assert jobs
        assert pickle.loads(pickle.dumps(jobs[0])).func is jobs[0].func


@pytest.mark.parametrize("study", STUDIES)
def test_whole_plan_has_five_repeats(study):
    """No figure of the page rests on fewer than five seeds."""
    seeds = {
        job.keywords.get("seed", job.args[-1] if job.args else None)
        for job in plan(False, (study,))
    }

    assert len(seeds) >= 5


@pytest.mark.parametrize("study", ["csi", "j1", "boundaries"])
def test_records_make_a_section(study):
    """What a job of the plan returns is all that its section of the page needs."""
    jobs = list(plan(True, (study,)))

    records = [job() for job in (jobs if study == "boundaries" else jobs[::4])]

    (section,) = sections(records)
    assert {record["study"] for record in records} == {study}
    assert f"(images/paper-{study}.png)" in section


def test_real_data_is_scored_in_each_mode():
    """The same hidden classes are scored before, by the paper's algorithm and by the monitor."""
    common = {"study": "folds", "seed": 0}
    before = rectify_real("digits", mode="pre", **common)
    paper = rectify_real("digits", mode="paper", ratio=0.1, folds="holdout", **common)
    monitor = rectify_real("digits", mode="monitor", **common)

    assert before["known_lost"] == 0
    assert before["f"] < paper["f"] < monitor["f"]


def test_csi_does_well_with_one_far_cluster_only():
    """The supplement's claim: one far cluster suits CSI, and two clusters do not."""
    one = [compare_csi("one cluster", 4, seed) for seed in range(3)]
    two = [compare_csi("two clusters", 4, seed) for seed in range(3)]

    def mean(records, method):
        return np.mean([record[method] for record in records])

    assert mean(one, "csi") == pytest.approx(mean(one, "paper"), abs=2)
    assert mean(two, "csi") < mean(two, "paper") - 10
    assert min(mean(one, "monitor"), mean(two, "monitor")) > 90


@pytest.mark.parametrize("seed", range(30))
def test_places_keep_their_distance(seed):
    """An unknown cluster lies as far from the nearest known class as was asked for."""
    known = place_known(np.random.default_rng(seed))

    gaps = np.linalg.norm(known - place_outside(known, 6.0, angle=1.0), axis=1)

    assert len(known) == N_KNOWN
    assert gaps.min() == pytest.approx(6)


def test_section_says_who_is_ahead():
    """Which of CSI and RTSCV is ahead is read from the records, whichever it is."""
    (behind,) = sections(fake_csi(one_cluster=90.0, two_clusters=60.0, distance=80.0))
    (ahead,) = sections(fake_csi(one_cluster=60.0, two_clusters=95.0, distance=95.0))

    assert "RTSCV is ahead by 30.0 points" in behind
    assert "3 of 3 panels agree" in behind
    assert "CSI is ahead by 5.0 points" in ahead
    assert "0 of 3 panels agree" in ahead


def test_section_names_the_best_ratio():
    """The best ratio, and whether it is where the paper found it, come from the records."""
    (inside,) = sections(fake_curve({0.02: 80.0, 0.08: 96.0, 0.4: 85.0}))
    (outside,) = sections(fake_curve({0.02: 80.0, 0.08: 85.0, 0.4: 96.0}, monitor=97.5))

    assert "range of 0.06 to 0.1 for Pendigits; F rises and then falls" in inside
    assert "-1.0 on Pendigits" in inside
    assert "range of 0.06 to 0.1 for none of them" in outside
    assert "+1.5 on Pendigits" in outside


def test_section_compares_folds_with_holdout():
    """How much folds matter, and what holdout recovers, come from the records."""
    (section,) = sections(fake_folds({"2": 89.0, "3": 90.0, "6": 91.5, "holdout": 80.0}))

    assert "at most 2.5 points (digits)" in section
    assert "never more than 1.5 points below the best" in section
    assert "holdout validation reaches 50 % on digits" in section


@pytest.mark.parametrize(("slope", "cases"), [(1, 4), (-1, 0)])
def test_section_counts_positive_correlations(slope, cases):
    """A correlation counts as positive only where its limits are."""
    (section,) = sections(fake_j1(slope))

    assert f"in {cases} of 4 cases" in section
    assert "nan" not in section


def test_section_names_the_best_model():
    """Whose boundaries classify best comes from the records."""
    (section,) = sections(fake_boundaries(augmented=80.0, paper=95.0, monitor=93.0))

    assert "highest for SVM rectified in paper mode" in section
    assert "-2.0 points with SVM" in section


def test_each_study_has_its_picture(tmp_path):
    """The page shows no picture that was not drawn."""
    records = [
        *fake_csi(one_cluster=90.0, two_clusters=60.0, distance=80.0),
        *fake_curve({0.02: 80.0, 0.1: 96.0}),
        *fake_folds({"2": 89.0, "3": 90.0, "holdout": 80.0}),
        *fake_j1(1),
    ]

    draw(records, tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {
        f"paper-{name}.png" for name in ("csi", "sample-ratio", "folds", "j1")
    }
    shown = "".join(sections(records))
    assert all(f"(images/{path.name})" in shown for path in tmp_path.iterdir())


def test_interval_of_a_mean():
    """The interval is Student's, and one repeat has none."""
    mean, half = mean_interval(pd.Series([1.0, 2.0, 3.0]))

    assert (mean, half) == pytest.approx((2.0, 4.303 / 3**0.5), abs=1e-3)
    assert np.isnan(mean_interval(pd.Series([1.0]))[1])
    assert np.isnan(rank_correlation(pd.Series([1, 2]), pd.Series([1, 1]))[0])

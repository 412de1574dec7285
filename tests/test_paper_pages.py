"""The page of the paper's benchmark: it says what its records say, and no more."""

import json
from functools import partial

import pandas as pd
import pytest

from benchmarks.paper import pages, tables
from benchmarks.paper.network_pages import describe_networks
from benchmarks.paper.published import NETWORKS, TABULAR
from benchmarks.paper.store import ROOT, Store, name_of, run
from rtscv_mlops.bench.catalogue import DETECTORS
from rtscv_mlops.errors import InputError


def record(method, f, data="pendigits", hidden=3, seed=0, **more):
    figures = {"f": f, "auroc": 90.0, "detected": 80.0, "known_accuracy": 95.0, "seconds": 1.0}
    return {"data": data, "hidden": hidden, "seed": seed, "method": method, **figures, **more}


def text_of(*records):
    """The summary and the tables of some records."""
    frame = pd.DataFrame(records)
    blocks = [*pages.summarise(frame)]
    blocks += [block for group in pages._rows_of(frame) for block in pages.describe_row(*group)]
    return "\n".join(blocks)


def test_the_page_says_who_is_ahead():
    """The leader by mean F is computed; ours is said to be ahead only where it is."""
    ahead = text_of(record("monitor", 97.0), record("evm", 92.0), record("pre_rectified", 70.0))
    behind = text_of(
        record("monitor", 90.0), record("evm", 93.5), record("msp", 92.0), record("osnn", 91.0)
    )

    assert "the monitor (97.0) is ahead of every other method; the next is EVM (92.0)" in ahead
    assert "There is no row where it is not." in ahead
    assert "the monitor (90.0) is NOT ahead; the next is EVM (93.5)" in behind
    assert "Pendigits, 3 of 10 classes hidden (openness 9.3 %) (rank 4, behind EVM by 3.5" in behind


def test_every_method_has_a_row():
    """One that cannot run says why, one that was not run says so; the paper's figure is beside."""
    text = text_of(
        record("monitor", 97.0, seed=0),
        record("monitor", 95.0, seed=1),
        {"data": "pendigits", "hidden": 3, "seed": 0, "method": "energy", "reason": "No values."},
    )

    assert "| **RTSCV, monitor** | 1 | 96.0 ± 1.4 |" in text
    assert "| Energy |  | No values. |" in text
    assert "| EVM |  | not run yet | 97.0 |" in text
    for entry in DETECTORS.values():
        assert f"{entry.title}" in text


def test_networks_are_read_from_their_records():
    """Above or not above the other detectors, and what known images lose: as measured."""
    made = {"net": "ResNet", "known": "CIFAR-10", "unknown": "SVHN", "accuracy_plain": 0.72}
    made |= {"verdict": "unknowns", "unknown_rate": 0.3, "true_rate": 0.33}
    for method in ("baseline", "odin", "mahalanobis", "energy", "openmax", "rtscv"):
        made |= {f"{name}_{method}": 0.7 for name in ("auroc", "detected", "rejected", "accuracy")}
    trained = made | {"rejected_rtscv": 0.003}
    good = made | {"auroc_rtscv": 0.9, "detected_rtscv": 0.8, "accuracy_rtscv": 0.715}

    said = "\n".join(describe_networks([made]))
    better = "\n".join(describe_networks([good]))

    assert "AUROC 70.0, NOT above" in said
    assert "2.0 points below the plain network's, more than the one point aimed at. Verdict" in said
    assert "0.3 % of known images are called unknown, and the rest" in "".join(
        describe_networks([trained])
    )
    assert "AUROC 90.0, above" in better
    assert "Detection accuracy 80.0, above" in better
    assert "0.5 points below the plain network's. Verdict" in better
    assert "93.9 / 85.1 / 89.9" in better
    assert "Planned and not measured yet: ResNet on CIFAR-10 against Tiny-ImageNet," in better


def test_the_page_is_what_its_records_say():
    """docs/benchmarks.md is written by `make bench-paper`, and never by hand."""
    results = ROOT / "benchmarks" / "results"
    parts = ("tabular", "networks", "studies")
    stored = {part: Store(results / f"paper-{part}.json").records for part in parts}
    records = {part: list(kept.values()) for part, kept in stored.items()}

    written = (ROOT / "docs" / "benchmarks.md").read_text()

    # What comes before names the versions of the machine that measured.
    after = "## Tabular data"
    assert written.partition(after)[2] == pages.page_text(records, "").partition(after)[2]


def test_the_paper_s_figures_are_in_range():
    """Every figure copied from the paper is a percentage, of a method that exists."""
    for figures in TABULAR.values():
        assert set(figures) <= set(DETECTORS)
        assert all(20 < figure < 100 for figure in figures.values())
    for row in NETWORKS.values():
        assert all(one is None or 70 < one < 100 for figures in row.values() for one in figures)


def _double(number):
    return {"number": 2.0 * number}


def test_a_benchmark_goes_on_where_it_was_stopped(tmp_path):
    """What has a record is not measured again; records come back from the file as they were."""
    jobs = {name_of(job): job for job in (partial(_double, 1), partial(_double, number=2))}
    store = Store(tmp_path / "deep" / "records.json")
    store.keep("_double 1", {"number": 99.0})

    run(store, "numbers", jobs, n_jobs=1)

    again = Store(store.path)
    assert again.records == {"_double 1": {"number": 99.0}, "_double number=2": {"number": 4.0}}
    assert json.loads(store.path.read_text()) == again.records


def _lack_data():
    raise InputError("There is no such file. Get it.")


def test_a_job_without_data_stops_no_other(tmp_path, capsys):
    """Its reason is told, it has no record, and the next run tries it again."""
    store = Store(tmp_path / "records.json")

    run(store, "numbers", {"none": partial(_lack_data), "one": partial(_double, 1)}, n_jobs=1)

    assert store.records == {"one": {"number": 2.0}}
    assert "none: There is no such file. Get it." in capsys.readouterr().out


def test_a_detector_that_cannot_run_leaves_a_reason(monkeypatch):
    """The record has no figures then, and the sentence of the error instead."""
    monkeypatch.setattr(tables, "draw", lambda *_: _small_case())
    monkeypatch.setattr(tables, "base_of", lambda _: _NoDecision())

    refused = tables.measure("pendigits", 3, "energy", 0)
    judged = tables.measure("pendigits", 3, "mahalanobis", 0)

    assert "decision values" in refused["reason"]
    assert "f" not in refused
    assert judged["detected"] == 100.0
    assert judged["auroc"] == 100.0


def _small_case():
    import numpy as np

    from benchmarks.windows import Case

    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + 8 * np.eye(4)[y]
    far = rng.normal(size=(20, 4)) + 8 * np.eye(4)[3]
    window = np.concatenate([X[:60] + 0.01, far])
    truth = np.concatenate([y[:60], np.full(20, 3)])
    return Case(X=X, y=y, window=window, truth=truth, baseline=X[:0], n_known=3)


def _NoDecision():
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


@pytest.mark.parametrize("quick", [True, False])
def test_the_plan_has_every_method_on_every_row(quick):
    """The whole plan is every detector on the nine rows of Table 1, for each removal of classes."""
    names = [name for name, _ in tables.plan(seeds=2, quick=quick)]

    assert len(set(names)) == len(names) == (2 if quick else 2 * 9) * len(DETECTORS)

"""One window from end to end: what it leaves in MLflow, for each verdict."""

import json
import re

import mlflow
import numpy as np
import pandas as pd
import pytest

from benchmarks.deployments import (
    CANARY,
    COLUMNS,
    EMPTY,
    KNOWN,
    MODEL,
    MOVED,
    NEW,
    QUIET,
    WITH_FIGS,
    leaves,
)
from rtscv_mlops.alerts.alert import AlertDecision, make_alert
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.pipeline.run import run_window
from rtscv_mlops.pipeline.stages import rectify_window, take_window, write_report
from rtscv_mlops.review.answers import show_challenger
from rtscv_mlops.review.question import one_line
from rtscv_mlops.text import rate
from rtscv_mlops.tracking.registry import read_facts
from rtscv_mlops.tracking.runs import RunLinks, WindowRun
from rtscv_mlops.window import Interval
from tests.deployments import deployed, judged

VERDICTS = {
    QUIET: "no_change",
    MOVED: "drift",
    NEW: "unknowns",
    EMPTY: "not_assessed:empty_window",
}


@pytest.fixture(scope="module")
def deployment():
    """Each day of it was judged; not to be changed."""
    return judged()


# -- what every window leaves


def test_the_report_leads_to_its_run(tmp_path, monkeypatch):
    """Where MLflow has a web page, the report links its run there, and not itself."""
    links = RunLinks("https://mlflow.example/#/runs/1", "https://mlflow.example/report")
    monkeypatch.setattr(WindowRun, "links", lambda *_: links)
    deployment = deployed(tmp_path)

    deployment.run(QUIET)

    page = deployment.window_run(QUIET).download("report.html", tmp_path).read_text()
    assert links.run in page
    assert links.report not in page


@pytest.mark.parametrize(("day", "verdict"), VERDICTS.items())
def test_a_window_leaves_its_verdict(deployment, day, verdict):
    """The file, the tag and the metrics of a run say what the facts say, and nothing else."""
    run = deployment.window_run(day)

    facts = WindowFacts.model_validate(run.read_json("verdict.json"))

    assert facts.schema_version == 3
    assert facts.verdict == verdict == run.tags()["rtscv.verdict"]
    metrics = deployment.client.get_run(run.run_id).data.metrics
    assert metrics == pytest.approx(facts.metrics())
    assert (facts.monitor, facts.model) == (MODEL, MODEL)


@pytest.mark.parametrize("day", [QUIET, MOVED, NEW])
def test_an_assessed_window_can_be_looked_into(deployment, day):
    """Its run is finished and holds params, datasets with digests, the report and the scores."""
    run = deployment.window_run(day)

    stored = deployment.client.get_run(run.run_id)

    assert stored.info.status == "FINISHED"
    assert stored.data.tags["rtscv.state"] == "complete"
    assert stored.data.params["seed"] == "0"
    assert stored.data.params["alpha"] == "0.01"
    inputs = {entry.dataset.name: entry for entry in stored.inputs.dataset_inputs}
    # Only where there is a challenger, there is something that it was fitted on.
    fitted_on = {"training": "training"} if day == NEW else {}
    assert all(entry.dataset.digest for entry in inputs.values())
    contexts = {
        name: tag.value
        for name, entry in inputs.items()
        for tag in entry.tags
        if tag.key == "mlflow.data.context"
    }
    assert contexts == {"window": "deployment", "reference": "reference", **fitted_on}
    assert read_facts(run).digest.startswith(inputs["window"].dataset.digest)
    assert {"verdict.json", "report.html", "evidence.npz"} <= run.list_artifacts()


def test_metrics_hold_what_teams_plot(deployment):
    """Rows, sample, unknowns, rate with interval, p-value, groups, drift, both models, timings."""
    facts = read_facts(deployment.window_run(NEW))

    metrics = facts.metrics()

    assert metrics["window_rows"] == metrics["sampled_rows"] == 250
    assert metrics["unknown_rate_low"] < 40 / 250 < metrics["unknown_rate_high"]
    assert metrics["unknown_rate_low"] <= metrics["unknown_rate"] <= metrics["unknown_rate_high"]
    assert metrics["p_value"] < 0.01
    by_cluster = [metrics[f"cluster_{card.number}_rows"] for card in facts.clusters]
    assert sum(by_cluster) == metrics["unknowns"] == facts.unknowns
    assert 0 < metrics["drift_share"] <= 1
    for model in ("champion", "challenger"):
        assert metrics[f"{model}_accuracy"] > 0.9
        assert metrics[f"{model}_macro_f"] > 0.9
    assert {"seconds_rectify", "seconds_compare"} <= set(metrics)


def test_what_was_not_assessed_has_no_figures(deployment):
    """An empty day is a failed run with its reason: no rate, no p-value, no version, no report."""
    run = deployment.window_run(EMPTY)

    stored = deployment.client.get_run(run.run_id)

    assert stored.info.status == "FAILED"
    assert stored.data.tags["rtscv.state"] == "failed:empty_window"
    assert "no rows" in stored.data.tags["rtscv.error"]
    assert not {"unknown_rate", "p_value", "unknowns"} & set(stored.data.metrics)
    assert "report.html" not in run.list_artifacts()
    assert deployment.versions(EMPTY) == []


def test_all_renderings_agree(deployment):
    """The page, the description, the alert, the run's note and the log line have one headline."""
    run = deployment.window_run(NEW)
    (version,) = deployment.versions(NEW)
    facts = read_facts(run)

    question = show_challenger(deployment.monitor(), version.version)
    alert = make_alert(facts, AlertDecision(True, "why"), {})

    assert question.facts == facts
    estimate = rate(facts.unknown_rate, facts.unknown_rate_interval)
    assert estimate.lower() in facts.headline.lower()
    assert estimate in question.description
    assert estimate in alert.subject
    assert estimate in one_line(facts)
    assert facts.headline in json.dumps(alert.payload())


# -- unknown rows


def test_unknown_rows_are_kept(deployment, tmp_path):
    """The rows set apart can be read again, with what the champion called them and their group."""
    run = deployment.window_run(NEW)
    facts = read_facts(run)

    rows = pd.read_parquet(run.download("unknowns.parquet", tmp_path))

    added = ["rtscv.champion_called", "rtscv.unknown_score", "rtscv.cluster"]
    assert list(rows.columns) == [*COLUMNS, *added]  # and no key, which nobody allowed
    assert len(rows) == facts.unknowns
    assert rows["rtscv.cluster"].value_counts().to_dict() == {
        card.number: card.size for card in facts.clusters
    }
    with np.load(run.download("evidence.npz", tmp_path)) as evidence:
        assert evidence["unknown"].sum() == facts.unknowns
        assert len(evidence["window_scores"]) == facts.sampled


@pytest.mark.parametrize(
    ("report", "columns"),
    [
        ("{key: true}", ["leaf", *COLUMNS]),
        ("{key: true, columns: none}", ["leaf"]),
        ("{columns: [width, leaf]}", ["leaf", "width"]),
    ],
)
def test_unknown_rows_can_be_joined_by_key(tmp_path, report, columns):
    """Where the monitor lets the key leave the source, each unknown row has its own key."""
    deployment = deployed(tmp_path)
    taken = take_window(deployment.monitor(more=f"report: {report}\n"), Interval.day(NEW))

    rectify_window(taken)

    rows = pd.read_parquet(taken.run.download("unknowns.parquet", tmp_path))
    served = pd.read_parquet(tmp_path / "windows" / f"day={NEW}")
    assert [name for name in rows.columns if not name.startswith("rtscv.")] == columns
    joined = rows.merge(served, on="leaf", suffixes=("", "_served"))
    assert len(joined) == len(rows) > 0
    assert (joined["kind"] == "fig").mean() > 0.8
    for name in set(columns) - {"leaf"}:
        assert joined[name].tolist() == joined[f"{name}_served"].tolist()


@pytest.mark.parametrize("day", [QUIET, MOVED, EMPTY])
def test_a_day_without_unknowns_leaves_none(deployment, day):
    """No rows, no groups and no version come of a day on which nothing new was seen."""
    run = deployment.window_run(day)

    assert not {"unknowns.parquet", "clusters.json"} & run.list_artifacts()
    assert deployment.versions(day) == []

    """A value of such a column is in no artifact, tag, param, page or table of MLflow."""
    assert CANARY.encode() in (deployment.folder / "windows" / f"day={NEW}/0.parquet").read_bytes()

    for file in [*deployment.folder.rglob("*.*")]:
        if file.is_file() and "windows" not in file.parts:
            assert CANARY.encode() not in file.read_bytes(), file


def test_columns_that_may_not_be_shown_are_not(tmp_path):
    """With report.columns, other columns of the model are in no artifact; caps are kept."""
    deployment = deployed(tmp_path)
    rows, kinds = leaves(3, WITH_FIGS)
    secret = 98_765.4321
    deployment.write_day(NEW, rows.assign(veins=rows["veins"].where(kinds != "fig", secret)), kinds)
    more = "report:\n  columns: [length]\n  max_unknowns: 7\n  exemplars: 2\n"
    taken = take_window(deployment.monitor(more=more), Interval.day(NEW))

    done = rectify_window(taken)
    facts, _ = write_report(taken.monitor, taken.run, done.facts, done.evidence)

    shown = pd.read_parquet(taken.run.download("unknowns.parquet", tmp_path))
    assert len(shown) == 7
    assert shown.columns[0] == "length"
    assert not {"width", "veins"} & set(shown.columns)
    assert [column.name for column in facts.drift.columns] == ["length"]
    assert all(set(row) == {"length"} for card in facts.clusters for row in card.exemplars)
    assert all(len(card.exemplars) <= 2 for card in facts.clusters)
    for name in ("verdict.json", "clusters.json", "report.html"):
        text = taken.run.download(name, tmp_path).read_text()
        # Also as a report would round it; a projection is full of small numbers, not of such ones.
        assert not re.search(r"98,?765|9\.88?77?e\+?04", text)
        assert "veins" not in text


@pytest.mark.parametrize(
    ("method", "tested"), [("wasserstein", 0), ("ks", 100)], ids=["distance", "test"]
)
def test_drift_is_of_all_rows(tmp_path, method, tested):
    """Few rows stand for a large window, to the distance that all rows have; tests see few."""
    drift = f"drift:\n  max_rows: 100\n  num_method: {method}\n"
    places = {"every": "", "few": drift}
    every, few = (
        run_window(deployed(tmp_path / name).monitor(more=more), Interval.day(MOVED)).facts.drift
        for name, more in places.items()
    )

    assert (few.window_rows, few.reference_rows) == (every.window_rows, every.reference_rows)
    assert few.window_rows > 100
    assert few.tested_rows == tested
    if method == "wasserstein":
        found, expected = ({one.name: one.score for one in facts.columns} for facts in (few, every))
        assert found == pytest.approx(expected, rel=0.05, abs=0.01)


# -- the challenger


def test_the_challenger_waits_for_a_person(deployment):
    """It has the alias and the tags that tie it to window, champion and report; nothing moved."""
    (version,) = deployment.versions(NEW)
    run = deployment.window_run(NEW)

    stored = deployment.client.get_model_version(MODEL, version.version)

    assert deployment.aliases() == {"champion": "1", "challenger": version.version}
    assert stored.tags["rtscv.review"] == "pending"
    assert stored.tags["rtscv.window"] == Interval.day(NEW).id
    assert stored.tags["rtscv.champion_version"] == "1"
    assert stored.tags["rtscv.key"] == read_facts(run).key
    assert stored.tags["rtscv.report_sha256"] == run.tags()["rtscv.report_sha256"]
    assert stored.tags["rtscv.model_sha256"] == run.tags()["rtscv.model_sha256"]
    assert stored.run_id == run.run_id
    assert run.tags()["rtscv.version"] == version.version


def test_the_description_is_enough_to_decide_on(deployment):
    """The registry page asks the question and shows groups, classes and the commands."""
    (version,) = deployment.versions(NEW)

    text = deployment.client.get_model_version(MODEL, version.version).description

    assert "may this model replace version 1 of leaves?" in text
    assert "| 1" in text  # the first group
    for kind in KNOWN:
        assert f"| {kind}" in text
    assert f"review approve leaves.yaml --version {version.version}" in text


def test_the_challenger_is_a_drop_in(deployment):
    """Loaded by its alias, it answers with the known labels and, for fig leaves, with unknown."""
    deployment.client  # noqa: B018 - points MLflow at this deployment
    challenger = mlflow.pyfunc.load_model(f"models:/{MODEL}@challenger")
    champion = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
    rows, kinds = leaves(99, WITH_FIGS)

    answers = np.asarray(challenger.predict(rows))

    assert set(answers) == {*KNOWN, "unknown"}
    assert np.mean(answers[kinds == "fig"] == "unknown") > 0.9
    assert np.mean(answers[kinds != "fig"] == kinds[kinds != "fig"]) > 0.9
    signature = challenger.metadata.signature
    assert signature.inputs.input_names() == COLUMNS
    assert signature.inputs == champion.metadata.signature.inputs
    assert challenger.input_example is not None


def test_the_report_says_how_it_was_obtained(deployment, tmp_path):
    """Settings are stored under machine keys, and shown under titles as text and numbers."""
    run = deployment.window_run(NEW)

    facts = read_facts(run)

    assert facts.settings["cv"] == 3
    assert facts.settings["gate"] == "KernelGate"
    assert facts.settings["sample_rate"] > 0
    assert "fig" not in facts.settings["looks_like"]
    assert sum(facts.settings["looks_like"].values()) == facts.unknowns
    shown = facts.shown_settings()
    assert shown["folds (k)"] == 3
    assert all(isinstance(value, str | int | float) for value in shown.values())
    assert "weight of the window (c)" in run.download("report.html", tmp_path).read_text()

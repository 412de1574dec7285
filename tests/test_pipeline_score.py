"""Late labels: how right a verdict was, logged to the run that gave it; and what purge removes."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.svm import SVC

from benchmarks.deployments import EMPTY, MODEL, NEW, QUIET, leaves
from rtscv_mlops import log_champion
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ConfigError, NotAssessed, WindowError
from rtscv_mlops.facts import SETTING_TITLES
from rtscv_mlops.operations.check import check_monitor
from rtscv_mlops.operations.purge import purge_windows
from rtscv_mlops.operations.score import score_window
from rtscv_mlops.tracking.registry import read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.deployments import judged_copy

LABELS = "labels:\n  path: labels.parquet\n  key: leaf\n  label: kind\n"


@pytest.fixture
def deployment(tmp_path):
    """Each day of it was judged."""
    return judged_copy(tmp_path)


def write_labels(deployment, day, share=1.0):
    table = pd.read_parquet(deployment.folder / "windows" / f"day={day}")[["leaf", "kind"]]
    table.sample(frac=share, random_state=0).to_parquet(deployment.folder / "labels.parquet")


def with_label_column(deployment, named="kind"):
    """A monitor whose windows hold the truth themselves."""
    file = deployment.write_monitor()
    file.write_text(file.read_text().replace("  key: leaf\n", f"  key: leaf\n  label: {named}\n"))
    return file


def test_labels_from_a_table_of_their_own(deployment):
    """They are joined by key, and the true figures stand beside the estimated ones."""
    write_labels(deployment, NEW)
    monitor = deployment.monitor(more=LABELS)

    score = score_window(monitor, Interval.day(NEW))

    assert (score.labelled, score.sampled) == (250, 250)
    assert score.figures["unknown_rate"] == pytest.approx(40 / 250)
    for name in ("detection_accuracy", "classification_accuracy", "macro_f", "auroc"):
        assert 0.9 < score.figures[name] <= 1, name
    assert 0 < score.figures["openness"] < 1
    run = deployment.window_run(NEW)
    assert run.run_id == score.run_id
    metrics = deployment.client.get_run(run.run_id).data.metrics
    logged = {name.removeprefix("true_"): metrics[name] for name in metrics if "true_" in name}
    assert logged == pytest.approx(score.figures)
    facts = read_facts(run)
    low, high = facts.unknown_rate_interval
    assert low < metrics["true_unknown_rate"] < high


def test_labels_that_the_window_holds(deployment):
    """With source.label there is nothing to join, and the figures are the same."""
    write_labels(deployment, NEW)
    joined = score_window(deployment.monitor(more=LABELS), Interval.day(NEW))

    score = score_window(load_monitor(with_label_column(deployment)), Interval.day(NEW))

    assert score.figures == pytest.approx(joined.figures)


def test_labels_that_arrive_in_the_window_make_no_other_window(deployment):
    """A label column that fills up later changes neither the digest nor the rows looked at."""
    file = deployment.folder / "windows" / f"day={NEW}" / "0.parquet"
    table = pd.read_parquet(file)
    monitor = load_monitor(with_label_column(deployment))
    full = score_window(monitor, Interval.day(NEW))
    table.assign(kind=table["kind"].where(table.index % 2 == 0)).to_parquet(file)

    half = score_window(monitor, Interval.day(NEW))

    assert (full.labelled, half.labelled) == (250, 125)
    assert half.run_id == full.run_id


def test_some_labels_are_enough(deployment):
    """Those that have arrived are scored, and how many they are is said."""
    write_labels(deployment, QUIET, share=0.5)

    score = score_window(deployment.monitor(more=LABELS), Interval.day(QUIET))

    assert (score.labelled, score.sampled) == (105, 210)
    assert score.figures["unknown_rate"] == 0
    assert "auroc" not in score.figures
    assert all(np.isfinite(list(score.figures.values())))


def test_a_monitor_without_labels_is_told_how(deployment):
    """The sentence names the settings to write."""
    with pytest.raises(ConfigError, match=r"Set labels: .*or source.label"):
        score_window(deployment.monitor(), Interval.day(NEW))


def test_a_misspelt_label_column_is_named(deployment):
    """`check` warns of it, which a run does without; `score` names it."""
    monitor = load_monitor(with_label_column(deployment, named="knid"))

    found = [one.found for one in check_monitor(monitor) if one.state == "warning"]

    assert any("no column 'knid', which source.label names" in each for each in found)
    with pytest.raises(ConfigError, match=r"have no column 'knid', which source.label names"):
        score_window(monitor, Interval.day(NEW))


def test_labels_that_fit_no_row(deployment):
    """Labels of other days are no labels of this one."""
    write_labels(deployment, QUIET)

    with pytest.raises(NotAssessed, match="No label has arrived for the 250 rows"):
        score_window(deployment.monitor(more=LABELS), Interval.day(NEW))


def test_a_window_without_a_verdict_cannot_be_scored(deployment):
    """There is nothing to compare the truth with."""
    write_labels(deployment, QUIET)

    with pytest.raises(NotAssessed, match=f"Window {EMPTY} has no verdict. Run it first"):
        score_window(deployment.monitor(more=LABELS), Interval.day(EMPTY))


def test_rows_that_changed_cannot_be_scored(deployment):
    """Answers belong to the rows that were looked at; other rows need another verdict."""
    write_labels(deployment, QUIET)
    deployment.write_day(QUIET, *leaves(7, {"oak": 20}), part="late")

    with pytest.raises(WindowError, match=r"changed since it was judged.*Run the window again"):
        score_window(deployment.monitor(more=LABELS), Interval.day(QUIET))


def judged_with(deployment, more):
    """The monitor with other settings, and the run of the new day that these led to."""
    monitor = deployment.monitor(more=more)
    return monitor, deployment.run(NEW, monitor).run_id


def test_the_run_of_the_present_settings_is_scored(deployment):
    """Which of two verdicts is scored goes by the monitor's settings, not by which came last."""
    write_labels(deployment, NEW)
    first, earlier = judged_with(deployment, LABELS)
    other, later = judged_with(deployment, LABELS + "rectify: {alpha: 0.001}\n")

    scores = score_window(first, Interval.day(NEW)), score_window(other, Interval.day(NEW))

    assert [score.run_id for score in scores] == [earlier, later]
    assert earlier != later
    assert [score.note for score in scores] == ["", ""]


def test_settings_that_judged_nothing_score_the_latest_verdict(deployment):
    """Which one that was is said, and its rows are those that were looked at then."""
    write_labels(deployment, NEW)
    judged = deployment.window_run(NEW)
    plain = score_window(deployment.monitor(more=LABELS), Interval.day(NEW))

    monitor = deployment.monitor(more=LABELS + "rectify: {max_rows: 200, seed: 5}\n")
    score = score_window(monitor, Interval.day(NEW))

    assert (score.run_id, score.figures) == (judged.run_id, plain.figures)
    assert "not judged with the monitor's present settings" in score.note
    assert f"run {judged.run_id}, champion version 1" in score.note


def test_a_verdict_of_schema_1_is_scored_on_its_own_sample(deployment):
    """An earlier release stored its settings under titles; the sample is found by them."""
    write_labels(deployment, NEW)
    few, run_id = judged_with(deployment, LABELS + "rectify: {max_rows: 200, seed: 5}\n")
    before = score_window(few, Interval.day(NEW))
    run = WindowRun(deployment.client, run_id).take_over()
    stored = run.read_json("verdict.json")
    titles = {SETTING_TITLES[key]: value for key, value in stored["settings"].items()}
    titles["class shares over training"] = "oak 1.2, elm 0.9"
    run.write_json("verdict.json", {**stored, "schema_version": 1, "settings": titles})

    score = score_window(deployment.monitor(more=LABELS + "rectify: {cv: 4}\n"), Interval.day(NEW))

    assert (score.run_id, score.sampled, score.figures) == (run_id, 200, before.figures)


def test_a_verdict_about_an_earlier_champion(deployment):
    """What was new then is still new, though the champion of today was taught it."""
    write_labels(deployment, NEW)
    monitor = deployment.monitor(more=LABELS)
    before = score_window(monitor, Interval.day(NEW))
    rows, kinds = leaves(0, dict.fromkeys(("oak", "elm", "ash", "fig"), 80))
    log_champion(
        SVC(random_state=0).fit(rows, kinds),
        rows,
        kinds,
        name=MODEL,
        experiment=MODEL,
        tracking_uri=deployment.uri,
        replace=True,
    )

    after = score_window(monitor, Interval.day(NEW))

    assert after.figures == before.figures
    assert "champion version 1" in after.note


# -- retention


def test_purge_removes_rows_and_keeps_numbers(deployment):
    """The rows of old windows are gone from the artifact store; verdict, metrics and model stay."""
    monitor, run = deployment.monitor(), deployment.window_run(NEW)
    before, metrics = read_facts(run), deployment.client.get_run(run.run_id).data.metrics
    row = before.clusters[0].exemplars[0]
    files = {file.name for file in deployment.folder.rglob(f"{run.run_id}/**/*.*")}
    assert {"unknowns.parquet", "evidence.npz", "report.html"} <= files
    assert run.list_artifacts("plots")

    purged = purge_windows(monitor, datetime(2026, 1, 8, tzinfo=UTC))

    (ours,) = [one for one in purged if one.run_id == run.run_id]
    assert {"unknowns.parquet", "report.html", "exemplars"} <= set(ours.removed)
    left = [file for file in deployment.folder.rglob(f"{run.run_id}/**/*.*") if file.is_file()]
    assert not {"unknowns.parquet", "evidence.npz", "report.html"} & {file.name for file in left}
    assert not run.list_artifacts("plots")
    assert not any(str(row["veins"]).encode() in file.read_bytes() for file in left)
    after = read_facts(run)
    assert after.clusters[0].size == before.clusters[0].size
    assert after.metrics() == before.metrics()
    assert deployment.client.get_run(run.run_id).data.metrics == metrics
    assert len(deployment.versions(NEW)) == 1


def test_purge_leaves_newer_windows_alone(deployment):
    """Only windows that ended by the moment given lose anything; a second time, nothing."""
    monitor, moment = deployment.monitor(), datetime(2026, 1, 6, tzinfo=UTC)

    purged = purge_windows(monitor, moment)
    again = purge_windows(monitor, moment)

    assert {one.run_id for one in purged} == {
        deployment.window_run(day).run_id for day in (EMPTY, QUIET)
    }
    assert all(one.removed == () for one in again)
    assert "unknowns.parquet" in deployment.window_run(NEW).list_artifacts()

"""`rtscv-mlops bench`: a known class is hidden, and the table says who would have found it."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.svm import SVC

from benchmarks.deployments import MODEL, leaves
from rtscv_mlops import demo, log_champion
from rtscv_mlops.bench.catalogue import DETECTORS, Entry
from rtscv_mlops.bench.compare import BenchData, compare_detectors, load_data
from rtscv_mlops.bench.detector import UNKNOWN, Detector
from rtscv_mlops.bench.trials import hide_classes
from rtscv_mlops.cli.output import print_bench
from rtscv_mlops.errors import InputError
from rtscv_mlops.models.training import find_class
from rtscv_mlops.window import LabelledRows
from tests.deployments import deployed
from tests.registries import client_of

KINDS = ("oak", "elm", "ash", "fig")


class Cutoff(Detector):
    """Flags leaves longer than a cutoff; fig leaves are about 9 long, oak and ash leaves 0."""

    def __init__(self, cutoff=5.0, seen=None):
        self.cutoff = cutoff
        self.seen = seen

    def fit(self, X, y, window=None):
        self.threshold_ = self.cutoff
        if self.seen is not None:
            self.seen.append(SimpleNamespace(rows=X, codes=y, window=window))
        return self

    def score(self, X):
        return X["length"].to_numpy()

    def classify(self, X):
        return np.zeros(len(X), dtype=int)


def cutoff(value=5.0, seen=None):
    return Entry("cutoff", "Cutoff", "today", "", lambda estimator, seed: Cutoff(value, seen))


def broken(estimator, seed):
    raise ModuleNotFoundError("No module named 'pyod'.\nInstall it.")


def labelled(counts, estimator=None):
    rows, kinds = leaves(0, counts)
    return BenchData("leaves", LabelledRows(rows, kinds), estimator or DummyClassifier())


@pytest.fixture(scope="module")
def forest():
    """Enough leaves of each kind for two windows."""
    return labelled({"oak": 300, "ash": 300, "fig": 300})


@pytest.fixture
def command(command, monkeypatch):
    """Run `bench` as a terminal of 100 columns would."""
    monkeypatch.setenv("COLUMNS", "100")
    return partial(command, "bench")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The monitor file of the demo, with MLflow in SQLite; nothing is judged."""
    folder = tmp_path_factory.mktemp("digits")
    demo.prepare(folder, [next(demo.make_days())])
    return folder / "digits.yaml"


def test_a_window_s_run_does_not_load_the_detectors():
    """What every task of a DAG imports has none of the eighteen in it."""
    code = "import sys, rtscv_mlops.pipeline.run; print('rtscv_mlops.bench' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


# -- what is hidden, and what is shown


def test_the_hidden_class_never_reaches_training(forest):
    """No fit is taught a row of the hidden class or a row of its own window."""
    seen = []

    compare_detectors(forest, [["fig"]], [cutoff(seen=seen)], rate=0.1, seeds=2)

    assert len(seen) == 4
    for fit in seen:
        assert set(forest.known.labels[fit.rows.index]) == {"ash", "oak"}
        assert np.array_equal(fit.codes, forest.known.labels[fit.rows.index] == "oak")
        assert not set(fit.rows.index) & set(fit.window.index)
    assert ["fig" in forest.known.labels[fit.window.index] for fit in seen] == [True, False] * 2


@pytest.mark.parametrize("rate", [0.04, 0.1, 0.3])
def test_windows_have_the_asked_rate(forest, rate):
    """The window holds the hidden class at the rate; the clean one holds none and is as large."""
    case = hide_classes(forest.known.labels, ["fig"], rate=rate)

    window, clean = case.trial.window, case.clean.window
    is_hidden = forest.known.labels[window] == "fig"
    assert is_hidden.mean() == pytest.approx(rate, abs=0.5 / len(window))
    assert np.array_equal(case.truth == UNKNOWN, is_hidden)
    assert set(forest.known.labels[clean]) == {"ash", "oak"}
    assert len(clean) == len(window)
    assert not set(clean) & set(window)


def test_no_row_has_two_parts(forest):
    """What is trained on, the window, and the known rows that it is compared with are apart."""
    case = hide_classes(forest.known.labels, ["fig"], rate=0.1)

    for trial in (case.trial, case.clean):
        parts = (trial.training, trial.window, trial.others)
        assert len(set(np.concatenate(parts))) == sum(map(len, parts))
        assert set(forest.known.labels[trial.others]) == {"ash", "oak"}


def test_a_split_can_be_repeated(forest):
    """The same seed gives the same windows, another seed gives others."""
    first, again, other = (
        hide_classes(forest.known.labels, ["fig"], rate=0.1, seed=s) for s in (0, 0, 1)
    )

    assert np.array_equal(first.trial.window, again.trial.window)
    assert not np.array_equal(first.trial.window, other.trial.window)


def test_classes_are_hidden_together():
    """Several classes are one unknown, and all of them come in the window."""
    data = labelled(dict.fromkeys(KINDS, 200))

    case = hide_classes(data.known.labels, ["fig", "elm"], rate=0.3)

    assert set(data.known.labels[case.trial.window[case.truth == UNKNOWN]]) == {"fig", "elm"}
    assert set(data.known.labels[case.trial.training]) == {"ash", "oak"}


def test_a_rare_class_makes_a_smaller_window():
    """The rate stays as asked, the window shrinks, and a note says so."""
    data = labelled({"oak": 400, "ash": 400, "fig": 20})

    done = compare_detectors(data, [["fig"]], [cutoff()], rate=0.1, seeds=1)

    assert (done.records[0].window_rows, done.records[0].hidden_rows) == (200, 20)
    assert done.notes == (
        "Only 20 rows are 'fig', so the window has 200 rows, although the other classes would "
        "allow 280.",
    )


# -- the judgement


@pytest.mark.parametrize(
    ("level", "found", "recall", "lost"),
    [(5.0, True, 1.0, 0.0), (99.0, False, 0.0, 0.0), (-99.0, False, 1.0, 1.0)],
    ids=["finds it", "flags nothing", "flags everything"],
)
def test_finding_is_more_than_flagging(forest, level, found, recall, lost):
    """A detector finds the class only if it flags more of the window than of other known rows."""
    done = compare_detectors(forest, [["fig"]], [cutoff(level)], rate=0.1, seeds=1)

    (record,) = done.records
    assert (record.found, record.quiet) == (found, True)
    assert (record.recall, record.known_lost) == (recall, lost)
    assert record.precision == (
        None if level == 99 else pytest.approx(1.0 if found else 0.1, abs=0.01)
    )
    assert record.auroc == 1.0


def test_the_monitor_judges_by_its_own_verdict(forest):
    """RTSCV finds fig leaves by its verdict, and its clean window is quiet."""
    data = replace(forest, estimator=SVC(random_state=0))

    done = compare_detectors(data, [["fig"]], [DETECTORS["monitor"]], rate=0.1, seeds=1)

    (record,) = done.records
    assert record.verdict == "unknowns"
    assert (record.found, record.quiet) == (True, True)
    assert record.recall > 0.9
    assert done.sentences[0] == (
        "The monitor would have found 'fig' at 10 % of a window of 210 rows, and was quiet on the "
        "clean window."
    )


def test_a_detector_that_cannot_run_says_why(forest):
    """Its row has the reason in place of figures, and stands below those of the others."""
    detectors = [Entry("broken", "Broken", "today", "", broken), cutoff()]

    done = compare_detectors(forest, [["fig"]], detectors, rate=0.1, seeds=1)

    works, fails = done.summaries
    assert (works.detector, works.judged, works.problem) == ("cutoff", 1, "")
    assert (fails.detector, fails.judged, fails.failed) == ("broken", 0, 1)
    assert fails.problem == "No module named 'pyod'."
    assert fails.macro_f is None


def test_a_rare_class_is_named_as_the_reason():
    """A detector that cannot split a class of three rows says which class that is."""
    detectors = [DETECTORS[name] for name in ("osnn", "pre_rectified")]
    data = labelled({"oak": 150, "ash": 150, "fig": 150, "elm": 3})

    done = compare_detectors(data, [["fig"]], detectors, rate=0.1, seeds=1)

    (osnn,) = [row for row in done.summaries if row.detector == "osnn"]
    assert osnn.problem.startswith("Class 'elm' has 1 training row after the rows are halved")
    assert "Provide more rows of it." in osnn.problem


def test_free_text_is_said_to_blind_those_that_need_numbers():
    """Which column it is stands in a note; words that recur, numbers and times are no free text."""
    rows, kinds = leaves(0, dict.fromkeys(KINDS, 50))
    told = rows.assign(
        edge=np.where(rows["veins"] > 0, "smooth", "rough"),
        seen=pd.Timestamp("2026-01-05") + pd.to_timedelta(np.arange(len(rows)), unit="min"),
    )
    texts = told.assign(note=[f"leaf {number}" for number in range(len(rows))])

    plain, text = (
        BenchData.sample("leaves", LabelledRows(table, kinds), DummyClassifier(), 1000).notes
        for table in (told, texts)
    )

    assert plain == ()
    assert "'note' is free text" in text[0]
    assert "Base model alone; RTSCV, as published; MSP; Energy" in text[0]


def test_boolean_labels_keep_their_names(tmp_path):
    """A model of true and false is told so, and not of the numbers that stand for them."""
    deployment = deployed(tmp_path)
    rows, kinds = leaves(0, {"oak": 80, "elm": 80})
    model = SVC(random_state=0).fit(rows, kinds == "oak")
    log_champion(model, rows, kinds == "oak", name="is-oak", tracking_uri=deployment.uri)

    data = load_data(deployment.monitor("is-oak", model="is-oak"), 1000)

    assert data.classes == [False, True]
    with pytest.raises(InputError, match="has 2 classes: False, True"):
        compare_detectors(data, None, [], rate=0.1, seeds=1)


@pytest.mark.parametrize("labels", [["oak", "ash", "fig"], [3, 0, 1]], ids=["words", "numbers"])
def test_class_weights_stay_with_their_classes(labels):
    """Weights by label hold for the codes that detectors learn: hiding a class moves no weight."""
    rows = labelled(dict(zip(("oak", "ash", "fig"), (300, 300, 300), strict=True)))
    named = dict(zip(("oak", "ash", "fig"), labels, strict=True))
    weights = dict(zip(labels, (1.0, 2.0, 3.0), strict=True))
    weighed = []

    class Keep(Detector):
        def __init__(self, estimator, seed):
            weighed.append(estimator.class_weight)
            raise InputError("Enough.")

    detectors = [Entry("keep", "Keep", "today", "here", Keep)]
    codes = [named[label] for label in rows.known.labels]
    with pytest.raises(InputError, match="Enough"):
        compare_detectors(
            replace(
                rows,
                known=replace(rows.known, labels=np.array(codes)),
                estimator=SVC(class_weight=weights),
            ),
            [[named["ash"]]],
            detectors,
            rate=0.1,
            seeds=1,
        )

    known = sorted([named["oak"], named["fig"]])
    assert weighed == [{code: weights[label] for code, label in enumerate(known)}]
    ours = compare_detectors(
        replace(rows, estimator=SVC(class_weight=dict(zip(named, (1.0, 2.0, 3.0), strict=True)))),
        [["ash"]],
        [DETECTORS["monitor"]],
        rate=0.1,
        seeds=1,
    )
    assert (ours.summaries[0].judged, ours.summaries[0].failed) == (1, 0)


def test_a_table_without_a_figure_is_an_error(forest):
    """If no detector can run, nothing was tried: that is an error with each one's reason."""
    detectors = [Entry("broken", "Broken", "today", "", broken)]

    with pytest.raises(InputError, match=r"No detector could run.* Broken: No module named 'pyod'"):
        compare_detectors(forest, [["fig"]], detectors, rate=0.1, seeds=1)


class Chatty(Cutoff):
    """Prints while it learns, as skorch and `verbose=True` do."""

    def fit(self, X, y, window=None):
        sys.stdout.write("Iteration 1\n")
        return super().fit(X, y, window)


def test_a_talkative_model_is_not_heard(forest, capsys):
    """What a model prints while it is fitted does not reach standard output, where JSON goes."""
    chatty = Entry("chatty", "Chatty", "today", "", lambda estimator, seed: Chatty())

    done = compare_detectors(forest, [["fig"]], [chatty], rate=0.1, seeds=1)

    assert done.summaries[0].judged == 1
    assert capsys.readouterr().out == ""


class ShortOnly(Cutoff):
    """Cannot be taught long leaves, so it runs only where fig is hidden."""

    def fit(self, X, y, window=None):
        if X["length"].max() > 5:
            raise ValueError("Too long.")
        return super().fit(X, y, window)


def test_cases_that_the_monitor_cannot_judge_are_told(forest):
    """The conclusion counts them apart, and names no class that was not judged."""
    picky = Entry("monitor", "Monitor", "ours", "", lambda estimator, seed: ShortOnly())
    detectors = [picky, Entry("broken", "Broken", "today", "", broken)]

    sentences = compare_detectors(forest, None, detectors, rate=0.1, seeds=1).sentences

    assert sentences[:2] == (
        "The monitor would have found what was hidden at 10 % of a window of 210 rows in 1 of 1 "
        "cases, and was quiet on 1 of 1 clean windows. It could not judge 2 further cases: Too "
        "long.",
        "No other detector could run.",
    )


def test_windows_of_different_size_are_told_so():
    """A rare class has a small window, which the size of another case does not stand for."""
    data = labelled({"oak": 400, "ash": 400, "fig": 10})

    done = compare_detectors(data, None, [replace(cutoff(), name="monitor")], rate=0.1, seeds=1)

    assert [record.window_rows for record in done.records] == [143, 100, 143]
    assert "10 % of a window of 100 to 143 rows in" in done.sentences[0]


def test_every_class_is_hidden_in_turn():
    """Without a choice each class has its turn; one with too few rows is left out and named."""
    data = labelled({"oak": 200, "elm": 200, "ash": 200, "fig": 4})

    done = compare_detectors(data, None, [cutoff()], rate=0.1, seeds=2)

    assert [case.hidden for case in done.cases] == [("ash",)] * 2 + [("elm",)] * 2 + [("oak",)] * 2
    assert (done.summaries[0].judged, done.summaries[0].found) == (6, 2)
    assert done.notes[0].startswith("'fig' could not be hidden. There are 4 rows of 'fig', and")


def test_better_figures_are_told_with_their_price(forest):
    """Who has every hidden row because it flags every row is not told as simply better."""
    detectors = [replace(cutoff(9.5), name="monitor"), cutoff(-99.0)]

    sentences = compare_detectors(forest, [["fig"]], detectors, rate=0.1, seeds=1).sentences

    assert "recall 1.00 by Cutoff with known lost 1.00 (monitor 0.14 " in sentences[1]
    assert "F 0." not in sentences[1]
    assert "nothing drifted" in sentences[-1]


# -- what a word means


@pytest.mark.parametrize(
    ("text", "classes", "label"),
    [
        ("3", [1, 2, 3], 3),
        ("3", [1.0, 2.0, 3.0], 3.0),
        ("3", ["1", "2", "3"], "3"),
        ("03", ["3", "03"], "03"),
        ("Fig", ["fig", "oak"], "fig"),
        ("fig", ["fig", "Fig"], "fig"),
        ("true", [False, True], True),
        ("-1", [-1, 0, 1], -1),
    ],
)
def test_a_word_means_a_class(text, classes, label):
    """A class is found by its text, whatever the type of its label."""
    found = find_class(text, classes)

    assert found == label
    assert type(found) is type(label)


def test_a_word_with_two_meanings_is_refused():
    """Two classes that the word might mean are not guessed between."""
    with pytest.raises(InputError, match=r"could be 'fig', 'Fig'. Write it exactly"):
        find_class("FIG", ["fig", "Fig"])


# -- the command


def everything(uri):
    """All runs, versions and aliases that MLflow has."""
    client = client_of(uri)
    experiments = [one.experiment_id for one in client.search_experiments()]
    return (
        {run.info.run_id: run.data.to_dictionary() for run in client.search_runs(experiments)},
        [(one.name, one.version, one.tags) for one in client.search_model_versions()],
        [(one.name, one.aliases, one.tags) for one in client.search_registered_models()],
    )


def test_the_demo_from_end_to_end(command, digits):
    """The demo's monitor finds a hidden digit, is quiet without it, and leaves MLflow as it was."""
    uri = f"sqlite:///{digits.parent}/mlflow.db"
    before = everything(uri)

    words = ("--monitor", digits, "--hide-class", 3, "--detector", "monitor", "--detector", "msp")
    code, out, _ = command(*words, "--json")

    assert code == 0
    told = json.loads(out)
    monitor, msp = told["records"]
    assert (monitor["detector"], monitor["hidden"], monitor["verdict"]) == (
        "monitor",
        [3],
        "unknowns",
    )
    assert (monitor["found"], monitor["quiet"]) == (True, True)
    assert (msp["detector"], msp["verdict"]) == ("msp", None)
    assert {row["detector"] for row in told["summary"]} == {"monitor", "msp"}
    assert "digits version 1" in told["what"]
    assert everything(uri) == before


def test_the_table_fits_a_terminal(command, digits):
    """In 100 columns each detector has one line, the monitor is marked, and words follow."""
    words = ("--monitor", digits, "--hide-class", "3", "--detector", "monitor")
    code, out, _ = command(*words, "--detector", "pre_rectified")

    lines = [line.rstrip() for line in out.splitlines()]
    assert code == 0
    assert max(map(len, lines)) <= 100
    (ours,) = [line.split() for line in lines if line.startswith(" RTSCV, monitor *")]
    assert ours[3:5] == ["yes", "yes"]
    (base,) = [line.split() for line in lines if line.startswith(" Base model alone")]
    assert base[3:7] == ["no", "yes", "0.00", "-"]
    assert "rule of ours" in " ".join(lines)
    assert "The monitor would have found 3 at 10 % of a window of" in " ".join(lines)


def test_a_narrow_terminal_loses_no_figure(forest, monkeypatch, capsys):
    """In 60 columns, or the 80 of a pipe, names and figures are all there in one line each."""
    monkeypatch.setenv("COLUMNS", "60")

    print_bench(compare_detectors(forest, [["fig"]], [cutoff()], rate=0.1, seeds=1))

    out = capsys.readouterr().out
    (row,) = [line.split() for line in out.splitlines() if line.startswith(" Cutoff")]
    assert row[1:7] == ["yes", "yes", "1.00", "1.00", "0.00", "1.00"]
    assert "…" not in out
    assert "precision  known lost  AUROC" in out


def test_digits_without_a_monitor(command):
    """Without a monitor the embedded digits are tried, so that the command works at once."""
    words = ("--hide-class", 8, "--rate", 0.2, "--seeds", 2, "--detector", "pre_rectified")
    code, out, _ = command(*words, "--max-rows", 900, "--json")

    told = json.loads(out)
    assert code == 0
    assert [record["seed"] for record in told["records"]] == [0, 1]
    assert all(r["hidden_rows"] == round(0.2 * r["window_rows"]) for r in told["records"])
    assert told["notes"][0] == "900 of 1,797 labelled rows take part; --max-rows lets more in."


def fit_svm(X, y):
    """A `fit` factory."""
    return SVC(random_state=0).fit(X, y)


def test_the_settings_of_the_monitor_count(tmp_path, command):
    """A model that `model.fit` makes is fitted by it, and the test has the level of the file."""
    deployment = deployed(tmp_path)
    more = f"  fit: {__name__}:fit_svm\nrectify:\n  alpha: 1.0e-300\n"
    strict = deployment.monitor("strict", more)

    data = load_data(strict, 1000)
    words = ("--hide-class", "oak", "--rate", 0.3, "--detector", "monitor", "--json", "--monitor")
    by_default = json.loads(command(*words, tmp_path / f"{MODEL}.yaml")[1])
    by_file = json.loads(command(*words, tmp_path / "strict.yaml")[1])

    assert data.estimator.factory == f"{__name__}:fit_svm"
    assert by_default["records"][0]["verdict"] == "unknowns"
    assert by_file["records"][0]["verdict"] == "no_change"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--hide-class", "12"), "unknown_class", "not taught a class '12'. Its classes are 1, 2,"),
        (("--rate", "10"), "bad_rate", "Write ten percent as 0.1"),
        (("--rate", "0"), "bad_rate", "more than 0 and less than 1"),
        (
            ("--rate", "0.001", "--hide-class", "1"),
            "too_few_rows",
            "0 of them hidden. It needs at least 30",
        ),
        (
            ("--detector", "oracle"),
            "unknown_detector",
            "no detector 'oracle'. Choose among monitor",
        ),
        (
            [word for digit in (1, 2, 3, 4, 5, 7, 8) for word in ("--hide-class", digit)],
            "too_few_classes",
            "leaves 1; a model needs two",
        ),
    ],
)
def test_bad_words_get_a_sentence(command, digits, words, code, sentence):
    """It says what is wrong and what to do, on standard error, and nothing is tried."""
    ended, out, err = command("--monitor", digits, *words)

    assert (ended, out) == (1, "")
    assert err.startswith(f"{code}: ")
    assert sentence in " ".join(err.split())


def test_two_classes_are_too_few():
    """With one of two hidden there is no model left to try."""
    with pytest.raises(InputError, match=r"has 2 classes: 'ash', 'oak'.*three classes or more"):
        compare_detectors(labelled({"oak": 99, "ash": 99}), None, [], rate=0.1, seeds=1)


def test_no_class_has_rows_enough():
    """If no class can be hidden in its turn, that is an error with the first reason."""
    with pytest.raises(InputError, match=r"No class can be hidden\. 'ash' could not be hidden"):
        compare_detectors(labelled(dict.fromkeys(KINDS, 9)), None, [], rate=0.1, seeds=1)


def test_a_champion_without_training_data(command, tmp_path):
    """A model that was logged without its data is told what to log."""
    deployment = deployed(tmp_path)
    client = deployment.client
    rows, kinds = leaves(0, {"oak": 9, "elm": 9, "ash": 9})
    with mlflow.start_run(experiment_id=client.get_experiment_by_name(MODEL).experiment_id):
        mlflow.sklearn.log_model(
            SVC().fit(rows, kinds),
            name="model",
            input_example=rows,
            registered_model_name=MODEL,
            serialization_format="skops",
        )
    client.set_registered_model_alias(MODEL, "champion", "2")

    code, _, err = command("--monitor", tmp_path / f"{MODEL}.yaml")

    assert code == 1
    assert err.startswith("training_data_missing: ")
    assert "rtscv_mlops.log_champion" in err

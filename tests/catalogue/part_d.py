"""Rows 67 to 82: rows and labels.

The catalogue calls a verdict `candidate` where ours is `unknowns`, and `no_unknowns` where ours is
`no_change`; drift of the known classes has a word of its own, which the catalogue does not know.
"""

from typing import Any

import mlflow
import numpy as np
import pandas as pd
from sklearn.naive_bayes import GaussianNB

from rtscv_mlops.errors import ModelError, TrainingDataError
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.models.register import log_champion
from rtscv_mlops.models.training import check_training_data
from rtscv_mlops.review.answers import show_challenger
from rtscv_mlops.tracking.registry import ModelRegistry, save_report
from rtscv_mlops.window import LabelledRows
from tests.catalogue.bench import (
    NUMBERS,
    Bench,
    Part,
    error_of,
    moments,
    shapes,
    traffic,
)
from tests.catalogue.part_c import HOSTILE

PART = Part()
FEATURES = ["height", "width"]


def labelled(rows: int = 150, labels: Any = None) -> pd.DataFrame:
    """Training rows with a label."""
    frame, names = shapes(rows)
    return frame.assign(label=names if labels is None else labels)


def taught(bench: Bench, training: pd.DataFrame) -> None:
    """Name these rows as the training data of the champion that there is."""
    training.to_parquet(bench.folder / "training.parquet", index=False)
    path = str(bench.folder / "training.parquet")
    bench.settings["reference"] = {"path": path, "label": "label"}


def refused_training(number: int, name: str, labels: Any, code: str, says: str) -> None:
    """Add a row whose training data has these labels, and is refused."""

    def put(bench: Bench) -> None:
        bench.put(traffic())
        taught(bench, labelled(labels=labels))

    PART.refused(number, name, put, code, says)


def copied(rows: int, distinct: int) -> pd.DataFrame:
    """Rows of which all but some are the same one."""
    frame = traffic(rows)
    frame.iloc[distinct:, 1:] = frame.iloc[distinct - 1, 1:].to_numpy()
    return frame


@PART.row(67, "copies-at-other-times")
def copies_at_other_times(bench):
    bench.put(copied(6_000, 60))
    says = "99% of the sampled rows differ from another one only in their time. Each was judged"
    assert bench.rectified(says).facts.verdict == "no_change"


@PART.row(67, "copies-in-full")
def copies_in_full(bench):
    bench.put(copied(6_000, 60).assign(served_at=moments(1)[0]))
    done = bench.rectified(r"5940 of 6000 rows \(99%\) repeat another row .* judged once")
    assert (done.facts.copies, done.facts.verdict) == (5_940, "no_change")


PART.refused(
    67,
    "copies-only",
    lambda bench: bench.put(copied(200, 2)),
    "bad_input",
    r"2 distinct row.* in 200, fewer than the 3 folds. Check whether its source repeats rows",
)


@PART.row(68, "only-unknowns")
def only_unknowns(bench):
    # A window without any known row cannot be told from one in which all known rows moved: the
    # verdict is drift, the interval says that all may be unknown, and the source is doubted.
    bench.put(traffic(120, new=120))
    facts = bench.rectified("Hardly any row .* known one. See whether the source").facts
    assert facts.verdict in ("drift", "unknowns", "unknowns_and_drift")
    assert facts.unknown_rate_interval[1] == 1.0


@PART.row(69, "nothing-unknown")
def nothing_unknown(bench):
    bench.put(traffic(150))
    outcome = bench.judge(report=True)
    assert (outcome.facts.verdict, outcome.version) == ("no_change", None)
    assert save_report(bench.monitor(), outcome.run_id, bench.folder).stat().st_size > 10_000
    assert ModelRegistry(bench.client, bench.model).versions.all() == []


@PART.row(70, "training-data-again")
def training_data_again(bench):
    rows, _ = shapes(150)
    bench.put(rows.assign(served_at=moments(150)))
    done = bench.rectified("100% of the rows are rows of the training data.* deployment data")
    assert done.facts.verdict == "no_change"


# There is no setting to skip such a class: leaving out what the champion knows is a decision.
refused_training(
    71,
    "class-of-one-example",
    [*np.repeat(["ape", "bee"], 74), "ape", "cat"],
    "too_few_examples",
    "training data .* only one example of 'cat'. .*add examples, or drop the class",
)
refused_training(
    72,
    "one-class",
    ["bee"] * 150,
    "one_class",
    "training data .* has 1 class.* At least two are needed",
)


def with_labels(bench: Bench, labels: Any) -> Any:
    """Teach a champion these labels, show it a window with a new class; return what came of it."""
    X, names = shapes(150)
    labels = np.asarray(labels)[np.unique(names, return_inverse=True)[1]]
    bench.log_champion(GaussianNB(), X[FEATURES], labels)
    bench.put(traffic(160, new=40))
    done = bench.rectified()
    assert done.facts.verdict == "unknowns"
    return done


@PART.row(73, "int-labels")
def int_labels(bench):
    # Not "unknown" in words: the challenger must be a drop-in for those who read whole numbers.
    done = with_labels(bench, [1, 2, 3])
    assert done.facts.unknown_label == "4"
    assert done.challenger.classes_.dtype.kind == "i"
    assert set(done.answers) == {1, 2, 3, 4}


@PART.row(74, "bool-labels")
def bool_labels(bench):
    done = with_labels(bench, [False, True, True])
    assert "answers 0 and 1 for them, and 2 for unknown" in " ".join(done.facts.findings)
    assert done.challenger.classes_.tolist() == [0, 1, 2]


@PART.row(75, "float-labels")
def float_labels(bench):
    done = with_labels(bench, [1.0, 2.0, 3.0])
    assert done.challenger.classes_.tolist() == [1.0, 2.0, 3.0, 4.0]


@PART.row(75, "one-as-text-and-number")
def one_as_text_and_number(bench):
    champion = load_champion(bench.client, bench.monitor().model)
    X, _ = shapes(60)
    labels = np.array([1, "1", 1.0] * 20, dtype=object)
    says = "labels of several types: integer, text, such as 1 and '1'"
    with error_of(TrainingDataError, "labels_mixed", says):
        check_training_data(LabelledRows(X, labels), champion)


@PART.row(75, "one-as-two-texts")
def one_as_two_texts(bench):
    # A CSV file has text only: 1 and 1.0 in it are one class written in two ways.
    bench.put(traffic())
    frame = labelled(labels=["1", "1.0", "2"] * 50)
    frame.to_csv(bench.folder / "training.csv", index=False)
    reference = {"path": str(bench.folder / "training.csv"), "label": "label"}
    bench.refused(
        "labels_mixed", "two ways: '1' and '1.0'.* write all labels alike", reference=reference
    )


refused_training(
    76,
    "class-called-unknown",
    ["unknown", "bee", "cat"] * 50,
    "unknown_label_taken",
    "called 'unknown' already.* rectify.unknown_label",
)


@PART.row(77, "labels-with-gaps-and-negatives")
def labels_with_gaps_and_negatives(bench):
    done = with_labels(bench, [-5, 0, 7])
    assert done.facts.unknown_label == "8"
    assert done.challenger.classes_.tolist() == [-5, 0, 7, 8]


for name, gap in {"missing": None, "blank": " "}.items():
    refused_training(
        78,
        f"label-{name}",
        [gap, "bee", "cat"] * 50,
        "labels_missing",
        "50 (of 150 rows without a label. Drop|training rows. Label or remove)",
    )


@PART.row(79, "thousand-classes")
def thousand_classes(bench):
    champion = load_champion(bench.client, bench.monitor().model)
    X, _ = shapes(2_000)
    labels = np.repeat(np.arange(1_000), 2)
    assert check_training_data(LabelledRows(X, labels), champion) == ()


@PART.row(79, "several-labels-a-row")
def several_labels_a_row(bench):
    champion = load_champion(bench.client, bench.monitor().model)
    X, _ = shapes(60)
    labels = pd.Series([("ape", "bee"), ("cat",)] * 30).to_numpy()
    with error_of(TrainingDataError, "labels_unusable", "of the type tuple.* a single label"):
        check_training_data(LabelledRows(X, labels), champion)


refused_training(
    79,
    "regression-target",
    np.linspace(0.1, 9.9, 150),
    "labels_unusable",
    "numbers with fractions as labels, so it is for a regression",
)


@PART.row(79, "regressor")
def regressor(bench):
    from sklearn.linear_model import LinearRegression

    X, _ = shapes(60)
    model = LinearRegression().fit(X[FEATURES], X["height"])
    with error_of(ModelError, "no_classifier", "LinearRegression, a regressor. Only a classifier"):
        uri = bench.client.tracking_uri
        log_champion(model, X[FEATURES], X["height"], name=bench.name, tracking_uri=uri)


NASTY = ["<img src=x onerror=alert(1)>", "line\nbreak | [x](javascript:alert(1))", "\u202egnp.exe"]


@PART.row(80, "hostile-labels-and-columns")
def hostile_labels_and_columns(bench):
    """Also row 46: through verdict, report, registry and description, text stays text."""
    X, names = shapes(150)
    hostile = dict(zip(["ape", "bee", "cat"], [*NASTY[:2], NASTY[2] + "y" * 5_000], strict=True))
    columns = dict(zip(NUMBERS, [*HOSTILE[:2], HOSTILE[4]], strict=True))
    rows = X[NUMBERS].rename(columns=columns).astype(float)
    bench.log_champion(GaussianNB(), rows, np.array([hostile[name] for name in names]))
    bench.put(traffic(160, new=40).rename(columns=columns))

    outcome = bench.judge(report=True)

    assert outcome.facts.verdict == "unknowns"
    assert not [words for words in outcome.facts.findings if "report could not" in words]
    page = save_report(bench.monitor(), outcome.run_id, bench.folder).read_text()
    description = show_challenger(bench.monitor()).description
    for text in (HOSTILE[0], NASTY[0]):
        assert text not in page
        assert text not in description
    assert "](javascript:" not in description
    assert len(description) < 20_000
    answers = mlflow.pyfunc.load_model(f"models:/{bench.name}@challenger").predict(rows)
    assert set(answers) <= {*hostile.values(), "unknown"}


@PART.row(81, "labels-that-look-alike")
def labels_that_look_alike(bench):
    champion = load_champion(bench.client, bench.monitor().model)
    X, _ = shapes(60)
    labels = np.array(["bee", "Bee", "bee ", "caf\u00e9", "cafe\u0301", "dog"] * 10)
    bees, cafes = check_training_data(LabelledRows(X, labels), champion)
    assert "'Bee', 'bee', 'bee '" in bees
    assert "differ only by case, blanks or Unicode form" in cafes


@PART.row(82, "extreme-imbalance")
def extreme_imbalance(bench):
    champion = load_champion(bench.client, bench.monitor().model)
    X, _ = shapes(4_002)
    labels = np.array(["bee"] * 4_000 + ["ape"] * 2)
    (finding,) = check_training_data(LabelledRows(X, labels), champion)
    assert "ape" in finding

"""Training data comes back as it was logged, or the reason why not is named."""

import json
import shutil

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.svm import SVC

from rtscv_mlops.errors import ServiceError, TrainingDataError
from rtscv_mlops.models.load import Champion
from rtscv_mlops.models.register import log_champion
from rtscv_mlops.models.training import check_training_data, load_training_data
from rtscv_mlops.window import Column, LabelledRows
from tests.champions import EXPERIMENT, champion_of, mixed_pipeline, open_registry, table


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return open_registry(tmp_path_factory.mktemp("registry"))


@pytest.fixture
def run_id(client):
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return client.create_run(experiment.experiment_id).info.run_id


def champion(run_id=None, names=("height", "width")):
    """A champion of which only the columns and the run matter."""
    return Champion(
        name="letters",
        alias="champion",
        version="1",
        run_id=run_id,
        model_id=None,
        columns=tuple(Column(name, "float") for name in names),
        takes_array=False,
        estimator=None,
        flavor="sklearn",
        signature=None,
        digest="",
    )


def numbers(n_rows=60):
    """Two columns and a label."""
    frame, codes = table(n_rows)
    return frame[["height", "width"]].assign(label=np.array(["a", "b", "c"])[codes])


def note_dataset(run_id, frame, source, **given):
    """Log a dataset as a team without our help does."""
    # MLflow keeps the first address of two datasets with one name and digest.
    dataset = mlflow.data.from_pandas(frame, source=source, name=run_id, **given)
    with mlflow.start_run(run_id=run_id):
        mlflow.log_input(dataset, context="training")


# -- by log_champion


@pytest.mark.parametrize(
    "make", [lambda codes: np.array(["a", "b", "c"])[codes], lambda codes: codes == 1]
)
def test_data_comes_back_as_it_was_logged(client, make):
    """Columns, categories, labels and held-out rows are those of the fit, of the same types."""
    X, codes = table()
    y = pd.Series(make(codes), name="colour")  # a name that a column has already

    found = champion_of(
        client, mixed_pipeline(), X, y, "back", replace=True, holdout=(X[:9], y[:9])
    )
    data, held_out = load_training_data(client, found)

    pd.testing.assert_frame_equal(data.features, X)
    assert data.label == "colour_"
    assert data.labels.tolist() == y.tolist()
    assert data.labels.dtype.kind in "bOU"
    pd.testing.assert_frame_equal(held_out.features, X[:9])
    assert held_out.labels.tolist() == y[:9].tolist()
    assert (data.findings, held_out.findings) == ((), ())


def test_mlflow_itself_finds_the_data(client):
    """Any reader of the run gets the file by MLflow's own means; its name is its digest."""
    X, codes = table()
    X = X[["height", "width"]].to_numpy()
    found = champion_of(client, SVC(), X, codes, "found")

    given = client.get_run(found.run_id).inputs.dataset_inputs[0]

    path = mlflow.data.get_source(given.dataset).load()
    data, _ = load_training_data(client, found)
    assert path.endswith(f"{data.digest}.parquet")
    assert data.digest.startswith(given.dataset.digest)
    assert json.loads(given.dataset.profile)["num_rows"] == len(X)
    assert list(pd.read_parquet(path).columns) == ["f0", "f1", "label"]
    np.testing.assert_array_equal(found.rows(data.features), X)


def test_data_survives_an_older_champion(client):
    """Two champions of the same data each have it: one may be deleted with all it logged."""
    X, codes = table()
    X = X[["height", "width"]]
    older = champion_of(client, SVC(), X, codes, "shared")
    newer = champion_of(client, SVC(), X, codes, "shared", replace=True)
    shutil.rmtree(client.get_run(older.run_id).info.artifact_uri)

    assert load_training_data(client, newer)[0].labels.tolist() == codes.tolist()
    with pytest.raises(TrainingDataError, match="cannot be fetched"):
        load_training_data(client, older)


def test_overwritten_data_is_noticed(client):
    """Row 94: a file that is not what was logged is refused, though it has the same rows."""
    X, codes = table()
    X = X[["height", "width"]]
    found = champion_of(client, SVC(), X, codes, "overwritten")
    place = mlflow.artifacts.list_artifacts(run_id=found.run_id, artifact_path="training")[0].path
    root = client.get_run(found.run_id).info.artifact_uri
    X.assign(label=codes[::-1]).to_parquet(f"{root}/{place}")

    with pytest.raises(TrainingDataError, match="has changed since it was logged") as caught:
        load_training_data(client, found)

    assert caught.value.code == "training_data_changed"


@pytest.mark.parametrize(
    ("X", "y", "complaint"),
    [
        (np.zeros((3, 2)), [0, 1], r"3 rows, and y has the shape \(2,\)"),
        (np.zeros((3, 2)), np.zeros((3, 2)), r"y has the shape \(3, 2\)"),
    ],
)
def test_labels_must_fit_the_rows(client, X, y, complaint):
    """One label per row, or nothing is logged."""
    model = SVC().fit(np.arange(6).reshape(3, 2), [0, 1, 1])

    with pytest.raises(TrainingDataError, match=complaint):
        log_champion(model, X, y, name="unfit", tracking_uri=client.tracking_uri)


# -- by others


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_dataset_of_others(client, run_id, tmp_path, suffix):
    """A Parquet or CSV file that a team logged itself is read, and its one other column labels."""
    frame = numbers()[["label", "width", "height"]].rename(columns={"label": "species"})
    path = tmp_path / f"data.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    note_dataset(run_id, frame, str(path), targets="species")

    data, held_out = load_training_data(client, champion(run_id))

    assert list(data.features.columns) == ["height", "width"]
    assert data.labels.tolist() == frame["species"].tolist()
    assert (held_out, data.findings) == (None, ())


def test_a_csv_dataset_is_read_like_every_training_file(client, run_id, tmp_path):
    """A class called NA is text, as in `reference:`; a number that is missing stays missing."""
    frame = numbers().replace({"label": {"a": "NA"}})
    frame.loc[0, "width"] = np.nan
    frame.to_csv(tmp_path / "data.csv", index=False, na_rep="NA")
    note_dataset(run_id, frame, str(tmp_path / "data.csv"))

    data, _ = load_training_data(client, champion(run_id))

    assert data.labels.tolist() == frame["label"].tolist()
    assert data.labels[0] == "NA"
    pd.testing.assert_series_equal(data.features["width"], frame["width"])


def test_a_damaged_dataset_is_named(client, run_id, tmp_path):
    """A file that cannot be read is refused with its dataset and its row."""
    (tmp_path / "data.csv").write_text("height,width,label\n1,2,a,b\n")
    note_dataset(run_id, numbers(), str(tmp_path / "data.csv"))

    with pytest.raises(
        TrainingDataError, match=r"version 1 cannot be read\..* Row 2 of .*data\.csv"
    ):
        load_training_data(client, champion(run_id))


def test_changed_rows_of_others_are_noticed(client, run_id, tmp_path):
    """Row 94: MLflow's own digest and row count are compared."""
    path = tmp_path / "data.parquet"
    frame = numbers()
    note_dataset(run_id, frame, str(path))

    frame.assign(height=frame["height"] + 1).to_parquet(path)
    with pytest.raises(TrainingDataError, match="MLflow's digest of it is"):
        load_training_data(client, champion(run_id))

    frame.head(50).to_parquet(path)
    with pytest.raises(TrainingDataError, match="it has 50 rows, not 60"):
        load_training_data(client, champion(run_id))


def test_a_digest_that_proves_nothing_is_a_finding(client, run_id, tmp_path):
    """A digest of a team's own making cannot be compared, which is said."""
    frame = numbers()
    frame.to_parquet(tmp_path / "data.parquet")
    note_dataset(run_id, frame, str(tmp_path / "data.parquet"), digest="release-7")

    data, _ = load_training_data(client, champion(run_id))

    assert "release-7, which cannot be computed" in data.findings[0]


def test_no_dataset_is_told(client, run_id):
    """Row 94: a run without a training dataset is told what to log."""
    with pytest.raises(
        TrainingDataError, match=r"log_champion, or call mlflow\.log_input"
    ) as caught:
        load_training_data(client, champion(run_id))

    assert caught.value.code == "training_data_missing"


def test_a_failure_on_the_way_is_not_missing_data(client, monkeypatch):
    """Rows that MLflow has and cannot send now are worth another try; nothing is called missing."""
    rows, labels = numbers()[["height", "width"]], ["a", "b", "c"] * 20
    log_champion(SVC().fit(rows, labels), rows, labels, name="flaky", experiment=EXPERIMENT)

    def fail(**_):
        raise mlflow.exceptions.MlflowException("The following failures occurred: lost")

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", fail)

    found = client.get_model_version_by_alias("flaky", "champion")
    with pytest.raises(ServiceError, match=r"is in MLflow, but could not be downloaded: .*lost"):
        load_training_data(client, champion(found.run_id))


@pytest.mark.parametrize("source", ["gone", None])
def test_a_source_that_is_gone(client, run_id, tmp_path, source):
    """Row 94: an address with nothing behind it, or none at all, is named."""
    address = str(tmp_path / "gone.parquet") if source else None
    note_dataset(run_id, numbers(), address)

    with pytest.raises(
        TrainingDataError, match="keeps a dataset's address, not its rows"
    ) as caught:
        load_training_data(client, champion(run_id))

    assert caught.value.code == "training_data_missing"


def test_other_columns_are_shown(client, run_id, tmp_path):
    """Row 95: columns that the model lacks or needs are listed."""
    frame = numbers().rename(columns={"width": "depth"})
    frame.to_parquet(tmp_path / "data.parquet")
    note_dataset(run_id, frame, str(tmp_path / "data.parquet"))

    with pytest.raises(TrainingDataError, match="missing 'width'; extra 'depth'"):
        load_training_data(client, champion(run_id))


def test_a_label_among_several_columns(client, run_id, tmp_path):
    """A usual name wins; without one, the monitor must say which column is the label."""
    frame = numbers().assign(customer=1)
    frame.to_parquet(tmp_path / "data.parquet")
    note_dataset(run_id, frame, str(tmp_path / "data.parquet"))
    assert load_training_data(client, champion(run_id))[0].label == "label"

    other = client.create_run(client.get_run(run_id).info.experiment_id).info.run_id
    frame = frame.rename(columns={"label": "species"})
    frame.to_parquet(tmp_path / "other.parquet")
    note_dataset(other, frame, str(tmp_path / "other.parquet"))

    with pytest.raises(TrainingDataError, match="does not say which column is the label") as caught:
        load_training_data(client, champion(other))

    assert caught.value.code == "label_unknown"


def test_a_file_of_another_kind(client, run_id, tmp_path):
    """Only Parquet and CSV are read; a pickle never."""
    numbers().to_pickle(tmp_path / "data.pkl")
    note_dataset(run_id, numbers(), str(tmp_path / "data.pkl"))

    with pytest.raises(TrainingDataError, match=r"data\.pkl, neither Parquet nor CSV"):
        load_training_data(client, champion(run_id))


# -- rows 71 to 82 of the bad inputs

LABELS = ["a", "b", "c"] * 20


def labelled(features, labels):
    """Rows with labels in the types that they have."""
    return LabelledRows(features, pd.Series(labels).to_numpy())


@pytest.mark.parametrize(
    ("labels", "code", "complaint"),
    [
        (["a"] + ["b", "c"] * 29 + ["b"], "too_few_examples", "only one example of 'a'"),
        (["a"] * 60, "one_class", r"has 1 class\(es\)"),
        ([1, "1"] * 30, "labels_mixed", "several types: integer, text, such as 1 and '1'"),
        ([True, "no"] * 30, "labels_mixed", "boolean, text"),
        ([*LABELS[:58], None, "c"], "labels_missing", "1 of 60 rows without a label"),
        ([*LABELS[:58], "  ", ""], "labels_missing", "2 of 60 rows without a label"),
        ([1.0, float("nan")] * 30, "labels_missing", "30 of 60 rows without a label"),
        (list(np.linspace(0, 1, 60)), "labels_unusable", "it is for a regression"),
        ([("a", "b"), ("a",)] * 30, "labels_unusable", "Each row needs a single label"),
    ],
)
def test_labels_that_cannot_be_learned(labels, code, complaint):
    """Rows 71, 72, 75, 78 and 79: each is refused with its count or an example."""
    features = numbers().drop(columns="label")

    with pytest.raises(TrainingDataError, match=complaint) as caught:
        check_training_data(labelled(features, labels), champion())

    assert caught.value.code == code


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        [0, 5] * 30,
        [True, False] * 30,
        [1.0, 2.0] * 30,
        [f"class {i % 30}" for i in range(60)],
    ],
)
def test_labels_that_can_be_learned(labels):
    """Text, whole numbers, truth values and many classes pass without a word."""
    features = numbers().drop(columns="label")

    assert check_training_data(labelled(features, labels), champion()) == ()


def test_near_names_are_a_finding():
    """Row 81: labels that differ by case, blanks or Unicode form only are listed."""
    labels = ["cat", "Cat ", "dog", "caf\u00e9", "cafe\u0301", "bird"] * 10

    found = check_training_data(labelled(numbers().drop(columns="label"), labels), champion())

    assert len(found) == 2
    assert "'Cat ', 'cat'" in found[1]


def test_extreme_imbalance_is_a_finding():
    """Row 82: a class that is hardly there is named."""
    features = numbers(3003).drop(columns="label")
    labels = ["a"] * 3001 + ["b"] * 2

    (finding,) = check_training_data(labelled(features, labels), champion())

    assert "3001 rows of 'a' and 2 of 'b'" in finding


def test_an_empty_column_is_a_finding():
    """Row 59: a column without any value is named."""
    features = numbers().drop(columns="label").assign(width=np.nan)

    found = check_training_data(labelled(features, LABELS), champion())

    assert "no value in column(s) 'width'" in found[0]


def test_rows_and_labels_must_match():
    """Fewer labels than rows are refused with both numbers."""
    with pytest.raises(TrainingDataError, match="60 rows and 59 labels"):
        check_training_data(labelled(numbers().drop(columns="label"), LABELS[:59]), champion())

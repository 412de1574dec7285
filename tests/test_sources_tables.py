"""Training data and late labels, and a first look at a source."""

import numpy as np
import pandas as pd
import pytest

from rtscv_mlops.config.inputs import LabelSettings, ReferenceSettings, SourceSettings
from rtscv_mlops.errors import NotAssessed, TrainingDataError, WindowError
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.sources.read import read_labels, read_reference, read_training_file
from rtscv_mlops.window import Column
from tests.services import COLUMNS, traffic


def reference(path, columns=COLUMNS, **settings):
    given = {"label": "class", **settings}
    return read_reference(ReferenceSettings(path=str(path), **given), columns)


def test_training_data_is_read_whole(tmp_path):
    """Features in the model's order, labels beside them, and a digest that order cannot change."""
    rows = traffic()
    rows.to_parquet(tmp_path / "a.parquet")
    rows[::-1].to_csv(tmp_path / "a.csv", index=False)

    first, second = reference(tmp_path / "a.parquet"), reference(tmp_path / "a.csv")

    assert list(first.features) == [column.name for column in COLUMNS]
    joined = first.features.assign(label=first.labels)
    expected = rows[[*first.features, "class"]].set_axis(joined.columns, axis=1)
    order = list(joined.columns)
    pd.testing.assert_frame_equal(
        joined.sort_values(order, ignore_index=True), expected.sort_values(order, ignore_index=True)
    )
    assert first.digest == second.digest
    pd.testing.assert_frame_equal(first.features, second.features)
    assert first.labels.tolist() == second.labels.tolist()


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [([0, 1, 2], "int64"), ([True, False, True], "bool"), (["a", "b", "007"], "object")],
)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_labels_keep_their_type(tmp_path, labels, dtype, suffix):
    """Whole numbers, truth values and texts arrive as such; CSV has no truth values."""
    rows = traffic(3).assign(**{"class": labels})
    path = tmp_path / f"a.{suffix}"
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)

    found = reference(path).labels

    expected = "object" if (suffix, dtype) == ("csv", "bool") else dtype
    assert found.dtype == expected
    assert set(found.astype(str)) == {str(label) for label in labels}


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_label_na_is_text(tmp_path, suffix):
    """`reference:` and `register --training` both read a class called NA as text."""
    rows = traffic(4).assign(**{"class": ["NA", "cat", "NA", "cat"]})
    path = tmp_path / f"a.{suffix}"
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)

    assert sorted(reference(path).labels) == ["NA", "NA", "cat", "cat"]
    assert read_training_file(path)["class"].tolist() == ["NA", "cat", "NA", "cat"]


def test_a_training_file_has_its_own_order_and_types(tmp_path):
    """A Parquet file is read as by pandas: order, index, categories and narrow numbers are kept."""
    rows = traffic(50_000).assign(
        small=np.arange(50_000, dtype="int8"),
        grade=pd.Categorical(["low", "high"] * 25_000),
    )
    rows.index += 7
    rows.to_parquet(tmp_path / "a.parquet")

    pd.testing.assert_frame_equal(read_training_file(tmp_path / "a.parquet"), rows)


def test_columns_of_a_training_csv_get_types(tmp_path):
    """A column is numbers or booleans if all its values are; otherwise it is the text it was."""
    columns = {
        "whole": ["1", "+2", " 3"],
        "gap": ["1", "", "3"],
        "na": ["1.5", "NA", "1e3"],
        "exact": ["0.1", "0.30000000000000004", "5e-324"],
        "truth": ["true", "FALSE", "True"],
        "mixed": ["1", "true", "x"],
        "hex": ["0x10", "1", "2"],
        "long": ["1" * 20, "2", "3"],
        "word": ["NA", "null", ""],
        "empty": ["", "", ""],
    }
    pd.DataFrame(columns).to_csv(tmp_path / "a.csv", index=False)

    table = read_training_file(tmp_path / "a.csv")

    assert {name: str(kind) for name, kind in table.dtypes.items()} == {
        "whole": "int64",
        "gap": "float64",
        "na": "float64",
        "exact": "float64",
        "truth": "bool",
        "mixed": "str",
        "hex": "str",
        "long": "str",
        "word": "str",
        "empty": "float64",
    }
    assert table["whole"].tolist() == [1, 2, 3]
    assert table["na"].tolist() == pytest.approx([1.5, np.nan, 1000], nan_ok=True)
    assert table["exact"].tolist() == [0.1, 0.30000000000000004, 5e-324]
    assert table["truth"].tolist() == [True, False, True]
    assert table["long"].tolist() == columns["long"]
    assert table["word"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.csv", "x,class\n1,a,b\n", "cannot be used. Row 2 of .*a.csv has 3 fields"),
        ("a.csv", "x,class\n", "a.csv has no rows"),
        ("a.csv", ",class\n0,a\n", "Column 1 of the file .*a.csv has no name.*index=False"),
        ("a.parquet", "x,class\n1,a\n", "a.parquet is not Parquet: it looks like CSV"),
        ("b.csv", None, "There is no file .*b.csv. Name a Parquet or CSV file"),
    ],
)
def test_a_training_file_that_cannot_be_used(tmp_path, name, text, complaint):
    """The file is read as strictly as a window, and the error names it."""
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(TrainingDataError, match=complaint):
        read_training_file(tmp_path / name)


def test_training_data_that_changed_is_refused(tmp_path):
    """The expected digest passes; another one is an error that shows both."""
    traffic().to_parquet(tmp_path / "a.parquet")
    digest = reference(tmp_path / "a.parquet").digest
    assert len(reference(tmp_path / "a.parquet", digest=digest).labels) == 300

    traffic(301).to_parquet(tmp_path / "a.parquet")

    with pytest.raises(TrainingDataError, match=f"expected {digest}") as refusal:
        reference(tmp_path / "a.parquet", digest=digest)
    assert refusal.value.code == "training_data_changed"


def test_failures_are_named_after_the_training_data(tmp_path):
    """Nobody looks for a fault in the window when the training data has it."""
    with pytest.raises(TrainingDataError, match="is missing") as refusal:
        reference(tmp_path / "absent.parquet")
    assert refusal.value.code == "training_data_missing"

    traffic(0).to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(TrainingDataError, match="has no rows"):
        reference(tmp_path / "empty.parquet")

    traffic(3).drop(columns="amount").to_parquet(tmp_path / "less.parquet")
    with pytest.raises(TrainingDataError, match="lacks 1 column"):
        reference(tmp_path / "less.parquet")

    traffic(3).assign(**{"class": ["a", None, "b"]}).to_parquet(tmp_path / "gap.parquet")
    with pytest.raises(TrainingDataError, match="no label to 1 training row"):
        reference(tmp_path / "gap.parquet")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_late_labels_are_found_by_key(tmp_path, suffix):
    """Labels of the asked keys, as far as they have arrived, indexed by the asked keys."""
    labels = pd.DataFrame({"id": np.arange(1_000), "truth": np.arange(1_000) % 3})
    labels = labels[labels["id"] != 7]
    path = tmp_path / f"labels.{suffix}"
    labels.to_csv(path, index=False) if suffix == "csv" else labels.to_parquet(path)

    found = read_labels(
        LabelSettings(path=str(path), key="id", label="truth"), pd.Series([5, 7, 998, 5000])
    )

    assert found.sort_index().to_dict() == {5: 2, 998: 2}
    assert found.index.dtype == "int64"


def test_late_labels_may_repeat_but_not_differ(tmp_path):
    """The same label twice is one label; two labels for a key are refused."""
    settings = LabelSettings(path=f"{tmp_path}/labels.csv", key="id", label="truth")
    (tmp_path / "labels.csv").write_text("id,truth\na,cat\na,cat\nb,dog\nb,\nc,cat\n")
    assert read_labels(settings, pd.Series(["a", "b"])).to_dict() == {"a": "cat", "b": "dog"}

    (tmp_path / "labels.csv").write_text("id,truth\na,cat\na,dog\n")
    with pytest.raises(WindowError, match="more than one label for 1 key: 'a'"):
        read_labels(settings, pd.Series(["a", "b"]))


def test_no_label_has_arrived(tmp_path):
    """Too early is an outcome, not an error."""
    (tmp_path / "labels.csv").write_text("id,truth\na,cat\n")
    settings = LabelSettings(path=f"{tmp_path}/labels.csv", key="id", label="truth")

    with pytest.raises(NotAssessed, match="No label has arrived") as outcome:
        read_labels(settings, pd.Series(["x"]))
    assert outcome.value.code == "no_labels"


def test_a_look_at_many_files(tmp_path):
    """Footers of a few files estimate the rows of many; the first and last row are found."""
    for day in range(1, 31):
        traffic(20, f"2026-01-{day:02d}", "1h").to_parquet(tmp_path / f"{day:02d}.parquet")
    source = SourceSettings(path=str(tmp_path), timestamp="served_at")

    seen = peek(source, COLUMNS)

    assert (len(seen.files), seen.exact) == (30, False)
    assert seen.rows == pytest.approx(600, rel=0.05)
    assert (str(seen.first)[:13], str(seen.last)[:13]) == ("2026-01-01 00", "2026-01-30 19")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_look_finds_what_would_stop_a_run(tmp_path, suffix):
    """Missing columns and times without a zone are told before the first run."""
    rows = traffic(5)
    rows["served_at"] = rows["served_at"].dt.tz_localize(None)
    path = tmp_path / f"a.{suffix}"
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)

    with pytest.raises(WindowError, match="Set `timezone:`"):
        peek(SourceSettings(path=str(path), timestamp="served_at"))
    source = SourceSettings(path=str(path), timestamp="served_at", timezone="UTC")
    assert set(peek(source, COLUMNS).columns) == set(rows)
    with pytest.raises(WindowError, match="lacks 1 column"):
        peek(source, [Column("absent", "text")])

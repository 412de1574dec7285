"""The example of network traffic: a small table of the same columns, and the real one if there."""

import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread
from rich.console import Console

from examples.intrusion import __main__ as example
from examples.intrusion import story
from examples.intrusion.champion import compare_learners, make_champion
from examples.intrusion.likeness import find_nearest
from examples.intrusion.traffic import FIRST_DAY, KEY, LABEL, features_of, load_traffic, make_days
from rtscv_mlops.errors import InputError
from rtscv_mlops.review.answers import list_challengers

CATEGORY = {"normal": "normal", "neptune": "dos", "satan": "probe", "spy": "r2l", "mscan": "probe"}
TRAINING = {"normal": 500, "neptune": 300, "satan": 100, "spy": 2}
SERVED = {"normal": 2_800, "neptune": 1_500, "satan": 700, "mscan": 800}
WORDS = {
    "normal": ("tcp", "http", "SF"),
    "neptune": ("tcp", "private", "S0"),
    "satan": ("udp", "other", "REJ"),
    "spy": ("tcp", "telnet", "SF"),
    "mscan": ("tcp", "sunrpc", "RSTO"),
}
REAL_DATA = Path(os.environ.get("RTSCV_DATA_DIR", "data"))


def make_table(seed=0):
    """Rows with NSL-KDD's kinds of columns: skewed counts, rates, words, and what is no feature."""
    rng = np.random.default_rng(seed)
    parts = [
        _rows_of(name, count, split, rng)
        for split, counts in (("train", TRAINING), ("test", SERVED))
        for name, count in counts.items()
    ]
    table = pd.concat(parts).sample(frac=1, random_state=seed)
    names = ["protocol_type", "service", "flag", "label", "category", "split"]
    return table.astype(dict.fromkeys(names, "category"))


def _rows_of(name, count, split, rng):
    place = list(WORDS).index(name)
    numbers = {
        "duration": rng.poisson(20 * place, count),
        "src_bytes": rng.lognormal(3 + place, 1.0, count).astype(int),
        "count": rng.poisson(5 + 40 * (place % 3), count),
        "serror_rate": rng.beta(1 + 4 * (place % 2), 2 + place, count).round(2),
        "rerror_rate": rng.beta(1 + place, 3, count).round(2),
    }
    words = dict(zip(("protocol_type", "service", "flag"), WORDS[name], strict=True))
    about = {"label": name, "category": CATEGORY[name], "difficulty": 21, "split": split}
    return pd.DataFrame({**numbers, **words, **about})


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """A folder with the small table, named as the data folder."""
    folder = tmp_path_factory.mktemp("data")
    make_table().to_parquet(folder / "nsl_kdd.parquet", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RTSCV_DATA_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def told(small_data, tmp_path_factory):
    """The story of the first day and the last one: what was found, printed and written."""
    folder, printed = tmp_path_factory.mktemp("intrusion"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        days = list(make_days(load_traffic()))
        patch.setattr(example, "make_days", lambda *_: iter([days[0], days[-1]]))
        patch.setattr(story, "BASELINE_DAYS", 1)
        found = example.main(["--folder", str(folder)], Console(file=printed, width=160))
    return found, printed.getvalue(), folder


def test_the_new_attack_is_found(told):
    """A day of known types raises nothing; the attack never taught is found, row by row."""
    found, _, _ = told

    quiet, busy = found.judged

    assert not quiet.facts.detected
    assert busy.facts.detected
    assert busy.figures["extracted_precision"] > 0.8
    assert busy.figures["extracted_recall"] > 0.8


def test_the_tables_agree_with_the_labels(told):
    """What is printed for the new attack is what its rows say; nothing known is called new."""
    found, printed, _ = told
    rows = found.rows
    of_mscan = rows[rows[LABEL] == "mscan"]

    (line,) = [line for line in printed.splitlines() if line.startswith(" mscan")]

    assert line.split()[:4] == [
        "mscan",
        "probe",
        str(len(of_mscan)),
        str(of_mscan["is_unknown"].sum()),
    ]
    assert set(rows.loc[rows["is_new"], LABEL]) == {"mscan"}


def test_the_baseline_comes_from_labelled_days(told):
    """The monitor compares with the first days once their labels hold no new attack."""
    found, _, _ = told

    first, last = found.judged

    assert found.monitor.baseline.end == first.day.interval.end
    assert first.facts.null == "training data"
    assert last.facts.null.startswith("baseline")


def test_it_ends_with_a_report_and_a_pending_review(told):
    """The last lines name the report and the commands that decide; the picture is drawn."""
    found, printed, folder = told

    (waiting,) = [one for one in list_challengers(found.monitor) if one.review == "pending"]

    assert f"review approve {folder}/intrusion.yaml --version {waiting.version}" in printed
    assert (folder / "report.html").is_file()
    assert imread(folder / "fortnight.png").std() > 0.1


def test_a_champion_of_an_earlier_run_is_said_to_serve(told):
    """Who asks for other training rows in a folder that has a champion is told what to do."""
    _, printed, folder = told
    training = load_traffic().training

    asked = example._parse(["--folder", str(folder), "--training-rows", "100"])
    again = example._taught(asked, load_traffic(100))

    assert f"serves, taught from {len(training):,} rows." in printed
    assert "an earlier run left" in again
    assert "--training-rows does not change it; name another --folder" in again


def test_a_missing_file_is_one_sentence(tmp_path, monkeypatch):
    """Who has no data is told where it comes from, and how to name its folder."""
    monkeypatch.setenv("RTSCV_DATA_DIR", str(tmp_path))

    with pytest.raises(InputError, match=r"not exist. NSL-KDD comes from .* RTSCV_DATA_DIR"):
        example.main(["--folder", str(tmp_path / "story")])


def test_each_served_row_has_one_day(small_data):
    """The fortnight is the whole test part, and no new attack comes before its day."""
    traffic = load_traffic()

    days = list(make_days(traffic))

    truth = pd.concat([day.truth.assign(day=day.number) for day in days])
    assert len(truth) == len(traffic.served) == truth[KEY].nunique()
    assert truth.loc[truth[LABEL] == "mscan", "day"].min() == FIRST_DAY["probe"]
    assert sorted(truth.loc[truth[LABEL] == "normal", "day"].unique()) == list(range(1, 15))


def test_the_model_sees_no_answer(small_data):
    """Neither the label nor what follows from it is a feature or part of a window."""
    traffic = load_traffic()
    day = next(make_days(traffic))

    for rows in (features_of(traffic.training), day.rows):
        assert not {LABEL, "label", "category", "difficulty", "split"} & set(rows.columns)


def test_rare_types_are_taught_whole(small_data):
    """A type of two rows is not held out, so that the model knows every type there is."""
    traffic = load_traffic(training_rows=200)

    assert (traffic.training[LABEL] == "spy").sum() == TRAINING["spy"]
    assert "spy" not in set(traffic.holdout[LABEL])
    assert not set(traffic.training.index) & set(traffic.holdout.index)
    assert traffic.known_types == sorted(TRAINING)


def test_a_new_word_is_no_error(small_data):
    """The champion answers rows whose service it never met."""
    training = load_traffic().training
    rows = features_of(training).head(3).assign(service="gopher")

    model = make_champion().fit(features_of(training), training[LABEL])

    assert set(model.predict(rows)) <= set(training[LABEL])


def test_learners_are_compared_on_training_rows(small_data):
    """Each candidate has its figures, the types too rare for thirds left aside."""
    compared = compare_learners(load_traffic(training_rows=300).training)

    assert len(compared) == 4
    assert compared.to_numpy().min() > 0.5


def test_a_twin_of_a_known_row_is_near(small_data):
    """A new row that equals a known one is near and like it; one far from all is not."""
    training = load_traffic().training
    known, usual = training[::2], training[1::2]
    twin = known[known[LABEL] == "normal"].head(1)
    stranger = twin.assign(src_bytes=10**8, duration=10**6)

    nearest = find_nearest(known, usual, pd.concat([twin, stranger]))

    assert nearest["near"].tolist() == [True, False]
    assert nearest["closest"].iloc[0] == "normal"


@pytest.mark.skipif(
    not (REAL_DATA / "nsl_kdd.parquet").exists(),
    reason="RTSCV_DATA_DIR names no folder with nsl_kdd.parquet",
)
def test_the_real_table_has_what_the_page_says(monkeypatch):
    """17 attacks come only in the test part; every type of the training part is taught."""
    monkeypatch.setenv("RTSCV_DATA_DIR", str(REAL_DATA))

    traffic = load_traffic()

    assert len(traffic.new_types) == 17
    assert len(traffic.known_types) == 23
    assert traffic.served[LABEL].isin(traffic.new_types).sum() == 3_750

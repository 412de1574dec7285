"""What the report promises without a browser: columns compared, pages made of facts alone."""

import hashlib
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.facts import ColumnDrift, DriftFacts, Evidence
from rtscv_mlops.report.drift import compare_columns, strength
from rtscv_mlops.report.figures import draw_strengths
from rtscv_mlops.report.page import write_page
from rtscv_mlops.text import caption, commonmark, estimate, interval
from tests.report_example import example, not_assessed

ROWS = 300
SETTINGS = DriftSettings()
DATA = re.compile(r"<script>\n    var report = (.*?);\n    var additional_graphs_report", re.S)


@pytest.fixture(scope="module")
def digits():
    """A window with unknowns, as the pipeline would describe it."""
    return example()


def two_sides(column, other=None):
    """A window and a reference that share one sound column and one to be tested."""
    rng = np.random.default_rng(0)
    window, reference = (pd.DataFrame({"sound": rng.normal(size=ROWS)}) for _ in range(2))
    window["tested"] = column
    reference["tested"] = column if other is None else other
    return window, reference


def found_in(facts, name="tested"):
    """What was found about the column under test."""
    return next(column for column in facts.columns if column.name == name)


def numbers(shift=0.0, seed=1):
    return np.random.default_rng(seed).normal(shift, 1, ROWS)


def test_a_moved_column_comes_first_and_a_steady_one_has_not_drifted():
    """Distances have the size that they should, and the most drifted column leads."""
    window, reference = two_sides(numbers(shift=1, seed=2), numbers())

    facts = compare_columns(window, reference, SETTINGS)

    assert [column.name for column in facts.columns] == ["tested", "sound"]
    moved, steady = facts.columns
    assert moved.score == pytest.approx(1, abs=0.2)
    assert moved.drifted
    assert steady.score < 0.2
    assert facts.share == (1 + steady.drifted) / 2
    assert (facts.window_rows, facts.reference_rows) == (ROWS, ROWS)


@pytest.mark.parametrize("unit", [1e-6, 1, 1e6])
def test_the_unit_of_a_column_does_not_matter(unit):
    """A shift of one standard deviation is one, in grams as in tons."""
    window, reference = two_sides(numbers(shift=1, seed=2) * unit, numbers() * unit)

    assert found_in(compare_columns(window, reference, SETTINGS)).score == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("column", "other"),
    [
        pytest.param(["a"] * 200 + ["b"] * 100, ["a"] * 100 + ["b"] * 200, id="text"),
        pytest.param([True] * 200 + [False] * 100, [True] * 100 + [False] * 200, id="bool"),
        pytest.param(pd.Categorical(["a", "b", "b"] * 100), ["a", "a", "b"] * 100, id="categories"),
        pytest.param(["new"] * 300, ["a", "b", "c"] * 100, id="only new values"),
        pytest.param(["b"] * 300, ["a"] * 300, id="another constant"),
    ],
)
def test_categories_are_compared(column, other):
    """Text, booleans and categories have a distance too, and move when their shares do."""
    found = found_in(compare_columns(*two_sides(column, other), SETTINGS))

    assert (found.kind, found.problem) == ("category", "")
    assert found.drifted


@pytest.mark.parametrize(
    ("column", "other", "problem"),
    [
        pytest.param(np.nan, None, "no values in the training data", id="all null"),
        pytest.param(None, numbers(), "no values in the window", id="null in the window"),
        pytest.param(np.inf, numbers(), "no finite values in the window", id="infinite"),
        pytest.param(7, None, "one and the same value everywhere", id="constant"),
        pytest.param(numbers(), 7.0, "from which 100.0% of the window differ", id="was constant"),
        pytest.param([1, "a", 2.5] * 100, None, r"mixes types \(float, int, str\)", id="mixed"),
        pytest.param(
            [True, "a", "b"] * 100, None, r"mixes types \(bool, str\)", id="bool and text"
        ),
        pytest.param([[1], [2], [3]] * 100, None, "holds list values", id="lists"),
        pytest.param([b"a", b"b", b"c"] * 100, None, "holds bytes values", id="bytes"),
        pytest.param([1j, 2j, 3j] * 100, None, "holds complex", id="complex"),
        pytest.param(pd.date_range("2026", periods=ROWS), None, "holds datetime64", id="dates"),
        pytest.param([f"t{n}" for n in range(ROWS)], None, "free text", id="free text"),
        pytest.param(["a", "b", "c"] * 100, numbers(), "a number in the training", id="other kind"),
        pytest.param(np.clip(numbers(), -1, 1) * 1e308, None, "gave no number", id="overflow"),
    ],
)
def test_a_bad_column_is_a_finding(column, other, problem):
    """It carries its reason, spoils no other column and does not count in the share."""
    facts = compare_columns(*two_sides(column, other), SETTINGS)

    assert re.search(problem, found_in(facts).problem)
    assert found_in(facts).score is None
    assert facts.columns[0].name == "sound"
    assert facts.share == float(facts.columns[0].drifted)


def test_numbers_that_hide_in_objects_are_numbers():
    """Decimals, and missing values among them, are compared as numbers."""
    column = [Decimal("1.5"), None, 3] * 100

    assert found_in(compare_columns(*two_sides(column), SETTINGS)).kind == "number"


def test_nullable_columns_are_compared():
    """Pandas' own types for missing values are numbers and categories as well."""
    window, reference = two_sides(pd.array([1, 2, None] * 100, dtype="Int64"))

    assert found_in(compare_columns(window, reference, SETTINGS)).problem == ""


@pytest.mark.parametrize("side", ["window", "training data"])
def test_a_column_of_one_side_is_a_finding(side):
    """Evidently would leave it out without a word."""
    window, reference = two_sides(numbers())
    (window if side == "window" else reference).drop(columns="tested", inplace=True)

    facts = compare_columns(window, reference, SETTINGS)

    assert found_in(facts).problem == f"missing in the {side}"


def test_names_may_be_numbers_but_not_twice_the_same():
    """Integer names are compared; a name that stands for two columns is a finding."""
    window, reference = (pd.DataFrame(np.c_[numbers(), numbers(), numbers()]) for _ in range(2))
    window.columns = reference.columns = [0, 1, "1"]

    facts = compare_columns(window, reference, SETTINGS)

    assert found_in(facts, "0").problem == ""
    assert found_in(facts, "1").problem == "2 columns of this name in the training data"


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_tiny_windows_are_compared_or_explained(rows):
    """No row, one row, two rows: an outcome for each column."""
    window, reference = two_sides(["a", "b", "c"] * 100)

    facts = compare_columns(window.head(rows), reference, SETTINGS)

    assert len(facts.columns) == 2
    assert all((column.score is None) == (rows == 0) for column in facts.columns)
    assert facts.window_rows == rows


def test_no_column_at_all_has_no_share():
    """Nothing to compare is not the same as nothing moved."""
    assert compare_columns(pd.DataFrame(), pd.DataFrame(), SETTINGS).share is None


def test_large_tables_are_sampled_alike_each_time():
    """Evidently sees no more rows than the cap, and the same ones for the same table."""
    window, reference = two_sides(numbers())
    settings = DriftSettings(max_rows=100)

    facts = compare_columns(window, reference, settings)

    assert (facts.window_rows, facts.reference_rows) == (100, 100)
    assert facts == compare_columns(window, reference, settings)


def test_a_p_value_drifts_downwards():
    """With a hypothesis test the most drifted column still leads, and is stronger than one."""
    settings = DriftSettings(num_method="ks", num_threshold=0.05)
    window, reference = two_sides(numbers(shift=1, seed=2), numbers())

    moved, steady = compare_columns(window, reference, settings).columns

    assert moved.name == "tested"
    assert strength(moved) > 1 >= strength(steady)


def test_a_p_value_that_is_no_number_is_a_finding():
    """Where a test divides by nothing, no NaN enters the facts."""
    window, reference = two_sides(numbers())

    facts = compare_columns(window.head(1), reference, DriftSettings(num_method="es"))

    assert found_in(facts).score is None
    assert "gave no number" in found_in(facts).problem
    assert facts.share is None


@pytest.mark.parametrize(
    ("setting", "method"),
    [
        (setting, method)
        for setting in ("num_method", "cat_method")
        for method in get_args(DriftSettings.model_fields[setting].annotation)
    ],
)
def test_every_method_that_a_monitor_may_name_works(setting, method):
    """Evidently knows it, for this kind of column, and it sees a plain shift."""
    column, other = ["a", "b", "b"] * 100, ["a", "a", "b"] * 100
    if setting == "num_method":
        column, other = numbers(shift=2, seed=2), numbers()

    facts = compare_columns(*two_sides(column, other), DriftSettings(**{setting: method}))

    assert found_in(facts).problem == ""
    assert found_in(facts).drifted


def page_of(path, facts, evidence=None, **options):
    """The page, and what it hands to its scripts."""
    write_page(facts, evidence, SETTINGS, path, **options)
    page = path.read_text()
    return page, DATA.search(page)[1]


def test_the_same_facts_make_the_same_bytes(digits, tmp_path):
    """A review is bound to the digest, so nothing in the page may be drawn at random."""
    facts, evidence = digits

    digests = [write_page(facts, evidence, SETTINGS, tmp_path / name) for name in "ab"]

    page = (tmp_path / "a").read_bytes()
    assert digests == [hashlib.sha256(page).hexdigest()] * 2
    assert write_page(not_assessed(rows=13), None, SETTINGS, tmp_path / "c") != digests[0]


def test_the_page_says_what_the_facts_say(digits, tmp_path):
    """Rate, interval, p-value, cards, drift, classes and method are all there."""
    facts, evidence = digits

    _, data = page_of(tmp_path / "r.html", facts, evidence)

    share, limits = estimate(facts.unknown_rate), interval(facts.unknown_rate_interval)
    for text in (
        share,
        f"Unknown rate ({limits})",
        "p \\u2039 0.0001",
        f"{facts.rows:,}",
        "12,480",
    ):
        assert text in data
    recalls = "Recall by class, largest loss first"
    for title in ("Group 1", "What tells them apart", recalls, "How this was obtained"):
        assert title in data
    assert f"Columns moved: {facts.drift.drifted} of 58" in data


def test_the_page_stays_near_the_size_of_an_empty_one(digits, tmp_path):
    """Evidence adds less than two megabytes to what Evidently's own scripts take."""
    for name, (facts, evidence) in {"full": digits, "empty": (not_assessed(), None)}.items():
        write_page(facts, evidence, SETTINGS, tmp_path / name)

    assert (tmp_path / "full").stat().st_size - (tmp_path / "empty").stat().st_size < 2e6


@pytest.mark.parametrize(
    ("verdict", "colour"),
    [
        ("no_change", "#2e7d32"),
        ("drift", "#ef9a00"),
        ("unknowns", "#c2185b"),
        ("unknowns_and_drift", "#8e24aa"),
        ("not_assessed:too_few_rows", "#616b78"),
        ("not_assessed:no_change", "#616b78"),
    ],
)
def test_each_verdict_has_its_colour(verdict, colour, tmp_path):
    """Green means no change, and nothing else."""
    page, _ = page_of(tmp_path / "r.html", not_assessed(verdict=verdict))

    assert f"solid {colour};" in page


def test_multiples_stand_beside_the_bars():
    """Where every bar ends near the dashed line, no number lies under it."""
    moved = [
        ColumnDrift(
            name=name, kind="number", method="m", score=far, threshold=0.1, drifted=far > 0.1
        )
        for name, far in (("a", 0.11), ("b", 0.1), ("1", 0.09))
    ]

    figure = draw_strengths(moved)

    (bars,) = figure.data
    assert bars.text is None
    numbers = {figure.data[0].y[one.y]: one for one in figure.layout.annotations}
    assert {name: one.text for name, one in numbers.items()} == {
        "a": "1.1x",
        "b": "1.0x",
        "1": "0.9x",
    }
    assert {(one.xref, one.x, one.xanchor) for one in numbers.values()} == {("paper", 1, "left")}


def test_what_was_not_assessed_shows_no_rate(tmp_path):
    """A window that nobody judged has neither a p-value nor zero unknowns."""
    _, data = page_of(tmp_path / "r.html", not_assessed())

    assert "Chance if nothing were new" not in data
    assert "Unknown rows" not in data


def test_a_blocked_challenger_says_so_before_the_numbers(digits, tmp_path):
    """The reason stands between the headline and the key numbers."""
    facts, evidence = digits
    blocked = facts.model_copy(update={"blocked": "class 8 loses too much"})

    _, data = page_of(tmp_path / "r.html", blocked, evidence)

    assert data.index("class 8 loses too much") < data.index("Unknown rows")


def test_only_web_addresses_become_links(tmp_path):
    """A script address is left out; brackets in an address cannot leave the link."""
    links = {"run": "https://mlflow/#/runs/1_(a) b", "bad": "javascript:alert(1)"}

    _, data = page_of(tmp_path / "r.html", not_assessed(), links=links)

    assert "[run](https://mlflow/#/runs/1_%28a%29%20b)" in data
    assert "javascript" not in data


def test_columns_that_cannot_be_drawn_are_still_listed(tmp_path):
    """A column that the report may not show has a score but no bars."""
    seen = pd.DataFrame({"shown": numbers()})
    columns = [
        ColumnDrift(name=name, kind="number", method="m", score=0.5, threshold=0.1, drifted=True)
        for name in ("shown", "withheld")
    ]
    empty = np.empty((0, 2))
    evidence = Evidence(
        seen, seen, np.zeros(ROWS, bool), np.empty(0), np.empty(0), empty, empty, np.empty(0)
    )
    drift = DriftFacts(share=1.0, columns=tuple(columns), window_rows=50, reference_rows=ROWS)

    _, data = page_of(tmp_path / "r.html", not_assessed(drift=drift), evidence)

    assert "withheld" in data
    assert "the threshold is raised" in data


def test_many_columns_are_capped(tmp_path):
    """The page lists as many columns as the settings allow, and says that there are more."""
    columns = [
        ColumnDrift(name=f"c{n:03}", kind="number", method="m", score=0.5, threshold=0.1)
        for n in range(100)
    ]
    facts = not_assessed(drift=DriftFacts(share=0.0, columns=tuple(columns)))

    _, data = page_of(tmp_path / "r.html", facts)

    assert "First 60 columns" in data
    assert "c059" in data
    assert "c060" not in data


def test_no_text_from_data_keeps_its_markup(tmp_path):
    """Between the script tags there is not one sign that could end the script."""
    hostile = "</script><script>alert(1)</script>"
    facts = not_assessed(
        headline=hostile, model=hostile, findings=(hostile,), settings={hostile: [hostile]}
    )

    page, data = page_of(tmp_path / "r.html", facts)

    assert "<" not in data
    assert "<script>alert" not in page
    assert "‹/script›" in caption(hostile)  # noqa: RUF001


def test_a_page_may_ask_for_nothing(tmp_path):
    """Should a script get in after all, the page's own policy lets it reach no server."""
    page, _ = page_of(tmp_path / "r.html", not_assessed())

    head = page[: page.index("<script>")]
    assert "Content-Security-Policy\" content=\"default-src 'none'; script-src" in head


def test_settings_within_settings_are_written_out(tmp_path):
    """How the result was obtained is a flat table, whatever the settings' own shape."""
    settings = {"rectify": {"alpha": 0.01, "seed": 0}, "columns": ["a", "b"], "baseline": None}

    _, data = page_of(tmp_path / "r.html", not_assessed(settings=settings))

    assert '["rectify.alpha", "0.01"], ["rectify.seed", "0"], ["columns", "a, b"]' in data


def test_a_window_may_last_an_hour(tmp_path):
    """The window is written out with its times."""
    facts = not_assessed(window_end=datetime(2026, 1, 12, 1, tzinfo=UTC))

    _, data = page_of(tmp_path / "r.html", facts)

    assert commonmark("2026-01-12 00:00 to 2026-01-12 01:00 UTC").replace("\\", "\\\\") in data


@pytest.mark.parametrize("n_rows", [50, 200, 500])
def test_chance_alone_moves_few_columns(n_rows):
    """In windows of few rows drawn from the reference's own law, hardly any column has moved."""
    rng = np.random.default_rng(0)
    reference = pd.DataFrame(rng.normal(size=(1000, 30))).add_prefix("c")
    window = pd.DataFrame(rng.normal(size=(n_rows, 30))).add_prefix("c")

    assert compare_columns(window, reference, DriftSettings()).share <= 0.1


def test_few_rows_still_show_a_column_that_moved():
    """A threshold raised for chance still lies below a move that matters."""
    rng = np.random.default_rng(0)
    reference = pd.DataFrame(rng.normal(size=(1000, 30))).add_prefix("c")
    window = pd.DataFrame(rng.normal(size=(200, 30)) + 0.5).add_prefix("c")

    assert compare_columns(window, reference, DriftSettings()).share == 1.0

"""Rows 40 to 66: columns and types."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.naive_bayes import GaussianNB

from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column
from tests.catalogue.bench import DAY, GAPS, STRICT, Bench, Part, assert_says, shapes, traffic

PART = Part()
TAKES_GAPS = {"model": {"name": GAPS}}


def rows_with(file: str = "a.parquet", **columns):
    """Sixty rows, with these values, or what a function makes of them, in some columns."""
    return lambda bench: bench.put(traffic().assign(**columns), file)


def value(column: str, found: object, file: str = "a.parquet"):
    """Sixty rows of which the eleventh has another value in one column."""

    def put(bench: Bench) -> None:
        rows = traffic().astype({column: object})
        rows.loc[10, column] = found
        bench.put(rows, file)

    return put


def renamed(**names: str):
    return lambda bench: bench.put(traffic().rename(columns=names))


PART.refused(
    40,
    "missing-column",
    lambda bench: bench.put(traffic().drop(columns="width").assign(widht=1.0)),
    "missing_columns",
    r"a\.parquet lacks 1 column .*'width'. 'widht' looks like 'width'.* Correct the names",
)
PART.taken(41, "extra-column", rows_with(age=7), r"Ignored 1 column that .* not use: 'age'")
for name, other in {"renamed": "heights", "other-case": "HEIGHT", "blank": "height "}.items():
    PART.refused(
        42,
        name,
        renamed(height=other),
        "missing_columns",
        f"lacks 1 column .*'height'. '{other}' looks like 'height'",
    )


@PART.row(43, "reordered")
def reordered(bench):
    bench.put(traffic())
    straight = bench.taken().window
    bench.put(traffic().iloc[:, ::-1])
    turned = bench.taken().window
    assert turned.digest == straight.digest
    pd.testing.assert_frame_equal(turned.sample, straight.sample)


def twice_in_parquet(bench: Bench) -> None:
    table = pa.Table.from_pandas(traffic(), preserve_index=False)
    table = table.append_column("height", table.column("width"))
    pq.write_table(table, bench.source / "a.parquet")


def twice_in_csv(bench: Bench) -> None:
    bench.put(traffic().to_csv(index=False).replace("country", "height", 1), "a.csv")


for name, put in {"parquet": twice_in_parquet, "csv": twice_in_csv}.items():
    PART.refused(
        44,
        f"same-name-twice-{name}",
        put,
        "bad_window",
        rf"a\.{name} has more than one column called 'height'.* Rename them",
    )
# A file has no names but text: numbers as names become text, and are then extra columns.
PART.refused(
    45,
    "empty-name",
    lambda bench: bench.put(traffic().to_csv(), "a.csv"),
    "bad_window",
    r"Column 1 of the file .*a\.csv has no name.* index=False",
)


@PART.row(45, "number-as-name")
def number_as_name(bench):
    table = pa.Table.from_pandas(traffic().assign(**{"7": 1}), preserve_index=False)
    pq.write_table(table, bench.source / "a.parquet")
    bench.taken("Ignored 1 column that the model does not use: '7'")


HOSTILE = ["</script><script>alert(1)</script>", "a\nb", '"quoted"', "🦊", "x" * 10_000]


@PART.row(46, "hostile-names-beside-the-model")
def hostile_names_beside_the_models(bench):
    # Names that the model itself has go through report and registry in row 80.
    bench.put(traffic().assign(**dict.fromkeys(HOSTILE, 1)))
    taken = bench.taken("Ignored 5 columns")
    (finding,) = (words for words in taken.window.findings if "Ignored" in words)
    assert "\n" not in finding
    assert len(finding) < 300


@PART.row(46, "hostile-name-that-is-missing")
def hostile_name_that_is_missing(bench):
    rows, y = shapes(60)
    rows = rows[["height"]].assign(**dict.fromkeys(HOSTILE, 1.0))
    bench.log_champion(GaussianNB(), rows, y)
    bench.put(traffic())
    outcome = bench.refused("missing_columns", "lacks 5 columns .*x…")
    assert "\n" not in outcome.facts.headline


@PART.row(47, "whole-numbers-in-a-float-column")
def whole_numbers_in_a_float_column(bench):
    bench.put(traffic().assign(height=np.arange(60)))
    sample = bench.taken().window.sample
    assert sample["height"].dtype == "float64"
    assert sorted(sample["height"]) == list(range(60))


PART.refused(
    48,
    "fractions-in-an-int-column",
    rows_with(visits=np.arange(60) + 0.5),
    "bad_values",
    r"'visits' of the file .*60 values .*like 0\.5, 1\.5, 2\.5\. Check the unit",
)
PART.refused(
    49,
    "int-with-gap-refused",
    value("visits", None),
    "bad_input",
    r"(1 of 60 rows|visits).*(missing|NaN)",
)


@PART.row(49, "int-with-gap-taken")
def int_with_gap_taken(bench):
    value("visits", None)(bench)
    done = bench.rectified(**TAKES_GAPS)
    assert done.facts.assessed
    assert done.evidence.window["visits"].isna().sum() == 1


PART.refused(
    50,
    "large-int-with-gap",
    lambda bench: bench.put(
        traffic().assign(visits=pd.array([2**53 + 1, None] * 30, dtype="Int64"))
    ),
    "bad_values",
    r"'visits' has missing values and whole numbers .* cannot keep, like 9007199254740993",
)
for name, file in {"parquet": "a.parquet", "csv": "a.csv"}.items():
    PART.refused(
        51,
        f"int-beyond-64-bits-{name}",
        rows_with(file, visits=np.full(60, 2**63 + 1, dtype="uint64")),
        "bad_values",
        r"'visits' of the file .*whole numbers below 2\*\*63.*9223372036854775809.* as text",
    )
for name, texts in {"gaps": ["n/a"], "thousands": ["1,234"], "money": ["€5"]}.items():
    PART.refused(
        52,
        f"text-in-a-number-column-{name}",
        rows_with("a.csv", height=texts * 60),
        "bad_values",
        rf"'height' of the file .*60 values cannot be read as such, like ('{texts[0]}'(, )?){{3}}"
        r"\. If they mean missing, list them in `csv\.null_values:`",
    )


@PART.row(53, "leading-zeros")
def leading_zeros(bench):
    bench.put(traffic().assign(country="007"), "a.csv")
    assert set(bench.taken().window.sample["country"]) == {"007"}


for name, truths in {"digits": [0, 1], "words": ["True", "false"], "letters": ["t", "f"]}.items():
    for file in ("a.parquet", "a.csv"):
        PART.taken(54, f"truth-as-{name}-{file[2:]}", rows_with(file, member=truths * 30))
PART.refused(
    54,
    "no-truth",
    rows_with(member=["maybe", "true"] * 30),
    "bad_values",
    r"'member' of the file .*30 values .*'maybe'.* Write true, false, 1 or 0",
)


@PART.row(55, "decimal")
def decimals(bench):
    bench.put(traffic().assign(height=[Decimal("1.25")] * 60))
    assert set(bench.taken().window.sample["height"]) == {1.25}


for name, odd in {
    "date": date(2026, 1, 5),
    "list": [1.0, 2.0],
    "struct": {"x": 1.0},
    "binary": b"\x00",
}.items():
    PART.refused(
        55,
        name,
        rows_with(height=[odd] * 60),
        "bad_type",
        rf"'height' of the file .*holds values of type .*{name}.* Store it as float",
    )


@PART.row(56, "words-that-look-missing")
def words_that_look_missing(bench):
    bench.put(traffic().assign(country=["NA", "None", "null"] * 20), "a.csv")
    assert set(bench.taken().window.sample["country"]) == {"NA", "None", "null"}


@PART.row(57, "other-categories")
def other_categories(bench):
    values = ["CH", "007", "NA"] * 20
    bench.put(traffic().assign(country=values))
    plain = bench.taken().window
    bench.put(traffic().assign(country=pd.Categorical(values, ["zz", "NA", "CH", "007"])))
    coded = bench.taken().window
    assert coded.digest == plain.digest
    pd.testing.assert_frame_equal(coded.sample, plain.sample)


@PART.row(58, "unseen-category")
def unseen_category(bench):
    bench.put(traffic().assign(country="XX"))
    assert bench.rectified().facts.assessed


PART.refused(
    58,
    "unseen-category-refused-by-the-model",
    rows_with(country="XX"),
    "model_refuses",
    r"unknown categories \['XX'\].* never taught are in 'country' \('XX'\)\. Correct the source",
    model={"name": STRICT},
)
PART.refused(
    59,
    "column-without-values-refused",
    rows_with(height=np.nan),
    "bad_input",
    "60 of 60 rows of the .* missing values",
)


@PART.row(59, "column-without-values-taken")
def column_without_values_taken(bench):
    bench.put(traffic().assign(height=np.nan))
    bench.rectified("Found 1 column without any value: 'height'", **TAKES_GAPS)


PART.taken(60, "constant-column", rows_with(visits=3), "1 column with one value only: 'visits'")
for sign in ("", "-"):
    PART.refused(
        61,
        f"{'minus-' if sign else ''}infinity",
        rows_with(height=[float(f"{sign}inf"), 1.0] * 30),
        "bad_values",
        rf"'height' of the file .*finite numbers, but 30 values .*{sign}inf.* store a gap instead",
    )


@PART.row(62, "one-meaning-of-missing")
def one_meaning_of_missing(bench):
    digests = set()
    for number, gap in enumerate([np.nan, None, pd.NA, pd.NaT]):
        rows = traffic().astype({"height": object, "country": object})
        rows.loc[10, ["height", "country"]] = gap
        rows["height"] = rows["height"].map(lambda cell: None if pd.isna(cell) else float(cell))
        bench.put(rows)
        window = bench.taken().window
        assert window.sample[["height", "country"]].isna().sum().tolist() == [1, 1], number
        digests.add(window.digest)
    assert len(digests) == 1
    bench.refused("bad_input", "1 of 60 rows of the .* have missing values")


@PART.row(63, "extreme-numbers")
def extreme_numbers(bench):
    rows = traffic()
    rows.loc[:2, "height"] = [1e308, 5e-324, -0.0]
    bench.put(rows)
    facts = bench.rectified(**TAKES_GAPS).facts
    assert facts.assessed
    assert facts.rows == 60


@PART.row(64, "other-unit")
def other_unit(bench):
    bench.put(traffic(150).assign(height=lambda rows: rows["height"] * 1_000))
    facts = bench.judge(report=True, **TAKES_GAPS).facts
    assert facts.verdict in ("drift", "unknowns_and_drift")
    moved = {column.name for column in facts.drift.columns if column.drifted}
    assert "height" in moved


@PART.row(65, "ten-thousand-columns")
def ten_thousand_columns(bench):
    names = [f"c{place}" for place in range(10_000)]
    rows = pd.DataFrame(np.ones((60, len(names)), dtype="float32"), columns=names)
    bench.put(rows.assign(served_at=traffic()["served_at"]))
    columns = [Column(name, "float") for name in names]
    window = read_window(bench.monitor().source, DAY, columns, max_rows=60, seed=0)
    assert window.sample.shape == (60, 10_000)
    (finding,) = window.findings
    assert_says("10,000 columns with one value only.* and 9997 more", finding)


@PART.row(65, "one-column")
def one_column(bench):
    X, y = shapes(150)
    bench.log_champion(GaussianNB(), X[["height"]], y)
    bench.put(traffic())
    assert bench.rectified().facts.assessed


@PART.row(66, "label-in-the-window")
def label_in_the_window(bench):
    bench.put(traffic().assign(truth="ape"))
    taken = bench.taken("label column 'truth' is kept apart", source={"label": "truth"})
    assert "truth" not in taken.window.sample
    assert set(taken.window.labels) == {"ape"}
    (column, *_) = taken.champion.columns
    settings = {"label": column.name}
    bench.refused("bad_config", "also a feature of the model.* another label", source=settings)

"""Values reach the model as it was taught, or not at all."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column
from tests.services import DAY

MOMENT = "2026-01-05T00:00:00Z"


def read(path, kind, **settings) -> pd.Series:
    """Read column `x` of a window in the order of column `row`."""
    source = SourceSettings(path=str(path), timestamp="served_at", key="row", **settings)
    window = read_window(source, DAY, [Column("x", kind)], max_rows=1_000, seed=0)
    return window.sample["x"].set_axis(window.keys).sort_index()


def from_parquet(folder, values: pa.Array, kind) -> pd.Series:
    size = len(values)
    moments = pa.array([DAY.start] * size, pa.timestamp("us", "UTC"))
    table = pa.table({"served_at": moments, "row": pa.array(range(size)), "x": values})
    pq.write_table(table, folder / "a.parquet")
    return read(folder / "a.parquet", kind)


def from_csv(folder, values, kind, **settings) -> pd.Series:
    lines = [f"{MOMENT}\t{row}\t{value}" for row, value in enumerate(values)]
    (folder / "a.csv").write_text("\n".join(["served_at\trow\tx", *lines]))
    return read(folder / "a.csv", kind, csv={"delimiter": "\t", **settings})


def are_same(column: pd.Series, expected: list) -> bool:
    """Tell whether values are exactly the same, gaps included."""
    pairs = zip(column, expected, strict=True)
    return all(left == right or (pd.isna(left) and pd.isna(right)) for left, right in pairs)


@pytest.mark.parametrize(
    ("values", "kind", "dtype", "expected"),
    [
        (pa.array([1, 2]), "float", "float64", [1.0, 2.0]),
        (pa.array([1, 2], pa.uint8()), "integer", "int64", [1, 2]),
        (pa.array([1, None]), "integer", "float64", [1.0, np.nan]),
        (pa.array([1.0, None]), "integer", "float64", [1.0, np.nan]),
        (pa.array([1.0, 2.0]), "integer", "int64", [1, 2]),
        (pa.array([2**60 + 1]), "integer", "int64", [2**60 + 1]),
        (pa.array([Decimal("1.50")]), "float", "float64", [1.5]),
        (pa.array([Decimal("2.00")]), "integer", "int64", [2]),
        (pa.array([1e308, 5e-324, -0.0]), "float", "float64", [1e308, 5e-324, -0.0]),
        (pa.array([None, np.nan, 1.0]), "float", "float64", [np.nan, np.nan, 1.0]),
        (pa.array([None, None]), "float", "float64", [np.nan, np.nan]),
        (pa.array([True, False]), "boolean", "bool", [True, False]),
        (pa.array([True, None]), "boolean", "object", [True, None]),
        (pa.array([1, 0]), "boolean", "bool", [True, False]),
        (pa.array(["True", "f"]), "boolean", "bool", [True, False]),
        (pa.array([True, False]), "integer", "int64", [1, 0]),
        (pa.array(["NA", None]), "text", "str", ["NA", np.nan]),
        (pa.array(["a", "b"]).dictionary_encode(), "text", "str", ["a", "b"]),
        (pa.array(["a"], pa.large_string()), "text", "str", ["a"]),
        (pa.array(["1.5", "2"]), "float", "float64", [1.5, 2.0]),
        (pa.array([date(2026, 1, 5)]), "datetime", "datetime64[us]", [datetime(2026, 1, 5)]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_values_are_cast_without_loss(tmp_path, values, kind, dtype, expected):
    """A width or a wrapping that means the same is cast to the type that was taught."""
    column = from_parquet(tmp_path, values, kind)

    assert column.dtype == dtype
    assert are_same(column, expected)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (pa.array([1.5, 2.0, 2.5]), "integer", r"exact whole numbers, but 2 values.* 1.5, 2.5"),
        (pa.array([2.0**60]), "integer", "exact whole numbers, but 1 value"),
        (pa.array([2**53 + 1]), "float", "float keeps exactly, but 1 value .*9007199254740993"),
        (pa.array([2**60 + 1, None]), "integer", "missing values and whole numbers that a float"),
        (pa.array([2**63], pa.uint64()), "integer", r"below 2\*\*63, but 1 value"),
        (pa.array([2**63], pa.uint64()), "float", "float keeps exactly, but 1 value"),
        (pa.array([Decimal("1.50")]), "integer", "exact whole numbers, but 1 value"),
        (
            pa.array(["n/a", "€5", "1", "1,234", "x"]),
            "float",
            "hold numbers, but 4 values .* like 'n/a', '€5'",
        ),
        (pa.array(["9" * 19]), "integer", r"below 2\*\*63, but 1 value"),
        (pa.array(["1", "one"]), "integer", "hold numbers, but 1 value .* like 'one'"),
        (pa.array([np.inf, -np.inf, 1.0]), "float", "finite numbers, but 2 values"),
        (pa.array(["yes"]), "boolean", "true or false, but 1 value .* like 'yes'"),
        (pa.array([2]), "boolean", "true or false, but 1 value .* like 2"),
        (pa.array([1]), "text", "holds whole numbers, which cannot be read as text"),
        (pa.array([[1.0]]), "float", r"list<.*> *, which cannot be read as float"),
        (pa.array([{"a": 1}]), "float", "struct.* cannot be read as float"),
        (pa.array([b"1"]), "text", "binary, which cannot be read as text"),
        (pa.array([date(2026, 1, 5)]), "float", "date32.* cannot be read as float"),
        (pa.array(["monday"]), "datetime", "dates, but 1 value .* like 'monday'"),
    ],
    ids=str,
)
def test_values_that_would_change_are_refused(tmp_path, values, kind, message):
    """What has no exact counterpart is an error with the number of values and examples."""
    with pytest.raises(WindowError, match=message) as refusal:
        from_parquet(tmp_path, values, kind)

    assert "'x'" in str(refusal.value)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["007", "NA", "null", "None", "7"], "text", ["007", "NA", "null", "None", "7"]),
        (["7", "", "-3"], "integer", [7, np.nan, -3]),
        (["7.0", "+8"], "integer", [7, 8]),
        (["1e3", "", ".5"], "float", [1_000.0, np.nan, 0.5]),
        (["TRUE", "0", "t"], "boolean", [True, False, True]),
        (["1152921504606846977"], "integer", [2**60 + 1]),
        (["2026-01-05T01:00:00+01:00"], "datetime", [datetime(2026, 1, 5)]),
    ],
)
def test_csv_is_read_by_declared_type(tmp_path, values, kind, expected):
    """The column's type decides, not what its text looks like."""
    assert are_same(from_csv(tmp_path, values, kind), expected)


def test_a_decimal_comma_is_declared(tmp_path):
    """With a decimal comma a point is no decimal sign, so that thousands do not shrink."""
    assert from_csv(tmp_path, ["1,5", "2"], "float", decimal=",").tolist() == [1.5, 2.0]
    with pytest.raises(WindowError, match=r"1 value .* like '1.234'"):
        from_csv(tmp_path, ["1,5", "1.234"], "float", decimal=",")
    with pytest.raises(WindowError, match=r"1 value .* like '1,5'.*`csv.decimal:`"):
        from_csv(tmp_path, ["1,5"], "float")


def test_texts_that_mean_missing_are_declared(tmp_path):
    """Nothing but the declared texts is missing."""
    column = from_csv(tmp_path, ["n/a", "1", "-"], "float", null_values=["n/a", "-"])

    assert column.isna().tolist() == [True, False, True]


def test_gaps_do_not_change_the_rows_beside_them(tmp_path):
    """A row has the same hash whether or not another row of its batch has a gap."""
    table = pa.table(
        {
            "served_at": pa.array([DAY.start] * 3, pa.timestamp("us", "UTC")),
            "x": pa.array([1, 2, None]),
            "row": pa.array([None, 2, 3]),
        }
    )
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=3)
    pq.write_table(table, tmp_path / "many.parquet", row_group_size=1)
    digests = set()
    for name in ("one.parquet", "many.parquet"):
        source = SourceSettings(path=f"{tmp_path}/{name}", timestamp="served_at", key="row")
        window = read_window(source, DAY, [Column("x", "integer")], max_rows=9, seed=0)
        digests.add(window.digest)

    assert len(digests) == 1
    assert window.keys.isna().sum() == 1

"""Which columns are read, whether a file or table has them, and how values are converted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.errors import Code, ConfigError, WindowError
from rtscv_mlops.text import counted, listed, shown
from rtscv_mlops.window import Column

NATURAL = "natural"
Types = Mapping[str, pa.DataType]


class Slot:
    """Columns of a sample, by the role that they have. A feature's name follows the prefix."""

    TIME, KEY, LABEL, ORIGIN = "time", "key", "label", "origin"
    FEATURE = "feature:"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column to read, and the slot of the sample it fills. A `natural` one keeps its type."""

    slot: str
    name: str
    kind: str = NATURAL
    optional: bool = False

    @classmethod
    def of_features(cls, columns: Sequence[Column], label: str | None) -> list[Self]:
        """Return the columns of the model, which must not include the label."""
        if label in {column.name for column in columns}:
            raise ConfigError(
                f"The label column {shown(label)} is also a feature of the model, so the model "
                "would see the answer. Name another label column."
            )
        return [
            cls(Slot.FEATURE + column.name, column.name, column.kind, column.optional)
            for column in columns
        ]

    @property
    def is_feature(self) -> bool:
        return self.slot.startswith(Slot.FEATURE)

    @property
    def is_natural(self) -> bool:
        return self.kind == NATURAL


def family(kind: pa.DataType) -> str:
    """Return what a type means regardless of its width, in which files may differ."""
    if kinds.is_dictionary(kind):
        return family(kind.value_type)
    if kinds.is_timestamp(kind):
        return "timestamps with a zone" if kind.tz else "timestamps without a zone"
    groups = {
        "numbers": (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
        "text": (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        "nothing": (kinds.is_null,),
    }
    for name, tests in groups.items():
        if any(test(kind) for test in tests):
            return name
    return str(kind)


# Larger whole numbers may have no exact float.
EXACT = 2**53
TARGETS = {
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "datetime": pa.timestamp("us"),
}
# Nullable pandas types, so that gaps do not turn whole numbers into floats.
STORED = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(na_value=np.nan),
}
WHOLE = r"-?(0|[1-9]\d{0,17})"
# What CSV files hold for a missing number, besides nothing.
NO_NUMBER = pa.array(["NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"])
# What a column should hold, and what to do if it does not.
INT64 = ("whole numbers below 2**63", "Store them as text if they are identifiers.")
BOOLEANS = ("true or false", "Write true, false, 1 or 0, or correct the source.")
NUMBERS = (
    "numbers",
    "If they mean missing, list them in `csv.null_values:`; a decimal comma is `csv.decimal:`; "
    "otherwise correct the source.",
)
TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def decode(column: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding."""
    return column.dictionary_decode() if kinds.is_dictionary(column.type) else column


def _source_kind(kind: pa.DataType) -> str:
    tests: dict[str, Callable[[pa.DataType], bool]] = {
        "integer": kinds.is_integer,
        "number": kinds.is_floating,
        "decimal": kinds.is_decimal,
        "boolean": kinds.is_boolean,
        "time": lambda kind: kinds.is_timestamp(kind) or kinds.is_date(kind),
        "text": lambda kind: family(kind) == "text",
        "uuid": lambda kind: kind == pa.uuid(),
    }
    return next((name for name, test in tests.items() if test(kind)), "other")


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts a column of the source to the type it is wanted in, without changing any value.

    `source` is the file or table, for messages. `decimal` is the decimal sign of numbers in text.
    `untyped` says that all values are text because the format has no types.
    """

    target: SourceColumn
    source: str
    decimal: str = "."
    untyped: bool = False

    def convert(self, column: pa.Array) -> pa.Array:
        """Return a column in its target type. Dictionary-encoded text stays encoded."""
        is_encoded = kinds.is_dictionary(column.type)
        if self.target.kind == "text" and is_encoded and family(column.type) == "text":
            texts = column.dictionary.cast(pa.string())
            return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), texts)
        column = decode(column)
        if kinds.is_null(column.type):
            return column.cast(TARGETS[self.target.kind])
        conversion = CONVERSIONS.get((self.target.kind, _source_kind(column.type)))
        if conversion is None:
            raise self._wrong_type(column)
        return conversion(self, column)

    def to_text(self, column: pa.Array) -> tuple[pa.Array, str]:
        """Return a column as text, and the kind that it had; without any value, `nothing`."""
        column = decode(column)
        kind = "nothing" if column.null_count == len(column) else _source_kind(column.type)
        if kind == "other":
            raise self._wrong_type(column)
        if kind == "text" and self.untyped:
            kind = "written"
        if kind == "uuid":
            return self._text_from_uuid(column), kind
        return column.cast(pa.string()), kind

    def _wrong_type(self, column: pa.Array) -> WindowError:
        wanted = "text or a number" if self.target.is_natural else self.target.kind
        is_whole = kinds.is_integer(column.type)
        values = "whole numbers" if is_whole else f"values of type {column.type}"
        return WindowError(
            f"Column {shown(self.target.name)} of {self.source} holds {values}, which cannot be "
            f"read as {wanted}. Store it as {wanted}, or leave it out.",
            code=Code.BAD_TYPE,
        )

    def _bad_values(self, bad: pa.Array, expected: str, fix: str) -> WindowError:
        return WindowError(
            f"Column {shown(self.target.name)} of {self.source} should hold {expected}, but "
            f"{counted(len(bad), 'value')} cannot be read as such, like "
            f"{listed(bad[:3].to_pylist())}. {fix}",
            code=Code.BAD_VALUES,
        )

    def _float_from_number(self, column: pa.Array) -> pa.Array:
        numbers = column.cast(pa.float64())
        if numbers.null_count == 0 and np.isfinite(numbers.to_numpy()).all():
            return numbers
        infinite = pc.is_inf(numbers)
        if pc.any(infinite).as_py():
            raise self._bad_values(
                column.filter(pc.fill_null(infinite, False)),
                "finite numbers",
                "Most models refuse infinite ones; correct the source, or store a gap instead.",
            )
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)

    def _float_from_integer(self, column: pa.Array) -> pa.Array:
        try:
            return column.cast(pa.float64())
        except pa.ArrowInvalid as error:
            beyond = pc.greater(column, pa.scalar(EXACT, column.type))
            if kinds.is_signed_integer(column.type):
                beyond = pc.or_(beyond, pc.less(column, -EXACT))
            raise self._bad_values(
                column.filter(pc.fill_null(beyond, False)),
                "numbers that a float keeps exactly",
                "Store them as text if they are identifiers, and train the model on text.",
            ) from error

    def _integer_from_integer(self, column: pa.Array) -> pa.Array:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            beyond = pc.greater(column, pa.scalar(2**63 - 1, pa.uint64()))
            raise self._bad_values(column.filter(pc.fill_null(beyond, False)), *INT64) from error

    def _integer_from_number(self, column: pa.Array) -> pa.Array:
        numbers = self._float_from_number(column)
        not_whole = pc.or_(
            pc.not_equal(pc.floor(numbers), numbers), pc.greater(pc.abs(numbers), float(EXACT))
        )
        if pc.any(not_whole).as_py():
            raise self._bad_values(
                numbers.filter(pc.fill_null(not_whole, False)),
                "exact whole numbers",
                "Check the unit of the source, or train the model on floats.",
            )
        return numbers.cast(pa.int64())

    def _from_decimal(self, column: pa.Array) -> pa.Array:
        if self.target.kind != "integer":
            return column.cast(pa.float64())
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            return self._integer_from_number(column.cast(pa.float64()))

    def _float_from_text(self, column: pa.Array) -> pa.Array:
        texts = column.cast(pa.string())
        if self.decimal == ",":
            dotted = pc.match_substring(texts, ".")
            # Then a point is not a decimal sign: 1.234 would silently become a thousandth of it.
            if pc.any(dotted).as_py():
                raise self._bad_values(column.filter(pc.fill_null(dotted, False)), *NUMBERS)
            texts = pc.replace_substring(texts, ",", ".")
        try:
            return self._float_from_number(texts.cast(pa.float64()))
        except pa.ArrowInvalid as error:
            raise self._bad_values(_failing(texts, pa.float64()), *NUMBERS) from error

    def _integer_from_text(self, column: pa.Array) -> pa.Array:
        if pc.all(pc.match_substring_regex(column, r"^[+-]?\d+$")).as_py() is False:
            return self._integer_from_number(self._float_from_text(column))
        digits = pc.replace_substring_regex(column, r"^\+", "")
        try:
            return digits.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise self._bad_values(_failing(digits, pa.int64()), *INT64) from error

    def _cast(self, column: pa.Array) -> pa.Array:
        return column.cast(TARGETS[self.target.kind])

    def _boolean_from_number(self, column: pa.Array) -> pa.Array:
        numbers = column.cast(pa.float64())
        other = pc.and_(pc.not_equal(numbers, 0.0), pc.not_equal(numbers, 1.0))
        if pc.any(other).as_py():
            raise self._bad_values(column.filter(pc.fill_null(other, False)), *BOOLEANS)
        return numbers.cast(pa.bool_())

    def _boolean_from_text(self, column: pa.Array) -> pa.Array:
        index = pc.index_in(pc.utf8_lower(column.cast(pa.string())), pa.array([*TRUTHS]))
        other = pc.and_(pc.is_null(index), pc.is_valid(column))
        if pc.any(other).as_py():
            raise self._bad_values(column.filter(other), *BOOLEANS)
        return pa.array([*TRUTHS.values()]).take(index)

    def _text_from_uuid(self, column: pa.Array) -> pa.Array:
        return pa.array([None if value is None else str(value) for value in column.to_pylist()])

    def _datetime_from_time(self, column: pa.Array) -> pa.Array:
        if kinds.is_timestamp(column.type) and column.type.tz:
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        return column.cast(TARGETS["datetime"], safe=False)

    def _datetime_from_text(self, column: pa.Array) -> pa.Array:
        try:
            times = pa.array(pd.to_datetime(column.to_pandas(), utc=True, format="ISO8601"))
        except ValueError as error:
            raise self._bad_values(
                column.drop_null(), "dates", "Write them like 2026-01-05T13:00:00."
            ) from error
        return times.cast(TARGETS["datetime"], safe=False)


def _failing(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the texts that cannot be cast to a type."""

    def fails(text: str) -> bool:
        try:
            pa.scalar(text).cast(kind)
        except pa.ArrowInvalid:
            return True
        return False

    return pa.array([text for text in texts.drop_null().to_pylist() if fails(text)], pa.string())


CONVERSIONS: dict[tuple[str, str], Callable[[Converter, pa.Array], pa.Array]] = {
    ("float", "number"): Converter._float_from_number,
    ("float", "integer"): Converter._float_from_integer,
    ("float", "decimal"): Converter._from_decimal,
    ("float", "text"): Converter._float_from_text,
    ("float", "boolean"): Converter._cast,
    ("integer", "number"): Converter._integer_from_number,
    ("integer", "integer"): Converter._integer_from_integer,
    ("integer", "decimal"): Converter._from_decimal,
    ("integer", "text"): Converter._integer_from_text,
    ("integer", "boolean"): Converter._cast,
    ("boolean", "boolean"): Converter._cast,
    ("boolean", "integer"): Converter._boolean_from_number,
    ("boolean", "number"): Converter._boolean_from_number,
    ("boolean", "text"): Converter._boolean_from_text,
    ("text", "text"): Converter._cast,
    ("text", "uuid"): Converter._text_from_uuid,
    ("datetime", "time"): Converter._datetime_from_time,
    ("datetime", "text"): Converter._datetime_from_text,
}


def restore(column: "pd.Series", kinds_found: set[str] | None) -> "pd.Series":
    """Return a column of a sample in plain types.

    A natural column was kept as text; it gets the type of the `kinds_found` in it. Text of an
    untyped format is read as whole numbers if all of it looks like that.
    """
    if kinds_found is None:
        return to_plain(column)
    if kinds_found <= {"nothing", "written"} and column.dropna().str.fullmatch(WHOLE).all():
        kinds_found = {"integer"} if column.notna().any() else kinds_found
    if kinds_found <= {"nothing", "boolean"} and "boolean" in kinds_found:
        return to_plain(column.map({"true": True, "false": False}).astype("boolean"))
    if kinds_found <= {"nothing", "integer"} and "integer" in kinds_found:
        # Through Python's integers: pandas would go through floats, which lose digits.
        whole = [None if pd.isna(text) else int(text) for text in column]
        return to_plain(pd.Series(whole, column.index, "Int64", name=column.name))
    if kinds_found <= {"nothing", "integer", "number", "decimal"} and kinds_found != {"nothing"}:
        return column.astype("float64")
    return column


def infer_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text as whole numbers, floats or booleans if all its values are such; else as it is.

    `NA` and the like are gaps among numbers and booleans, and text among texts.
    """
    texts = pc.utf8_trim_whitespace(column)
    texts = pc.if_else(pc.is_in(texts, NO_NUMBER), pa.scalar(None, pa.string()), texts)
    if texts.null_count == len(texts):
        return column if column.null_count < len(column) else column.cast(pa.float64())
    if pc.all(pc.is_in(pc.utf8_lower(texts.drop_null()), pa.array(["true", "false"]))).as_py():
        return texts.cast(pa.bool_())
    is_whole = pc.all(pc.match_substring_regex(texts, r"^[+-]?\d+$")).as_py()
    try:
        if is_whole:
            return pc.replace_substring_regex(texts, r"^\+", "").cast(pa.int64())
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:  # Also identifiers of too many digits, which a float would change.
        return column


def infer_types(table: pa.Table) -> pd.DataFrame:
    """Return a table of texts with each column in the type that its values have."""
    columns = [infer_type(column) for column in table.columns]
    frame: pd.DataFrame = pa.table(columns, table.column_names).to_pandas(types_mapper=STORED.get)
    return frame.apply(to_plain)


def to_plain(column: "pd.Series") -> "pd.Series":
    """Return a column in the types that pandas reads from Parquet, and models are trained on."""
    if isinstance(column.dtype, pd.BooleanDtype):
        gaps = column.isna()
        return column.astype(object).mask(gaps, None) if gaps.any() else column.astype(bool)
    if not isinstance(column.dtype, pd.Int64Dtype):
        return column
    if not column.hasnans:
        return column.astype("int64")
    large = column[(column > EXACT) | (column < -EXACT)]  # -2**63 has no absolute value.
    if len(large):
        raise WindowError(
            f"Column {shown(column.name)} has missing values and whole numbers that a float "
            f"cannot keep, like {listed(large.tolist(), 3)}. Fill the gaps, or store the column "
            "as text if it holds identifiers.",
            code=Code.BAD_VALUES,
        )
    return column.astype("float64")

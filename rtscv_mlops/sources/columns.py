"""Which columns are read, and whether a file or table has them.

Knows names and types; knows nothing of values.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.errors import Code, ConfigError, WindowError
from rtscv_mlops.text import count, listed, shown, suggestions
from rtscv_mlops.window import Column

TIME, KEY, LABEL, ORIGIN = "time", "key", "label", "origin"
FEATURE = "feature:"
NATURAL = "natural"
Types = Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the source that fills a slot of the frame; `natural` keeps the type it has."""

    slot: str
    name: str
    kind: str = NATURAL
    optional: bool = False


def feature_fields(columns: Sequence[Column], label: str | None) -> list[Field]:
    """Return one field per column of the model, which must not include the label."""
    if label in {column.name for column in columns}:
        raise ConfigError(
            f"The label column {shown(label)} is also a feature of the model, which would then "
            "be told the answer. Name another label column."
        )
    return [
        Field(FEATURE + column.name, column.name, column.kind, column.optional)
        for column in columns
    ]


def check_names(names: Sequence[str], place: str) -> None:
    """Refuse columns that no name can tell apart."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise WindowError(
            f"{place} has more than one column called {listed(repeated)}, so the name does not "
            "say which is meant. Rename them where the data is written."
        )
    if any(not name.strip() for name in names):
        position = next(at for at, name in enumerate(names, 1) if not name.strip())
        raise WindowError(
            f"Column {position} of {place} has no name. If it is an index that pandas wrote, "
            "write with index=False; otherwise name it."
        )


def present(fields: Iterable[Field], types: Types, place: str, hint: str = "") -> list[Field]:
    """Return the fields that a place has; one that is needed and missing is an error."""
    wanted = list(fields)
    missing = [field.name for field in wanted if field.name not in types and not field.optional]
    if missing:
        raise WindowError(
            f"{place} lacks {count(len(missing), 'column')} that the monitor needs: "
            f"{listed(missing)}.{suggestions(missing, list(types))} It has: {listed(types)}."
            f"{hint} Correct the names in the source or in the monitor.",
            code=Code.MISSING_COLUMNS,
        )
    return [field for field in wanted if field.name in types]


def family(kind: pa.DataType) -> str:
    """Name what a type means, whatever its width: files may differ in width only."""
    if kinds.is_dictionary(kind):
        return family(kind.value_type)
    if kinds.is_timestamp(kind):
        return "moments with a zone" if kind.tz else "moments without a zone"
    groups = {
        "numbers": (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
        "text": (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        "nothing": (kinds.is_null,),
    }
    for name, tests in groups.items():
        if any(test(kind) for test in tests):
            return name
    return str(kind)


def check_alike(first: Types, other: Types, names: Iterable[str], places: tuple[str, str]) -> None:
    """Refuse a file whose columns mean something else than those of the first file."""
    differences = []
    for name in names:
        if (name in first) != (name in other):
            differences.append(f"{'has' if name in other else 'lacks'} {shown(name)}")
        elif name in first:
            families = family(first[name]), family(other[name])
            if len({*families} - {"nothing"}) > 1:
                differences.append(f"{shown(name)} holds {families[1]}, not {families[0]}")
    if differences:
        raise WindowError(
            f"{places[1]} does not match {places[0]}, a file of the same source: it "
            f"{'; '.join(differences[:5])}. Write both in the same way, or narrow the path.",
            code=Code.MIXED_SCHEMAS,
        )


# Whole numbers beyond this have no float of their own.
EXACT = 2**53
TARGETS = {
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "datetime": pa.timestamp("us"),
}
# One pandas type per kind, gaps or none: equal rows then have equal hashes in every batch.
STORED = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(na_value=np.nan),
}
WHOLE = r"-?(0|[1-9]\d{0,17})"
TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


@dataclass(frozen=True, slots=True)
class Reading:
    """What is needed to read a value, and to say where it stood."""

    place: str
    decimal: str = "."
    untyped: bool = False

    def refuse(self, field: Field, bad: pa.Array, should: str, fix: str) -> WindowError:
        return WindowError(
            f"Column {shown(field.name)} of {self.place} should hold {should}, but "
            f"{count(len(bad), 'value')} cannot be read as such, like "
            f"{listed(bad[:3].to_pylist())}. {fix}",
            code=Code.BAD_VALUES,
        )


def conform(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    """Return a column in the type of its field, without changing any value.

    Texts that are named by a dictionary stay so: each then needs to be looked at only once.
    """
    if field.kind == "text" and kinds.is_dictionary(column.type) and family(column.type) == "text":
        words = column.dictionary.cast(pa.string())
        return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), words)
    column = decoded(column)
    if kinds.is_null(column.type):
        return column.cast(TARGETS[field.kind])
    convert = CONVERSIONS.get((field.kind, _source(column.type)))
    if convert is None:
        raise _wrong_type(column, field, reading)
    return convert(column, field, reading)


def as_text(column: pa.Array, field: Field, reading: Reading) -> tuple[pa.Array, str]:
    """Return a column of any simple type as text, and what it was; gaps alone are `nothing`."""
    column = decoded(column)
    source = "nothing" if column.null_count == len(column) else _source(column.type)
    if source == "other":
        raise _wrong_type(column, field, reading)
    if source == "text" and reading.untyped:
        source = "written"
    if source == "uuid":
        return _text_from_uuid(column, field, reading), source
    return column.cast(pa.string()), source


def from_text(column: "pd.Series", sources: set[str]) -> "pd.Series":
    """Return a column that was kept as text in the type that it had.

    What was `written` as text for lack of types is whole numbers if all of it looks like that.
    """
    if sources <= {"nothing", "written"} and column.dropna().str.fullmatch(WHOLE).all():
        sources = {"integer"} if column.notna().any() else sources
    if sources <= {"nothing", "boolean"} and "boolean" in sources:
        return plain(column.map({"true": True, "false": False}).astype("boolean"))
    if sources <= {"nothing", "integer"} and "integer" in sources:
        # Through Python's integers: pandas would go through floats, which lose digits.
        whole = [None if pd.isna(text) else int(text) for text in column]
        return plain(pd.Series(whole, column.index, "Int64", name=column.name))
    if sources <= {"nothing", "integer", "number", "decimal"} and sources != {"nothing"}:
        return column.astype("float64")
    return column


def decoded(column: pa.Array) -> pa.Array:
    """Return a column by its values where it names them by a dictionary."""
    return column.dictionary_decode() if kinds.is_dictionary(column.type) else column


def _wrong_type(column: pa.Array, field: Field, reading: Reading) -> WindowError:
    wanted = "text or a number" if field.kind == NATURAL else field.kind
    return WindowError(
        f"Column {shown(field.name)} of {reading.place} holds {_named(column.type)}, which "
        f"cannot be read as {wanted}. Store it as {wanted}, or leave it out.",
        code=Code.BAD_TYPE,
    )


def _named(kind: pa.DataType) -> str:
    return "whole numbers" if kinds.is_integer(kind) else f"values of type {kind}"


def _source(kind: pa.DataType) -> str:
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


def _float_from_number(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    numbers = column.cast(pa.float64())
    if numbers.null_count == 0 and np.isfinite(numbers.to_numpy()).all():
        return numbers
    infinite = pc.is_inf(numbers)
    if pc.any(infinite).as_py():
        raise reading.refuse(
            field,
            column.filter(pc.fill_null(infinite, False)),
            "finite numbers",
            "Most models refuse infinite ones; correct the source, or store a gap instead.",
        )
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)


def _float_from_integer(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        beyond = pc.greater(column, pa.scalar(EXACT, column.type))
        if kinds.is_signed_integer(column.type):
            beyond = pc.or_(beyond, pc.less(column, -EXACT))
        raise reading.refuse(
            field,
            column.filter(pc.fill_null(beyond, False)),
            "numbers that a float keeps exactly",
            "Store them as text if they are identifiers, and train the model on text.",
        ) from error


def _integer_from_integer(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        beyond = pc.greater(column, pa.scalar(2**63 - 1, pa.uint64()))
        raise _too_large(column.filter(pc.fill_null(beyond, False)), field, reading) from error


def _too_large(bad: pa.Array, field: Field, reading: Reading) -> WindowError:
    return reading.refuse(
        field, bad, "whole numbers below 2**63", "Store them as text if they are identifiers."
    )


def _integer_from_number(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    numbers = _float_from_number(column, field, reading)
    not_whole = pc.or_(
        pc.not_equal(pc.floor(numbers), numbers), pc.greater(pc.abs(numbers), float(EXACT))
    )
    if pc.any(not_whole).as_py():
        raise reading.refuse(
            field,
            numbers.filter(pc.fill_null(not_whole, False)),
            "exact whole numbers",
            "Check the unit of the source, or train the model on floats.",
        )
    return numbers.cast(pa.int64())


def _from_decimal(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    if field.kind != "integer":
        return column.cast(pa.float64())
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return _integer_from_number(column.cast(pa.float64()), field, reading)


def _float_from_text(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    texts = column.cast(pa.string())
    if reading.decimal == ",":
        dotted = pc.match_substring(texts, ".")
        plain = pc.replace_substring(texts, ",", ".")
        # A point is then no decimal sign: 1.234 would silently become a thousandth of it.
        texts = pc.if_else(dotted, texts.cast(pa.string()), plain)
        if pc.any(dotted).as_py():
            raise _no_numbers(column.filter(pc.fill_null(dotted, False)), field, reading)
    try:
        return _float_from_number(texts.cast(pa.float64()), field, reading)
    except pa.ArrowInvalid as error:
        raise _no_numbers(_failing(texts, pa.float64()), field, reading) from error


def _integer_from_text(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, r"^[+-]?\d+$")).as_py() is False:
        return _integer_from_number(_float_from_text(column, field, reading), field, reading)
    digits = pc.replace_substring_regex(column, r"^\+", "")
    try:
        return digits.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise _too_large(_failing(digits, pa.int64()), field, reading) from error


def _no_numbers(bad: pa.Array, field: Field, reading: Reading) -> WindowError:
    return reading.refuse(
        field,
        bad,
        "numbers",
        "If they mean missing, list them in `csv.null_values:`; a decimal comma is "
        "`csv.decimal:`; otherwise correct the source.",
    )


def _failing(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    def fails(text: str) -> bool:
        try:
            pa.scalar(text).cast(kind)
        except pa.ArrowInvalid:
            return True
        return False

    return pa.array([text for text in texts.drop_null().to_pylist() if fails(text)], pa.string())


def _boolean_from_number(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    numbers = column.cast(pa.float64())
    other = pc.and_(pc.not_equal(numbers, 0.0), pc.not_equal(numbers, 1.0))
    if pc.any(other).as_py():
        raise _no_truths(column.filter(pc.fill_null(other, False)), field, reading)
    return numbers.cast(pa.bool_())


def _boolean_from_text(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    place = pc.index_in(pc.utf8_lower(column.cast(pa.string())), pa.array([*TRUTHS]))
    other = pc.and_(pc.is_null(place), pc.is_valid(column))
    if pc.any(other).as_py():
        raise _no_truths(column.filter(other), field, reading)
    return pa.array([*TRUTHS.values()]).take(place)


def _no_truths(bad: pa.Array, field: Field, reading: Reading) -> WindowError:
    return reading.refuse(
        field,
        bad,
        "true or false",
        "Write true, false, 1 or 0, or correct the source.",
    )


def _text_from_text(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    return column.cast(pa.string())


def _integer_from_boolean(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    return column.cast(TARGETS["integer"]).cast(TARGETS[field.kind])


def _boolean(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    return column


def _text_from_uuid(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in column.to_pylist()])


def _datetime(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    if kinds.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column.cast(TARGETS["datetime"], safe=False)


def _datetime_from_text(column: pa.Array, field: Field, reading: Reading) -> pa.Array:
    try:
        return pa.array(pd.to_datetime(column.to_pandas(), utc=True, format="ISO8601")).cast(
            TARGETS["datetime"], safe=False
        )
    except ValueError as error:
        raise reading.refuse(
            field, column.drop_null(), "dates", "Write them like 2026-01-05T13:00:00."
        ) from error


Conversion = Callable[[pa.Array, Field, Reading], pa.Array]
CONVERSIONS: dict[tuple[str, str], Conversion] = {
    ("float", "number"): _float_from_number,
    ("float", "integer"): _float_from_integer,
    ("float", "decimal"): _from_decimal,
    ("float", "text"): _float_from_text,
    ("float", "boolean"): _integer_from_boolean,
    ("integer", "number"): _integer_from_number,
    ("integer", "integer"): _integer_from_integer,
    ("integer", "decimal"): _from_decimal,
    ("integer", "text"): _integer_from_text,
    ("integer", "boolean"): _integer_from_boolean,
    ("boolean", "boolean"): _boolean,
    ("boolean", "integer"): _boolean_from_number,
    ("boolean", "number"): _boolean_from_number,
    ("boolean", "text"): _boolean_from_text,
    ("text", "text"): _text_from_text,
    ("text", "uuid"): _text_from_uuid,
    ("datetime", "time"): _datetime,
    ("datetime", "text"): _datetime_from_text,
}


def plain(column: "pd.Series") -> "pd.Series":
    """Return a column in the types that pandas reads from Parquet, which models are taught on."""
    if isinstance(column.dtype, pd.Int64Dtype):
        return _plain_integers(column)
    if isinstance(column.dtype, pd.BooleanDtype):
        gaps = column.isna()
        return column.astype(object).mask(gaps, None) if gaps.any() else column.astype(bool)
    return column


def _plain_integers(column: "pd.Series") -> "pd.Series":
    if not column.hasnans:
        return column.astype("int64")
    large = column[(column > EXACT) | (column < -EXACT)]  # the least one has no absolute value
    if len(large):
        raise WindowError(
            f"Column {shown(column.name)} has missing values and whole numbers that a float "
            f"cannot keep, like {listed(large.tolist(), 3)}. Fill the gaps, or store the column "
            "as text if it holds identifiers.",
            code=Code.BAD_VALUES,
        )
    return column.astype("float64")

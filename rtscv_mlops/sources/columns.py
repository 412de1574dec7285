"""Which columns are read, and whether a file or table has them.

Knows names and types; knows nothing of values.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as kinds

from rtscv_mlops.errors import ConfigError, WindowError
from rtscv_mlops.sources.wording import count, listed, shown, suggestions
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
            code="missing_columns",
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
            code="mixed_schemas",
        )

"""What scores and separation both ask of their input."""

from typing import Any

from numpy.typing import NDArray

from rtscv_mlops.errors import InputError


def check_flat(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values if there is one per row."""
    if values.ndim != 1:
        raise InputError(
            f"{name} must have one dimension, got {values.ndim}. Pass one value per row."
        )
    return values


def check_same_length(**columns: Any) -> None:
    """Refuse two columns of different length."""
    (first, first_rows), (second, second_rows) = (
        (name, len(rows)) for name, rows in columns.items()
    )
    if first_rows != second_rows:
        raise InputError(
            f"{first} has {first_rows} row(s) and {second} has {second_rows}. Pass one per row."
        )

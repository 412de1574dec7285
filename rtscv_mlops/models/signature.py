"""The columns of a model, from its signature or its settings."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.types import DataType, Schema

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import Code, ModelError
from rtscv_mlops.window import Column

METADATA = "rtscv"
"""The key in a model's metadata for what a signature cannot express."""

KINDS = {
    DataType.integer: "integer",
    DataType.long: "integer",
    DataType.float: "float",
    DataType.double: "float",
    DataType.boolean: "boolean",
    DataType.string: "text",
    DataType.datetime: "datetime",
}
TENSOR_KINDS: dict[str, Any] = {
    "i": "integer",
    "u": "integer",
    "f": "float",
    "b": "boolean",
    "M": "datetime",
}


def model_columns(stored: Model, settings: ModelSettings, model: str) -> tuple[Column, ...]:
    """Return the model's columns: from its signature, else from the settings."""
    inputs = stored.signature.inputs if stored.signature else None
    if inputs and inputs.has_input_names() and not inputs.is_tensor_spec():
        columns = tuple(
            Column(str(spec.name), _kind(spec, model), optional=not spec.required)
            for spec in inputs.inputs
        )
        if settings.columns is not None:
            check_same(
                [column.name for column in columns],
                settings.columns,
                f"model.columns and the signature of {model} disagree: {{}}. Remove model.columns; "
                "the signature already lists the columns.",
            )
        return columns
    names = settings.columns or metadata_of(stored).get("columns")
    if not names:
        raise ModelError(
            f"{model} has no signature with column names, so its columns are unknown. "
            "List them in model.columns in the model's order, or log the model again with "
            "rtscv_mlops.log_champion.",
            code=Code.NO_SIGNATURE,
        )
    if inputs is None:
        return tuple(Column(name, "float") for name in names)
    return _by_position(names, inputs, model)


def metadata_of(stored: Model) -> dict[str, Any]:
    """Return what `log_champion` recorded: the columns, and which of them are categories."""
    notes = (stored.metadata or {}).get(METADATA)
    return notes if isinstance(notes, dict) else {}


def _kind(spec: Any, model: str) -> Any:
    if spec.type not in KINDS:
        raise ModelError(
            f"{model} takes a column {spec.name!r} of type {spec.type}, which is not "
            f"supported. Supported types: {', '.join(sorted({str(kind) for kind in KINDS}))}.",
            code=Code.UNSUPPORTED_SIGNATURE,
        )
    return KINDS[spec.type]


def check_same(expected: Sequence[str], given: Sequence[str], sentence: str) -> None:
    """Raise if two lists name different columns; `{}` in the sentence becomes the difference."""
    if difference := describe_difference(expected, given):
        raise ModelError(sentence.format(difference), code=Code.COLUMNS_DIFFER)


def describe_difference(expected: Sequence[str], given: Sequence[str]) -> str:
    """Return a phrase with the missing and the extra names; empty if there are none."""
    missing = [repr(name) for name in expected if name not in given]
    extra = [repr(name) for name in given if name not in expected]
    parts = [("missing", missing), ("extra", extra)]
    return "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names)


def _by_position(names: Sequence[str], inputs: Schema, model: str) -> tuple[Column, ...]:
    if inputs.is_tensor_spec():
        if len(inputs.inputs) != 1:
            raise ModelError(
                f"{model} takes {len(inputs.inputs)} tensors. A monitored model takes one.",
                code=Code.UNSUPPORTED_SIGNATURE,
            )
        spec: Any = inputs.inputs[0]
        kinds = [TENSOR_KINDS.get(spec.type.kind, "text")] * prod(spec.shape[1:])
    else:
        kinds = [_kind(spec, model) for spec in inputs.inputs]
    if len(kinds) != len(names):
        raise ModelError(
            f"{model} takes {len(kinds)} column(s), but {len(names)} name(s) are given for them. "
            "Name each of the model's columns in model.columns, in the model's order.",
            code=Code.COLUMNS_DIFFER,
        )
    return tuple(Column(name, kind) for name, kind in zip(names, kinds, strict=True))


def as_tensor(frame: pd.DataFrame, signature: ModelSignature | None) -> Any:
    """Return a table as the array that the signature describes; images get their shape back.

    The array is writable: pandas returns read-only memory, about which torch warns.
    """
    inputs = signature.inputs if signature else None
    if inputs is None or not inputs.is_tensor_spec():
        return np.require(frame.to_numpy(), requirements="W")
    spec = inputs.inputs[0]
    dtype = object if spec.type.kind in "OUS" else spec.type
    array = np.require(frame.to_numpy(dtype=dtype), requirements="W")
    return array.reshape(-1, *spec.shape[1:])

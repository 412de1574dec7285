"""The columns of a model, as its signature, its settings and its training data name them."""

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
"""Under this key of a model's metadata, `log_champion` records what a signature cannot say."""

KINDS = {
    DataType.integer: "integer",
    DataType.long: "integer",
    DataType.float: "float",
    DataType.double: "float",
    DataType.boolean: "boolean",
    DataType.string: "text",
    DataType.datetime: "datetime",
}


def model_columns(stored: Model, settings: ModelSettings, model: str) -> tuple[Column, ...]:
    """Return the model's columns: from its signature, else from the settings."""
    inputs = stored.signature.inputs if stored.signature else None
    if inputs and inputs.has_input_names() and not inputs.is_tensor_spec():
        return _agreed(_named(inputs, model), settings.columns, model)
    names = settings.columns or metadata_of(stored).get("columns")
    if not names:
        raise ModelError(
            f"{model} has no signature with column names, so its columns are unknown. "
            "List them in model.columns in the model's order, or log the model again by "
            "rtscv_mlops.log_champion.",
            code=Code.NO_SIGNATURE,
        )
    if inputs is None:
        return tuple(Column(name, "float") for name in names)
    return _by_position(names, inputs, model)


def metadata_of(stored: Model) -> dict[str, Any]:
    """Return what `log_champion` recorded of a model: its columns, and which are categories."""
    notes = (stored.metadata or {}).get(METADATA)
    return notes if isinstance(notes, dict) else {}


def _named(inputs: Schema, model: str) -> tuple[Column, ...]:
    return tuple(
        Column(str(spec.name), _kind(spec, model), optional=not spec.required)
        for spec in inputs.inputs
    )


def _kind(spec: Any, model: str) -> Any:
    if spec.type not in KINDS:
        raise ModelError(
            f"{model} takes a column {spec.name!r} of type {spec.type}, which no window has. "
            f"Columns may be of {', '.join(sorted({str(kind) for kind in KINDS}))}.",
            code=Code.UNSUPPORTED_SIGNATURE,
        )
    return KINDS[spec.type]


def _agreed(
    columns: tuple[Column, ...], names: Sequence[str] | None, model: str
) -> tuple[Column, ...]:
    if names is not None:
        check_same(
            [column.name for column in columns],
            names,
            f"model.columns and the signature of {model} disagree: {{}}. Leave model.columns out, "
            "since the signature says it already.",
        )
    return columns


def check_same(expected: Sequence[str], given: Sequence[str], sentence: str) -> None:
    """Raise if two lists name different columns; `{}` in the sentence is what differs."""
    if difference := describe_difference(expected, given):
        raise ModelError(sentence.format(difference), code=Code.COLUMNS_DIFFER)


def describe_difference(expected: Sequence[str], given: Sequence[str]) -> str:
    """Return a phrase on which names are missing and which are extra; empty if none."""
    missing = [repr(name) for name in expected if name not in given]
    extra = [repr(name) for name in given if name not in expected]
    parts = [("missing", missing), ("extra", extra)]
    return "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names)


def _by_position(names: Sequence[str], inputs: Schema, model: str) -> tuple[Column, ...]:
    if inputs.is_tensor_spec():
        if len(inputs.inputs) != 1:
            raise ModelError(
                f"{model} takes {len(inputs.inputs)} tensors; one is what a window can be.",
                code=Code.UNSUPPORTED_SIGNATURE,
            )
        spec: Any = inputs.inputs[0]
        kinds = [_tensor_kind(spec.type)] * prod(spec.shape[1:])
    else:
        kinds = [_kind(spec, model) for spec in inputs.inputs]
    if len(kinds) != len(names):
        raise ModelError(
            f"{model} takes {len(kinds)} column(s), but {len(names)} name(s) are given for them. "
            "Name each of the model's columns in model.columns, in the model's order.",
            code=Code.COLUMNS_DIFFER,
        )
    return tuple(Column(name, kind) for name, kind in zip(names, kinds, strict=True))


def _tensor_kind(dtype: Any) -> Any:
    kinds = {"i": "integer", "u": "integer", "f": "float", "b": "boolean", "M": "datetime"}
    return kinds.get(dtype.kind, "text")


def as_tensor(frame: pd.DataFrame, signature: ModelSignature | None) -> Any:
    """Return a table as the array that the signature asks for; images get their shape back.

    It may be written to: pandas lends its own memory read-only, which torch warns of.
    """
    inputs = signature.inputs if signature else None
    if inputs is None or not inputs.is_tensor_spec():
        return np.require(frame.to_numpy(), requirements="W")
    spec = inputs.inputs[0]
    dtype = object if spec.type.kind in "OUS" else spec.type
    array = np.require(frame.to_numpy(dtype=dtype), requirements="W")
    return array.reshape(-1, *spec.shape[1:])

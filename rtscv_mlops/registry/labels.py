"""Columns and labels of training data: which is the label, and what a fit needs of both."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from rtscv_mlops.errors import TrainingDataError
from rtscv_mlops.registry.champion import Champion
from rtscv_mlops.registry.columns import describe_difference

USUAL_LABELS = ("label", "target", "class", "y")
MAX_IMBALANCE = 1_000
WHOLE = re.compile(r"-?\d+\.0+")
USE_REFERENCE = "Or name the data in the monitor's reference:."


def find_label(frame: pd.DataFrame, champion: Champion, what: str) -> str:
    others = [str(name) for name in frame.columns if name not in champion.column_names]
    usual = [name for name in others if name.lower() in USUAL_LABELS]
    found = others if len(others) == 1 else usual
    if len(found) != 1:
        raise TrainingDataError(
            f"{what} does not say which column is the label; besides the model's columns it has "
            f"{', '.join(map(repr, others)) or 'none'}. Name the data and its label in the "
            "monitor's reference:.",
            code="label_unknown",
        )
    return found[0]


def split_labels(
    frame: pd.DataFrame, label: str, champion: Champion, what: str
) -> tuple[pd.DataFrame, pd.Series]:
    """Split a table into the champion's columns, in its order, and the labels."""
    if label not in frame.columns:
        raise TrainingDataError(
            f"{what} has no label column {label!r}; it has {', '.join(map(repr, frame.columns))}.",
            code="label_unknown",
        )
    _check_columns([name for name in frame.columns if name != label], champion, what)
    rows = frame.reset_index(drop=True)
    return rows.reindex(columns=champion.column_names), rows[label]


def _check_columns(names: Sequence[str], champion: Champion, what: str) -> None:
    required = [column.name for column in champion.columns if not column.optional]
    if any(name not in names for name in required):
        difference = describe_difference(champion.column_names, names)
        raise TrainingDataError(
            f"{what} has other columns than the model takes: {difference}. Log the champion again "
            f"with the data it was fitted on. {USE_REFERENCE}",
            code="columns_differ",
        )


def check_training_data(
    features: pd.DataFrame, labels: pd.Series, champion: Champion
) -> tuple[str, ...]:
    """Check that a fit can learn from this data; return what is odd about it, as sentences."""
    what = f"The training data of {champion}"
    _check_columns(list(map(str, features.columns)), champion, what)
    if len(features) != len(labels):
        raise TrainingDataError(
            f"{what} has {len(features)} rows and {len(labels)} labels. Give one label per row."
        )
    _check_present(labels, what)
    _check_kind(labels, what)
    _check_written_alike(labels, what)
    counts = labels.value_counts()
    _check_counts(counts, what)
    return (*_near_names(counts, what), *_imbalance(counts, what), *_empty_columns(features, what))


def _check_present(labels: pd.Series, what: str) -> None:
    empty = labels.isna() | labels.map(lambda label: isinstance(label, str) and not label.strip())
    if empty.any():
        raise TrainingDataError(
            f"{what} has {int(empty.sum())} of {len(labels)} rows without a label. Drop these "
            "rows, or label them.",
            code="labels_missing",
        )


def _check_kind(labels: pd.Series, what: str) -> None:
    kinds = {_kind(label) for label in labels.unique()}
    if len(kinds) > 1:
        raise TrainingDataError(
            f"{what} has labels of several types: {', '.join(sorted(kinds))}, such as "
            f"{_examples(labels, kinds)}. A class must have one name; write all labels alike.",
            code="labels_mixed",
        )
    if (kind := next(iter(kinds), "text")) not in {"text", "integer", "boolean", "float"}:
        raise TrainingDataError(
            f"{what} has labels of the type {kind}. One text, number or truth value per row is "
            "what can be monitored, not several labels a row.",
            code="labels_unusable",
        )
    if kind == "float" and not (labels.astype(float) % 1 == 0).all():
        raise TrainingDataError(
            f"{what} has numbers with fractions as labels, so it is a regression. Only classes "
            "can be new.",
            code="labels_unusable",
        )


def _check_written_alike(labels: pd.Series, what: str) -> None:
    """Refuse 1 beside 1.0 where both are text, as in a CSV file: they are one class."""
    texts = {label for label in labels.unique() if isinstance(label, str)}
    pairs = [(text.partition(".")[0], text) for text in sorted(texts) if WHOLE.fullmatch(text)]
    twice = [f"{short!r} and {text!r}" for short, text in pairs if short in texts]
    if twice:
        raise TrainingDataError(
            f"{what} has whole numbers as text in two ways: {', '.join(twice[:3])}. A class must "
            "have one name; write all labels alike.",
            code="labels_mixed",
        )


def _kind(label: Any) -> str:
    kinds: dict[str, type | tuple[type, ...]] = {
        "boolean": (bool, np.bool_),
        "integer": (int, np.integer),
        "float": (float, np.floating),
        "text": str,
    }
    return next((kind for kind, is_of in kinds.items() if isinstance(label, is_of)), _name(label))


def _name(label: Any) -> str:
    return type(label).__name__


def _examples(labels: pd.Series, kinds: set[str]) -> str:
    first = {kind: next(label for label in labels if _kind(label) == kind) for kind in kinds}
    return " and ".join(repr(first[kind]) for kind in sorted(kinds))


def _check_counts(counts: pd.Series, what: str) -> None:
    if len(counts) < 2:
        raise TrainingDataError(
            f"{what} has {len(counts)} class(es). At least two are needed to tell a new one from "
            "what is known.",
            code="one_class",
        )
    single = [repr(label) for label, count in counts.items() if count == 1]
    if single:
        raise TrainingDataError(
            f"{what} has one example only of {', '.join(single)}. Cross-validation needs two; add "
            "examples, or drop the class.",
            code="too_few_examples",
        )


def _near_names(counts: pd.Series, what: str) -> list[str]:
    """Say which labels differ by case, blanks or Unicode form only."""
    names = sorted((label for label in counts.index if isinstance(label, str)), key=_folded)
    groups = [list(group) for _, group in groupby(names, key=_folded)]
    return [
        f"{what} has labels that differ by case, blanks or Unicode form only: "
        f"{', '.join(map(repr, sorted(group)))}. If they mean one class, write them alike."
        for group in groups
        if len(group) > 1
    ]


def _folded(label: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def _imbalance(counts: pd.Series, what: str) -> list[str]:
    if counts.max() < MAX_IMBALANCE * counts.min():
        return []
    return [
        f"{what} has {counts.max()} rows of {counts.idxmax()!r} and {counts.min()} of "
        f"{counts.idxmin()!r}: rows of the rare class may look unknown."
    ]


def _empty_columns(features: pd.DataFrame, what: str) -> list[str]:
    empty = [repr(str(name)) for name, gone in features.isna().all().items() if gone]
    return [f"{what} has no value in column(s) {', '.join(empty)}."] if empty else []

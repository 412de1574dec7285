"""What reviewers see of a rectified classifier: cluster cards, a comparison, a projection."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold

from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.gates import chunks
from rtscv_mlops.estimator.learner import seeded
from rtscv_mlops.estimator.network import torch_seeded
from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.estimator.rows import Numbers, count, take
from rtscv_mlops.facts import ClassComparison, ClusterCard, Comparison, TellingFeature
from rtscv_mlops.metrics import macro_f
from rtscv_mlops.text import counted, percent, plain
from rtscv_mlops.window import LabelledRows

COMPARED_ROWS = 20_000
"""Known rows that champion and challenger are compared on, at most."""

DRAWN_ROWS = 300
"""Rows of the window, and of the training data, in the projection."""

DRAWN_UNKNOWNS = 0.4
"""Largest share of unknown rows among the window's rows in the projection."""

SHOWN_FEATURES = 5
"""Features that a card names."""

CLOSE_ROWS = 2_000
"""Known rows that a cluster is compared with, at most."""

COMPONENTS = 30
"""Directions that the projection starts from."""

FEWEST_LOST_ROWS = 2
# Recalls are quotients: 1 - 0.95 is a little more than 0.05 in binary.
ROUNDING = 1e-9

Rows = Any
"""What a model takes: a DataFrame, or an array for a model that was fitted on one."""


def sample_known(known: LabelledRows, max_rows: int, seed: int) -> LabelledRows:
    """Return at most this many rows, each class in proportion but none lost."""
    if len(known) <= max_rows:
        return known
    order = np.random.default_rng(seed).permutation(len(known))
    rank = pd.Series(known.labels[order]).groupby(known.labels[order]).cumcount().to_numpy()
    chosen = np.concatenate([order[rank < 20], order[rank >= 20]])[:max_rows]
    return known.take(np.sort(chosen))


# -- cluster cards


def make_cards(
    model: RTSCVClassifier,
    champion: Any,
    known: LabelledRows,
    window: pd.DataFrame,
    *,
    columns: Sequence[str],
    exemplars: int,
) -> tuple[ClusterCard, ...]:
    """Return one card per candidate class; `columns` are those that may be shown."""
    shown, cards = list(columns), []
    for number, cluster in enumerate(model.clusters_, start=1):
        table = window.iloc[cluster.rows]
        rows = known.rows(table)
        called = predict(champion, rows)
        names, counts = np.unique(called, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        nearest = known.features[known.labels == names[order[0]]][shown].head(CLOSE_ROWS)
        confidence = None
        if hasattr(champion, "predict_proba"):
            confidence = float(np.median(np.asarray(champion.predict_proba(rows)).max(axis=1)))
        typical = window.iloc[list(cluster.medoids[:exemplars])][shown].to_dict("records")
        cards.append(
            ClusterCard(
                number=number,
                size=cluster.size,
                share=cluster.share,
                quality=None if np.isnan(cluster.quality) else float(cluster.quality),
                called={str(names[index]): counts[index] / len(called) for index in order},
                confidence=confidence,
                features=_telling_features(table[shown], nearest),
                exemplars=tuple(
                    {str(name): _as_json(value) for name, value in row.items()} for row in typical
                ),
            )
        )
    return tuple(cards)


def _as_json(value: Any) -> Any:
    """Return a cell as JSON can hold it."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str) else str(value)


def _telling_features(here: pd.DataFrame, known: pd.DataFrame) -> tuple[TellingFeature, ...]:
    """Return the features that differ most from the known rows which look most like these."""
    if known.empty:
        return ()
    features = [
        _number_feature(name, here[name], known[name])
        if is_numeric_dtype(here[name]) and not is_bool_dtype(here[name])
        else _category_feature(name, here[name], known[name])
        for name in here.columns
    ]
    by_effect = sorted(filter(None, features), key=lambda feature: -abs(feature.effect))
    return tuple(by_effect[:SHOWN_FEATURES])


def _number_feature(name: str, here: pd.Series, known: pd.Series) -> TellingFeature | None:
    ours, theirs = (side.dropna().to_numpy(dtype=float) for side in (here, known))
    if len(ours) == 0 or len(theirs) == 0:
        return None
    spread = np.sqrt((ours.var() + theirs.var()) / 2)
    distance = ours.mean() - theirs.mean()
    if not np.isfinite(distance) or distance == 0:
        return None
    # Two constants that differ separate the rows completely.
    effect = distance / spread if spread > 0 else np.sign(distance) * 10
    return TellingFeature(
        name=str(name),
        here=f"{ours.mean():.3g}",
        known=f"{theirs.mean():.3g}",
        effect=float(np.clip(effect, -10, 10)),
    )


def _category_feature(name: str, here: pd.Series, known: pd.Series) -> TellingFeature | None:
    ours, theirs = (
        side.astype(str).value_counts(normalize=True) for side in (here.dropna(), known.dropna())
    )
    if ours.empty or theirs.empty:
        return None
    value = ours.index[0]
    effect = float(ours.iloc[0] - theirs.get(value, 0.0))
    if effect <= 0:
        return None
    return TellingFeature(
        name=str(name),
        here=f"{value} ({ours.iloc[0]:.0%})",
        known=f"{theirs.index[0]} ({theirs.iloc[0]:.0%})",
        effect=effect,
    )


# -- champion against challenger


def compare_on_holdout(
    champion: Any, challenger: Any, holdout: LabelledRows, unknown_label: Any
) -> Comparison:
    """Compare the two models themselves on rows that neither was fitted on."""
    rows = holdout.rows()
    return _compare(
        holdout.labels,
        predict(champion, rows),
        predict(challenger, rows),
        unknown_label,
        f"{len(holdout)} held-out rows that were logged with the champion",
    )


def compare_by_folds(
    estimator: Any, known: LabelledRows, unknowns: pd.DataFrame, unknown_label: Any, seed: int
) -> Comparison:
    """Compare refits with and without the unknown rows, on training rows held out by thirds."""
    known = sample_known(known, COMPARED_ROWS, seed)
    smallest = int(np.unique(known.labels, return_counts=True)[1].min())
    splitter = StratifiedKFold(max(2, min(3, smallest)), shuffle=True, random_state=seed)
    folds = list(splitter.split(known.labels, known.labels))

    def pieces() -> Iterator[tuple[Rows, NDArray[Any], Rows]]:
        """Yield for each fold what either model is fitted on, and the rows that it predicts."""
        for fitted, held_out in folds:
            part, rows = known.take(fitted), known.rows(known.features.iloc[held_out])
            yield part.rows(), part.labels, rows
            with_unknowns = pd.concat([part.features, unknowns], ignore_index=True)
            # From a list, so that the type has room for the longest label.
            labels = np.asarray([*part.labels.tolist(), *[unknown_label] * len(unknowns)])
            yield part.rows(with_unknowns), labels, rows

    predicted = do_all(_fit_and_predict, pieces(), shared=(seeded(estimator, seed), seed))
    answers = np.empty((2, len(known)), dtype=object)
    for (_, held_out), champion, challenger in zip(
        folds, predicted[::2], predicted[1::2], strict=True
    ):
        answers[0, held_out], answers[1, held_out] = champion, challenger
    how = f"{len(known)} training rows, each held out once from refits of both models"
    return _compare(known.labels, answers[0], answers[1], unknown_label, how)


def _fit_and_predict(
    estimator: Any, seed: int, rows: Rows, labels: NDArray[Any], held_out: Rows
) -> Any:
    with torch_seeded(estimator, seed):
        return predict(clone(estimator).fit(rows, labels), held_out)


def predict(model: Any, rows: Rows) -> NDArray[Any]:
    """Return a model's answers; booleans as 0 and 1, because a rectified model needs a third."""
    pieces = list(chunks(np.arange(count(rows))))
    if len(pieces) > 1:
        answers = np.concatenate(
            do_all(_predict, ((take(rows, some),) for some in pieces), shared=(model,))
        )
    else:
        answers = _predict(model, rows)
    return answers.astype(int) if answers.dtype == bool else answers


def _predict(model: Any, rows: Rows) -> NDArray[Any]:
    return np.asarray(model.predict(rows)).ravel()


def _compare(
    truth: NDArray[Any],
    champion: NDArray[Any],
    challenger: NDArray[Any],
    unknown_label: Any,
    how: str,
) -> Comparison:
    sides = (np.asarray(side, dtype=object).astype(str) for side in (truth, champion, challenger))
    truth, champion, challenger = sides
    known, unknown, classes = np.unique(truth), str(unknown_label), []
    for label in known:
        is_class = truth == label
        classes.append(
            ClassComparison(
                label=label,
                rows=int(is_class.sum()),
                champion=float(np.mean(champion[is_class] == label)),
                challenger=float(np.mean(challenger[is_class] == label)),
                unknown=float(np.mean(challenger[is_class] == unknown)),
            )
        )
    return Comparison(
        how=how,
        rows=len(truth),
        champion_accuracy=float(accuracy_score(truth, champion)),
        challenger_accuracy=float(accuracy_score(truth, challenger)),
        champion_macro_f=macro_f(truth, champion, known, unknown),
        challenger_macro_f=macro_f(truth, challenger, known, unknown),
        classes=tuple(sorted(classes, key=lambda one: -one.loss)),
    )


def find_blocker(
    comparison: Comparison, unknowns: int, *, min_unknowns: int, max_class_loss: float
) -> str:
    """Return why the challenger may not be approved; empty if it may.

    It was taught from too few unknown rows, or a known class loses too much. A class counts if its
    recall falls by more than the limit and at least two of its held-out rows are lost: one row is
    chance, however large a share of a small class it is.
    """
    if unknowns < min_unknowns:
        return (
            f"Only {counted(unknowns, 'row')} could be identified as unknown, fewer than the "
            f"{min_unknowns} that review.min_unknowns asks for: too few to teach a class from. "
            "A longer window would show more."
        )
    losses = [
        known
        for known in comparison.classes
        if known.loss > max_class_loss + ROUNDING
        and round(known.loss * known.rows) >= FEWEST_LOST_ROWS
    ]
    if not losses:
        return ""
    worst = max(losses, key=lambda known: known.loss)
    others = f" {counted(len(losses) - 1, 'more class', 'more classes')} too." if losses[1:] else ""
    return (
        f"Class {plain(worst.label)!r} loses too much: the champion finds "
        f"{percent(worst.champion)} of its {counted(worst.rows, 'held-out row')}, the challenger "
        f"{percent(worst.challenger)}, which is {round(worst.loss * worst.rows):,} fewer; a class "
        f"may lose {percent(max_class_loss)}, and a single row does not count.{others}"
    )


# -- the projection


@dataclass(frozen=True, slots=True)
class Projection:
    """Rows in the plane; window rows that are not drawn are nan."""

    window: NDArray[Any]
    reference: NDArray[Any]
    labels: NDArray[Any]


def project(
    known: LabelledRows, window: pd.DataFrame, unknown: NDArray[Any], seed: int
) -> Projection:
    """Project some known rows and some window rows to the plane with t-SNE."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(known))[:DRAWN_ROWS]
    # Unknown rows first, up to a share: a few among many would not be seen.
    order = rng.permutation(len(unknown))
    first = order[unknown[order]][: int(DRAWN_UNKNOWNS * DRAWN_ROWS)]
    shown = np.sort(np.concatenate([first, order[~unknown[order]][: DRAWN_ROWS - len(first)]]))
    table = pd.concat([known.features.iloc[drawn], window.iloc[shown]], ignore_index=True)
    numbers = Numbers().fit(table).transform(table).astype(float)
    scale = numbers.std(axis=0)
    numbers = (numbers - numbers.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    if numbers.shape[1] > COMPONENTS:
        numbers = PCA(COMPONENTS, random_state=seed).fit_transform(numbers)
    points = TSNE(
        perplexity=min(30.0, (len(numbers) - 1) / 3),
        # One column has no second direction to start from.
        init="pca" if numbers.shape[1] > 1 else "random",
        max_iter=400,
        random_state=seed,
    ).fit_transform(numbers)
    of_window = np.full((len(window), 2), np.nan)
    of_window[shown] = points[len(drawn) :]
    return Projection(of_window, points[: len(drawn)], known.labels[drawn].astype(str))

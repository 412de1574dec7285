"""What reviewers see of the rows that were extracted: cluster cards and a projection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.rows import Numbers
from rtscv_mlops.facts import ClusterCard, TellingFeature
from rtscv_mlops.judging.contest import predict, sample_places
from rtscv_mlops.window import LabelledRows

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


def sample_known(known: LabelledRows, max_rows: int, seed: int) -> LabelledRows:
    """Return at most this many rows, each class in proportion but none lost."""
    places = sample_places(known.labels, max_rows, seed)
    return known if len(places) == len(known) else known.take(places)


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

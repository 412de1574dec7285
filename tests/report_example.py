"""Facts and evidence of one window of handwritten digits, for tests that render a report."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.facts import (
    ClassComparison,
    ClusterCard,
    Comparison,
    Evidence,
    TellingFeature,
    WindowFacts,
)
from rtscv_mlops.report.drift import compare_columns

HIDDEN = (4, 6)
START, END = datetime(2026, 1, 12, tzinfo=UTC), datetime(2026, 1, 13, tzinfo=UTC)


def not_assessed(**changes: Any) -> WindowFacts:
    """Facts about a window of which nothing is known but that it could not be judged."""
    facts = {
        "key": "5e2f0c9b7a1d4e68",
        "monitor": "digits-daily",
        "model": "digits",
        "champion_version": "3",
        "window_start": START,
        "window_end": END,
        "verdict": "not_assessed:too_few_rows",
        "headline": "Not assessed: the window has 12 rows, and fewer than 50 prove nothing.",
        "rows": 12,
    }
    return WindowFacts(**(facts | changes))


def example() -> tuple[WindowFacts, Evidence]:
    """A model that knows eight digits meets a window in which 15 % show two others."""
    X, y = load_digits(return_X_y=True)
    columns = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    hidden = np.isin(y, HIDDEN)
    X_known, X_rest, y_known, y_rest = train_test_split(
        X[~hidden], y[~hidden], train_size=700, random_state=0, stratify=y[~hidden]
    )
    X_window = np.vstack([X_rest[:460], X[hidden][:81]])
    model = RTSCVClassifier(SVC(probability=False)).fit(X_known, y_known, deployment=X_window)
    champion = SVC().fit(X_known, y_known)
    window, reference = (pd.DataFrame(rows, columns=columns) for rows in (X_window, X_known))
    facts = _facts(model, champion, window, reference, X_rest[460:], y_rest[460:])
    return facts, _evidence(model, window, reference, y_known)


def _evidence(
    model: RTSCVClassifier, window: pd.DataFrame, reference: pd.DataFrame, labels: Any
) -> Evidence:
    plane = PCA(2, random_state=0).fit(np.vstack([reference, window]))
    return Evidence(
        window=window,
        reference=reference,
        unknown=np.isin(np.arange(len(window)), model.unknown_indices_),
        window_scores=model.window_scores_,
        known_scores=model.known_scores_,
        window_points=plane.transform(window.to_numpy()),
        reference_points=plane.transform(reference.to_numpy()),
        point_labels=labels,
    )


def _facts(
    model: RTSCVClassifier,
    champion: SVC,
    window: pd.DataFrame,
    reference: pd.DataFrame,
    X_held_out: Any,
    y_held_out: Any,
) -> WindowFacts:
    found = model.assessment_
    assert found is not None
    low, high = found.unknown_rate_interval
    return not_assessed(
        verdict=str(found.verdict),
        headline=f"About {found.unknown_rate:.0%} ({low:.0%} to {high:.0%}) of this window belongs "
        "to something the model was never taught.",
        rows=12_480,
        sampled=len(window),
        digest="2b7c",
        p_value=found.p_value,
        unknowns=len(model.unknown_indices_),
        unknown_rate=found.unknown_rate,
        unknown_rate_interval=(low, high),
        known_false_rate=found.known_false_rate,
        unknown_label=str(model.unknown_label_),
        null="the champion's training data",
        reference_rows=len(reference),
        clusters=_cards(model, champion, window, reference),
        drift=compare_columns(window, reference, DriftSettings()),
        comparison=_comparison(model, champion, X_held_out, y_held_out),
        findings=(
            "12,480 rows were sampled to 541.",
            "Three columns hold the same value everywhere and tell nothing.",
        ),
        settings={"gate": "kernel", "sample rate": 0.2, "folds": 3, "seed": 0, "alpha": 0.01},
        timings={"read window": 1.2, "search unknowns": 3.84, "refit": 0.41},
    )


def _cards(
    model: RTSCVClassifier, champion: SVC, window: pd.DataFrame, reference: pd.DataFrame
) -> tuple[ClusterCard, ...]:
    cards = []
    for number, cluster in enumerate(model.clusters_, start=1):
        rows = window.iloc[cluster.rows]
        called = pd.Series(champion.predict(rows.to_numpy())).value_counts(normalize=True)
        effects = (rows.mean() - reference.mean()) / (reference.std() + 1)
        features = tuple(
            TellingFeature(
                name=name,
                here=f"{rows[name].mean():.1f}",
                known=f"{reference[name].mean():.1f}",
                effect=float(effects[name]),
            )
            for name in effects.abs().nlargest(5).index
        )
        cards.append(
            ClusterCard(
                number=number,
                size=cluster.size,
                share=cluster.share,
                quality=float(cluster.quality),
                called={str(label): float(share) for label, share in called.items()},
                confidence=0.62,
                features=features,
                exemplars=tuple(window.iloc[list(cluster.medoids)[:3]].to_dict("records")),
            )
        )
    return tuple(cards)


def _comparison(model: RTSCVClassifier, champion: SVC, X: Any, y: Any) -> Comparison:
    old, new = champion.predict(X), model.predict(X)
    classes = [
        ClassComparison(
            label=str(label),
            rows=int(np.sum(y == label)),
            champion=float(np.mean(old[y == label] == label)),
            challenger=float(np.mean(new[y == label] == label)),
            unknown=float(np.mean(new[y == label] == model.unknown_label_)),
        )
        for label in np.unique(y)
    ]
    return Comparison(
        how="held out from both models",
        rows=len(y),
        champion_accuracy=float(np.mean(old == y)),
        challenger_accuracy=float(np.mean(new == y)),
        champion_macro_f=0.987,
        challenger_macro_f=0.981,
        classes=tuple(classes),
    )

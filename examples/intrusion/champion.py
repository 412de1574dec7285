"""The champion: which learner it is, and how that was chosen, from training rows alone.

`python -m examples.intrusion.champion` prints the comparison. Knows rows and learners.
"""

from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, recall_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from examples.intrusion.traffic import FEWEST_HELD_OUT, LABEL, features_of, load_traffic, thin

WORDS = ["protocol_type", "service", "flag"]
COMPARED_ROWS = 20_000


def make_champion() -> Pipeline:
    """Return the learner that cross-validation chose; its rare types weigh as much as others."""
    return _prepared(
        "passthrough",
        RandomForestClassifier(50, class_weight="balanced_subsample", random_state=0),
    )


def candidates() -> dict[str, Pipeline]:
    """Return the learners that were compared."""
    scaled = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
    return {
        "logistic regression": _prepared(
            scaled, LogisticRegression(max_iter=300, class_weight="balanced")
        ),
        "random forest, unweighted": _prepared(
            "passthrough", RandomForestClassifier(50, random_state=0)
        ),
        "random forest": make_champion(),
        "gradient boosting": _prepared(
            "passthrough",
            HistGradientBoostingClassifier(max_iter=50, class_weight="balanced", random_state=0),
        ),
    }


def _prepared(numbers: Any, learner: Any) -> Pipeline:
    """Put the words as indicators beside the numbers; a service never met is no indicator."""
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    are_numbers = make_column_selector(dtype_include="number")
    columns = ColumnTransformer([("words", words, WORDS), ("numbers", numbers, are_numbers)])
    return Pipeline([("columns", columns), ("learner", learner)])


def compare_learners(training: pd.DataFrame) -> pd.DataFrame:
    """Cross-validate each candidate by thirds, on types that have rows enough for it."""
    rows = training[training.groupby(LABEL)[LABEL].transform("size") >= FEWEST_HELD_OUT]
    rows = thin(rows, COMPARED_ROWS)
    truth = rows[LABEL].to_numpy(dtype=str)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    found = {}
    for name, learner in candidates().items():
        answers = cross_val_predict(learner, features_of(rows), truth, cv=folds)
        found[name] = {
            "macro F": f1_score(truth, answers, average="macro"),
            "mean recall": recall_score(truth, answers, average="macro"),
            "accuracy": accuracy_score(truth, answers),
        }
    return pd.DataFrame(found).T


def main(console: Console | None = None) -> None:
    """Print how the candidates do."""
    console = console or Console()
    training = load_traffic().training
    compared = compare_learners(training)
    table = Table(title="Learners, on training rows only", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("learner")
    for name in compared.columns:
        table.add_column(name, justify="right")
    for name, figures in compared.iterrows():
        table.add_row(str(name), *(f"{figure:.3f}" for figure in figures))
    console.print(table)


if __name__ == "__main__":
    main()

"""The models whose decision boundaries are drawn: ten known classes and a new one in the plane."""

from typing import Any

import numpy as np
from sklearn.base import clone

from examples.boundaries import LEARNERS, N_KNOWN, SIDE, Plane, draw_plane
from rtscv_mlops import RTSCVClassifier

MODELS = {
    "augmented": "with the whole sample",
    "paper": "rectified in paper mode",
    "monitor": "rectified by the monitor",
}


def fit_model(learner: str, model: str, seed: int) -> tuple[Plane, RTSCVClassifier]:
    """Draw a plane and fit one model to it; "augmented" is the one the supplement draws."""
    plane = draw_plane(seed)
    mode = "monitor" if model == "monitor" else "paper"
    rectified = RTSCVClassifier(LEARNERS[learner], mode=mode, random_state=seed)
    rectified.fit(plane.X, plane.y, deployment=plane.window)
    if model != "augmented":
        return plane, rectified
    sample = plane.window[rectified.sample_indices_]
    rows = np.concatenate([plane.X, sample])
    labels = np.append(plane.y, np.full(len(sample), N_KNOWN))
    return plane, clone(rectified).fit(rows, labels)


def black_share(model: Any) -> float:
    """Return the share of the plane that is answered with "unknown"."""
    ticks = np.linspace(0, SIDE, 60)
    answers = model.predict(np.array(np.meshgrid(ticks, ticks)).reshape(2, -1).T)
    return float(np.mean(answers == N_KNOWN))

"""Gaussians in the plane with a known truth: what the paper's synthetic studies are drawn from.

Lengths are in standard deviations of a known class, unless a study alters that deviation itself.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks.windows import Case

N_KNOWN = 10
SIDE, APART = 16.0, 3.5
"""Centres of known classes lie in a square of this side, and keep at least this apart."""
TRAINING_ROWS, WINDOW_ROWS, UNKNOWN_ROWS = 60, 30, 150
"""Rows of each known class in training and in the window; unknown rows in the window, in all."""


def place_known(rng: np.random.Generator) -> NDArray:
    """Return the centres of the known classes, which lie about the origin."""
    while True:
        centres: list[NDArray] = []
        for centre in rng.uniform(-SIDE / 2, SIDE / 2, size=(200, 2)):
            if all(np.linalg.norm(centre - other) > APART for other in centres):
                centres.append(centre)
        # The first few may leave no room for the last: begin again.
        if len(centres) >= N_KNOWN:
            return np.array(centres[:N_KNOWN])


def place_outside(known: NDArray, distance: float, angle: float) -> NDArray:
    """Return a place in a direction from which the nearest known centre is this far away."""
    direction = np.array([np.cos(angle), np.sin(angle)])
    # Beyond the class that lies farthest out that way, all others are farther away.
    return known[np.argmax(known @ direction)] + distance * direction


def draw_problem(
    rng: np.random.Generator,
    known: NDArray,
    unknown: NDArray,
    *,
    known_sd: float = 1.0,
    unknown_sd: float = 1.0,
) -> Case:
    """Draw training rows around known centres, and a window that unknown clusters share evenly."""
    y = np.repeat(np.arange(N_KNOWN), TRAINING_ROWS)
    of_known = np.repeat(np.arange(N_KNOWN), WINDOW_ROWS)
    of_unknown = np.arange(UNKNOWN_ROWS) % len(unknown)
    return Case(
        X=_scatter(rng, known[y], known_sd),
        y=y,
        window=np.concatenate(
            [
                _scatter(rng, known[of_known], known_sd),
                _scatter(rng, unknown[of_unknown], unknown_sd),
            ]
        ),
        truth=np.concatenate([of_known, np.full(UNKNOWN_ROWS, N_KNOWN)]),
        baseline=np.empty((0, 2)),
        n_known=N_KNOWN,
    )


def _scatter(rng: np.random.Generator, centres: NDArray, sd: float) -> NDArray:
    return centres + rng.normal(scale=sd, size=centres.shape)

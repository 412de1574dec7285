"""Decision boundaries before and after a window: ten known classes in the plane, and a new one.

As in the supplement of the RTSCV paper, with the monitor mode in place of the plain algorithm:
`python -m examples.boundaries docs/images/boundaries.png`. Known rows are squares, window rows
are triangles; what the rectified model calls unknown is black.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops import RTSCVClassifier, open_set_scores

PATH = Path("docs/images/boundaries.png")
N_KNOWN = 10
SIDE = 10.0
"""The plane goes from 0 to this, both ways."""
LEARNERS = {
    "SVM": SVC(),
    "kNN": KNeighborsClassifier(),
    "Decision tree": DecisionTreeClassifier(min_samples_leaf=3),
}
INK, FOUND = "#22313f", "#ffd23f"
HUES = [to_rgb(colormaps["tab10"](number)) for number in range(N_KNOWN)]


@dataclass(frozen=True, slots=True)
class Plane:
    """Training rows of the known classes, and a window in which `N_KNOWN` is the new class."""

    X: NDArray
    y: NDArray
    window: NDArray
    truth: NDArray


def main(path: Path = PATH) -> Path:
    """Fit each learner before and after, and draw all six."""
    plane = draw_plane()
    figure = Figure(figsize=(12, 8.6), dpi=110, layout="constrained")
    for column, (name, learner) in zip(figure.subplots(2, 3).T, LEARNERS.items(), strict=True):
        before = RTSCVClassifier(learner).fit(plane.X, plane.y)
        after = RTSCVClassifier(learner).fit(plane.X, plane.y, deployment=plane.window)
        draw_model(column[0], plane, before, f"{name}, as trained")
        draw_model(column[1], plane, after, f"{name}, rectified")
    figure.suptitle("A class that training never saw, before and after", fontsize=15, color=INK)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def draw_plane(seed: int = 7) -> Plane:
    """Draw ten Gaussians at random places that keep apart, and an eleventh for the window."""
    rng = np.random.default_rng(seed)
    centres = _scatter(rng, N_KNOWN + 1, apart=2.1)
    # The new class is the one in the midst: at the rim, any model could wall it off.
    centres = centres[np.argsort(-np.linalg.norm(centres - SIDE / 2, axis=1))]
    X, y = _draw_classes(rng, centres[:-1], [40] * N_KNOWN)
    window, truth = _draw_classes(rng, centres, [25] * N_KNOWN + [50])
    return Plane(X, y, window, truth)


def _scatter(rng: np.random.Generator, size: int, apart: float) -> NDArray:
    places: list[NDArray] = []
    while len(places) < size:
        place = rng.uniform(0.1 * SIDE, 0.9 * SIDE, size=2)
        if all(np.linalg.norm(place - other) > apart for other in places):
            places.append(place)
    return np.array(places)


def _draw_classes(
    rng: np.random.Generator, centres: NDArray, sizes: list[int]
) -> tuple[NDArray, NDArray]:
    y = np.repeat(np.arange(len(sizes)), sizes)
    return centres[y] + rng.normal(scale=0.45, size=(len(y), 2)), y


def draw_model(axes: Axes, plane: Plane, model: RTSCVClassifier, title: str) -> None:
    """Draw what a model answers everywhere, the rows, and how well it does on the window."""
    ticks = np.linspace(-0.05 * SIDE, 1.05 * SIDE, 330)
    answers = model.predict(np.array(np.meshgrid(ticks, ticks)).reshape(2, -1).T)
    pale = [tuple(0.35 * np.array(hue) + 0.65) for hue in HUES]
    axes.pcolormesh(
        ticks,
        ticks,
        answers.reshape(len(ticks), -1),
        cmap=ListedColormap([*pale, "black"]),
        vmin=0,
        vmax=N_KNOWN,
        rasterized=True,
    )
    style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.4}
    axes.scatter(*plane.X.T, c=[HUES[label] for label in plane.y], marker="s", s=13, **style)
    extracted = np.isin(np.arange(len(plane.window)), model.unknown_indices_)
    for rows, colour in ((~extracted, "white"), (extracted, FOUND)):
        axes.scatter(
            *plane.window[rows].T, c=colour, marker="^", s=17, edgecolors=INK, linewidths=0.6
        )
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_xlabel(_describe(plane, model), color=INK)
    axes.set_title(title, loc="left", color=INK, fontweight="bold")


def _describe(plane: Plane, model: RTSCVClassifier) -> str:
    answers = model.predict(plane.window)
    f = open_set_scores(plane.truth, answers, None, range(N_KNOWN), N_KNOWN).macro_f
    if model.assessment_ is None:
        return f"macro F {f:.2f}"
    low, high = (100 * limit for limit in model.assessment_.unknown_rate_interval)
    truth = 100 * np.mean(plane.truth == N_KNOWN)
    return (
        f"macro F {f:.2f}; unknown {100 * model.assessment_.unknown_rate:.0f} % "
        f"({low:.0f}-{high:.0f} %), truly {truth:.0f} %"
    )


def _legend() -> list[Line2D | Patch]:
    def marker(shape: str, colour: str, label: str) -> Line2D:
        return Line2D(
            [], [], ls="", marker=shape, color=colour, mec=INK, mew=0.6, ms=7, label=label
        )

    return [
        marker("s", HUES[0], "training row, in the colour of its class"),
        marker("^", "white", "row of the window"),
        marker("^", FOUND, "extracted from the window"),
        Patch(color="black", label="answered with “unknown”"),
    ]


if __name__ == "__main__":
    print(main(*(Path(argument) for argument in sys.argv[1:2])))

"""Networks: RTSCV and the detectors of the paper's second table, on one and the same network.

Baseline, ODIN, Mahalanobis, energy and OpenMax are those of pytorch-ood. Half of the later images
make the window that RTSCV sees; the other half come after it, and are what is judged.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.paper.images import Known, load_images, load_known
from benchmarks.paper.nets import EPOCHS, make_net
from benchmarks.paper.published import ROWS
from benchmarks.verdict.sections import Job, Record
from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.metrics import auroc

AGAIN = ROWS[:2]
"""Rows that are measured with a second network, to show how much chance there is in them."""

KEPT = 0.95
"""Share of held-out known images that a threshold lets pass."""

STEPS = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005)
"""Perturbations that ODIN may choose from."""

BATCH = 500


@dataclass(frozen=True, slots=True)
class Window:
    """Images that RTSCV sees, images that come after it, and which of either are unknown."""

    seen: NDArray
    later: NDArray
    later_truth: NDArray  # -1: unknown


@dataclass(frozen=True, slots=True)
class Judged:
    """What a method says of later images: a score each, which are unknown, which class."""

    score: NDArray
    is_unknown: NDArray
    predicted: NDArray


def measure(net_name: str, known_name: str, unknown_name: str, seed: int, quick: bool) -> Record:
    """Measure one row of the table: every method on one network and one set of unknowns."""
    torch.set_num_threads(1)
    known = _some(load_known(known_name), quick)
    window = draw_window(known, load_images(unknown_name), seed)
    plain = fit_plain(net_name, known_name, seed, quick)
    record: Record = {
        "table": "networks",
        "net": net_name,
        "known": known_name,
        "unknown": unknown_name,
        "seed": seed,
        "accuracy_plain": float(np.mean(_closed(plain, window))),
    }
    for name, judged in _judge_detectors(plain, known, window).items():
        record |= _figures(name, judged, window.later_truth)
    return record | _judge_rtscv(net_name, known, window, seed, quick)


def plan(quick: bool) -> Iterator[tuple[str, Job]]:
    """List the rows, each with the name it is stored under."""
    for seed, rows in enumerate([ROWS[:1]] if quick else [ROWS, AGAIN]):
        for row in rows:
            yield f"{' '.join(row)} {seed}", partial(measure, *row, seed, quick)


def draw_window(known: Known, unknown: NDArray, seed: int) -> Window:
    """Halve the later known images and the unknown ones: a window, and what comes after it."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(known.later))
    seen, later = np.array_split(order, 2)
    # A third of a window is unknown, however many images a set has.
    n_unknown = min(len(unknown) // 2, len(seen) // 2)
    return Window(
        seen=np.concatenate([known.later[seen], unknown[:n_unknown]]),
        later=np.concatenate([known.later[later], unknown[-n_unknown:]]),
        later_truth=np.concatenate([known.truth[later], np.full(n_unknown, -1)]),
    )


@cache
def fit_plain(net_name: str, known_name: str, seed: int, quick: bool) -> Any:
    """Fit the network that all detectors of a row share."""
    known = _some(load_known(known_name), quick)
    return make_net(net_name, seed, _epochs(quick)).fit(known.X, known.y)


def _some(known: Known, quick: bool) -> Known:
    """Return a few hundred rows for a quick run."""
    if not quick:
        return known
    return Known(known.X[:600], known.y[:600], known.held_out[:200], known.later[:400],
                 known.truth[:400])  # fmt: skip


def _epochs(quick: bool) -> int:
    return 2 if quick else EPOCHS


def _closed(plain: Any, window: Window) -> NDArray:
    """Return which later known images the plain network gets right."""
    is_known = window.later_truth >= 0
    return plain.predict(window.later[is_known]) == window.later_truth[is_known]


# -- other detectors


def load_detectors() -> Any:
    """Import pytorch-ood's detectors.

    It imports torchvision for data sets and models of its own, which detectors do not use; where
    that does not load, as with a CPU build of torch, an empty stand-in serves.
    """
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for part in ("", ".transforms", ".transforms.functional", ".datasets", ".datasets.utils",
                     ".models", ".models.resnet"):  # fmt: skip
            sys.modules[f"torchvision{part}"] = MagicMock(__spec__=None)
    from pytorch_ood import detector

    return detector


def _judge_detectors(plain: Any, known: Known, window: Window) -> dict[str, Judged]:
    """Judge the later images by each detector; thresholds come from held-out known images."""
    module = plain.module_.eval()
    predicted = plain.predict(window.later)
    judged = {}
    for name, score in make_detectors(module, known).items():
        threshold = np.quantile(score(known.held_out), KEPT)
        later = score(window.later)
        judged[name] = Judged(later, later > threshold, predicted)
    return judged


def make_detectors(module: Any, known: Known) -> dict[str, Any]:
    """Return a scoring function for each detector, fitted on known images."""
    detectors = load_detectors()
    labels = torch.as_tensor(known.y)
    logits = torch.as_tensor(_batched(known.X, _frozen(module)))
    features = torch.as_tensor(_batched(known.X, _frozen(module.features)))
    mahalanobis = detectors.Mahalanobis(module.features).fit_features(features, labels)
    openmax = detectors.OpenMax(module).fit_logits(logits, labels)
    odin = detectors.ODIN(module, eps=_choose_step(detectors, module, known.held_out))
    return {
        "baseline": _scorer(detectors.MaxSoftmax(module)),
        "odin": _scorer(odin),
        "mahalanobis": _scorer(mahalanobis),
        "energy": _scorer(detectors.EnergyBased(module)),
        "openmax": _scorer(openmax),
    }


def _choose_step(detectors: Any, module: Any, held_out: NDArray) -> float:
    """Choose ODIN's perturbation by known images alone: the one that makes them surest."""
    some = held_out[:300]
    return min(STEPS, key=lambda eps: _scorer(detectors.ODIN(module, eps=eps))(some).mean())


def _scorer(detector: Any) -> Any:
    return partial(_batched, call=detector.predict)


def _frozen(module: Any) -> Any:
    return torch.no_grad()(module)


def _batched(rows: NDArray, call: Any) -> NDArray:
    pieces = np.array_split(rows, max(1, len(rows) // BATCH))
    return np.concatenate([call(torch.as_tensor(piece)).detach().numpy() for piece in pieces])


# -- RTSCV


def _judge_rtscv(
    net_name: str, known: Known, window: Window, seed: int, quick: bool
) -> dict[str, Any]:
    """Rectify the network by the window, and judge the images that come after it."""
    n_classes = int(known.y.max()) + 1
    net = make_net(net_name, seed, _epochs(quick))
    model = RTSCVClassifier(net, unknown_label=n_classes, random_state=seed)
    model.fit(known.X, known.y, deployment=window.seen)
    predicted = np.asarray(model.predict(window.later))
    if n_classes in model.classes_:
        score = np.asarray(model.predict_proba(window.later))[:, -1]
    else:
        score = model.unknown_score(window.later)
    judged = Judged(score, predicted == n_classes, predicted)
    facts = model.assessment_
    assert facts is not None
    return {
        **_figures("rtscv", judged, window.later_truth),
        "auroc_gate": auroc(window.later_truth < 0, model.unknown_score(window.later)),
        "verdict": str(facts.verdict),
        "unknown_rate": facts.unknown_rate,
        "true_rate": float(np.mean(window.later_truth < 0)),
    }


def _figures(name: str, judged: Judged, truth: NDArray) -> dict[str, float]:
    """Return the paper's three figures; the accuracy counts a known image called unknown as wrong.

    For the other detectors it is the plain network's, as in the paper; the share that their
    thresholds reject is given next to it.
    """
    is_unknown = truth < 0
    return {
        f"auroc_{name}": auroc(is_unknown, judged.score),
        f"detected_{name}": float(judged.is_unknown[is_unknown].mean()),
        f"rejected_{name}": float(judged.is_unknown[~is_unknown].mean()),
        f"accuracy_{name}": float(np.mean((judged.predicted == truth)[~is_unknown])),
    }

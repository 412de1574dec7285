"""Candidate classes among extracted rows, for a person to look at in a sensible order.

Knows numbers; knows nothing of known classes. Groups are a proposal: on real data they agree with
the true hidden classes only roughly, so each carries its quality, and rows without structure are
one group that says so. A cloud of the same extent is the yardstick.
"""

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_samples

MAX_CLUSTERS = 8
MIN_SIZE = 10
"""Rows per group, on average: fewer show whatever one looks for."""
MAX_ROWS = 600
"""Rows looked at when choosing the number of groups: the choice costs the square of this."""
STRUCTURE = 0.06
"""How far the mean silhouette must lie above that of one structureless cloud, cut up likewise."""
N_CLOUDS = 3
N_MEDOIDS = 5
FARTHEST = 8.0
"""Scales that a value may lie away from the others; one wild value must not be all there is."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One candidate class: its rows of the window, the most typical first among `medoids`.

    `quality` is the mean silhouette in [-1, 1]; nan where the rows show no structure to measure.
    """

    size: int
    share: float
    medoids: tuple[int, ...]
    quality: float
    rows: NDArray


def group_rows(
    numbers: NDArray, indices: NDArray, scale: NDArray, seed: int
) -> tuple[Cluster, ...]:
    """Group rows (their numbers, and their positions in the window); largest group first.

    `scale` is how far a column spreads within one known class. The rows' own spread would hide
    the very distance between two groups.
    """
    if len(indices) == 0:
        return ()
    points = _compress(numbers, scale)
    groups, quality = _best_groups(points, seed)
    clusters = [
        _describe(points[groups == group], indices[groups == group], len(indices), quality[group])
        for group in range(len(quality))
    ]
    return tuple(sorted(clusters, key=lambda cluster: -cluster.size))


def _compress(numbers: NDArray, scale: NDArray) -> NDArray:
    numbers = np.asarray(numbers, dtype=float)
    centred = numbers - numbers.mean(axis=0)
    own = centred.std(axis=0)
    # A column that no known class varies in has no scale but its own; an empty one needs none.
    scale = np.where(scale > 1e-6 * own, scale, np.where(own > 0, own, 1.0))
    scaled = np.clip(centred / scale, -FARTHEST, FARTHEST)
    if len(scaled) < 2 or not own.any():
        return scaled
    return PCA(min(10, *scaled.shape), random_state=0).fit_transform(scaled)


def _best_groups(points: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Return the grouping with the best silhouette; one group if none is worth the name."""
    rng = np.random.default_rng(seed)
    sample = points[rng.permutation(len(points))[:MAX_ROWS]]
    n_distinct = len(np.unique(sample.round(9), axis=0))
    most = min(MAX_CLUSTERS, n_distinct - 1, len(sample) // MIN_SIZE)
    candidates = [_cut(sample, n_clusters, seed) for n_clusters in range(2, most + 1)]
    one_group = np.zeros(len(points), dtype=int), np.array([nan])
    if not candidates:
        return one_group
    silhouette, means = max(candidates, key=lambda candidate: candidate[0].mean())
    # A cloud without structure, of the same extent in every direction, has a silhouette too.
    clouds = rng.normal(size=(N_CLOUDS, *sample.shape)) * sample.std(axis=0)
    cut_clouds = [_cut(cloud, means.n_clusters, seed)[0].mean() for cloud in clouds]
    if silhouette.mean() < max(cut_clouds) + STRUCTURE:
        return one_group
    quality = [silhouette[means.labels_ == group].mean() for group in range(means.n_clusters)]
    return means.predict(points), np.array(quality)


def _cut(points: NDArray, n_clusters: int, seed: int) -> tuple[NDArray, KMeans]:
    means = KMeans(n_clusters, n_init=1, random_state=seed).fit(points)
    return silhouette_samples(points, means.labels_), means


def _describe(points: NDArray, indices: NDArray, n_all: int, quality: float) -> Cluster:
    distance = np.linalg.norm(points - points.mean(axis=0), axis=1)
    typical = indices[np.argsort(distance, kind="stable")[:N_MEDOIDS]]
    return Cluster(
        size=len(indices),
        share=len(indices) / n_all,
        medoids=tuple(int(index) for index in typical),
        quality=float(quality),
        rows=indices,
    )

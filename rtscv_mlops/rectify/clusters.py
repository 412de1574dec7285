"""Candidate classes among extracted rows, for a person to look at in a sensible order.

Knows numbers; knows nothing of known classes. Groups are a proposal: on real data they agree with
the true hidden classes only roughly, so each carries its quality, and rows without structure are
one group that says so.
"""

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances, silhouette_samples
from sklearn.preprocessing import StandardScaler

MAX_CLUSTERS = 8
MAX_ROWS = 1_500
"""Rows looked at when choosing the number of groups: the choice costs the square of this."""
STRUCTURE = 0.2
"""A mean silhouette below this is what one round cloud of points gives as well."""
N_MEDOIDS = 5


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


def group_rows(numbers: NDArray, indices: NDArray, seed: int) -> tuple[Cluster, ...]:
    """Group rows (their numbers, and their positions in the window); largest group first."""
    if len(indices) == 0:
        return ()
    points = _compress(numbers)
    groups, quality = _best_groups(points, seed)
    clusters = [
        _describe(points[groups == group], indices[groups == group], len(indices), quality[group])
        for group in range(len(quality))
    ]
    return tuple(sorted(clusters, key=lambda cluster: -cluster.size))


def _compress(numbers: NDArray) -> NDArray:
    scaled = StandardScaler().fit_transform(np.asarray(numbers, dtype=float))
    dimensions = min(10, *scaled.shape)
    return PCA(dimensions, random_state=0).fit_transform(scaled)


def _best_groups(points: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Return the grouping with the best silhouette; one group if none is worth the name."""
    sample = np.random.default_rng(seed).permutation(len(points))[:MAX_ROWS]
    distances = pairwise_distances(points[sample])
    best = STRUCTURE
    groups, quality = np.zeros(len(points), dtype=int), np.array([nan])
    for n_clusters in range(2, min(MAX_CLUSTERS, len(np.unique(points, axis=0)) - 1) + 1):
        means = KMeans(n_clusters, n_init=3, random_state=seed).fit(points[sample])
        if len(np.unique(means.labels_)) < 2:
            continue
        silhouette = silhouette_samples(distances, means.labels_, metric="precomputed")
        if silhouette.mean() > best:
            best, groups = silhouette.mean(), means.predict(points)
            quality = np.array([silhouette[means.labels_ == g].mean() for g in range(n_clusters)])
    return groups, quality


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

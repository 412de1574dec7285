"""Group extracted rows into candidate classes, so that a person can review them in order.

The groups are a proposal. On real data they match the true hidden classes only roughly, so each
group carries its quality, and rows without structure form a single group. Rows have structure if
they are grouped better than random clouds of the same extent.
"""

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_samples

from rtscv_mlops.estimator.rows import Numbers, stack, take

MAX_CLUSTERS = 8
MIN_SIZE = 10
"""Average number of rows per group. Smaller groups show structure in pure noise."""
MAX_ROWS = 600
"""Rows used to choose the number of groups. The cost grows with the square of this."""
MAX_KNOWN = 5_000
"""Known rows that the unknown rows are compared with."""
STRUCTURE = 0.06
"""Least lead of the mean silhouette over that of a random cloud with as many groups."""
N_CLOUDS = 3
N_MEDOIDS = 5
FARTHEST = 8.0
"""Scaled values are clipped here, so that one extreme value does not dominate the grouping."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A candidate class among the unknown rows of a window.

    Attributes
    ----------
    size : int
        Number of rows.
    share : float
        Share of all unknown rows.
    medoids : tuple of int
        Positions in the window of the most typical rows, the most typical first.
    quality : float
        Mean silhouette, in [-1, 1]; nan if the rows show no structure.
    rows : ndarray of int
        Positions of all its rows in the window.
    """

    size: int
    share: float
    medoids: tuple[int, ...]
    quality: float
    rows: NDArray


def group_unknowns(
    known: Any, codes: NDArray, window: Any, indices: NDArray, seed: int
) -> tuple[Cluster, ...]:
    """Return the candidate classes among the unknown rows of a window, the largest first."""
    sample = np.random.default_rng(seed).permutation(len(codes))[:MAX_KNOWN]
    known, unknown = take(known, sample), take(window, indices)
    numbers = Numbers().fit(stack(known, unknown))
    known_numbers, codes = numbers.transform(known), codes[sample]
    variances = np.zeros(known_numbers.shape[1])
    for code in np.unique(codes):
        of_class = known_numbers[codes == code].astype(float)
        variances += of_class.var(axis=0) * len(of_class) / len(codes)
    return group_rows(numbers.transform(unknown), indices, np.sqrt(variances), seed)


def group_rows(
    numbers: NDArray, indices: NDArray, scale: NDArray, seed: int
) -> tuple[Cluster, ...]:
    """Return groups of rows, the largest first.

    `indices` are the positions of the rows in the window. `scale` is the spread of each column
    within a known class: dividing by the rows' own spread would hide the distance between groups.
    """
    if len(indices) == 0:
        return ()
    points = _compress(numbers, scale)
    groups, quality = _best_groups(points, seed)
    clusters = []
    for group, silhouette in enumerate(quality):
        members, rows = points[groups == group], indices[groups == group]
        distance = np.linalg.norm(members - members.mean(axis=0), axis=1)
        typical = rows[np.argsort(distance, kind="stable")[:N_MEDOIDS]]
        clusters.append(
            Cluster(
                size=len(rows),
                share=len(rows) / len(indices),
                medoids=tuple(int(row) for row in typical),
                quality=float(silhouette),
                rows=rows,
            )
        )
    return tuple(sorted(clusters, key=lambda cluster: -cluster.size))


def _compress(numbers: NDArray, scale: NDArray) -> NDArray:
    """Return the rows scaled, clipped and projected on at most ten principal components."""
    numbers = np.asarray(numbers, dtype=float)
    centred = numbers - numbers.mean(axis=0)
    own = centred.std(axis=0)
    # A column that varies in no known class is scaled by its own spread; a constant one by 1.
    scale = np.where(scale > 1e-6 * own, scale, np.where(own > 0, own, 1.0))
    scaled = np.clip(centred / scale, -FARTHEST, FARTHEST)
    if len(scaled) < 2 or not own.any():
        return scaled
    return PCA(min(10, *scaled.shape), random_state=0).fit_transform(scaled)


def _best_groups(points: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Return each row's group and each group's silhouette; one group if there is no structure."""
    rng = np.random.default_rng(seed)
    sample = points[rng.permutation(len(points))[:MAX_ROWS]]
    n_distinct = len(np.unique(sample.round(9), axis=0))
    most = min(MAX_CLUSTERS, n_distinct - 1, len(sample) // MIN_SIZE)
    candidates = [_cut(sample, n_clusters, seed) for n_clusters in range(2, most + 1)]
    one_group = np.zeros(len(points), dtype=int), np.array([nan])
    if not candidates:
        return one_group
    silhouette, means = max(candidates, key=lambda candidate: candidate[0].mean())
    # A random cloud of the same extent in every direction has a positive silhouette as well.
    clouds = rng.normal(size=(N_CLOUDS, *sample.shape)) * sample.std(axis=0)
    of_clouds = [_cut(cloud, means.n_clusters, seed)[0].mean() for cloud in clouds]
    if silhouette.mean() < max(of_clouds) + STRUCTURE:
        return one_group
    quality = [silhouette[means.labels_ == group].mean() for group in range(means.n_clusters)]
    return means.predict(points), np.array(quality)


def _cut(points: NDArray, n_clusters: int, seed: int) -> tuple[NDArray, KMeans]:
    means = KMeans(n_clusters, n_init=1, random_state=seed).fit(points)
    return silhouette_samples(points, means.labels_), means

"""How the shares of the known classes changed, and which classes can be told apart in a window.

Knows the class each row is nearest to, and the known rows' labels; knows nothing of margins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

OWN_SHARE = 0.7
"""A class stands for itself if this part of the window rows nearest to it are its own."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How the shares of the classes changed from the known rows to the window.

    `share` is a class's share of the window, `weight` that over its share of the known rows. `own`
    tells whether the window rows nearest to a class are mostly its own. Where a class has all but
    vanished, they are strays of other classes, for which the null has too few to compare; where a
    model mixes classes up, no class has rows of its own. `stratum` numbers groups of classes that
    do: a mixed class is joined with the classes that its rows come from.
    """

    share: NDArray
    weight: NDArray
    own: NDArray
    stratum: NDArray

    @property
    def variance(self) -> NDArray:
        """How much more the counts of a class vary than those of independent rows.

        Two folds judge each other by models that learned the same chance differences, which
        correlates their counts and may double the variance. It shows where a class takes a large
        part of the window and so of the dummy class; the slope keeps the level in measurements.
        """
        return np.clip(1 + 0.35 * (self.weight - 1), 1, 2)

    @property
    def joined_variance(self) -> NDArray:
        """The same of a stratum, whose classes count by their shares."""
        total = np.bincount(self.stratum, weights=self.share)
        varied = np.bincount(self.stratum, weights=self.share * self.variance)
        return np.divide(varied, total, out=np.ones(len(total)), where=total > 0)


def estimate_shift(
    nearest: NDArray, labels: NDArray, window_nearest: NDArray, n_classes: int
) -> Shift:
    """Solve "confusion of the known rows times shares = shares seen in the window".

    This is black-box shift estimation, which needs no calibrated probabilities.
    """
    confusion = np.zeros((n_classes, n_classes))
    np.add.at(confusion, (nearest, labels), 1)
    known_share = confusion.sum(axis=0)
    confusion /= np.maximum(known_share, 1)
    seen = np.bincount(window_nearest, minlength=n_classes) / len(window_nearest)
    share, _ = nnls(confusion, seen)
    known_share /= known_share.sum()
    weight = np.divide(share, known_share, out=np.zeros(n_classes), where=known_share > 0)
    comes_from = confusion * share
    own = np.diag(comes_from) >= OWN_SHARE * seen
    return Shift(share, weight, own, _join_mixed(comes_from, seen))


def _join_mixed(comes_from: NDArray, seen: NDArray) -> NDArray:
    """Join the class that has least of its own with the one that most of its rows come from.

    Again, until each stratum has enough of its own. A class that no known row is nearest to has
    nothing to be compared with, and joins the largest.
    """
    stratum, flow, size = np.arange(len(seen)), comes_from.copy(), seen.copy()
    for _ in range(len(seen) - 1):
        own = np.divide(np.diag(flow), size, out=np.ones(len(size)), where=size > 0)
        mixed = int(np.argmin(own))
        if own[mixed] >= OWN_SHARE:
            break
        others = np.arange(len(size)) != mixed
        sources = flow[mixed] * others
        host = int(np.argmax(sources if sources.any() else size * others))
        stratum[stratum == mixed] = host
        flow[host] += flow[mixed]
        flow[:, host] += flow[:, mixed]
        size[host] += size[mixed]
        flow[mixed], flow[:, mixed], size[mixed] = 0, 0, 0
    return np.unique(stratum, return_inverse=True)[1]

"""Networks: their own features instead of raw pixels, learned on rows that are then left out.

A kernel on raw pixels knows nothing of images; the last hidden layer of the monitored network does.
But rows that a network was trained on lie too well in its features to be a null for rows it has
not seen. So a clone learns the features from one half of the training rows, and the other half
stands for the known classes. Knows skorch; torch is imported only here, and only when used.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from rtscv_mlops.errors import InputError
from rtscv_mlops.rectify.gates import KernelGate, Layout
from rtscv_mlops.rectify.rows import take

Embedding = Callable[[Any], NDArray]


def is_network(estimator: Any) -> bool:
    """Tell whether this is a skorch net, without importing skorch."""
    return any(kind.__module__.startswith("skorch.") for kind in type(estimator).__mro__)


def learn_embedding(net: Any, X: Any, codes: NDArray, seed: int) -> tuple[Embedding, NDArray]:
    """Return the network's features, and the training rows that they were not learned from."""
    if not is_network(net):
        raise InputError(
            f"gate='network' needs a skorch network, got {type(net).__name__}. Use gate='auto'."
        )
    rare = np.bincount(codes).min() < 2
    learned, kept = train_test_split(
        np.arange(len(codes)), test_size=0.5, random_state=seed, stratify=None if rare else codes
    )
    fitted = clone(net).fit(take(X, learned), codes[learned])
    return HiddenLayer(fitted), np.sort(kept)


class HiddenLayer:
    """What enters the last linear layer of a fitted network."""

    def __init__(self, net: Any) -> None:
        self.net = net

    def __call__(self, rows: Any) -> NDArray:
        from torch import nn

        linear = [layer for layer in self.net.module_.modules() if isinstance(layer, nn.Linear)]
        seen: list[NDArray] = []
        hook = linear[-1].register_forward_hook(
            lambda layer, entering, leaving: seen.append(entering[0].detach().cpu().numpy())
        )
        try:
            self.net.forward(rows, training=False)
        finally:
            hook.remove()
        return np.concatenate(seen)


class NetworkGate:
    """A kernel gate on a network's features."""

    def __init__(self, embed: Embedding) -> None:
        self.embed, self.gate = embed, KernelGate()

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        self.gate.prepare(self.embed(table), classes, labels, seed)
        return self

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        return self.gate.cross_fit(layout, scored)

    def scores(self, rows: Any) -> NDArray:
        return self.gate.scores(self.embed(rows))

    def forget(self) -> None:
        self.gate.forget()

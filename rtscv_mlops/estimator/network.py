"""The gate for skorch networks: compares rows by the network's own features, not by raw pixels.

A network's features fit its training rows too well for these to be a null for rows it has not
seen. So a clone learns the features from one half of the training rows, and the other half stands
for the known classes. A network also ignores whatever its classes do not differ in, which may be
what sets an unknown class apart, so images are compared by their texture as well. torch is
imported only here, and only when used.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.gates import Layout
from rtscv_mlops.estimator.kernel import KernelGate
from rtscv_mlops.estimator.learner import last_step
from rtscv_mlops.estimator.rows import take

Embedding = Callable[[Any], NDArray]


def is_network(estimator: Any) -> bool:
    """Return whether this is a skorch net, without importing skorch."""
    return any(kind.__module__.startswith("skorch.") for kind in type(estimator).__mro__)


@contextmanager
def torch_seeded(estimator: Any, seed: int) -> Iterator[None]:
    """Seed torch while a network is fitted, since it has no random_state; restore it afterwards.

    Fits in other processes are not affected.
    """
    if not is_network(last_step(estimator)):
        yield
        return
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def learn_embeddings(
    net: Any, X: Any, codes: NDArray, seed: int
) -> tuple[list[Embedding], NDArray]:
    """Return embeddings of rows, and the training rows that they were not learned from."""
    if not is_network(net):
        raise InputError(
            f"gate='network' needs a skorch network, got {type(net).__name__}. Use gate='auto'."
        )
    rare = np.bincount(codes).min() < 2
    learned, kept = train_test_split(
        np.arange(len(codes)), test_size=0.5, random_state=seed, stratify=None if rare else codes
    )
    fitted = clone(net).fit(take(X, learned), codes[learned])
    embeddings: list[Embedding] = [HiddenLayer(fitted)]
    if Texture.applies(X):
        embeddings.append(Texture(floor=Texture.FLOOR * float(np.std(take(X, kept[:1000])))))
    return embeddings, np.sort(kept)


class HiddenLayer:
    """The input of the last linear layer of a fitted network."""

    def __init__(self, net: Any) -> None:
        self.net = net

    def __call__(self, rows: Any) -> NDArray:
        from torch import nn

        linear = [layer for layer in self.net.module_.modules() if isinstance(layer, nn.Linear)]
        inputs: list[NDArray] = []
        hook = linear[-1].register_forward_hook(
            lambda layer, args, output: inputs.append(args[0].detach().cpu().numpy())
        )
        try:
            self.net.forward(rows, training=False)
        finally:
            hook.remove()
        return np.concatenate(inputs)


class Texture:
    """How strong, and how even, each frequency and direction is in each channel of an image.

    The filters are the basis of the discrete cosine transform of a small square.
    """

    SIZE = 5
    FLOOR = 1e-3  # share of the pixels' spread; fainter responses count as none
    CHUNK = 50_000_000  # numbers filtered at once

    def __init__(self, floor: float) -> None:
        self.floor = floor
        waves = dct(np.eye(self.SIZE), norm="ortho")
        squares = np.einsum("ai,bj->ijab", waves, waves)
        self.filters = squares.reshape(-1, 1, self.SIZE, self.SIZE).astype(np.float32)

    @classmethod
    def applies(cls, rows: Any) -> bool:
        """Return whether rows are images: samples, channels, height, width."""
        return getattr(rows, "ndim", 0) == 4 and min(rows.shape[2:]) > cls.SIZE

    def __call__(self, rows: Any) -> NDArray:
        size = max(1, self.CHUNK // (len(self.filters) * int(np.prod(rows.shape[1:]))))
        pieces = [self._describe(rows[start : start + size]) for start in range(0, len(rows), size)]
        return np.concatenate(pieces)

    def _describe(self, rows: NDArray) -> NDArray:
        import torch

        images = torch.as_tensor(np.asarray(rows, dtype=np.float32))
        channels = images.reshape(-1, 1, *images.shape[2:])
        filtered = torch.conv2d(channels, torch.as_tensor(self.filters))
        filtered = filtered.reshape(len(images), -1, filtered.shape[2] * filtered.shape[3])
        strength = (filtered.std(2) + self.floor).log()
        evenness = (filtered.abs().mean(2) + self.floor).log() - strength
        return torch.cat([strength, evenness], 1).numpy()


class NetworkGate:
    """A kernel gate on embeddings of rows."""

    def __init__(self, embeddings: list[Embedding]) -> None:
        self.embeddings, self.gate = embeddings, KernelGate()

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        embedded = self._embed(table)
        # Embeddings differ in scale; none may dominate the others.
        self._spread = np.maximum(embedded[classes].std(axis=0), 1e-6)
        self.gate.prepare(embedded / self._spread, classes, labels, seed)
        return self

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        return self.gate.cross_fit(layout, scored)

    def scores(self, rows: Any) -> NDArray:
        return self.gate.scores(self._embed(rows) / self._spread)

    def renewed(self) -> Self:
        gate = copy(self)
        gate.gate = self.gate.renewed()
        return gate

    def forget(self) -> None:
        self.gate.forget()

    def _embed(self, rows: Any) -> NDArray:
        return np.hstack([embedding(rows) for embedding in self.embeddings])

"""Small training sets and windows that several tests speak about; no test lives here."""

import numpy as np
from sklearn.datasets import load_digits

CENTRES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
FAR = np.array([9.0, 9.0])


def blobs(seed, sizes, centres=CENTRES, spread=1.0):
    """Draw a round cloud per centre; return the rows and the number of the centre of each."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = np.asarray(centres, dtype=float)[y]
    order = rng.permutation(len(y))
    return (X + spread * rng.normal(size=X.shape))[order], y[order]


def new_blob(seed=1, n_new=40):
    """Training rows of three classes, and a window of the same with a fourth one far away."""
    X, y = blobs(seed, (80, 80, 80))
    window, truth = blobs(seed + 100, (60, 60, 60, n_new), [*CENTRES, FAR])
    return X, y, window, truth


def split_digits(hidden=(), seed=0, n_training=800, n_window=500):
    """Digits: training rows without the hidden classes, and a window with them."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = X[order], y[order]
    training = np.flatnonzero(~np.isin(y, hidden))[:n_training]
    rest = np.setdiff1d(np.arange(len(y)), training)[:n_window]
    return X[training], y[training], X[rest], y[rest]

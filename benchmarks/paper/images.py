"""Images of 32 by 32 from a folder: the known set of a row, and sets that are unknown to it.

`RTSCV_DATA_DIR` names the folder; none of these sets can be fetched from OpenML in this form.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtscv_mlops.errors import InputError

FILES = {
    "CIFAR-10": ("cifar10_batch1_test.npz", "the CIFAR page of the University of Toronto"),
    "CIFAR-100": ("cifar100_test5k.npz", "the CIFAR page of the University of Toronto"),
    "SVHN": ("svhn_test5k.npz", "the SVHN page of Stanford University"),
    "Tiny-ImageNet": ("tiny_imagenet32_val5k.npz", "Stanford's course CS231N, resized to 32 x 32"),
}


@dataclass(frozen=True, slots=True)
class Known:
    """Rows to learn from, rows to set thresholds by, and rows that arrive later."""

    X: NDArray
    y: NDArray
    held_out: NDArray
    later: NDArray
    truth: NDArray


@cache
def load_images(name: str) -> NDArray:
    """Return all images of a set in a fixed random order, as float32 in [0, 1], channels first."""
    arrays = _read(name)
    images = arrays["x"] if "x" in arrays else arrays["x_test"]
    return _as_rows(images[np.random.default_rng(0).permutation(len(images))])


@cache
def load_known(name: str) -> Known:
    """Return a set as the known one: a tenth of its training images only sets thresholds."""
    arrays = _read(name)
    if "x_train" in arrays:
        parts = (arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"])
    else:
        order = np.random.default_rng(0).permutation(len(arrays["x"]))
        first, second = np.split(order, [int(0.7 * len(order))])
        x, y = arrays["x"], arrays["y"]
        parts = (x[first], y[first], x[second], y[second])
    x_train, y_train, x_test, y_test = parts
    order = np.random.default_rng(1).permutation(len(x_train))
    learned, held_out = np.split(order, [int(0.9 * len(order))])
    return Known(
        X=_as_rows(x_train[learned]),
        y=y_train[learned].astype(np.int64),
        held_out=_as_rows(x_train[held_out]),
        later=_as_rows(x_test),
        truth=y_test.astype(np.int64),
    )


def _read(name: str) -> dict[str, NDArray]:
    file, origin = FILES[name]
    path = Path(os.environ.get("RTSCV_DATA_DIR", "data")) / file
    if not path.exists():
        raise InputError(
            f"{path} does not exist. {name} comes from {origin}: store its images as uint8 arrays "
            "x and y (or x_train, y_train, x_test, y_test), channels last, and name the folder in "
            "RTSCV_DATA_DIR."
        )
    with np.load(path, allow_pickle=False) as arrays:
        return {part: arrays[part] for part in arrays.files}


def _as_rows(images: NDArray) -> NDArray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / 255

"""A small convolutional network by PyTorch and skorch, in a module of its own.

A pickle names where its classes live, so whoever loads the model must be able to import this.
"""

from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, LRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

EPOCHS = 8
SEED = 0


class SmallNetwork(nn.Module):
    """Three convolutions, each of which halves the image, and a last layer."""

    def __init__(self, n_outputs: int = 10, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 3
        for n_out in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            n_in = n_out
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * n_in, n_outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images - 0.5))


class GrowOutput(Callback):
    """Gives the network an output per label, and each fit the same start.

    A rectified model has one class more than its champion. And two fits that start from different
    numbers give different models, which makes a review unrepeatable.
    """

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        torch.manual_seed(SEED)
        net.set_params(module__n_outputs=len(np.unique(y)))


def make_network(epochs: int = EPOCHS) -> NeuralNetClassifier:
    """Return the network, not fitted yet.

    Its steps shrink towards the end of the training: where they do not, two fits on the same images
    differ by up to 30 points in a class, and no challenger could be compared with its champion.
    """
    shrinking = LRScheduler(OneCycleLR, max_lr=0.01, total_steps=epochs + 1)
    return NeuralNetClassifier(
        SmallNetwork,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        batch_size=64,
        max_epochs=epochs,
        iterator_train__shuffle=True,
        train_split=None,
        callbacks=[GrowOutput(), shrinking],
        verbose=0,
    )

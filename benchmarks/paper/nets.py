"""Small ResNet and DenseNet for images of 32 by 32, as skorch classifiers.

The paper trains 34 and 100 layers for 100 epochs by SGD with Nesterov momentum 0.9, the learning
rate halved every 20 epochs. Scaled to two cores: 14 and 17 layers, 20 epochs, halved every 4, and a
learning rate of 0.1 instead of 0.0005, without which so few steps lead nowhere; flips and shifts.
"""

from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, LRScheduler
from torch import Tensor, nn
from torch.nn import functional as F

EPOCHS = 20
MEAN, SPREAD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
"""Channel statistics of natural photographs, near those of CIFAR."""

SHIFT = 3


class Images(nn.Module):
    """A network on images: normalises them, moves them about while it learns, classifies."""

    def __init__(self, features: nn.Module, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("spread", torch.tensor(SPREAD).view(3, 1, 1))
        self.body = features.to(memory_format=torch.channels_last)
        self.head = nn.Linear(n_features, n_outputs)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.features(rows))

    def features(self, rows: Tensor) -> Tensor:
        """Return what the last layer sees."""
        rows = (rows - self.mean) / self.spread
        if self.training:
            rows = _move(rows)
        rows = rows.contiguous(memory_format=torch.channels_last)
        # Half precision is twice as fast, and good enough to learn with; scores are exact.
        with torch.autocast("cpu", torch.bfloat16, enabled=self.training):
            found = self.body(rows).mean((2, 3))
        return found.float()


def _move(rows: Tensor) -> Tensor:
    """Flip every second image, and shift the batch by up to three pixels."""
    flipped = torch.rand(len(rows), 1, 1, 1) < 0.5
    rows = torch.where(flipped, rows.flip(3), rows)
    down, right = torch.randint(0, 2 * SHIFT + 1, (2,)).tolist()
    return F.pad(rows, (SHIFT,) * 4)[:, :, down : down + 32, right : right + 32]


class Residual(nn.Module):
    """Two convolutions and a way round them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.round = (
            nn.Identity()
            if (n_in, stride) == (n_out, 1)
            else nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
        )

    def forward(self, rows: Tensor) -> Tensor:
        return F.relu(self.path(rows) + self.round(rows))


class ResNet(Images):
    """ResNet-14 for small images: three stages of two residual blocks."""

    def __init__(self, n_outputs: int = 10, width: int = 16, n_blocks: int = 2) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        n_in = width
        for stage, n_out in enumerate((width, 2 * width, 4 * width)):
            for block in range(n_blocks):
                layers.append(Residual(n_in, n_out, 2 if stage and not block else 1))
                n_in = n_out
        super().__init__(nn.Sequential(*layers), n_in, n_outputs)


class Dense(nn.Module):
    """A layer that adds its features to those it saw."""

    def __init__(self, n_in: int, growth: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(n_in), nn.ReLU(), nn.Conv2d(n_in, growth, 3, 1, 1, bias=False)
        )

    def forward(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, self.path(rows)], 1)


class DenseNet(Images):
    """DenseNet-17 for small images: three blocks of four layers, halved in between."""

    def __init__(self, n_outputs: int = 10, growth: int = 12, n_layers: int = 4) -> None:
        n_in = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(3, n_in, 3, 1, 1, bias=False)]
        for block in range(3):
            for _ in range(n_layers):
                layers.append(Dense(n_in, growth))
                n_in += growth
            if block < 2:
                layers += [
                    nn.BatchNorm2d(n_in),
                    nn.ReLU(),
                    nn.Conv2d(n_in, n_in // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                n_in //= 2
        layers += [nn.BatchNorm2d(n_in), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), n_in, n_outputs)


NETS: dict[str, type[Images]] = {"ResNet": ResNet, "DenseNet": DenseNet}


class GrowOutput(Callback):
    """Gives the network as many outputs as there are labels."""

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        net.set_params(module__n_outputs=len(np.unique(y)))


def make_net(name: str, seed: int, epochs: int = EPOCHS) -> NeuralNetClassifier:
    """Return an unfitted network with the recipe above."""
    torch.manual_seed(seed)
    return NeuralNetClassifier(
        NETS[name],
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.SGD,
        optimizer__momentum=0.9,
        optimizer__nesterov=True,
        optimizer__weight_decay=5e-4,
        lr=0.1,
        batch_size=128,
        max_epochs=epochs,
        iterator_train__shuffle=True,
        train_split=None,
        callbacks=[
            GrowOutput(),
            LRScheduler("StepLR", step_size=max(epochs // 5, 1), gamma=0.5),
        ],
        verbose=0,
    )

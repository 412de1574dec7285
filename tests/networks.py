"""Networks of torch and skorch, in a module of their own: a pickle names where its classes live."""

import numpy as np
import skorch
import torch


class Network(torch.nn.Module):
    """One hidden layer."""

    def __init__(self, n_outputs=3):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, n_outputs)
        )

    def forward(self, X):
        return self.layers(X)


class GrowOutput(skorch.callbacks.Callback):
    """Gives the network as many outputs as there are labels."""

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        net.set_params(module__n_outputs=len(np.unique(y)))


def make_network(*, grows):
    """An unfitted classifier, whose last layer grows with the labels or does not."""
    torch.manual_seed(0)
    return skorch.NeuralNetClassifier(
        Network,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=5,
        train_split=None,
        callbacks=[GrowOutput] if grows else [],
        verbose=0,
    )


class Restless(skorch.callbacks.Callback):
    """Starts each fit from numbers that nobody chose."""

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        torch.seed()


def make_restless_network():
    """An unfitted classifier that no seed keeps still."""
    net = make_network(grows=True)
    return net.set_params(callbacks=[Restless, GrowOutput])

"""The monitor as a detector, with the settings that a team gave it. Knows nothing of data."""

from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from rtscv_mlops.config import RectifySettings
from rtscv_mlops.peers import Peer
from rtscv_mlops.peers.own import Monitor
from rtscv_mlops.rectify import RTSCVClassifier


class TunedMonitor(Monitor):
    """RTSCV as a monitor file says that it is to run; the seed is that of the case."""

    def __init__(self, estimator: Any, random_state: int, *, settings: RectifySettings) -> None:
        super().__init__(estimator, random_state)
        self.settings = settings

    def _rectify(self, X: Any, y: NDArray[Any], window: Any) -> None:
        self.model_ = RTSCVClassifier(
            self.estimator,
            sample_rate=self.settings.sample_rate,
            cv=self.settings.cv,
            alpha=self.settings.alpha,
            gate=self.settings.gate,
            random_state=self.random_state,
        ).fit(X, y, window)
        self.window_scores_ = self.model_.window_scores_


def tune(peer: Peer, settings: RectifySettings) -> Peer:
    """Return the monitor's entry with settings of its own."""
    return replace(peer, make=partial(TunedMonitor, settings=settings))

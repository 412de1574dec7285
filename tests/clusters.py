"""Work for the processes of a cluster, and learners that show where they were fitted.

In a module of its own, since workers import it.
"""

import os
import signal
import time
import warnings
from pathlib import Path
from threading import Thread, get_ident

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info


def double(number):
    return 2 * number


def warn(number):
    warnings.warn(f"about {number % 2}", UserWarning, stacklevel=1)
    return number


def break_down(number):
    raise ZeroDivisionError(f"of {number}")


def threads(_=None):
    """The threads of each library of linear algebra that is loaded."""
    np.linalg.svd(np.eye(2))
    return [one["num_threads"] for one in threadpool_info()]


def place(_=None):
    """The process and the thread that this is done by."""
    return os.getpid(), get_ident()


def places(_):
    """Where work is done that wants three helpers."""
    return {place(), *Parallel(n_jobs=3)(delayed(place)() for _ in range(6))}


class SlowLearner(GaussianNB):
    """Takes its time to fit, and leaves a file that is called like its process."""

    def __init__(self, folder=None, seconds=0.0):
        super().__init__()
        self.folder, self.seconds = folder, seconds

    def fit(self, X, y):
        if self.folder is not None:
            Path(self.folder, str(os.getpid())).touch()
        time.sleep(self.seconds)
        return super().fit(X, y)


class Murderer(GaussianNB):
    """Ends whatever process fits it, except the one that is named."""

    def __init__(self, spared=0):
        super().__init__()
        self.spared = spared

    def fit(self, X, y):
        if os.getpid() != self.spared:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


class Killer(Thread):
    """Waits for a process that fits a `SlowLearner`, and kills it in the middle."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.killed = folder, None

    def run(self):
        end = time.monotonic() + 60
        while self.killed is None and time.monotonic() < end:
            time.sleep(0.1)
            for file in self.folder.iterdir():
                self.killed = int(file.name)
        if self.killed is not None:
            os.kill(self.killed, signal.SIGKILL)


def fit_slowly(X, y):
    """A `fit` factory that leaves time to kill the process which runs it."""
    time.sleep(0.5)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, y)

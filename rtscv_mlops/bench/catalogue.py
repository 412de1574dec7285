"""The list of what is compared, with the source of each. Knows the detectors and their names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rtscv_mlops.bench import confidence, ours
from rtscv_mlops.bench.detector import Detector
from rtscv_mlops.bench.machines import EVM, OSNN, PISVM, WSVM, OneVsSet
from rtscv_mlops.bench.open_set import OpenSetClassifier

Kind = Literal["ours", "paper", "today"]


@dataclass(frozen=True, slots=True)
class Peer:
    """One system of the comparison.

    `kind`: "ours", "paper" for the systems that the paper compares with, "today" for what a user
    would reach for. `make` takes the unfitted base model and a seed.
    """

    name: str
    title: str
    kind: Kind
    source: str
    make: Callable[[Any, int], Detector]


def _alone(method: type[OpenSetClassifier]) -> Callable[[Any, int], Detector]:
    """Return a maker that needs no base model: the method classifies by itself."""
    return lambda estimator, seed: method(seed)


_ALL = [
    Peer("monitor", "RTSCV, monitor", "ours", "this package", ours.MonitorDetector),
    Peer("paper_mode", "RTSCV, as published", "ours", "the paper, Algorithm 1", ours.PaperMode),
    Peer("pre_rectified", "Base model alone", "ours", "the paper, Table 1", ours.PreRectified),
    Peer("evm", "EVM", "paper", "Rudd et al. 2018", _alone(EVM)),
    Peer("one_vs_set", "1-vs-Set", "paper", "Scheirer et al. 2013", _alone(OneVsSet)),
    Peer("w_svm", "W-SVM", "paper", "Scheirer et al. 2014", _alone(WSVM)),
    Peer("pi_svm", "P_I-SVM", "paper", "Jain et al. 2014", _alone(PISVM)),
    Peer("osnn", "OSNN", "paper", "Mendes Júnior et al. 2016", _alone(OSNN)),
    Peer("csi", "CSI Seeded-KMeans", "paper", "the paper's supplement", ours.SeededKMeans),
    Peer("msp", "MSP", "paper", "Hendrycks and Gimpel 2017", confidence.MSP),
    Peer("mahalanobis", "Mahalanobis", "paper", "Lee et al. 2018", confidence.Mahalanobis),
    Peer("lh", "LH", "paper", "Lee et al. 2020", confidence.Likelihood),
    Peer("energy", "Energy", "today", "Liu et al. 2020", confidence.Energy),
    Peer(
        "isolation_forest",
        "Isolation forest",
        "today",
        "Liu et al. 2008",
        confidence.IsolationForest,
    ),
    Peer(
        "lof", "Local outlier factor", "today", "Breunig et al. 2000", confidence.LocalOutlierFactor
    ),
    Peer("ecod", "ECOD", "today", "Li et al. 2022", confidence.ECOD),
    Peer("domain_classifier", "Domain classifier", "today", "folklore", ours.DomainClassifier),
    Peer("brodley_friedl", "Label filters", "today", "Brodley, Friedl 1999", ours.LabelFilters),
]

PEERS: dict[str, Peer] = {peer.name: peer for peer in _ALL}

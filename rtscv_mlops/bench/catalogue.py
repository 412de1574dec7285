"""The catalogue of detectors, with the source of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rtscv_mlops.bench import confidence, ours
from rtscv_mlops.bench.detector import Detector, OpenSetClassifier
from rtscv_mlops.bench.machines import EVM, OSNN, PISVM, WSVM, OneVsSet


@dataclass(frozen=True, slots=True)
class Entry:
    """One detector of the comparison.

    `kind`: "ours", "paper" for the detectors that the paper compares with, "today" for those that
    a practitioner would try first. `make` takes the unfitted base model and a seed.
    """

    name: str
    title: str
    kind: Literal["ours", "paper", "today"]
    source: str
    make: Callable[[Any, int], Detector]


def _standalone(classifier: type[OpenSetClassifier]) -> Callable[[Any, int], Detector]:
    """Return a maker that ignores the base model: the detector classifies by itself."""
    return lambda estimator, seed: classifier(seed)


_ALL = [
    Entry("monitor", "RTSCV, monitor", "ours", "this package", ours.MonitorDetector),
    Entry("paper_mode", "RTSCV, as published", "ours", "the paper, Algorithm 1", ours.PaperMode),
    Entry("pre_rectified", "Base model alone", "ours", "the paper, Table 1", ours.PreRectified),
    Entry("evm", "EVM", "paper", "Rudd et al. 2018", _standalone(EVM)),
    Entry("one_vs_set", "1-vs-Set", "paper", "Scheirer et al. 2013", _standalone(OneVsSet)),
    Entry("w_svm", "W-SVM", "paper", "Scheirer et al. 2014", _standalone(WSVM)),
    Entry("pi_svm", "P_I-SVM", "paper", "Jain et al. 2014", _standalone(PISVM)),
    Entry("osnn", "OSNN", "paper", "Mendes Júnior et al. 2016", _standalone(OSNN)),
    Entry("csi", "CSI Seeded-KMeans", "paper", "the paper's supplement", ours.SeededKMeans),
    Entry("msp", "MSP", "paper", "Hendrycks and Gimpel 2017", confidence.MSP),
    Entry("mahalanobis", "Mahalanobis", "paper", "Lee et al. 2018", confidence.Mahalanobis),
    Entry("lh", "LH", "paper", "Lee et al. 2020", confidence.Likelihood),
    Entry("energy", "Energy", "today", "Liu et al. 2020", confidence.Energy),
    Entry(
        "isolation_forest",
        "Isolation forest",
        "today",
        "Liu et al. 2008",
        confidence.IsolationForest,
    ),
    Entry(
        "lof", "Local outlier factor", "today", "Breunig et al. 2000", confidence.LocalOutlierFactor
    ),
    Entry("ecod", "ECOD", "today", "Li et al. 2022", confidence.ECOD),
    Entry("domain_classifier", "Domain classifier", "today", "folklore", ours.DomainClassifier),
    Entry("brodley_friedl", "Label filters", "today", "Brodley, Friedl 1999", ours.LabelFilters),
]

DETECTORS: dict[str, Entry] = {entry.name: entry for entry in _ALL}

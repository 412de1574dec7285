"""What the paper reports, to stand beside what was measured here."""

TABULAR = {  # data set, hidden classes: macro F in percent
    ("letter", 11): {
        "pre_rectified": 69.8, "evm": 89.8, "one_vs_set": 72.8, "w_svm": 91.2, "paper_mode": 92.1,
    },
    ("letter", 16): {
        "pre_rectified": 54.2, "evm": 82.8, "one_vs_set": 56.1, "w_svm": 85.7, "paper_mode": 91.3,
    },
    ("pendigits", 3): {
        "pre_rectified": 78.3, "evm": 97.0, "one_vs_set": 75.4, "w_svm": 93.1, "paper_mode": 97.4,
    },
    ("pendigits", 5): {
        "pre_rectified": 69.5, "evm": 92.9, "one_vs_set": 62.3, "w_svm": 88.4, "paper_mode": 97.2,
    },
    ("coil20", 6): {
        "pre_rectified": 88.4, "evm": 95.7, "one_vs_set": 70.2, "w_svm": 85.6, "paper_mode": 95.1,
    },
    ("coil20", 10): {
        "pre_rectified": 78.7, "evm": 93.2, "one_vs_set": 55.7, "w_svm": 84.5, "paper_mode": 95.3,
    },
    ("mnist", 4): {"pre_rectified": 59.6, "paper_mode": 94.8},
    ("mnist", 6): {"pre_rectified": 41.2, "paper_mode": 96.2},
    ("mnist", 8): {"pre_rectified": 21.4, "paper_mode": 96.8},
}  # fmt: skip

NETWORKS = {  # network, known, unknown: accuracy, detection accuracy, AUROC in percent
    ("ResNet", "CIFAR-10", "SVHN"): {
        "baseline": (93.9, 85.1, 89.9), "odin": (None, 91.1, 96.7),
        "mahalanobis": (93.9, 95.8, 99.1), "rtscv": (95.5, 99.7, 99.9),
    },
    ("ResNet", "CIFAR-10", "Tiny-ImageNet"): {
        "baseline": (93.9, 85.1, 91.0), "odin": (None, 86.5, 94.0),
        "mahalanobis": (93.9, 99.5, 99.5), "rtscv": (95.3, 98.8, 99.9),
    },
    ("DenseNet", "CIFAR-10", "SVHN"): {
        "baseline": (92.9, 83.2, 89.9), "odin": (None, 91.4, 95.5),
        "mahalanobis": (91.7, 93.9, 98.1), "rtscv": (94.8, 98.1, 99.9),
    },
    ("DenseNet", "CIFAR-10", "Tiny-ImageNet"): {
        "baseline": (92.9, 88.5, 94.1), "odin": (None, 93.9, 98.5),
        "mahalanobis": (91.7, 95.0, 98.8), "rtscv": (95.0, 95.2, 99.9),
    },
    ("ResNet", "SVHN", "CIFAR-10"): {
        "baseline": (95.8, 90.0, 92.9), "odin": (None, 89.4, 92.1),
        "mahalanobis": (95.7, 96.9, 99.3), "rtscv": (94.5, 97.9, 99.9),
    },
    ("ResNet", "SVHN", "Tiny-ImageNet"): {
        "baseline": (95.8, 90.4, 93.5), "odin": (None, 89.4, 92.0),
        "mahalanobis": (95.7, 99.1, 99.9), "rtscv": (94.7, 98.4, 99.9),
    },
}  # fmt: skip

ROWS = [
    *(("ResNet", "CIFAR-10", unknown) for unknown in ("SVHN", "Tiny-ImageNet", "CIFAR-100")),
    *(("DenseNet", "CIFAR-10", unknown) for unknown in ("SVHN", "Tiny-ImageNet", "CIFAR-100")),
    *(("ResNet", "SVHN", unknown) for unknown in ("CIFAR-10", "Tiny-ImageNet")),
]
"""Rows of the second table that are measured here: network, known set, unknown set."""

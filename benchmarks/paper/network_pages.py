"""The networks' part of the page: a table per row of the paper's second table, and a plot."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.paper.markdown import table
from benchmarks.paper.published import NETWORKS, ROWS
from benchmarks.verdict.sections import Record

METHODS = {
    "rtscv": "RTSCV, monitor",
    "baseline": "Baseline (MSP)",
    "odin": "ODIN",
    "mahalanobis": "Mahalanobis",
    "energy": "Energy",
    "openmax": "OpenMax",
}
OTHERS = ("baseline", "odin", "mahalanobis")

INTRODUCTION = """\
## Networks: one network, six detectors

Small ResNet and DenseNet (14 and 17 layers), trained by the paper's recipe scaled to two cores: SGD
with Nesterov momentum 0.9, 20 epochs instead of 100, the learning rate halved every 4 epochs
instead of every 20 and started at 0.1 instead of 0.0005, batches of 128, flips and shifts, 9 000
CIFAR-10 images instead of 50 000. Accuracies are therefore far below the paper's, and so are the
figures of every detector: compare methods with each other. RTSCV sees half of the later images as
its window, a third of them unknown, without labels. **All figures are on the other half, which no
method has seen.** Known accuracy counts a known image that RTSCV calls unknown as wrong. For the
others it is the accuracy of the plain network, as in the paper; the next column shows what their
thresholds reject. Thresholds let 95 % of 1 000 held-out known images pass. Baseline, ODIN,
Mahalanobis (last layer), energy and OpenMax come from pytorch-ood. ODIN's step is the one that
gives held-out known images the highest confidence."""

NOT_RUN = """\
Not run: **CROSR** and **C2AE** need their own networks (a ladder of auto-encoders, a decoder
trained per class) and their own training. They are not detectors on a given network. **LSUN** was
not available. **SVHN** and **CIFAR-100** were available as 5 000 images each. SVHN as the known set
has 3 150 of them to learn from. CIFAR-100 would have 32 per class, too few to train a network, and
is used as unknown only."""


def mean_records(records: list[Record]) -> list[Record]:
    """Return one record per row of the table: the mean over its networks, and how many."""
    rows = []
    for _, group in pd.DataFrame(records).groupby(["net", "known", "unknown"], sort=False):
        mean = group.select_dtypes("number").mean().to_dict()
        verdicts = ", ".join(sorted(set(group["verdict"])))
        rows.append(group.iloc[0].to_dict() | mean | {"verdict": verdicts, "nets": len(group)})
    return sorted(rows, key=lambda row: (row["known"], row["net"] != "ResNet"))


def describe_networks(records: list[Record]) -> Iterator[str]:
    """Yield the section's blocks."""
    records = mean_records(records)
    yield INTRODUCTION
    yield "![AUROC of every detector](images/paper-networks.png)"
    for record in records:
        yield f"### {record['net']}: {record['known']} known, {record['unknown']} unknown"
        yield _read(record)
        yield table(
            (
                *("method", "known accuracy", "known images called unknown"),
                *("unknown images found (detection accuracy)", "AUROC"),
                "in the paper: accuracy / detection / AUROC",
            ),
            [
                *(_line(record, method) for method in METHODS),
                *((name, "not run: see below", "", "", "", "") for name in ("CROSR", "C2AE")),
            ],
        )
    yield " ".join([NOT_RUN, *_missing(records)])


def _missing(records: list[Record]) -> Iterator[str]:
    """Name the rows that the plan has and the records have not."""
    measured = [(record["net"], record["known"], record["unknown"]) for record in records]
    rows = [f"{net} on {known} against {unknown}" for net, known, unknown in ROWS
            if (net, known, unknown) not in measured]  # fmt: skip
    if rows:
        yield f"Planned and not measured yet: {', '.join(rows)}."


def _line(record: Record, method: str) -> tuple[str, ...]:
    row = (record["net"], record["known"], record["unknown"])
    published = NETWORKS.get(row, {}).get(method)
    title = METHODS[method]
    figures = [
        f"{100 * record[f'{name}_{method}']:.1f}" for name in ("rejected", "detected", "auroc")
    ]
    return (
        f"**{title}**" if method == "rtscv" else title,
        f"{100 * record[f'accuracy_{method}']:.1f}",
        *figures,
        " / ".join("-" if one is None else str(one) for one in published) if published else "",
    )


def _read(record: Record) -> str:
    """Return whether RTSCV leads the paper's other detectors, and its cost on known images."""
    sentences = []
    for figure, name in (("auroc", "AUROC"), ("detected", "Detection accuracy")):
        ours = 100 * record[f"{figure}_rtscv"]
        best = max(OTHERS, key=lambda method: record[f"{figure}_{method}"])
        theirs = 100 * record[f"{figure}_{best}"]
        where = "above" if ours > theirs else "NOT above"
        sentences.append(
            f"{name} {ours:.1f}, {where} the best of Baseline, ODIN and Mahalanobis "
            f"({METHODS[best]}, {theirs:.1f})."
        )
    nets = "One network" if record["nets"] == 1 else f"Mean of {record['nets']} networks"
    return (
        f"{nets}. RTSCV: {' '.join(sentences)} {_read_cost(record)} "
        f"Verdict: {record['verdict']}, {100 * record['unknown_rate']:.0f} % unknown estimated, "
        f"{100 * record['true_rate']:.0f} % true."
    )


def _read_cost(record: Record) -> str:
    """Return what known images lose; what their rejection does not explain is another training."""
    cost = 100 * (record["accuracy_plain"] - record["accuracy_rtscv"])
    rejected = 100 * record["rejected_rtscv"]
    said = f"Known accuracy {abs(cost):.1f} points {'below' if cost > 0 else 'above'} the plain "
    said += "network's" + (", more than the one point aimed at" if cost > 1 else "")
    if abs(cost) > rejected + 0.5:
        said += (
            f"; {rejected:.1f} % of known images are called unknown, and the rest of the "
            "difference is that between two trainings"
        )
    return f"{said}."


def draw_networks(records: list[Record], path: Path) -> None:
    """Draw the AUROC of every detector, a group of bars per row of the table."""
    records = mean_records(records)
    figure, axis = plt.subplots(figsize=(9.5, 3.8), layout="constrained")
    width = 0.8 / len(METHODS)
    colours = plt.get_cmap("tab10").colors
    for number, (method, title) in enumerate(METHODS.items()):
        heights = [100 * record[f"auroc_{method}"] for record in records]
        places = np.arange(len(records)) + (number - len(METHODS) / 2 + 0.5) * width
        axis.bar(places, heights, width, label=title, color=colours[number])
    names = [f"{one['net']}\n{one['known']}\nvs {one['unknown']}" for one in records]
    axis.set_xticks(range(len(records)), names, fontsize=7.5)
    axis.set_ylim(40, 101)
    axis.set_ylabel("AUROC, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, ncols=len(METHODS), loc="upper center", bbox_to_anchor=(0.5, 1.14),
                frameon=False)  # fmt: skip
    figure.savefig(path, dpi=110)
    plt.close(figure)

"""The facts about one window: report, metrics, description, alert and console all render these.

Knows numbers and words; knows nothing of pages, registries or models.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from rtscv_mlops.outcomes import Verdict

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class Facts(BaseModel):
    """Frozen; as JSON it is what `verdict.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnDrift(Facts):
    """How far one column moved; `problem` says why it could not be compared."""

    name: str
    kind: Literal["number", "category"]
    method: str = ""
    score: float | None = None
    threshold: float | None = None
    drifted: bool = False
    problem: str = ""


class DriftFacts(Facts):
    """Drift by column, most drifted first; `share` is of the columns that could be compared."""

    share: float | None
    columns: tuple[ColumnDrift, ...] = ()
    window_rows: int = 0
    reference_rows: int = 0
    tested_rows: int = 0
    """Rows of the window that tests saw, where distances are of more."""

    @property
    def drifted(self) -> int:
        return sum(column.drifted for column in self.columns)


class TellingFeature(Facts):
    """A feature that tells a cluster from the known rows that look most like it.

    For numbers `here` and `known` are means, and `effect` is their distance in standard
    deviations; for categories they are the commonest value with its share, and `effect` is the
    difference of that share.
    """

    name: str
    here: str
    known: str
    effect: float


class ClusterCard(Facts):
    """One candidate class among the unknowns, as a person should look at it."""

    number: int
    size: int
    share: float
    """Of the extracted rows."""
    quality: float | None
    called: dict[str, float]
    """What the champion called these rows: label and share, commonest first."""
    confidence: float | None
    """Median of the champion's highest probability; None where it gives none."""
    features: tuple[TellingFeature, ...] = ()
    exemplars: tuple[dict[str, Any], ...] = ()
    """Typical rows, allowed columns only."""


class ClassComparison(Facts):
    """Recall of one known class on held-out known rows."""

    label: str
    rows: int
    champion: float
    challenger: float
    unknown: float
    """Share of the class that the challenger calls unknown."""

    @property
    def loss(self) -> float:
        return self.champion - self.challenger


class Comparison(Facts):
    """Champion against challenger on held-out known rows."""

    how: str
    rows: int
    champion_accuracy: float
    challenger_accuracy: float
    champion_macro_f: float
    challenger_macro_f: float
    classes: tuple[ClassComparison, ...]


class CanaryFacts(Facts):
    """A known class that was hidden and planted into the window, and whether it was found."""

    label: str
    planted: int
    found: bool
    recall: float
    """Share of the planted rows that were extracted."""
    p_value: float


class WindowFacts(Facts):
    """What one window showed.

    `verdict` is the value of a `Verdict`, with the reason behind it if it was not assessed.
    Nothing in here depends on when or where it was computed, apart from `timings`.
    """

    schema_version: Literal[1] = 1
    key: str
    monitor: str
    model: str
    champion_version: str
    window_start: datetime
    window_end: datetime
    verdict: str
    headline: str
    """One sentence for people."""
    rows: int = 0
    sampled: int = 0
    copies: int = 0
    digest: str = ""
    p_value: float | None = None
    unknowns: int = 0
    unknown_rate: float | None = None
    unknown_rate_interval: tuple[float, float] | None = None
    known_false_rate: float | None = None
    unknown_label: str | None = None
    null: str = ""
    """What the window was compared with, in words."""
    reference_rows: int = 0
    clusters: tuple[ClusterCard, ...] = ()
    drift: DriftFacts | None = None
    comparison: Comparison | None = None
    copies_share: float | None = None
    """Of the rows looked at: those that differ from another one in nothing but their time."""
    unknown_hour_share: float | None = None
    """Of the unknown rows: those of the one hour that has most of them."""
    unknown_origin_share: float | None = None
    """Of the unknown rows: those from the one origin that has most of them."""
    canary: CanaryFacts | None = None
    blocked: str = ""
    """Why the challenger may not be approved; empty if it may."""
    findings: tuple[str, ...] = ()
    """What was odd but could be handled, in sentences."""
    settings: dict[str, Any] = {}
    timings: dict[str, float] = {}

    @property
    def assessed(self) -> bool:
        return Verdict.of(self.verdict).is_assessed

    @property
    def detected(self) -> bool:
        return Verdict.of(self.verdict).claims_unknowns

    def metrics(self) -> dict[str, float]:
        """Return the numbers that MLflow plots over time; what was not assessed has none."""
        numbers: dict[str, float | None] = {
            "window_rows": self.rows,
            "sampled_rows": self.sampled,
            "window_copies": self.copies,
            "unknowns": self.unknowns if self.assessed else None,
            "unknown_rate": self.unknown_rate,
            "known_false_rate": self.known_false_rate,
            "p_value": self.p_value,
            "clusters": len(self.clusters) if self.assessed else None,
            "drift_share": self.drift.share if self.drift else None,
            "copies_share": self.copies_share,
            "unknown_hour_share": self.unknown_hour_share,
            "unknown_origin_share": self.unknown_origin_share,
            "canary_found": self.canary.found if self.canary else None,
            "canary_recall": self.canary.recall if self.canary else None,
        }
        if self.unknown_rate_interval:
            numbers["unknown_rate_low"], numbers["unknown_rate_high"] = self.unknown_rate_interval
        numbers |= {f"cluster_{card.number}_rows": card.size for card in self.clusters}
        numbers |= {f"seconds_{stage}": seconds for stage, seconds in self.timings.items()}
        if self.comparison:
            for name in ("accuracy", "macro_f"):
                for model in ("champion", "challenger"):
                    numbers[f"{model}_{name}"] = getattr(self.comparison, f"{model}_{name}")
        return {name: float(value) for name, value in numbers.items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The rows and scores behind the facts, as far as a report may draw them; never stored whole.

    `window` and `reference` have the same columns, each spread as in all rows where those are more
    than are looked at one by one. `unknown` marks the rows that were looked at. Scores are
    in [0, 1], made by models that had not seen the row, and 0.5 is where extraction began. Points
    are a projection to the plane of some reference rows (`reference_points`, with `point_labels`)
    and of all window rows.
    """

    window: "pd.DataFrame"
    reference: "pd.DataFrame"
    unknown: "NDArray[Any]"
    window_scores: "NDArray[Any]"
    known_scores: "NDArray[Any]"
    window_points: "NDArray[Any]"
    reference_points: "NDArray[Any]"
    point_labels: "NDArray[Any]"
    counted: tuple[int, int] = (0, 0)
    """Rows that `window` and `reference` stand for; 0 if for no more than they have."""

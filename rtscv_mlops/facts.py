"""The facts about one window: report, metrics, description, alert and console all render these."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import CoreSchema, core_schema

from rtscv_mlops.outcomes import Verdict

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class FindingCode(StrEnum):
    """What a finding is about."""

    BASELINE_DIFFERS = auto()
    BASELINE_OVERLAPS = auto()
    BOOLEAN_LABELS = auto()
    CANARY_MISSED = auto()
    CANARY_NOT_PLANTED = auto()
    CHALLENGER_UNUSABLE = auto()
    CHAMPION = auto()
    CLOCK = auto()
    COMPUTE = auto()
    COPIES = auto()
    DECISION_RECORD = auto()
    FEW_KNOWN_ROWS = auto()
    NEAR_COPIES = auto()
    NOT_CONVERGED = auto()
    NOT_REPEATABLE = auto()
    NO_SINGLE_ROW = auto()
    ONE_HOUR = auto()
    ONE_ORIGIN = auto()
    REPORT_MISSING = auto()
    SETTINGS_CHANGED = auto()
    SOURCE = auto()
    STORED = auto()
    """Read back from a file, which holds the text only."""
    TRAINING_DATA = auto()
    TRAINING_NOT_KEPT = auto()
    TRAINING_ROWS = auto()
    UNSTABLE_LEARNER = auto()
    VOLUME = auto()


class Finding(str):
    """Something unusual that did not stop the window: text for people, a code for programs.

    It is stored and shown as its text; the code is not stored.
    """

    code: FindingCode

    def __new__(cls, code: FindingCode, text: str) -> Self:
        finding = super().__new__(cls, text)
        finding.code = code
        return finding

    def __getnewargs__(self) -> tuple[FindingCode, str]:  # type: ignore[override]
        return self.code, str(self)

    @classmethod
    def all_of(cls, code: FindingCode, texts: Iterable[str]) -> tuple[Self, ...]:
        """Return texts as findings; one that has a code keeps it."""
        return tuple(text if isinstance(text, cls) else cls(code, text) for text in texts)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        def validate(value: object) -> Finding:
            if not isinstance(value, str):
                raise ValueError("a finding must be text")
            return cls.all_of(FindingCode.STORED, [value])[0]

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.to_string_ser_schema()
        )


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
    """Rows of the window that tests were made on, if distances were measured on more."""

    @property
    def drifted(self) -> int:
        return sum(column.drifted for column in self.columns)


class TellingFeature(Facts):
    """A feature that separates a cluster from the known rows that look most like it.

    For numbers, `here` and `known` are means, and `effect` is their distance in standard
    deviations. For categories, they are the most frequent value with its share, and `effect` is
    the difference of that share.
    """

    name: str
    here: str
    known: str
    effect: float


class ClusterCard(Facts):
    """One candidate class among the unknown rows, described for a reviewer."""

    number: int
    size: int
    share: float
    """Of the extracted rows."""
    quality: float | None
    called: dict[str, float]
    """What the champion called these rows: label and share, most frequent first."""
    confidence: float | None
    """Median of the champion's highest probability; None if it gives none."""
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
    loss_interval: tuple[float, float] | None = None
    """Where the loss lies, in nine of ten cases: by rows paired and by refits compared."""
    taught_loss: float | None = None
    """Loss on rows that both models were fitted on; None if held-out rows judged the models."""

    @property
    def loss(self) -> float:
        return self.champion - self.challenger


class GroupComparison(Facts):
    """Recall of rows of one known class that lie close together, the group that loses most."""

    label: str
    rows: int
    champion: float
    challenger: float

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
    groups: tuple[GroupComparison, ...] = ()
    """Groups inside classes that lose most of their rows, the largest loss first."""
    unstable: str = ""
    """How far refits of the challenger differ from each other; empty if no more than by chance."""


class CanaryFacts(Facts):
    """A known class that was hidden and planted into the window, and whether it was found."""

    label: str
    planted: int
    found: bool
    recall: float
    """Share of the planted rows that were extracted."""
    p_value: float


SETTING_TITLES = {
    "alpha": "level of the test",
    "gate": "what scores rows",
    "cv": "folds (k)",
    "sample_rate": "weight of the window (c)",
    "seed": "seed",
    "max_rows": "most rows looked at",
    "known_rows": "training rows compared",
    "null_rows": "rows of the null",
    "window_rows": "window rows compared",
    "class_shift": "class shares over training",
    "looks_like": "unknown rows look like",
}
"""How people read the keys of `WindowFacts.settings`. Schema 1 stored these titles as keys."""
SHOWN_CLASSES = 6


def _by_class(numbers: Mapping[str, float]) -> str:
    """Return the largest numbers, each with its class, without zeros."""
    items = sorted((item for item in numbers.items() if item[1]), key=lambda item: -item[1])
    shown = [f"{label} {value:.3g}" for label, value in items[:SHOWN_CLASSES]]
    return ", ".join([*shown, "…"] if items[SHOWN_CLASSES:] else shown)


class AssessmentFacts(Facts):
    """What the test showed, and what the window was compared with."""

    verdict: str
    headline: str
    p_value: float
    unknowns: int
    unknown_rate: float
    unknown_rate_interval: tuple[float, float]
    known_false_rate: float
    unknown_label: str
    null: str
    reference_rows: int
    settings: dict[str, Any]


class CandidateFacts(Facts):
    """One way to answer unknown: the champion refitted with one class more, or behind a gate."""

    kind: Literal["refit", "gated"]
    found: float | None = None
    """Share of extracted rows, held out from its fit, that it calls unknown."""
    tested: int = 0
    """How many rows that is measured on."""
    worst_loss: float = 0.0
    """Largest loss of recall of a known class."""
    blocked: str = ""


class OfferFacts(CandidateFacts):
    """The candidate that is offered, why it is, and the other one if there was one."""

    why: str = ""
    other: CandidateFacts | None = None


class ChallengerFacts(Facts):
    """The unknown rows by candidate class, and the model that was taught them."""

    clusters: tuple[ClusterCard, ...]
    comparison: Comparison | None
    challenger: OfferFacts | None
    blocked: str


class TrafficFacts(Facts):
    """How the rows are spread over copies, hours and origins."""

    copies_share: float
    unknown_hour_share: float | None
    unknown_origin_share: float | None


OF_UNJUDGED = (
    *("key", "monitor", "model", "champion_version", "window_start", "window_end"),
    *("rows", "sampled", "copies", "digest", "findings", "timings"),
)
"""The facts that hold whether or not a window could be judged."""
OPEN_INTERVAL = 0.99
"""Width from which on the interval of a share excludes nothing."""
UNUSABLE = "The challenger cannot be used, and is not offered: "
"""How the finding begins that says why."""


class WindowFacts(Facts):
    """What one window showed.

    Nothing in here depends on when or where it was computed, apart from `timings`. A share or
    rate is a fraction of 1. `None` means that a number was not measured.

    Attributes
    ----------
    schema_version : int
        Version of the JSON format. Older files are upgraded when they are read.
    key : str
        Identifies everything that decides the result: rows, champion and settings.
    monitor, model, champion_version : str
        The monitor, its registered model, and the version that served as champion.
    window_start, window_end : datetime
        The interval `[start, end)` in UTC.
    verdict : str
        Value of a `Verdict`; `not_assessed:<code>` if the window was not assessed.
    headline : str
        The verdict as one sentence for people.
    rows, sampled, copies : int
        Rows in the window, rows in the sample, and rows that repeat another row.
    digest : str
        Digest of all rows.
    p_value : float or None
        How likely such a window is if nothing in it is new.
    unknowns : int
        Rows that were extracted as unknown.
    unknown_rate, unknown_rate_interval : float and (float, float), or None
        Estimated share of unknown rows, with its interval.
    known_false_rate : float or None
        Estimated share of known rows among the extracted ones.
    unknown_label : str or None
        How the challenger calls unknown rows.
    null : str
        Describes what the window was compared with.
    reference_rows : int
        Training rows.
    clusters : tuple of ClusterCard
        Candidate classes among the unknown rows.
    drift : DriftFacts or None
        Drift by column; added by the report.
    comparison : Comparison or None
        Champion against challenger; None if there is no challenger.
    challenger : OfferFacts or None
        Which kind of challenger is offered, and why; None if there is none.
    copies_share : float or None
        Share of the sampled rows that differ from another one only in their time.
    unknown_hour_share, unknown_origin_share : float or None
        Share of the unknown rows from the one hour, or origin, that has most of them.
    canary : CanaryFacts or None
        What became of the planted class, if the monitor plants one.
    blocked : str
        Why the challenger may not be approved; empty if it may.
    model_id, model_sha256 : str
        The challenger in MLflow, and the digest of its files; empty if there is none.
    findings : tuple of Finding
        What was unusual but did not stop the window.
    settings : dict
        How the result was obtained. `SETTING_TITLES` has the titles of the keys.
    timings : dict
        Seconds by part of the work.
    """

    schema_version: Literal[3] = 3
    key: str
    monitor: str
    model: str
    champion_version: str
    window_start: datetime
    window_end: datetime
    verdict: str
    headline: str
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
    reference_rows: int = 0
    clusters: tuple[ClusterCard, ...] = ()
    drift: DriftFacts | None = None
    comparison: Comparison | None = None
    challenger: OfferFacts | None = None
    copies_share: float | None = None
    unknown_hour_share: float | None = None
    unknown_origin_share: float | None = None
    canary: CanaryFacts | None = None
    blocked: str = ""
    model_id: str = ""
    model_sha256: str = ""
    findings: tuple[Finding, ...] = ()
    settings: dict[str, Any] = {}
    timings: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, stored: Any) -> Any:
        """Read older files.

        Schema 1 has titles as the keys of its settings, and numbers as text. Before schema 3 every
        challenger was a refit.
        """
        if not isinstance(stored, Mapping) or stored.get("schema_version") not in (1, 2):
            return stored
        upgraded = {**stored, "schema_version": 3}
        if stored["schema_version"] == 1:
            keys = {title: key for key, title in SETTING_TITLES.items()}
            settings = stored["settings"].items()
            upgraded["settings"] = {keys.get(name, name): value for name, value in settings}
        if stored.get("comparison"):
            upgraded["challenger"] = {"kind": "refit", "blocked": stored.get("blocked", "")}
        return upgraded

    def judged(
        self,
        *parts: AssessmentFacts | ChallengerFacts | TrafficFacts,
        canary: CanaryFacts | None,
        findings: Sequence[Finding],
        timings: Mapping[str, float],
    ) -> Self:
        """Return the facts of a window that was judged, made of its parts."""
        fields = {name: value for part in parts for name, value in part}
        return self._with(
            **fields,
            canary=canary,
            findings=tuple(findings),
            timings=dict(timings),
        )

    def unassessed(self, code: str, headline: str) -> Self:
        """Return the facts of a window that could not be judged, and why.

        What an unfinished judgement found is left out: it says nothing about the traffic.
        """
        return type(self)(
            **{name: getattr(self, name) for name in OF_UNJUDGED},
            verdict=Verdict.unassessed(code),
            headline=headline,
        )

    def with_drift(self, drift: DriftFacts) -> Self:
        """Return the facts with the drift by column."""
        return self._with(drift=drift)

    def with_model(self, model_id: str, model_sha256: str) -> Self:
        """Return the facts with the challenger that was saved."""
        return self._with(model_id=model_id, model_sha256=model_sha256)

    def with_findings(self, before: Sequence[Finding] = (), after: Sequence[Finding] = ()) -> Self:
        """Return the facts with findings before and after those they have."""
        return self._with(findings=(*before, *self.findings, *after))

    def without_findings(self, opening: str) -> Self:
        """Return the facts without the findings that begin with these words."""
        return self._with(findings=tuple(f for f in self.findings if not f.startswith(opening)))

    def without_exemplars(self) -> Self:
        """Return the facts without the rows that cluster cards show."""
        cards = [ClusterCard(**(dict(card) | {"exemplars": ()})) for card in self.clusters]
        return self._with(clusters=tuple(cards))

    def _with(self, **changes: Any) -> Self:
        # By the constructor, because model_copy(update=...) validates nothing.
        return type(self)(**(dict(self) | changes))

    def shown_settings(self) -> dict[str, Any]:
        """Return the settings under the titles that people read; numbers by class as text."""
        shown = {}
        for key, value in self.settings.items():
            is_by_class = key in ("class_shift", "looks_like") and isinstance(value, Mapping)
            shown[SETTING_TITLES.get(key, key)] = _by_class(value) if is_by_class else value
        return shown

    @property
    def assessed(self) -> bool:
        return Verdict.of(self.verdict).is_assessed

    @property
    def detected(self) -> bool:
        return Verdict.of(self.verdict).claims_unknowns

    @property
    def told_rate(self) -> float | None:
        """The unknown rate, or None where it says nothing: behind drift, or from 0 to 100 %."""
        limits = self.unknown_rate_interval
        is_open = limits is not None and limits[1] - limits[0] >= OPEN_INTERVAL
        is_told = Verdict.of(self.verdict).tells_share and not is_open
        return self.unknown_rate if is_told else None

    @property
    def told_interval(self) -> tuple[float, float] | None:
        """The interval of the unknown rate, or None where the rate says nothing."""
        return None if self.told_rate is None else self.unknown_rate_interval

    @property
    def told_false_rate(self) -> float | None:
        """The share of known rows called unknown, or None if no row is called unknown."""
        return self.known_false_rate if self.detected else None

    @property
    def unusable(self) -> str:
        """Why the challenger cannot be used; empty if it can, or if there is none."""
        return next((each for each in self.findings if each.startswith(UNUSABLE)), "")

    def metrics(self) -> dict[str, float]:
        """Return the numbers that MLflow plots over time, without those that say nothing."""
        # The alert rule compares the rate of windows with unknowns, however wide its interval.
        has_rate = self.detected or self.told_rate is not None
        numbers: dict[str, float | None] = {
            "window_rows": self.rows,
            "sampled_rows": self.sampled,
            "window_copies": self.copies,
            "unknowns": self.unknowns if self.assessed else None,
            "unknown_rate": self.unknown_rate if has_rate else None,
            "known_false_rate": self.told_false_rate,
            "p_value": self.p_value,
            "clusters": len(self.clusters) if self.assessed else None,
            "drift_share": self.drift.share if self.drift else None,
            "copies_share": self.copies_share,
            "unknown_hour_share": self.unknown_hour_share,
            "unknown_origin_share": self.unknown_origin_share,
            "canary_found": self.canary.found if self.canary else None,
            "canary_recall": self.canary.recall if self.canary else None,
        }
        if self.unknown_rate_interval and has_rate:
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
    """The rows and scores behind the facts, as far as a report may draw them.

    `window` and `reference` have the same columns. If there are more rows than the sample has,
    they are spread as all rows are. `unknown` marks rows of the sample. Scores are in [0, 1], made
    by models that had not seen the row; extraction began at 0.5. Points are a projection to the
    plane of some reference rows (`reference_points`, with `point_labels`) and of all window rows.
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
    """Rows that `window` and `reference` represent; 0 if no more than they have."""

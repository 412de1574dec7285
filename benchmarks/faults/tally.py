"""What an experiment found: how often a promise was tried, and how often it did not hold."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from scipy.stats import beta

RESULTS = Path(__file__).parents[1] / "results" / "faults.json"


@dataclass(frozen=True, slots=True)
class Tally:
    """One row of the table; `told` says what failed, or what was measured besides.

    `promise` is a key of `PROMISES`; `what` says in one line what a trial is.
    """

    promise: str
    what: str
    trials: int
    failures: int
    told: str = ""

    @property
    def upper_bound(self) -> float:
        """The largest rate of failure that the trials leave possible, at 95 % (one-sided)."""
        if self.failures >= self.trials:
            return 1.0
        return float(beta.ppf(0.95, self.failures + 1, self.trials - self.failures))


PROMISES = {
    "outcome": "Every window ends in one recorded outcome, even after a kill",
    "answers": "A lost response from MLflow has one effect; waiting for an outage is bounded",
    "rivals": "Of several concurrent processes, one wins",
    "humans": "One decision, no matter who answers where",
    "input": "Bad input gets its outcome and an explanation",
    "hostile": "Text from data stays text",
    "secrets": "No secret or private column leaks",
    "models": "Only permitted models are loaded",
    "audit": "The record of decisions agrees with the registry, and an edit is found",
    "poisoning": "Signs of poisoning are shown, and a canary is still found",
    "challengers": "A challenger that is offered does not hurt, and what is said of it is true",
    "time": "Windows have no gaps and no overlaps",
    "false alarms": "False alarms are as rare as the level that was set",
    "soak": "It runs for hours without growing or hanging",
}


class Store:
    """The tallies of each experiment, in one JSON file."""

    def __init__(self, path: Path = RESULTS) -> None:
        self.path = path
        self.records = self._read()

    def keep(self, experiment: str, tallies: Iterable[Tally], seconds: float) -> None:
        """Write what an experiment found, in place of what it found before."""
        rows = [asdict(tally) for tally in tallies]
        self.records = self._read()  # another experiment may have ended since
        self.records[experiment] = {"seconds": round(seconds), "tallies": rows}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.records, indent=1, ensure_ascii=False) + "\n")

    def tallies(self) -> list[Tally]:
        """Return all tallies, in the order of the promises."""
        rows = [Tally(**row) for record in self.records.values() for row in record["tallies"]]
        return sorted(rows, key=lambda tally: list(PROMISES).index(tally.promise))

    def _read(self) -> dict[str, dict]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

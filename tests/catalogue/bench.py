"""Where a row of the catalogue is tried: one MLflow, champions in it, and a folder of the row's.

Whatever a row does, the bench sees to what holds in every row: the inputs stay as they were, the
champion stays where it was, and a window that was run has exactly one recorded outcome.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rtscv_mlops import log_champion
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import RtscvError, ServiceError
from rtscv_mlops.judging.judge import Rectification
from rtscv_mlops.models.load import Champion, load_champion
from rtscv_mlops.pipeline import stages
from rtscv_mlops.pipeline.run import Outcome, run_window
from rtscv_mlops.pipeline.stages import WindowContext, rectify_window, take_window
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary
from rtscv_mlops.window import Interval

DAY = Interval.day("2026-01-05")
CENTRES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [9.0, 9.0]])
"""Where rows of each class lie; the last is the class that no champion is taught."""

MIXED, GAPS, STRICT = "mixed", "gaps", "strict"
"""Champions: one with columns of every kind, one that takes missing values, and one whose encoder
refuses a category that it was not taught."""

NUMBERS = ["height", "width", "visits"]


def shapes(rows: int, new: int = 0, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Rows of three classes, and `new` of a fourth one; columns of every kind."""
    rng = np.random.default_rng([seed, rows, new])
    kinds = np.append(np.arange(rows - new) % 3, np.full(new, 3))
    places = CENTRES[kinds] + rng.normal(size=(rows, 2))
    frame = pd.DataFrame(
        {
            "height": places[:, 0],
            "width": places[:, 1],
            "visits": rng.integers(0, 9, rows),
            "member": rng.random(rows) < 0.5,
            "country": rng.choice(["CH", "NA", "007"], rows),
        }
    )
    return frame, np.array(["ape", "bee", "cat", "dog"])[kinds]


def traffic(rows: int = 60, new: int = 0, day: str = "2026-01-05", seed: int = 1) -> pd.DataFrame:
    """Rows as they were served within a day."""
    frame, _ = shapes(rows, new, seed)
    frame.insert(0, "served_at", moments(rows, day))
    return frame


def moments(rows: int, day: str = "2026-01-05") -> Any:
    start = pd.Timestamp(day, tz="UTC")
    seconds = np.linspace(0, 86_000, rows).round()
    return (start + pd.to_timedelta(seconds, unit="s")).as_unit("us")


def add_champions(client: MlflowClient) -> None:
    """Register the champions that rows share."""
    X, y = shapes(150)
    columns = make_column_transformer(
        (StandardScaler(), NUMBERS),
        (OneHotEncoder(handle_unknown="ignore"), ["country"]),
        ("passthrough", ["member"]),
    )
    strict = make_column_transformer((OneHotEncoder(), ["country"]), remainder="passthrough")
    models = {
        MIXED: (make_pipeline(columns, LogisticRegression()), X),
        GAPS: (make_pipeline(SimpleImputer(), GaussianNB()), X[NUMBERS]),
        STRICT: (
            make_pipeline(strict, LogisticRegression(max_iter=1000)),
            X[["height", "width", "country"]],
        ),
    }
    for name, (model, rows) in models.items():
        log_champion(model.fit(rows, y), rows, y, name=name, tracking_uri=client.tracking_uri)


def merged(settings: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Put settings over settings, section by section."""
    both = {**settings, **more}
    for name in settings.keys() & more.keys():
        if isinstance(settings[name], dict):
            both[name] = {**settings[name], **more[name]}
    return both


@dataclass
class Bench:
    """One row's place: `folder` is its own, and `name` is what its monitor is called."""

    client: MlflowClient
    folder: Path
    name: str
    patch: pytest.MonkeyPatch
    model: str = MIXED
    settings: dict[str, Any] = field(default_factory=dict)
    runs: int = 1
    """Outcomes that the row's windows must leave."""
    watched: str = ""
    """The model of the last monitor."""

    @property
    def source(self) -> Path:
        (self.folder / "windows").mkdir(exist_ok=True)
        return self.folder / "windows"

    @property
    def artifacts(self) -> Path:
        """A folder beside the row's own, for what is no input."""
        folder = self.folder.with_name(f"{self.folder.name}-artifacts")
        folder.mkdir(exist_ok=True)
        return folder

    def put(self, content: pd.DataFrame | str | bytes, file: str = "a.parquet") -> Path:
        """Write a file of the source."""
        path = self.source / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pd.DataFrame):
            csv = path.suffix == ".csv"
            content.to_csv(path, index=False) if csv else content.to_parquet(path, index=False)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def log_champion(self, model: Any, X: Any, y: Any, **given: Any) -> None:
        """Register a champion for this row only."""
        uri = self.client.tracking_uri
        log_champion(model.fit(X, y), X, y, name=self.name, tracking_uri=uri, **given)
        self.model = self.name

    def monitor(self, **settings: Any) -> Monitor:
        """The row's monitor; settings of a section are put over those it has."""
        given: dict[str, Any] = {
            "name": self.name,
            "model": {"name": self.model, "tracking_uri": self.client.tracking_uri},
            "source": {"path": str(self.source), "timestamp": "served_at"},
            "alert": {"on": []},
        }
        monitor = Monitor.model_validate(merged(merged(given, self.settings), settings))
        self.watched = monitor.model.name
        return monitor

    # -- what is done to a window

    def judge(self, interval: Interval = DAY, *, report: bool = False, **settings: Any) -> Outcome:
        """Run a window to its end; the page, which takes longest, is drawn only if asked for."""
        if not report:
            self.patch.setattr(stages, "write_report", lambda monitor, run, facts, _: facts)
        monitor = self.monitor(**settings)
        with self.untouched(monitor):
            outcome = run_window(monitor, interval)
        recorded = {one.run_id: one for one in self.outcomes(interval)}
        assert len(recorded) == self.runs
        ours = recorded[outcome.run_id]
        assert ours.verdict == outcome.facts.verdict
        reason = outcome.facts.verdict.partition(":")[2]
        assert ours.state == ("complete" if outcome.facts.assessed else f"failed:{reason}")
        return outcome

    def refused(self, code: str, says: str, interval: Interval = DAY, **settings: Any) -> Outcome:
        """Run a window that is not assessed, for this reason and in these words."""
        outcome = self.judge(interval, **settings)
        assert outcome.facts.verdict == f"not_assessed:{code}"
        assert_says(says, outcome.facts.headline)
        assert outcome.version is None
        return outcome

    def retried(self, code: str, says: str, tell: Any = str, **settings: Any) -> None:
        """Run a window that fails in a way that may pass; who runs it is told to try again."""
        monitor = self.monitor(**settings)
        with pytest.raises(ServiceError) as failure:
            run_window(monitor, DAY, tell)
        assert failure.value.code == code
        assert_says(says, str(failure.value))
        (recorded,) = self.outcomes(DAY)
        assert (recorded.verdict, recorded.state) == (f"not_assessed:{code}", f"failed:{code}")

    def loaded_champion(self, **settings: Any) -> Champion:
        """Load the champion, without a look at its training data or at a window."""
        model = self.monitor(**settings).model
        return load_champion(connect(model), model)

    def taken(
        self, says: str = "", interval: Interval = DAY, *, rows: int = 60, **settings: Any
    ) -> WindowContext:
        """Take a window that can be judged; what is odd about it is said."""
        monitor = self.monitor(**settings)
        with self.untouched(monitor):
            taken = take_window(monitor, interval)
        assert taken.window.rows == rows
        if says:
            assert_says(says, " ".join(taken.window.findings))
        return taken

    def rectified(self, says: str = "", **settings: Any) -> Rectification:
        """Take a window as far as its verdict."""
        monitor = self.monitor(**settings)
        with self.untouched(monitor):
            done = rectify_window(take_window(monitor, DAY))
        if says:
            assert_says(says, " ".join(done.facts.findings))
        return done

    # -- what holds in every row

    @contextmanager
    def untouched(self, monitor: Monitor) -> Iterator[None]:
        """See that neither the inputs nor the champion are changed."""
        before = fingerprint(self.folder), self.champion(monitor)
        yield
        assert (fingerprint(self.folder), self.champion(monitor)) == before

    def champion(self, monitor: Monitor) -> str | None:
        try:
            aliases = self.client.get_registered_model(monitor.model.name).aliases
        except MlflowException:
            return None
        return str(aliases.get(monitor.model.alias))

    def outcomes(self, interval: Interval) -> list[RunSummary]:
        """What is recorded of a window of the row's monitor."""
        return ModelRegistry(self.client, self.watched).runs.find(
            monitor=self.name, window=interval.id
        )


def fingerprint(folder: Path) -> str:
    """A digest of every file below a folder: its name, its content and its time."""
    digest = sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path}{path.stat().st_mtime_ns}".encode() + path.read_bytes())
    return digest.hexdigest()


def assert_says(pattern: str, text: str) -> None:
    """See that a sentence holds what it must, and is one that a person can read."""
    assert re.search(pattern, text, flags=re.DOTALL), f"{pattern!r} is not in {text!r}"
    assert "Traceback" not in text
    assert len(text) < 2_000


@contextmanager
def error_of(kind: type[RtscvError], code: str, says: str) -> Iterator[None]:
    """Expect an error of ours, with its code and words."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code
    assert_says(says, str(caught.value))


Act = Callable[[Bench], object]


@dataclass(frozen=True)
class Row:
    """One row of the catalogue, or one of the inputs that a row names."""

    number: int
    name: str
    act: Act

    @property
    def id(self) -> str:
        return f"{part_of(self.number)}{self.number:02d}-{self.name}"


STARTS = {"A": 1, "B": 16, "C": 40, "D": 67, "E": 83, "F": 101}


def part_of(number: int) -> str:
    """The letter of the part that a row is in."""
    return max(letter for letter, first in STARTS.items() if first <= number)


class Part(list[Row]):
    """The rows of one part."""

    def row(self, number: int, name: str) -> Callable[[Act], Act]:
        """Add a row that a function tries."""

        def add(act: Act) -> Act:
            self.append(Row(number, name, act))
            return act

        return add

    def refused(
        self, number: int, name: str, given: Act, code: str, says: str, **settings: Any
    ) -> None:
        """Add a row whose window is put there by `given`, and is then not assessed."""

        def act(bench: Bench) -> None:
            given(bench)
            bench.refused(code, says, **settings)

        self.append(Row(number, name, act))

    def taken(
        self, number: int, name: str, given: Act, says: str = "", *, rows: int = 60, **settings: Any
    ) -> None:
        """Add a row whose window can be judged, with a word about what is odd."""

        def act(bench: Bench) -> None:
            given(bench)
            bench.taken(says, rows=rows, **settings)

        self.append(Row(number, name, act))

"""One registered model in MLflow: the object that everything else reads and writes it by."""

from dataclasses import dataclass
from typing import Self

from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.config.values import CHAMPION
from rtscv_mlops.tracking.client import connect, open_client
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.promotion import Decisions
from rtscv_mlops.tracking.runs import Runs
from rtscv_mlops.tracking.versions import Versions
from rtscv_mlops.tracking.window_run import WindowRun


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """A registered model: its versions, the decisions about them, and the runs of its windows."""

    client: MlflowClient
    model: str
    alias: str = CHAMPION

    @classmethod
    def connect(cls, settings: ModelSettings) -> Self:
        """Open the registry, and point MLflow's fluent functions at the same server."""
        return cls.of(connect(settings), settings)

    @classmethod
    def open(cls, settings: ModelSettings) -> Self:
        """Open the registry and leave global state alone, for threads that read several servers."""
        return cls.of(open_client(settings), settings)

    @classmethod
    def of(cls, client: MlflowClient, settings: ModelSettings) -> Self:
        """Return the registry behind a client that is open already."""
        return cls(client, settings.name, settings.alias)

    @property
    def versions(self) -> Versions:
        return Versions(self.client, self.model, self.alias)

    @property
    def decisions(self) -> Decisions:
        return Decisions(self.versions)

    @property
    def runs(self) -> Runs:
        return Runs(self.client, self.model)

    def run(self, run_id: str) -> WindowRun:
        """Return a run by its id."""
        return WindowRun(self.client, run_id)

    def claim(self, name: str, value: str) -> str:
        """Claim a name for a value in the model's ledger; return the value that holds."""
        return Ledger.open(self.client, self.model).claim(name, value)

"""A monitor file that cannot be used, shown as an import error of its own.

Airflow keeps import errors by file, and a file with one loses all its DAGs. So the error must not
be that of the DAG file, which builds the DAGs of all monitors, but of the monitor's own.
"""

import re
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator

from rtscv_mlops.airflow.monitors import PREFIX
from rtscv_mlops.errors import ConfigError


class BrokenMonitor(DAG):
    """Stands for a monitor that cannot be used: it is never stored, only its error is."""

    def __init__(self, path: Path, error: ConfigError) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)[:100]
        super().__init__(f"{PREFIX}{name}", schedule=None)
        self.__dict__["file"] = str(path)
        Unusable(task_id="monitor", dag=self, error=error)

    @property
    def relative_fileloc(self) -> str:
        """The monitor's own file, whatever the importer says: errors are kept under this name."""
        return str(self.__dict__.get("file", ""))

    @relative_fileloc.setter
    def relative_fileloc(self, given: Any) -> None:
        """Airflow's importer sets the DAG file here."""


class Unusable(BaseOperator):
    """Cannot be stored: whoever tries is told what is wrong with the monitor."""

    def __init__(self, *, error: ConfigError, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    @property
    def task_type(self) -> str:
        # A new error: this one may be raised often, and each time its traceback would grow.
        raise ConfigError(str(self.error))

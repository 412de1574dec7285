"""The monitor: one YAML file per monitored model, validated before anything else happens.

Knows names, defaults and limits; knows nothing of the worlds that the settings point at.
"""

from rtscv_mlops.config.loading import load_monitor, monitor_files, read_monitors
from rtscv_mlops.config.published import SCHEMA_FILE, monitor_schema, schema_text
from rtscv_mlops.config.schedule import AirflowSettings, ResourceSettings
from rtscv_mlops.config.settings import (
    DISTANCES,
    AlertSettings,
    BaselineSettings,
    CanarySettings,
    ComputeSettings,
    DriftSettings,
    Email,
    ModelSettings,
    Monitor,
    RectifySettings,
    ReportSettings,
    ReviewSettings,
)
from rtscv_mlops.config.tables import (
    CsvSettings,
    LabelSettings,
    ReferenceSettings,
    SourceSettings,
    TableSettings,
    resolve_options,
)
from rtscv_mlops.config.template import monitor_template

__all__ = [
    "DISTANCES",
    "SCHEMA_FILE",
    "AirflowSettings",
    "AlertSettings",
    "BaselineSettings",
    "CanarySettings",
    "ComputeSettings",
    "CsvSettings",
    "DriftSettings",
    "Email",
    "LabelSettings",
    "ModelSettings",
    "Monitor",
    "RectifySettings",
    "ReferenceSettings",
    "ReportSettings",
    "ResourceSettings",
    "ReviewSettings",
    "SourceSettings",
    "TableSettings",
    "load_monitor",
    "monitor_files",
    "monitor_schema",
    "monitor_template",
    "read_monitors",
    "resolve_options",
    "schema_text",
]

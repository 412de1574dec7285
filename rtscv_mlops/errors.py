"""Every failure that this package names.

RtscvError
├── InputError (also a ValueError)
│   ├── ConfigError      a monitor file cannot be used
│   ├── WindowError      deployment data cannot be used
│   ├── TrainingDataError  training data cannot be used
│   └── ModelError       the registered model cannot be used
├── NotAssessed          a window that cannot be judged, with the reason as a code
├── ServiceError         an outside service failed; trying again may help
└── ReviewError          a decision that cannot be carried out
"""

from enum import StrEnum


class Code(StrEnum):
    """Every reason for a failure, as one word for machines.

    It follows `failed:` or `not_assessed:` in a recorded outcome, so a value never changes.
    """

    ALIAS_TAKEN = "alias_taken"
    ARTIFACTS_MISSING = "artifacts_missing"
    ARTIFACT_MISSING = "artifact_missing"
    BAD_CONFIG = "bad_config"
    BAD_FILE = "bad_file"
    BAD_INPUT = "bad_input"
    BAD_MODEL = "bad_model"
    BAD_RATE = "bad_rate"
    BAD_TIMESTAMP = "bad_timestamp"
    BAD_TRAINING_DATA = "bad_training_data"
    BAD_TYPE = "bad_type"
    BAD_VALUES = "bad_values"
    BAD_WINDOW = "bad_window"
    BLOCKED = "blocked"
    BUSY = "busy"
    CANNOT_CLONE = "cannot_clone"
    CANNOT_DELETE = "cannot_delete"
    CHALLENGER_UNUSABLE = "challenger_unusable"
    CHANNEL_CLOSED = "channel_closed"
    CHAMPION_GONE = "champion_gone"
    COLUMNS_DIFFER = "columns_differ"
    COMPUTE_LOST = "compute_lost"
    COMPUTE_UNREACHABLE = "compute_unreachable"
    COMPUTE_VERSIONS = "compute_versions"
    DECIDED = "decided"
    DIGEST_MISMATCH = "digest_mismatch"
    EMAIL = "email"
    EMPTY_INTERVAL = "empty_interval"
    EMPTY_WINDOW = "empty_window"
    ERROR = "error"
    EXPIRED = "expired"
    FILE_CHANGED = "file_changed"
    FIT_FAILED = "fit_failed"
    FIXED_OUTPUTS = "fixed_outputs"
    LABELS_MISSING = "labels_missing"
    LABELS_MIXED = "labels_mixed"
    LABELS_UNUSABLE = "labels_unusable"
    LABEL_UNKNOWN = "label_unknown"
    MISMATCH = "mismatch"
    MISSING_COLUMNS = "missing_columns"
    MISSING_MODULE = "missing_module"
    MISSING_TABLE = "missing_table"
    MIXED_SCHEMAS = "mixed_schemas"
    MLFLOW = "mlflow"
    MLFLOW_REFUSED = "mlflow_refused"
    MODEL_REFUSES = "model_refuses"
    NOTHING_RAN = "nothing_ran"
    NOTHING_TO_RESTORE = "nothing_to_restore"
    NOTHING_TO_UNDO = "nothing_to_undo"
    NOTIFIER = "notifier"
    NOT_APPROVED = "not_approved"
    NOT_FITTED = "not_fitted"
    NOT_OFFERED = "not_offered"
    NO_ACCESS = "no_access"
    NO_BASELINE = "no_baseline"
    NO_CHAMPION = "no_champion"
    NO_CLASSIFIER = "no_classifier"
    NO_DAG_RUN = "no_dag_run"
    NO_INPUT = "no_input"
    NO_LABELS = "no_labels"
    NO_LEDGER = "no_ledger"
    NO_MODEL = "no_model"
    NO_PREDICT = "no_predict"
    NO_REASON = "no_reason"
    NO_REVIEW = "no_review"
    NO_RUN = "no_run"
    NO_SIGNATURE = "no_signature"
    NO_TIMEZONE = "no_timezone"
    NO_VERDICT = "no_verdict"
    NO_VERSION = "no_version"
    NO_WINDOW = "no_window"
    ONE_CLASS = "one_class"
    OUTSIDE_ROOT = "outside_root"
    PICKLE_NOT_ALLOWED = "pickle_not_allowed"
    RECORD_DAMAGED = "record_damaged"
    REMOVED = "removed"
    REVIEW = "review"
    SERVICE = "service"
    SEVERAL_LABELS = "several_labels"
    SIZE_CAP = "size_cap"
    SLOW = "slow"
    STALE = "stale"
    STORAGE = "storage"
    SUPERSEDED = "superseded"
    TABLE_FORMAT = "table_format"
    TAKEN_OVER = "taken_over"
    TOO_FEW_CLASSES = "too_few_classes"
    TOO_FEW_EXAMPLES = "too_few_examples"
    TOO_FEW_ROWS = "too_few_rows"
    TRAINING_DATA_CHANGED = "training_data_changed"
    TRAINING_DATA_MISSING = "training_data_missing"
    UNCLEAR_TIME = "unclear_time"
    UNEXPECTED = "unexpected"
    UNFINISHED = "unfinished"
    UNKNOWN = "unknown"
    UNKNOWN_CLASS = "unknown_class"
    UNKNOWN_DETECTOR = "unknown_detector"
    UNKNOWN_LABEL_TAKEN = "unknown_label_taken"
    UNKNOWN_LABEL_TYPE = "unknown_label_type"
    UNREADABLE_MODEL = "unreadable_model"
    UNSUPPORTED_FLAVOR = "unsupported_flavor"
    UNSUPPORTED_SIGNATURE = "unsupported_signature"
    UNTRUSTED_TYPES = "untrusted_types"
    WEBHOOK = "webhook"
    WINDOW_OPEN = "window_open"


class RtscvError(Exception):
    """The root: catch this to catch everything that this package raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong, where, and what to do.
    code : Code, optional
        The same in one word, for programs.
    """

    code = Code.ERROR

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InputError(RtscvError, ValueError):
    """The data or settings handed to us cannot be used.

    A ValueError as well, since scikit-learn's estimator checks demand one.

    Parameters
    ----------
    message : str
        What is wrong, where, and what to do.
    code : Code, optional
        The same in one word, for programs.

    Examples
    --------
    >>> from rtscv_mlops import InputError, open_set_scores
    >>> try:
    ...     open_set_scores(["cat", "dog"], ["cat"], None, ["cat", "dog"], "new")
    ... except InputError as error:
    ...     print(error)
    y_true has 2 row(s) and y_pred has 1. Pass one per row.
    """

    code = Code.BAD_INPUT


class ConfigError(InputError):
    """A monitor file cannot be used; the message lists every mistake with its line."""

    code = Code.BAD_CONFIG


class WindowError(InputError):
    """Deployment data cannot be used."""

    code = Code.BAD_WINDOW


class TrainingDataError(InputError):
    """The champion's training data is missing, changed, or does not fit the model."""

    code = Code.BAD_TRAINING_DATA


class ModelError(InputError):
    """The registered model cannot be loaded, cloned, refitted or saved."""

    code = Code.BAD_MODEL


class NotAssessed(RtscvError):
    """Nothing is wrong with the setup, yet this window cannot be judged; `code` says why."""

    code = Code.UNKNOWN

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message, code=code)


class ServiceError(RtscvError):
    """An outside service did not answer as it should; trying again later may help."""

    code = Code.SERVICE


class ReviewError(RtscvError):
    """A decision that cannot be carried out: stale, expired, blocked, or taken already."""

    code = Code.REVIEW

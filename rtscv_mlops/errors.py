"""Every failure this package names; knows nothing of what causes them.

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


class RtscvError(Exception):
    """The root: catch this to catch everything we raise on purpose.

    `code` is one word for machines: it follows `failed:` or `not_assessed:` in a recorded outcome.
    """

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InputError(RtscvError, ValueError):
    """The data or settings handed to us cannot be used.

    A ValueError as well, since scikit-learn's estimator checks demand one.
    """

    code = "bad_input"


class ConfigError(InputError):
    """A monitor file cannot be used; the message lists every mistake with its line."""

    code = "bad_config"


class WindowError(InputError):
    """Deployment data cannot be used."""

    code = "bad_window"


class TrainingDataError(InputError):
    """The champion's training data is missing, changed, or does not fit the model."""

    code = "bad_training_data"


class ModelError(InputError):
    """The registered model cannot be loaded, cloned, refitted or saved."""

    code = "bad_model"


class NotAssessed(RtscvError):
    """Nothing is wrong with the setup, yet this window cannot be judged; `code` says why."""

    code = "unknown"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code=code)


class ServiceError(RtscvError):
    """An outside service did not answer as it should; trying again later may help."""

    code = "service"


class ReviewError(RtscvError):
    """A decision that cannot be carried out: stale, expired, blocked, or taken already."""

    code = "review"

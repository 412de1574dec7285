"""Every failure this package names; knows nothing of what causes them.

RtscvError
└── InputError (also a ValueError)
"""


class RtscvError(Exception):
    """The root: catch this to catch everything we raise on purpose."""


class InputError(RtscvError, ValueError):
    """The data or settings handed to us cannot be used.

    A ValueError as well, since scikit-learn's estimator checks demand one.
    """

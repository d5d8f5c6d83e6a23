"""Every error this project raises on purpose, in one tree.

::

    BaseException
    ├── Exception
    │   └── GpubenchError
    │       ├── UsageProblem        bad option, key, file or marker: exit code 4, no traceback
    │       │   └── BrokenFile      a file that is there, and not what it should be
    │       ├── MeasurementError    the numbers cannot be trusted, so none is reported
    │       ├── CorrectnessError    the measured code computes something wrong
    │       ├── ResultsError        a result could not be written, or read
    │       │   └── BrokenFile
    │       ├── RegistryError       the database did not answer, or is of another schema
    │       ├── NothingComparable   there is nothing that can be compared
    │       └── GangError           the ranks of a gang did not come together
    └── pytest.skip.Exception
        └── Unsupported             this combination cannot run here, and why
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest


class GpubenchError(Exception):
    """The base of all errors a user can do something about."""


class UsageProblem(GpubenchError):
    """Bad input; the message names the key, the value, what is allowed and the nearest match.

    The plugin turns it into :class:`pytest.UsageError` (exit code 4) at its boundary.
    """


class MeasurementError(GpubenchError):
    """A measurement whose numbers cannot be true: zero length, not finite, above the peak."""


class CorrectnessError(GpubenchError):
    """The code under measurement is wrong: a loss that is not finite, a missing gradient."""


class ResultsError(GpubenchError):
    """A file of results could not be written or read; earlier files are intact."""


class BrokenFile(UsageProblem, ResultsError):
    """A file is no regular one, too large, or does not hold what it should; others are intact.

    It is both: whoever named the file can do something about it, and whoever reads many files goes
    on with the others. The exit code is 4, of ``gpubench`` and of pytest.
    """


class RegistryError(GpubenchError):
    """The database of runs cannot be used now; the run directories hold everything it would."""


class NothingComparable(GpubenchError):
    """What was asked to be compared has no benchmark, or no metric, in common."""


class GangError(GpubenchError):
    """The processes of a gang could not be started, or did not all come.

    `output` is what the one that did not come had written, `stacks` where each rank was, where
    they were given up: then it is a `hang`. One that was `killed` from outside did not end by
    itself, and another gang may do better.
    """

    def __init__(
        self,
        reason: str,
        output: str = "",
        *,
        hang: bool = False,
        killed: bool = False,
        stacks: Mapping[int, str] = {},
    ):
        super().__init__(reason)
        self.output = output
        self.hang = hang
        self.killed = killed
        self.stacks = stacks


class Unsupported(pytest.skip.Exception):  # type: ignore[misc,name-defined] # an attribute
    """A combination this machine, precision or workload does not offer, with the reason.

    pytest reports it as a skip; the record keeps it apart from one.
    """


def text_of(error: BaseException) -> str:
    """What `error` says; in Python's and pytest's own words where its ``__str__`` fails."""
    try:
        return str(error)
    except BaseException:  # whatever a class of the user's raises there, it is not our error
        return "<exception str() failed>"


def nearest(value: str, allowed: Iterable[str]) -> str:
    """The ending `` (did you mean 'x'?)`` for the choice nearest to `value`, or nothing."""
    import difflib

    matches = difflib.get_close_matches(value, list(allowed), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def not_one_of(what: str, value: str, allowed: Iterable[str]) -> UsageProblem:
    """The error for a `value` of `what` that is not among the `allowed` ones."""
    choices = list(allowed)
    listed = ", ".join(choices)
    return UsageProblem(f"{what}: unknown {value!r}{nearest(value, choices)}; allowed: {listed}")

"""All errors raised on purpose, in one hierarchy.

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
    """Base class of all errors that a user can act on."""


class UsageProblem(GpubenchError):
    """Invalid input; the message names the key, the value, allowed values and the nearest match.

    The plugin turns it into :class:`pytest.UsageError` (exit code 4) at its boundary.
    """


class MeasurementError(GpubenchError):
    """A measurement with impossible numbers: zero length, not finite, above the peak."""


class CorrectnessError(GpubenchError):
    """The code under measurement is wrong: a non-finite loss, a missing gradient."""


class ResultsError(GpubenchError):
    """A result file could not be read or written; earlier files are intact."""


class BrokenFile(UsageProblem, ResultsError):
    """A file that is not regular, too large or malformed; other files are intact.

    It is both: whoever named the file can do something about it, and whoever reads many files goes
    on with the others. The exit code is 4, of ``gpubench`` and of pytest.
    """


class RegistryError(GpubenchError):
    """The run database is unavailable; the run directories hold the same data."""


class NothingComparable(GpubenchError):
    """The compared runs share no benchmark or metric."""


class GangError(GpubenchError):
    """The processes of a gang could not be started, or did not all join.

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
        self.was_killed = killed
        self.stacks = stacks


class Unsupported(pytest.skip.Exception):  # type: ignore[misc,name-defined] # an attribute
    """A combination that this machine, precision or workload does not support; skips the test.

    pytest reports it as a skip; the record keeps it apart from one.
    """


def error_text(error: BaseException) -> str:
    """Message of `error`, falling back to pytest's wording if ``__str__`` fails."""
    try:
        return str(error)
    except BaseException:  # whatever a class of the user's raises there, it is not our error
        return "<exception str() failed>"


def nearest(value: str, allowed: Iterable[str]) -> str:
    """Suggestion `` (did you mean 'x'?)`` for the closest choice, or an empty string."""
    import difflib

    matches = difflib.get_close_matches(value, list(allowed), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def invalid_choice(name: str, value: str, allowed: Iterable[str]) -> UsageProblem:
    """UsageProblem for a `value` of `name` that is not among `allowed`."""
    choices = list(allowed)
    choices_text = ", ".join(choices)
    return UsageProblem(
        f"{name}: unknown {value!r}{nearest(value, choices)}; allowed: {choices_text}"
    )

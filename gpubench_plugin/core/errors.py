"""Hierarchy of the errors that the plugin raises.

::

    BaseException
    ├── Exception
    │   └── GpubenchError
    │       ├── UsageProblem        invalid option, key, file or marker: exit code 4, no traceback
    │       │   ├── BrokenFile      an existing file is malformed
    │       │   └── Misuse          a test uses a fixture wrongly: it has failed
    │       │       └── NoAttribute of the fixture; also an AttributeError
    │       ├── MeasurementError    a number is impossible, so none is reported
    │       │   └── LostMessage     another rank's message is missing: ranks are out of step
    │       ├── Throttled           the GPU was throttled, and ``measure.throttle=fail``
    │       ├── CorrectnessError    the measured code computes something wrong
    │       ├── DoesNotFit          no batch fits into memory; also a MemoryError
    │       ├── ResultsError        a result could not be written or read
    │       │   └── BrokenFile
    │       ├── RegistryError       the database is unavailable, or of another schema
    │       ├── NothingComparable   the runs share no benchmark or metric
    │       └── GangError           the rendezvous of a gang failed
    └── pytest.skip.Exception
        └── Unsupported             this combination cannot run here
            └── MissingPackage      a package that could be installed is not
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import pytest

T = TypeVar("T")


class GpubenchError(Exception):
    """Base class of the errors that a user can act on."""


class UsageProblem(GpubenchError):
    """Invalid input; the message names the key, the value, allowed values and the nearest match.

    The plugin turns it into :class:`pytest.UsageError` (exit code 4) at its boundary. Raised by a
    running benchmark, its outcome is ``misconfigured``.
    """


class Misuse(UsageProblem):
    """A test uses a fixture wrongly: its code is to be corrected, so its outcome is ``failed``."""


class NoAttribute(Misuse, AttributeError):
    """A fixture has no such attribute, or none that can be set."""


class MeasurementError(GpubenchError):
    """A measurement with impossible numbers: zero length, not finite, above the peak."""


class LostMessage(MeasurementError):
    """A message of another rank did not arrive, so the ranks are out of step."""


class Throttled(GpubenchError):
    """The GPU was throttled while it was measured, which ``measure.throttle=fail`` refuses."""


class CorrectnessError(GpubenchError):
    """The code under measurement is wrong: a non-finite loss, a missing gradient."""


class DoesNotFit(GpubenchError, MemoryError):
    """Not even the smallest batch fits into memory; outcome ``oom``."""


class ResultsError(GpubenchError):
    """A result file could not be read or written; earlier files are intact."""


class BrokenFile(UsageProblem, ResultsError):
    """A file that is not regular, too large or malformed; other files are intact.

    A usage error for a file named by the user; readers of many files skip it. Exit code 4.
    """


class RegistryError(GpubenchError):
    """The run database is unavailable; the run directories hold the same data."""


class NothingComparable(GpubenchError):
    """The compared runs share no benchmark or metric."""


class GangError(GpubenchError):
    """The processes of a gang could not be started, or did not all join the rendezvous.

    `output` is that of the missing process; after a timeout it is a `hang`, with the `stacks` by
    rank. A gang that was `killed` from outside may be started again.
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
    """The machine, precision or workload does not support the combination; skips the test.

    pytest reports a skip, the record the outcome ``unsupported``.
    """


class MissingPackage(Unsupported):
    """A `package` is missing, broken or too old; `install` is the command that brings it.

    A session in which nothing is measured for this reason alone exits with code 4.
    """

    def __init__(self, problem: str, *, package: str, install: str):
        super().__init__(f"{problem}: {install}")
        self.problem = problem
        self.package = package
        self.install = install


def require_returned(value: T, kind: type[object], function: str) -> T:
    """The `value` that a user's `function` returned, which must be of a `kind`.

    Raises:
        Misuse: it is not, as without a ``return``.
    """
    if not isinstance(value, kind):
        shown = type(value).__name__
        raise Misuse(f"{function} returned a value of type {shown}; allowed: {kind.__name__}")
    return value


def error_text(error: BaseException) -> str:
    """Message of `error`, falling back to pytest's wording if ``__str__`` fails."""
    try:
        return str(error)
    except BaseException:  # raised by a class of the user
        return "<exception str() failed>"


def with_causes(
    errors: Iterable[BaseException], *, stated_only: bool = False
) -> Iterator[BaseException]:
    """The `errors`, their causes, what was being handled, and members of groups; each once.

    With `stated_only` just the causes that errors state themselves. Of torch's compiler also the
    error that it wraps (``torch._dynamo.exc.BackendCompilerFailed``) and raises ``from None``.
    """
    visited_ids: set[int] = set()
    stack: list[BaseException | None] = [*errors]
    while stack:
        error = stack.pop()
        if error is None or id(error) in visited_ids:
            continue
        visited_ids.add(id(error))
        inner = getattr(error, "inner_exception", None)
        stack += [error.__cause__, inner if isinstance(inner, BaseException) else None]
        if not stated_only:
            stack.append(error.__context__)
            stack += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        yield error


def suggest(value: str, allowed: Iterable[str], aliases: Mapping[str, Collection[str]] = {}) -> str:
    """Suggestion `` (did you mean 'x'?)`` of what `value` means, or an empty string.

    That is a choice in another case, one that `aliases` gives for the word (none if it gives none
    of them: then no choice is near in meaning), or else the one that is spelt most alike.
    """
    choices = [choice for choice in allowed if choice != value]  # it may be there but unfit
    word = value.casefold()
    if same := [choice for choice in choices if choice.casefold() == word]:
        return did_you_mean(same)
    if word in aliases:
        return did_you_mean(name for name in aliases[word] if name in choices)
    return did_you_mean(alike(value, choices))


def did_you_mean(names: Iterable[str]) -> str:
    """Suggestion of these `names`; empty without any."""
    text = " or ".join(map(repr, names))
    return f" (did you mean {text}?)" if text else ""


CERTAIN: Final = 0.75
"""Share of equal letters where a word may be none of the choices: that of ``main`` and ``mian``."""


def alike(value: str, choices: Iterable[str], *, cutoff: float = 0.5) -> list[str]:
    """The choice spelt most like `value`, if it shares at least `cutoff` of the letters."""
    import difflib

    # Below difflib's default of 0.6, since short names differ much by one letter.
    return difflib.get_close_matches(value, list(choices), 1, cutoff)


def invalid_choice(
    name: str,
    value: str,
    allowed: Iterable[str],
    *,
    noun: str = "",
    aliases: Mapping[str, Collection[str]] = {},
) -> UsageProblem:
    """UsageProblem for a `value` of `name`, called a `noun`, that is not among `allowed`.

    `aliases` are other words for choices, in lower case: see :func:`suggest`.
    """
    choices = list(allowed)
    suggestion = suggest(value, choices, aliases)
    return UsageProblem(
        f"{name}: unknown {noun}{value!r}{suggestion}; allowed: {', '.join(choices)}"
    )

"""Benchmarks named by a user: the id, a part of it, or an expression as for pytest's ``-k``.

An id with control characters, as a foreign run may have, may be given as it is or as it is shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from gpubench_plugin.core.errors import UsageProblem, suggest
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.records import Outcome, Result
from gpubench_plugin.reports.text import printable

_MOST_LISTED: Final = 20
"""Choices in a message, one per line: a screen of 24 lines."""

_OPERATOR: Final = re.compile(r"\b(?:and|or|not)\b")

_WITHOUT_VALUES: Final[frozenset[Outcome]] = frozenset({"skipped", "unsupported", "not_measured"})


def run_benchmarks(results: Mapping[str, Result]) -> list[str]:
    """Benchmarks of a run that did run: measured or failed, not skipped or unsupported."""
    return [name for name, result in results.items() if result.outcome not in _WITHOUT_VALUES]


def matching_benchmarks(text: str, names: Iterable[str]) -> list[str]:
    """The `names` that `text` selects, sorted; one that equals `text` is meant alone.

    Else those that contain it in any case, or those for which it is true as an expression of
    pytest's ``-k``: ``resnet50 and train and not amp``. Parts match anywhere in the id.

    Raises:
        UsageProblem: `text` is empty, or a wrong expression.
    """
    if not text.strip():
        raise UsageProblem("BENCHMARK: empty; allowed: an id, a part of it, or 'part and not part'")
    candidates = sorted(set(names))
    for form in (str, printable):
        if exact := [name for name in candidates if form(name) == text]:
            return exact
    matches = [name for name in candidates if _contains(name, text)]
    return matches or _matching_expression(text, candidates)


def selected_benchmarks(
    text: str,
    names: Iterable[str],
    scope: str,
    *,
    most: float = 1,
    allowed: str = "give one of them",
) -> list[str]:
    """Those of `names` that `text` selects, at most so many; `scope` says where they are from.

    Raises:
        UsageProblem: none matches: it names the nearest; or too many: it lists them as arguments
            for a shell, and says what is `allowed`.
    """
    matches = matching_benchmarks(text, names := [*names])
    if not matches:
        candidates = sorted({*map(printable, names)})
        short = {name.rpartition("::")[2]: name for name in candidates}
        hint = suggest(text, candidates) or suggest(text, short)
        listing = f"; known: {listed(candidates, most=10)}" if candidates else "; there are none"
        raise UsageProblem(f"no measured benchmark of {scope} matches {text!r}{hint}{listing}")
    if len(matches) > most:
        choices = listed([shlex.quote(printable(name)) for name in matches], _MOST_LISTED, "\n  ")
        raise UsageProblem(
            f"{text!r} matches {len(matches)} benchmarks of {scope}; {allowed}, or narrow it down "
            f"as for pytest -k ('{text.partition(' ')[0]} and …'):\n  {choices}"
        )
    return matches


def _contains(name: str, text: str) -> bool:
    return any(text.casefold() in form.casefold() for form in (name, printable(name)))


def _matching_expression(text: str, candidates: Sequence[str]) -> list[str]:
    """Candidates for which the expression is true; none if it is not one.

    Raises:
        UsageProblem: it has an operator, and is wrong all the same.
    """
    from _pytest.mark import expression as marks

    try:
        expression = marks.Expression.compile(text)
    except getattr(marks, "ParseError", SyntaxError) as error:  # the former of pytest 8
        if _OPERATOR.search(text):
            reason = getattr(error, "msg", "") or getattr(error, "message", "")
            raise UsageProblem(
                f"BENCHMARK: {text!r} is not an expression as for pytest -k: {reason}"
            ) from None
        return []

    def contains(name: str, part: str, /, **arguments: object) -> bool:
        return not arguments and _contains(name, part)

    return [name for name in candidates if expression.evaluate(partial(contains, name))]

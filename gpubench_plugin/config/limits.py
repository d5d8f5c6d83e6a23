"""Limits of metrics: how much worse one may get, ``"3%"``, or a fixed bound, ``"<=0.25"``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gpubench_plugin.config.marks import BenchmarkMark
from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest


DEFAULT: Final = "2%"
"""The limit of a gated metric for which nobody states another."""

_RELATIVE: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)\s*%")
_ABSOLUTE: Final = re.compile(r"(?P<operator><=|>=)\s*(?P<number>[-+.0-9eE]+)")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound on the effect, as a fraction, or on the value itself.

    `kind` is ``relative``: worse by `bound` or more is a regression; ``at_most`` and ``at_least``:
    the head's value beyond `bound` is one, whatever the base.
    """

    text: str
    kind: Literal["relative", "at_most", "at_least"]
    bound: float

    @classmethod
    def parse(cls, text: str, where: str) -> Limit:
        """The limit in `text`; `where` names the key in messages.

        Raises:
            UsageProblem: it is no limit; the message says what is allowed.
        """
        text = text.strip()
        if (match := _RELATIVE.fullmatch(text)) and 0 < (share := _share(match["number"])) < 1:
            return cls(text=text, kind="relative", bound=share)
        if (match := _ABSOLUTE.fullmatch(text)) and (
            number := _finite(match["number"])
        ) is not None:
            kind: Literal["at_most", "at_least"] = (
                "at_most" if match["operator"] == "<=" else "at_least"
            )
            return cls(text=text, kind=kind, bound=number)
        raise UsageProblem(
            f"{where}: {text!r} is no limit; allowed: a percentage between 0 and 100 such as "
            "'3%' or '2.5%', or a fixed bound such as '<=0.25' or '>=1000'"
        )


def _share(percentage: str) -> float:
    """The float nearest to it: of a quotient, 1.1 / 100, an effect of exactly 1.1 % falls short."""
    return float(f"{percentage}e-2")


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def limits_of(
    item: pytest.Item, resolved: Mapping[str, str], overrides: Iterable[str]
) -> dict[str, str]:
    """By metric: the command line outranks the mark, the mark the configuration's files.

    Args:
        item: the benchmark.
        resolved: what files and command line add up to.
        overrides: of the command line, ``key=value``.

    Raises:
        UsageProblem: one of them is no limit.
    """
    prefix = "gate.limits."
    given = limits_given(overrides)
    marked = {
        metric: text
        for metric, text in BenchmarkMark.of(item).limits.items()
        if metric not in given
    }
    for metric, text in marked.items():
        Limit.parse(str(text), f"{item.nodeid}: mark gpubench: limits[{metric!r}]")
    for metric, text in resolved.items():
        Limit.parse(text, f"{item.nodeid}: {prefix}{metric}")
    return {**resolved, **marked}


def limits_given(overrides: Iterable[str]) -> dict[str, str]:
    """By metric, what the command line's `overrides` state, one by one or as a mapping.

    They are checked once a case has them in its configuration.
    """
    from gpubench_plugin.config import overrides as dot_keys
    from gpubench_plugin.config import yaml_reader

    given: dict[str, str] = {}
    for override in map(dot_keys.parse, overrides):
        if override.key[:2] == ("gate", "limits"):
            stated = (
                yaml_reader.parse(override.text, override.source)
                if len(override.key) < 3
                else {".".join(override.key[2:]): override.text}
            )
            given |= {metric: str(text) for metric, text in stated.items()}
    return given

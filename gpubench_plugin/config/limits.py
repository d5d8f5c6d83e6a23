"""Limits of metrics: an allowed regression, ``"3%"``, or an absolute bound, ``"<=0.25"``."""

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
    """Bound on the effect (as a fraction) or on the value itself.

    `kind` is ``relative``: worse by `bound` or more is a regression; ``at_most`` and ``at_least``:
    the head's value beyond `bound` is one, whatever the base.
    """

    text: str
    kind: Literal["relative", "at_most", "at_least"]
    bound: float

    @classmethod
    def parse(cls, text: str, label: str) -> Limit:
        """Parse a limit; `label` names the key in messages.

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
            f"{label}: {text!r} is not a limit; allowed: a percentage between 0 and 100 such "
            "as '3%' or '2.5%', or an absolute bound such as '<=0.25' or '>=1000'"
        )


def _share(percentage: str) -> float:
    """Parse a percentage as the nearest float; dividing by 100 would round it wrongly."""
    return float(f"{percentage}e-2")


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def effective_limits(
    item: pytest.Item, resolved: Mapping[str, str], overrides: Iterable[str]
) -> dict[str, str]:
    """Effective limits by metric: command line before mark before configuration files.

    Args:
        item: the benchmark.
        resolved: what files and command line add up to.
        overrides: of the command line, ``key=value``.

    Raises:
        UsageProblem: one of them is no limit.
    """
    prefix = "gate.limits."
    overridden = cli_limits(overrides)
    mark_limits = {
        metric: text
        for metric, text in BenchmarkMark.of(item).limits.items()
        if metric not in overridden
    }
    for metric, text in mark_limits.items():
        Limit.parse(str(text), f"{item.nodeid}: mark gpubench: limits[{metric!r}]")
    for metric, text in resolved.items():
        Limit.parse(text, f"{item.nodeid}: {prefix}{metric}")
    return {**resolved, **mark_limits}


def cli_limits(overrides: Iterable[str]) -> dict[str, str]:
    """Limits set by command line `overrides`, one by one or as a mapping.

    They are checked once a case has them in its configuration.
    """
    from gpubench_plugin.config import overrides as dot_keys
    from gpubench_plugin.config import yaml_reader

    limits: dict[str, str] = {}
    for override in map(dot_keys.parse, overrides):
        if override.key[:2] == ("gate", "limits"):
            parsed = (
                yaml_reader.parse(override.text, override.source)
                if len(override.key) < 3
                else {".".join(override.key[2:]): override.text}
            )
            limits |= {metric: str(text) for metric, text in parsed.items()}
    return limits

"""The limits of a benchmark's metrics: what mark, files and command line say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.config.marks import BenchmarkMark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest


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
    from gpubench_plugin.config.limits import Limit

    prefix = "gate.limits."
    given = _limited(overrides)
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


def _limited(overrides: Iterable[str]) -> set[str]:
    """The metrics whose limits the command line states, one by one or as a mapping."""
    from gpubench_plugin.config import overrides as dot_keys
    from gpubench_plugin.config import yaml_reader

    metrics: set[str] = set()
    for override in map(dot_keys.parse, overrides):
        if override.key[:2] == ("gate", "limits"):
            stated = (
                yaml_reader.parse(override.text, override.source) if len(override.key) < 3 else {}
            )
            metrics.update(override.key[2:], stated)
    return metrics

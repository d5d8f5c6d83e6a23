"""What pytest remembers of a failed gate: the benchmark, so that ``--lf`` measures it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.session.gate.items import benchmark_id, is_gate

if TYPE_CHECKING:
    import pytest

_LAST_FAILED: Final = "cache/lastfailed"
_STEPWISE: Final = "cache/stepwise"


def remember_benchmarks(config: pytest.Config) -> None:
    """Let benchmarks take the place of their gate items in pytest's cache, if there is one.

    A gate item alone could not be run: it judges what was measured in the same session.
    """
    cache = getattr(config, "cache", None)
    if cache is None:
        return
    failed = cache.get(_LAST_FAILED, {})
    if any(map(is_gate, failed)):
        cache.set(_LAST_FAILED, {_measured(nodeid): value for nodeid, value in failed.items()})
    step = cache.get(_STEPWISE, None)
    if isinstance(step, dict) and is_gate(step.get("last_failed") or ""):
        cache.set(_STEPWISE, {**step, "last_failed": _measured(step["last_failed"])})


def _measured(nodeid: str) -> str:
    return benchmark_id(nodeid) if is_gate(nodeid) else nodeid

"""The running benchmark: its case and its subjects, as fixtures find them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

    from gpubench_plugin.bench.subjects import Subjects
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.launchers.context import BenchmarkState


def case_of(request: pytest.FixtureRequest) -> Case:
    """Case of the benchmark.

    Raises:
        Misuse: the test is not a benchmark.
    """
    return running_state(request).case


@contextmanager
def reconfigured(
    request: pytest.FixtureRequest,
    configuration: Configuration[Any],
    facts: Mapping[str, object] | None = None,
) -> Iterator[Configuration[Any]]:
    """Measure and record the benchmark with `configuration` and `facts` of what was built.

    One that runs again starts anew.
    """
    state = running_state(request)
    original = state.case
    state.case = replace(original, configuration=configuration, facts=facts or original.facts)
    try:
        yield configuration
    finally:
        state.case = original


def running_state(request: pytest.FixtureRequest) -> BenchmarkState:
    """State of the benchmark.

    Raises:
        Misuse: the test is not a benchmark.
    """
    from gpubench_plugin.core.errors import Misuse
    from gpubench_plugin.launchers.context import state_of

    state = state_of(request.node)
    if state is None:
        raise Misuse(
            "gpubench's fixtures work only in benchmarks; request the fixture `gpubench` or add "
            "@pytest.mark.gpubench()"
        )
    return state


def subjects_of(request: pytest.FixtureRequest) -> Subjects:
    """Subjects of the benchmark, which are checked before anything is timed."""
    subjects: Subjects = request.getfixturevalue("_gpubench_subjects")
    return subjects

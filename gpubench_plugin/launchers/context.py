"""Context of a session with benchmarks and state of each benchmark, on one stash key each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.environment.torch_use import ImportWatch
from gpubench_plugin.results.report_payload import LiveRecord

if TYPE_CHECKING:
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.resolve_case import CaseFactory
    from gpubench_plugin.config.settings import Settings
    from gpubench_plugin.core.records import Json
    from gpubench_plugin.ranks.ranks import RankSession
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture, Metadata
    from gpubench_plugin.results.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """State of the run that is the same for all benchmarks; changed by :func:`update_context`.

    Args:
        run: the run directory, once it exists; None on ranks other than zero.
        ranks_folder: folder for one file per rank.
        resumed: ids of benchmarks that an earlier session of the run has measured.
        cases: resolves a test anew; known once the session has started.
        journal: records an event of the benchmark with this node id at once; None on ranks whose
            events are not recorded.
        tell: tells the user what other processes wait for, while they run no benchmark.
        fixture_metadata: pytest-benchmark's metadata by node id, filled while benchmarks run.
    """

    settings: Settings
    ranks: RankSession
    run: RunDirectory | None = None
    ranks_folder: Path | None = None
    cases: CaseFactory | None = None
    resumed: Collection[str] = ()
    journal: Callable[[str, Json], None] | None = None
    tell: Callable[[str], None] | None = None
    fixture_metadata: dict[str, Metadata] = field(default_factory=dict)


@dataclass(kw_only=True)
class BenchmarkState:
    """One benchmark: its case, its record so far, and its ``benchmark`` fixture.

    Args:
        imports: what the test has imported, of one not known to use torch.
        started: when this process began to run it, on the monotonic clock, in seconds.
    """

    case: Case
    record: LiveRecord = field(default_factory=LiveRecord)
    fixture: BenchmarkFixture | None = None
    started: float = field(default_factory=monotonic)
    imports: ImportWatch = field(default_factory=ImportWatch)

    def remaining_s(self, default_timeout_s: float) -> float:
        """Seconds until the benchmark times out; time in which the process was stopped counts."""
        return self.started + self.case.timeout_s(default_timeout_s) - monotonic()


CONTEXT: Final = pytest.StashKey[RunContext]()
STATE: Final = pytest.StashKey[BenchmarkState]()


def context_of(config: pytest.Config) -> RunContext:
    """Context of a session that has benchmarks."""
    return config.stash[CONTEXT]


def update_context(config: pytest.Config, **changes: Any) -> None:
    """Replace fields of the session's frozen context."""
    config.stash[CONTEXT] = replace(config.stash[CONTEXT], **changes)


def state_of(item: pytest.Item) -> BenchmarkState | None:
    """State of a benchmark; None for an ordinary test."""
    return item.stash.get(STATE, None)


def case_on_ranks(item: pytest.Item) -> Case | None:
    """Case of a benchmark that all ranks run; None for an adopted or an ordinary test."""
    state = state_of(item)
    return None if state is None or state.case.adopted else state.case

"""The role every rank plays in a session with benchmarks: prepare cases, attach reports, leave."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import pytest

from gpubench_plugin import channel
from gpubench_plugin.cases import CASE, Cases
from gpubench_plugin.errors import MeasurementError, UsageProblem
from gpubench_plugin.neighbours import is_worker
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from gpubench_plugin.ranks import Ranks
    from gpubench_plugin.settings import Settings
    from gpubench_plugin.valve import Valve

_OPERATIONS: Final = 1000
"""More control messages than one benchmark exchanges; the end of each has a number of its own."""


class Rank:
    """Prepares the selected benchmarks and reports on each."""

    def __init__(self, config: pytest.Config, settings: Settings, ranks: Ranks):
        self._config = config
        self._settings = settings
        self._ranks = ranks
        self._order: dict[str, int] = {}
        self._endings: dict[str, str] = {}
        self._log: TextIO | None = None

    def start(self, items: Sequence[pytest.Item], valve: Valve | None) -> None:
        """Resolve every case, and agree with the other ranks on what will run where.

        Raises:
            UsageProblem: a configuration, device or folder is wrong; nothing has been measured.
        """
        if not self._config.pluginmanager.hasplugin("benchmark"):
            raise UsageProblem("-p no:benchmark: benchmarks need pytest-benchmark; remove the flag")
        world = self._ranks.world
        cases = Cases(
            self._settings,
            self._config.rootpath,
            world_size=world.size,
            local_rank=world.local_rank,
        )
        for number, item in enumerate(items, start=1):
            item.stash[CASE] = cases.of(item)
            self._order[item.nodeid] = number
        writes = world.is_root and not is_worker(self._config)
        run = self._start_session(items) if writes else None
        if world.size > 1:
            self._join(items, run, valve)

    def _start_session(self, items: Sequence[pytest.Item]) -> Path:
        from gpubench_plugin.session import Session

        session = Session(self._config, self._settings, [item.stash[CASE] for item in items])
        path = session.start()
        self._config.pluginmanager.register(session, "gpubench-session")
        return path

    def _join(self, items: Sequence[pytest.Item], run: Path | None, valve: Valve | None) -> None:
        """Compare the collections of all ranks, and send the output of the others to their log."""
        import torch

        case = items[0].stash[CASE]
        group = self._ranks.process_group(
            case.configuration.distributed.backend, torch.device(case.device.torch_name)
        )
        digest = sha256("\n".join(item.nodeid for item in items).encode()).hexdigest()
        told = group.gather("collection", {"digest": digest, "count": len(items)}) or []
        different = [
            f"rank {rank} selected {other['count']}"
            for rank, other in enumerate(told)
            if other["digest"] != digest
        ]
        agreed = group.publish(
            "run", {"path": str(run), "count": len(items), "different": different}
        )
        if agreed["different"]:
            raise UsageProblem(
                "the ranks collected different benchmarks: rank 0 selected "
                f"{agreed['count']}, {', '.join(agreed['different'])}"
            )
        if valve is not None:
            pytest_benchmark.mute(self._config)
            log = Path(agreed["path"]) / "ranks" / f"rank-{self._ranks.world.rank}.log"
            log.parent.mkdir(exist_ok=True)
            self._log = log.open("w", encoding="utf-8", buffering=1)
            valve.release(self._log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a benchmark that does not run on this many ranks."""
        case = item.stash.get(CASE, None)
        if case is not None and not case.mark.fits(case.world_size):
            pytest.skip(f"runs on ranks={case.mark.ranks!r}, not on {case.world_size}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the benchmark's notes to its report; a failed one is not saved as good."""
        report = yield
        if CASE in item.stash:
            channel.attach(item, call, report)
            if self._ranks.world.size > 1:
                self._agree(item, report)
            carrier = item.stash.get(channel.CARRIER, None)
            if not report.passed and carrier is not None:
                pytest_benchmark.mark_failed(carrier)
        return report

    def _agree(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """At a benchmark's end, make what happened on one rank known to all.

        It is the place where all ranks meet again, also those that parted within the benchmark.
        """
        if report.when == "setup" or not report.passed:
            self._endings[item.nodeid] = _ending(report)
        if report.when != "teardown":
            return
        group = self._ranks.group
        group.skip_to(self._order[item.nodeid] * _OPERATIONS)
        try:
            told = group.gather(item.nodeid, {"ending": self._endings[item.nodeid]}) or []
            verdict = group.publish(item.nodeid, {"endings": [rank["ending"] for rank in told]})
        except MeasurementError as error:
            channel.overrule(report, "mismatched_ranks", str(error))
            return
        endings = verdict["endings"]
        if len({ending.partition(":")[0] for ending in endings}) > 1:
            said = "; ".join(f"rank {rank} {ending}" for rank, ending in enumerate(endings))
            channel.overrule(report, "mismatched_ranks", f"the ranks ended differently: {said}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave together, after everything is written and printed."""
        self._ranks.leave()
        if self._log is not None:
            self._log.close()


def _ending(report: pytest.TestReport) -> str:
    """How a phase ended, and for a failure its last line."""
    if not report.failed:
        return report.outcome
    lines = report.longreprtext.splitlines() or [""]
    return f"failed: {lines[-1].strip()}"

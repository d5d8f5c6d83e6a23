"""The role of a rank that torchrun started: meet the others, and agree with them on each verdict.

Every rank runs a session of its own over the same benchmarks. Rank zero alone prints and writes.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

from gpubench_plugin import channel
from gpubench_plugin.cases import CASE
from gpubench_plugin.errors import MeasurementError, UsageProblem
from gpubench_plugin.rank import keep_out_failed
from gpubench_plugin.ranks import OPERATIONS
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from gpubench_plugin.ranks import Ranks
    from gpubench_plugin.valve import Valve


class Torchrun:
    """One of several ranks in a session of torchrun's."""

    def __init__(self, config: pytest.Config, ranks: Ranks):
        self._config = config
        self._ranks = ranks
        self._order: dict[str, int] = {}
        self._endings: dict[str, str] = {}
        self._log: TextIO | None = None

    def join(self, items: Sequence[pytest.Item], run: Path | None, valve: Valve | None) -> None:
        """Compare the collections of all ranks, and send the output of the others to their log.

        Raises:
            UsageProblem: the ranks collected different benchmarks, or cannot meet.
        """
        import torch

        self._order = {item.nodeid: number for number, item in enumerate(items, start=1)}
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

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """At a benchmark's end, make what happened on one rank known to all."""
        report = yield
        if CASE in item.stash:
            self._agree(item, report)
            keep_out_failed(item, report)
        return report

    def _agree(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """The teardown is where all ranks meet again, also those that parted in the benchmark."""
        if report.when == "setup" or not report.passed:
            self._endings[item.nodeid] = _ending(report)
        if report.when != "teardown":
            return
        group = self._ranks.group
        group.skip_to(self._order[item.nodeid] * OPERATIONS)
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

"""The role that judges: it adds the gate items, and says at the end what was found.

Gate items are ordinary tests, one per benchmark, that fail where the benchmark got worse.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from gpubench_plugin.reports import glyphs_for
from gpubench_plugin.session.gate import report as github

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from gpubench_plugin.session.gate.confirmation import Confirmation
    from gpubench_plugin.session.gate.judgement import Ending, Judgement
    from gpubench_plugin.session.gate.lookup import Lookup


MARKER: Final = "::gate"
"""What the id of a gate item has between the test's name and its parameters."""


class GateItem(pytest.Item):
    """Judges one benchmark, once all have been measured.

    It has no fixtures and no marks, and stands directly below the session: nothing of a module or a
    package is set up again for it. `ending` tells how that of the benchmark with a node id ends.
    """

    def __init__(self, *, benchmark: pytest.Item, ending: Callable[[str], Ending], **kwargs: Any):
        super().__init__(**kwargs)
        self._benchmark_id = benchmark.nodeid
        self._place = benchmark.reportinfo()
        self._ending = ending

    @classmethod
    def of(cls, benchmark: pytest.Item, ending: Callable[[str], Ending]) -> Self:
        """The gate item of `benchmark`."""
        name, nodeid = _named(benchmark)
        made: Self = cls.from_parent(
            benchmark.session,
            name=name,
            nodeid=nodeid,
            path=benchmark.path,
            benchmark=benchmark,
            ending=ending,
        )
        return made

    def runtest(self) -> None:
        """Pass, fail or be skipped, as the verdicts on the benchmark say."""
        ending = self._ending(self._benchmark_id)
        self.user_properties.extend(ending.properties)
        if ending.outcome == "skipped":
            pytest.skip(ending.text)
        if ending.outcome == "failed":
            pytest.fail(ending.text, pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The place of the benchmark, so that who follows the message comes to its source."""
        path, line, _ = self._place
        return path, line, self.name


def benchmark_id(nodeid: str) -> str:
    """The id of the benchmark that the gate item with `nodeid` judges."""
    head, _, tail = nodeid.rpartition(MARKER)
    return head + tail


def is_gate(nodeid: str) -> bool:
    """Whether it is the id of a gate item."""
    _, marker, tail = nodeid.rpartition(MARKER)
    return bool(marker) and (not tail or (tail.startswith("[") and tail.endswith("]")))


def _named(benchmark: pytest.Item) -> tuple[str, str]:
    """Name and id; a suffix behind the brackets would break what pytest makes of ids."""
    whole = benchmark.name
    function = getattr(benchmark, "originalname", None) or whole.partition("[")[0]
    params = whole.removeprefix(function)
    name = f"{function}{MARKER}{params}"
    return name, benchmark.nodeid.removesuffix(whole) + name


_LAST_FAILED: Final = "cache/lastfailed"
_STEPWISE: Final = "cache/stepwise"


def remember_benchmarks(config: pytest.Config) -> None:
    """Let benchmarks take the place of their gate items in pytest's cache, if there is one.

    So ``--lf`` measures the benchmark of a failed gate again. A gate item alone could not be run:
    it judges what was measured in the same session.
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


class Gate:
    """Judges what a session with ``--baseline`` measures; with ``--gate`` tests fail for it."""

    def __init__(
        self,
        config: pytest.Config,
        lookup: Lookup,
        judgement: Judgement,
        confirmation: Confirmation,
    ):
        self._config = config
        self._lookup = lookup
        self._judgement = judgement
        self._confirmation = confirmation
        self._is_gate = bool(lookup.settings.gate)
        self._places: dict[str, tuple[str, int]] = {}
        self._failed: set[str] = set()

    def add_items(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Append a gate item for each of the `benchmarks` to what `session` runs.

        Last of all, also of what other plugins have reordered: by then all have been measured.
        """
        for item in benchmarks:
            file, line, _ = item.location
            self._places[item.nodeid] = file, (line or 0) + 1
        self._confirmation.know(benchmarks)
        if self._is_gate:
            ending = self._judgement.ending
            session.items.extend(GateItem.of(item, ending) for item in benchmarks)

    def failed_verdicts(self) -> int:
        """Tests that failed because of a verdict, and of nothing else."""
        return len(self._failed)

    def close(self) -> bool:
        """Judge now, if that has not been done; whether the session must not end well."""
        return self._judgement.fails and self._is_gate

    def pytest_report_collectionfinish(self) -> list[str]:
        """The header: what is judged by what."""
        return github.header(self._lookup)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A skipped gate item stands where its benchmark stands, as a failed one does."""
        report = yield
        if isinstance(item, GateItem):
            if report.skipped and isinstance(report.longrepr, tuple):
                file, line, _ = item.location
                report.longrepr = (file, (line or 0) + 1, report.longrepr[2])
            if report.failed:
                self._failed.add(item.nodeid)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Let ``--lf`` know which benchmarks to measure again."""
        remember_benchmarks(self._config)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Say all verdicts, below the table of what was measured."""
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        glyphs = glyphs_for(getattr(sys.stdout, "encoding", None))
        width = int(self._config.get_terminal_writer().fullwidth)
        terminalreporter.section("gate" if self._is_gate else "comparison", sep="=")
        for line in github.lines(
            self._judgement, self._lookup, width, glyphs, interrupted=interrupted
        ):
            for text, markup in line:
                terminalreporter.write(text, **markup)
            terminalreporter.write("\n")
        for said in github.told(self._judgement, self._places, self._config):
            terminalreporter.write_line(said)


def measuring_is_off(config: pytest.Config) -> str:
    """The flag of pytest-benchmark's that lets nothing be measured, or nothing."""
    if config.getoption("benchmark_skip", False) and not config.getoption("benchmark_only", False):
        return "--benchmark-skip"
    enabled = config.getoption("benchmark_enable", False)
    return "--benchmark-disable" * (config.getoption("benchmark_disable", False) and not enabled)


class Unjudged:
    """The role of a session with ``--gate`` in which no benchmark is measured: it fails."""

    def __init__(self, why: str):
        self._why = why

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Who asks for a gate must not take it for passed."""
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say so."""
        terminalreporter.write_line(f"gate: failed: {self._why}", red=True)

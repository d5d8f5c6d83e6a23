"""Gate plugin: adds a gate item per benchmark, which fails if it regressed; reports verdicts.

Removed benchmarks of the baseline are told from deselected ones.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Self

import pytest

from gpubench_plugin.config.parametrization import id_of
from gpubench_plugin.core import hookspecs
from gpubench_plugin.session.gate import report as gate_report
from gpubench_plugin.session.recording import write_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from gpubench_plugin.session.gate.judgement import GateJudgement, GateOutcome


_MARKER: Final = "::gate"
"""Stands between the test's name and its parameters in the id of a gate item."""


class GateItem(pytest.Item):
    """Judges one benchmark after all were measured, by `outcome_of` its node id.

    It has no fixtures and no marks, and its parent is the session, so that no module or package is
    set up again for it.
    """

    benchmark: pytest.Item
    outcome_of: Callable[[str], GateOutcome]
    _location: tuple[os.PathLike[str] | str, int | None, str]

    @classmethod
    def of(cls, benchmark: pytest.Item, outcome_of: Callable[[str], GateOutcome]) -> Self:
        """The gate item of `benchmark`."""
        # A suffix after the brackets would break pytest's id parsing.
        full_name = benchmark.name
        function = getattr(benchmark, "originalname", None) or full_name.partition("[")[0]
        name = f"{function}{_MARKER}{full_name.removeprefix(function)}"
        item = cls.from_parent(
            benchmark.session,
            name=name,
            nodeid=benchmark.nodeid.removesuffix(full_name) + name,
            path=benchmark.path,
        )
        item.benchmark, item.outcome_of = benchmark, outcome_of
        item._location = benchmark.reportinfo()
        return item

    def runtest(self) -> None:
        """Pass, fail or skip according to the verdicts."""
        outcome = self.outcome_of(id_of(self.benchmark))
        self.user_properties.extend(outcome.properties)
        if outcome.outcome == "skipped":
            pytest.skip(outcome.text)
        if outcome.outcome == "failed":
            pytest.fail(outcome.text, pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Location of the benchmark, so that messages link to its source."""
        path, line, _ = self._location
        return path, line, self.name


_LAST_FAILED: Final = "cache/lastfailed"


def remember_benchmarks(config: pytest.Config, ids: Mapping[str, str]) -> None:
    """Replace gate items by their benchmarks, the `ids`, in pytest's cache, if enabled.

    A gate item judges what its session measured, so ``--lf`` must run the benchmark.
    """
    cache = getattr(config, "cache", None)
    if cache is None:
        return
    failed = cache.get(_LAST_FAILED, {})
    if not ids.keys().isdisjoint(failed):
        cache.set(
            _LAST_FAILED, {ids.get(nodeid, nodeid): value for nodeid, value in failed.items()}
        )


@dataclass(eq=False)
class GatePlugin:
    """Judges a session with ``--baseline``; with ``--gate``, tests fail on regressions."""

    config: pytest.Config
    judgement: GateJudgement
    _locations: dict[str, tuple[str, int]] = field(default_factory=dict)
    _benchmark_ids: dict[str, str] = field(default_factory=dict)
    failed_ids: set[str] = field(default_factory=set)
    """Tests that failed only because of a verdict."""

    def add_items(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Append a gate item per benchmark, to run after all of them."""
        workspace = Path(os.environ.get("GITHUB_WORKSPACE") or self.config.rootpath).resolve()
        for item in benchmarks:
            file, line, _ = item.location
            path = (self.config.rootpath / file).resolve()
            if path.is_relative_to(workspace):
                file = path.relative_to(workspace).as_posix()
            self._locations[id_of(item)] = file, (line or 0) + 1
        self.judgement.confirmation.register(benchmarks)
        if self.judgement.is_gate:
            gates = [GateItem.of(item, self.judgement.gate_outcome) for item in benchmarks]
            self._benchmark_ids = {gate.nodeid: gate.benchmark.nodeid for gate in gates}
            session.items += gates

    def close(self) -> bool:
        """Judge now if not done yet; return whether the session must fail."""
        return self.judgement.fails and self.judgement.is_gate

    def pytest_report_collectionfinish(self) -> list[str]:
        """Header line about the baseline and the gate."""
        return gate_report.header(self.judgement.lookup)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report skipped gate items at their benchmark's location, as for failures."""
        report = yield
        if isinstance(item, GateItem):
            if report.skipped and isinstance(report.longrepr, tuple):
                file, line, _ = item.location
                report.longrepr = (file, (line or 0) + 1, report.longrepr[2])
            if report.failed:
                self.failed_ids.add(item.nodeid)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Store failed benchmarks for ``--lf``."""
        remember_benchmarks(self.config, self._benchmark_ids)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Print the verdicts below the result table."""
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        terminalreporter.section("gate" if self.judgement.is_gate else "comparison", sep="=")
        lines = partial(gate_report.lines, self.judgement, interrupted=interrupted)
        write_lines(terminalreporter, lines)
        for message in gate_report.report_to_github(self.judgement, self._locations, self.config):
            terminalreporter.write_line(message)


class RemovedBenchmarks:
    """Decides from files and collection of `session` whether a benchmark was removed.

    A benchmark is removed if its file is, whatever was selected, if code left it out, or if a file
    collected as a whole no longer has its function; one case of a function may only have been
    deselected. Nothing is known of a file that was not collected, or of which the command line
    names single tests.
    """

    def __init__(self, session: pytest.Session):
        config = session.config
        cwd = config.invocation_params.dir
        self._root = config.rootpath
        self._left_out = config.stash.get(hookspecs.LEFT_OUT, set())
        names = (text.partition("::")[0] for text in config.args if "::" in text)
        self._explicit_files = {(cwd / name).resolve() for name in names}
        # With importlib, pytest leaves a module whose import failed in sys.modules.
        by_importlib = config.getoption("importmode") == "importlib"
        self._modules: dict[Path, object] = {} if by_importlib else dict(_imported())
        for item in session.items:
            module = item.getparent(pytest.Module)
            if module is not None:
                self._modules[item.path.resolve()] = module.obj

    def __call__(self, nodeid: str) -> bool:
        """Whether the benchmark with that id no longer exists."""
        if nodeid in self._left_out:
            return True
        name, _, qualified_name = nodeid.partition("::")
        file = self._root / name
        try:
            file = file.resolve()
            is_gone = not file.exists()
        except (OSError, RuntimeError, ValueError):  # too long, a loop, a null character
            return False
        if is_gone:
            return bool(qualified_name)  # a foreign file may have names of no test
        module = self._modules.get(file) or self._modules.get(self._root / name)
        if file in self._explicit_files or module is None:
            return False
        resolved: object = module
        for part in qualified_name.partition("[")[0].split("::"):
            resolved = getattr(resolved, part, None)
        return resolved is None


def _imported() -> Iterator[tuple[Path, object]]:
    """All modules loaded from files, which include collected ones without tests."""
    for module in list(sys.modules.values()):
        # Not getattr, which would load lazy modules.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and file.endswith(".py"):
            yield Path(file), module

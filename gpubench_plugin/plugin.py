"""The hooks by which pytest meets this project; wiring only.

Nothing heavy is imported here, and in a session without benchmarks no other plugin is registered
(:mod:`gpubench_plugin.session.start`).
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

# By file: to look the names up in their packages took 2 ms in every session that is started. So
# would `from package import module`, which asks the package for that name first.
import gpubench_plugin.hookspecs as hookspecs  # noqa: PLR0402
import gpubench_plugin.session.xdist as xdist  # noqa: PLR0402
from gpubench_plugin.bench.device import (  # noqa: F401 # fixtures, as all of this room
    gpubench_config,
    precision,
    process_group,
    torch_device,
    world_size,
)
from gpubench_plugin.bench.fixtures import (  # noqa: F401
    _gpubench_carrier,
    _gpubench_parts,
    collective,
    gpubench,
)
from gpubench_plugin.bench.systems import (  # noqa: F401
    _gpubench_generation,
    decode,
    diffusion,
    moe_layer,
    prefill,
)
from gpubench_plugin.bench.targets import (  # noqa: F401
    convergence,
    exposed_communication,
)
from gpubench_plugin.bench.training import (  # noqa: F401
    _gpubench_setting,
    data,
    inference,
    model,
    trainer,
    workload,
)
from gpubench_plugin.config.options import MARKS, add_options, is_asked_for, lend_short_names
from gpubench_plugin.config.parametrization import (
    fixture_names,
    is_adopted,
    is_benchmark,
    parametrize,
)
from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from gpubench_plugin.launchers import RunContext, Valve

_PROBLEM = pytest.StashKey[UsageProblem]()
_ROOT_SAYS_WITHIN_S: Final = 30
"""How much later than another rank, at most, rank zero comes to a problem that all have."""
_OUTPUT: pytest.StashKey[Valve] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register flags and ini keys."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hooks that others may implement."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> Iterator[None]:
    """Lend the short option names once everybody else has registered theirs."""
    yield
    lend_short_names(args, parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; check the flags, if any; hold back the output of other ranks."""
    for description in MARKS:
        config.addinivalue_line("markers", description)
    if "RANK" in os.environ:  # in other processes the launchers' 0.4 ms of imports are spared
        _become_rank(config)
    if is_asked_for(config) and not _holds_output_back(config):
        from gpubench_plugin.config import Settings

        _or_usage_error(Settings.from_config, config)
    if xdist.has_workers(config):
        config.pluginmanager.register(xdist.Controller(), "gpubench-neighbours")
        _say_if_gated(config, "nothing is judged with -n (pytest-xdist)")


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give benchmarks their cases, after the marks of their own."""
    config = metafunc.config
    if not is_benchmark(metafunc.definition, metafunc.fixturenames):
        return
    try:
        context = _context(config)
        joined = None if _is_gang_rank(config) else context.ranks.started
        parametrize(metafunc, context.settings, joined=joined)
    except UsageProblem as problem:
        # Raised here it would be a collection error with a traceback.
        config.stash[_PROBLEM] = problem


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start what runs and records the benchmarks of a session that has any."""
    config = session.config
    benchmarks = [item for item in session.items if is_benchmark(item, fixture_names(item))]
    own = [item for item in benchmarks if not is_adopted(item, fixture_names(item))]
    if own and xdist.refuse(session):
        return
    if xdist.is_worker(config):  # pytest-benchmark measures nothing there
        benchmarks = own
    if benchmarks or _PROBLEM in config.stash or _is_gang_rank(config):
        try:
            _or_usage_error(_start, session, benchmarks, after_s=_patience(config))
        except pytest.UsageError:
            _leave_unsaved(config)
            raise
    else:
        if not (xdist.is_worker(config) or _holds_output_back(config)):
            _say_if_gated(config, "it measured nothing: no benchmark was selected")
        if _OUTPUT in config.stash:
            config.stash[_OUTPUT].release()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[
    None, dict[str, Any] | None, dict[str, Any] | None
]:
    """Write the measurement on a benchmark's report as JSON, for whoever sends or stores it."""
    report = yield
    if report is not None and "gpubench" in report:
        from gpubench_plugin.launchers import report_payload

        report[report_payload.ATTRIBUTE] = report_payload.to_json(report[report_payload.ATTRIBUTE])
    return report


def _become_rank(config: pytest.Config) -> None:
    """Become the rank that the environment names, if any, and hold its output back."""
    from gpubench_plugin.launchers import GANG, Valve, is_secondary

    if GANG in os.environ:
        from gpubench_plugin.launchers.gang import GangRank, Invitation

        rank = GangRank(config, Invitation.accepted(os.environ))
        config.pluginmanager.register(rank, hookspecs.LAUNCHER)
    elif not is_secondary(os.environ):
        return
    # The terminal reporter, made after this, keeps the stream it finds in sys.stdout.
    config.stash[_OUTPUT] = output = Valve(sys.stdout)
    sys.stdout = output
    config.add_cleanup(lambda: setattr(sys, "stdout", output.terminal))


def _holds_output_back(config: pytest.Config) -> bool:
    """Whether this process is a rank of a gang, or one of torchrun's other than zero."""
    return _OUTPUT in config.stash


def _is_gang_rank(config: pytest.Config) -> bool:
    """Whether this process is a rank of a gang; asked before another launcher is registered."""
    return config.pluginmanager.hasplugin(hookspecs.LAUNCHER)


def _start(session: pytest.Session, benchmarks: list[pytest.Item]) -> None:
    from gpubench_plugin.config import resolve_case
    from gpubench_plugin.session import start_session

    config = session.config
    if _PROBLEM in config.stash:
        raise config.stash[_PROBLEM]
    _context(config)
    if _only_looks(config):
        resolve_case.check_marks(benchmarks)
    else:
        start_session(session, benchmarks, config.stash.get(_OUTPUT, None))


def _say_if_gated(config: pytest.Config, why: str) -> None:
    """A gate that measures nothing has not passed."""
    if config.getoption("gpubench_gate") is None or _only_looks(config):
        return
    from gpubench_plugin.session.gate import Unjudged

    config.pluginmanager.register(Unjudged(why), "gpubench-gate")


def _only_looks(config: pytest.Config) -> bool:
    """Whether pytest collects without running anything."""
    looks = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
    return any(config.getoption(name, default=False) for name in looks)


def _context(config: pytest.Config) -> RunContext:
    """The session's context, made when it is first asked for.

    Raises:
        UsageProblem: a flag, an ini key or the environment of a rank is wrong.
    """
    from gpubench_plugin.config import Settings
    from gpubench_plugin.distributed import Ranks
    from gpubench_plugin.launchers import CONTEXT, RunContext

    if CONTEXT not in config.stash:
        settings = Settings.from_config(config)
        config.stash[CONTEXT] = RunContext(settings=settings, ranks=Ranks(os.environ))
    return config.stash[CONTEXT]


def _or_usage_error(function: Any, *arguments: object, after_s: float = 0.0) -> None:
    """Call `function`; a problem of usage becomes pytest's own kind (exit code 4), said later."""
    try:
        function(*arguments)
    except UsageProblem as problem:
        time.sleep(after_s)
        raise pytest.UsageError(str(problem)) from None


def _leave_unsaved(config: pytest.Config) -> None:
    """Have pytest-benchmark not warn that it saves nothing: as an error, that hides the message."""
    from gpubench_plugin.results import pytest_benchmark

    if config.pluginmanager.hasplugin("benchmark"):
        pytest_benchmark.mute(config)


def _patience(config: pytest.Config) -> float:
    """How long this process leaves it to rank zero to say a problem of usage, in seconds.

    Under torchrun rank zero says it and leaves, and torchrun ends the other ranks. If one of them
    left first, torchrun would end rank zero before it has said anything. So they wait; a rank
    that is not ended meanwhile says it itself. A gang's controller listens to every rank.
    """
    waits = _holds_output_back(config) and not _is_gang_rank(config)
    return _ROOT_SAYS_WITHIN_S if waits else 0.0

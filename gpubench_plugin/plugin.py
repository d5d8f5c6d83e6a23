"""pytest hooks of the plugin; wiring only.

Nothing heavy is imported here, and in a session without benchmarks no other plugin is registered
(:mod:`gpubench_plugin.session.start`).
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.config.fixture_choice import FIXTURE_MODULES, choose
from gpubench_plugin.config.options import (
    BENCHMARK_PATHS,
    MARKS,
    add_options,
    expand_short_names,
    is_requested,
    refuse_unknown_ini_keys,
    suggest_options,
)
from gpubench_plugin.config.parametrization import (
    fixture_names,
    is_adopted,
    is_benchmark,
    parametrize,
)
from gpubench_plugin.config.settings import Settings
from gpubench_plugin.core import hookspecs
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.session import ending

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.output import DeferredStream

pytest_plugins: Final = FIXTURE_MODULES

_PROBLEM = pytest.StashKey[UsageProblem]()
_ROOT_DELAY_S: Final = 30
"""How long other ranks of torchrun wait for rank zero to report a usage error.

torchrun ends all ranks when one leaves, so that rank zero must leave first; a rank that is not
ended meanwhile reports the error itself. The controller of a gang listens to every rank.
"""
_FOLDER: Final = "benchmarks"
"""Collected by ranks of torchrun where no ini key names paths, if a test file is for gpubench."""
_SHARD: Final = "gpubench-shard"
_PATHS = pytest.StashKey[list[str]]()
"""Paths of the benchmarks that were added to the command line."""
_OUTPUT: pytest.StashKey[DeferredStream] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register command line options and ini keys."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hook specifications."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Iterator[None]:
    """Expand short option names, and suggest near ones, once all plugins have registered theirs.

    A rank joins its controller before any conftest could see the invitation. One of torchrun gets
    the paths of the benchmarks if it has none.
    """
    if "RANK" in os.environ:  # saves other processes the 0.4 ms of importing launchers
        _obey_controller(early_config)
    if "GPUBENCH_SHARD" in os.environ:
        from gpubench_plugin.session.shards.shard import ShardSession

        if (shard := ShardSession.of(early_config)) is not None:
            early_config.pluginmanager.register(shard, _SHARD)
    yield
    expand_short_names(args, parser)
    suggest_options(args, parser)
    if "RANK" in os.environ:
        early_config.stash[_PATHS] = paths = _benchmark_paths(early_config)
        args += paths


def _benchmark_paths(config: pytest.Config) -> list[str]:
    """Paths to collect instead of ``testpaths``; none where pytest's own choice stays.

    It stays in a gang, whose controller chooses, with a path on the command line, outside the
    rootdir, where pytest ignores ``testpaths`` too, and without ``testpaths``: all is collected.
    """
    options = config.known_args_namespace
    rank = config.pluginmanager.get_plugin(hookspecs.LAUNCHER)
    if options.gpubench_measure or (rank is not None and not rank.runs_all):
        return []
    if options.file_or_dir or config.invocation_params.dir != config.rootpath:
        return []
    if paths := config.getini(BENCHMARK_PATHS):
        return list(paths)
    if not config.getini("testpaths"):
        return []
    folder, patterns = config.rootpath / _FOLDER, config.getini("python_files")
    for file in (file for pattern in patterns for file in folder.rglob(pattern)):
        with suppress(OSError):
            if b"gpubench" in file.read_bytes():
                return [_FOLDER]
    return []


def pytest_report_header(config: pytest.Config) -> str | None:
    """The paths that a rank of torchrun got, since pytest's header names ``testpaths`` no more."""
    paths = config.stash.get(_PATHS, [])
    return f"torchrun without a path: collecting {', '.join(paths)}" if paths else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register marks, validate options, and defer the output of secondary ranks."""
    for description in MARKS:
        config.addinivalue_line("markers", description)
    if "RANK" in os.environ:
        _defer_output(config)
    if not _defers_output(config):
        with _usage_errors():
            refuse_unknown_ini_keys(config)
            if is_requested(config):
                Settings.from_config(config)
    if words := config.getoption("gpubench_measure"):
        from gpubench_plugin.config.model_request import ModelRequest
        from gpubench_plugin.session.generated_module import GeneratedModules

        with _usage_errors():
            plugin = GeneratedModules(ModelRequest.parse(words))
            config.pluginmanager.register(plugin, "gpubench-measure")
    if any("[" in argument for argument in config.args):
        from gpubench_plugin.session.nearest_id import NearestId

        config.pluginmanager.register(NearestId(config.args), "gpubench-ids")
    if ending.has_workers(config):
        config.pluginmanager.register(ending.XdistGuard(), "gpubench-neighbours")
        _report_unjudged_gate(config, "nothing is judged with -n (pytest-xdist)")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Answer mistakes in flags before tests are imported, and torch with them."""
    config = session.config
    is_other = _defers_output(config) or ending.is_worker(config) or _collects_only(config)
    if is_requested(config, by_flag=True) and not is_other:
        from gpubench_plugin.session.mistakes import check_options

        with _usage_errors():
            check_options(config, _context(config).settings)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Parametrize benchmarks after their own marks, once their fixtures are chosen."""
    config, names = metafunc.config, metafunc.fixturenames
    metafunc.fixturenames = choose(metafunc.definition)
    yield
    names += [name for name in metafunc.fixturenames if name not in names]
    metafunc.fixturenames = names
    if not is_benchmark(metafunc.definition, metafunc.fixturenames):
        return
    try:
        context = _context(config)
        rank = config.pluginmanager.get_plugin(hookspecs.LAUNCHER)
        is_gang = rank is not None and not rank.runs_all  # its controller chooses the sizes
        world_size = None if is_gang else context.ranks.started_world_size
        parametrize(metafunc, context.settings, world_size=world_size)
    except UsageProblem as error:
        # Raised here, it would be a collection error with a traceback.
        config.stash[_PROBLEM] = error


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember what there is to select from; choose the fixtures of what is never parametrized."""
    if getattr(item, "nofuncargs", not isinstance(item, pytest.Function)):
        choose(item)
    item.config.stash.setdefault(hookspecs.LEFT_OUT, set()).add(item.nodeid)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Keep what a plugin called before others, as stepwise, says that it has deselected."""
    for item in items:
        item.config.stash.setdefault(hookspecs.LEFT_OUT, set()).discard(item.nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what conftests, called before this, have left out: options have no say yet."""
    config.stash.setdefault(hookspecs.LEFT_OUT, set()).difference_update(i.nodeid for i in items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the launcher and the recording of a session with benchmarks."""
    if isinstance(sys.exception(), KeyboardInterrupt | pytest.exit.Exception):
        return  # the collection has been ended
    config = session.config
    benchmarks = [item for item in session.items if is_benchmark(item, fixture_names(item))]
    own_benchmarks = [item for item in benchmarks if not is_adopted(item, fixture_names(item))]
    if own_benchmarks and ending.refuse_in_worker(session):
        return
    if ending.is_worker(config):  # pytest-benchmark measures nothing there
        benchmarks = own_benchmarks
    if benchmarks or _PROBLEM in config.stash or _is_rank(config):
        try:
            _start(session, benchmarks)
        except (UsageProblem, pytest.UsageError) as error:
            if _defers_output(config) and not _is_rank(config):
                time.sleep(_ROOT_DELAY_S)
            if config.pluginmanager.hasplugin("benchmark"):
                from gpubench_plugin.results import pytest_benchmark

                # Its warning that nothing is saved may hide the message.
                pytest_benchmark.disable_output(config)
            if not ending.is_worker(config):
                raise pytest.UsageError(str(error)) from None
            ending.end_worker(session, str(error))  # raised, it would be an error within xdist
    else:
        if not (ending.is_worker(config) or _defers_output(config)):
            _report_unjudged_gate(config, "nothing was measured: no benchmark was selected")
            if config.getoption("gpubench_report") is not None:
                note = ending.Ending("no report: no benchmark was selected", pytest.ExitCode.OK)
                config.pluginmanager.register(note, "gpubench-report")
        if _OUTPUT in config.stash:
            config.stash[_OUTPUT].release()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report what is wrong with input in one line, also in a test that is no benchmark of ours."""
    report = yield
    error = call.excinfo
    if error is None or not error.errisinstance(UsageProblem):
        return report
    if not item.config.getoption("fulltrace", False):
        from gpubench_plugin.bench.user_frames import message_with_line

        report.longrepr = message_with_line(error, str(error.value))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Json | None, Json | None]:
    """Serialize the measurement on a benchmark's report as JSON."""
    report = yield
    if report is not None and "gpubench" in report:
        from gpubench_plugin.results import report_payload

        report[report_payload.ATTRIBUTE] = report_payload.to_json(report[report_payload.ATTRIBUTE])
    return report


def _obey_controller(config: pytest.Config) -> None:
    """Become a rank of the controller that has started this process, if one has.

    Raises:
        pytest.UsageError: it cannot be reached.
    """
    from gpubench_plugin.launchers.link import INVITATION, Invitation

    if text := os.environ.pop(INVITATION, ""):
        from gpubench_plugin.core.errors import GangError
        from gpubench_plugin.launchers.rank import Rank

        try:
            rank = Rank(config, Invitation.from_text(text))
        except GangError as error:
            raise pytest.UsageError(str(error)) from error
        config.pluginmanager.register(rank, hookspecs.LAUNCHER)


def _defer_output(config: pytest.Config) -> None:
    """Defer the output of a rank that a controller started, or torchrun's but for zero."""
    from gpubench_plugin.launchers import output as rank_output

    if _is_rank(config):
        rank_output.disable_output_before_configure(config)
    elif not rank_output.is_secondary(os.environ):
        return
    # The terminal reporter, made after this, keeps the stream it finds in sys.stdout.
    config.stash[_OUTPUT] = output = rank_output.DeferredStream(sys.stdout)
    sys.stdout = output
    config.add_cleanup(lambda: setattr(sys, "stdout", output.terminal))


def _defers_output(config: pytest.Config) -> bool:
    """Whether this process is a rank that a controller started, or torchrun's but for zero."""
    return _OUTPUT in config.stash


def _is_rank(config: pytest.Config) -> bool:
    """Whether a controller started this process as a rank; called before other launchers are."""
    return config.pluginmanager.hasplugin(hookspecs.LAUNCHER)


def _start(session: pytest.Session, benchmarks: list[pytest.Item]) -> None:
    from gpubench_plugin.config import resolve_case
    from gpubench_plugin.session.start import start_session

    config = session.config
    if _PROBLEM in config.stash:
        raise config.stash[_PROBLEM]
    _context(config)
    if _collects_only(config):
        resolve_case.check_marks(benchmarks)
    else:
        start_session(session, benchmarks, config.stash.get(_OUTPUT, None))


def _report_unjudged_gate(config: pytest.Config, cause: str) -> None:
    """Report that a gate without measurements has not passed."""
    if config.getoption("gpubench_gate") is None or _collects_only(config):
        return
    config.pluginmanager.register(ending.unjudged_gate(cause), "gpubench-gate")


def _collects_only(config: pytest.Config) -> bool:
    """Whether pytest only collects, without running tests."""
    options = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
    return any(config.getoption(name, default=False) for name in options)


def _context(config: pytest.Config) -> RunContext:
    """Context of the session, created at the first call.

    Raises:
        UsageProblem: a flag, an ini key or the environment of a rank is invalid.
    """
    from gpubench_plugin.launchers.context import CONTEXT, RunContext
    from gpubench_plugin.ranks.ranks import RankSession
    from gpubench_plugin.results.registry.locations import absolute_url

    if CONTEXT not in config.stash:
        settings = Settings.from_config(config)
        # A benchmark may change the working directory.
        registry = absolute_url(settings.registry, cwd=config.invocation_params.dir)
        settings = replace(settings, registry=registry)
        if (shard := config.pluginmanager.get_plugin(_SHARD)) is not None:
            settings = shard.settings(settings)
        elif settings.on:
            from gpubench_plugin.config.resolution import engine_section

            section = engine_section(settings, config.rootpath)
            if section.nodes > 1:  # torchrun has one world size
                settings = replace(settings, world_sizes=(section.nodes * section.ranks_per_node,))
        config.stash[CONTEXT] = RunContext(settings=settings, ranks=RankSession(os.environ))
    return config.stash[CONTEXT]


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Context in which a UsageProblem becomes pytest's usage error (exit code 4)."""
    try:
        yield
    except UsageProblem as error:
        raise pytest.UsageError(str(error)) from None

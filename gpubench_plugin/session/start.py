"""The start of a session with benchmarks: cases, launcher, recording and gate, in this order.

============ ================================== ======================
way to run   in the process the user started    in the other processes
============ ================================== ======================
plain        SessionRecorder, InProcessLauncher –
--on         SessionRecorder, Front             sessions of their own, each in one of these ways
gang         SessionRecorder, Controller        Rank
torchrun     SessionRecorder, Controller (0)    Rank, also for rank 0
============ ================================== ======================
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.bench.adoption import AdoptionPlugin
from gpubench_plugin.bench.hooks import BenchmarkHooks
from gpubench_plugin.bench.refusals import refusal
from gpubench_plugin.config.parametrization import displaced_by, fixture_names, id_of, is_adopted
from gpubench_plugin.config.resolve_case import CaseFactory, check_marks
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted, listed
from gpubench_plugin.core.hookspecs import LAUNCHER
from gpubench_plugin.environment.redaction import redact
from gpubench_plugin.launchers.context import (
    STATE,
    BenchmarkState,
    case_on_ranks,
    context_of,
    update_context,
)
from gpubench_plugin.launchers.in_process import InProcessLauncher, has_debugger
from gpubench_plugin.launchers.ways.base import launcher_of
from gpubench_plugin.session.ending import (
    UsageErrors,
    is_worker,
    measuring_disabled_option,
    unjudged_gate,
)
from gpubench_plugin.session.interruption import SignalInterrupt
from gpubench_plugin.session.mistakes import LOOKUP, check_options
from gpubench_plugin.system.scratch import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.launchers.output import DeferredStream
    from gpubench_plugin.launchers.rank import Rank
    from gpubench_plugin.launchers.ways.base import Launcher
    from gpubench_plugin.session.gate.confirmation import Confirmation
    from gpubench_plugin.session.gate.plugin import GatePlugin
    from gpubench_plugin.session.recording import SessionRecorder


def start_session(
    session: pytest.Session, items: Sequence[pytest.Item], output: DeferredStream | None
) -> None:
    """Resolve the case of every benchmark among `items`; register the plugins of the session.

    `output` holds back the output of a rank other than zero.

    Raises:
        UsageProblem: a mark, configuration, device or folder is wrong; nothing has been measured.
    """
    config, manager = session.config, session.config.pluginmanager
    if option := displaced_by(config):
        raise UsageProblem(f"{option}: gpubench requires pytest-benchmark; remove the option")
    world = context_of(config).ranks.world
    rank: Rank | None = manager.get_plugin(LAUNCHER)
    records = rank is None and world.is_root
    # Every process runs an adopted test as an ordinary one, and one of them measures it.
    if not (records or (rank is not None and rank.runs_all and world.is_root)):
        items = [item for item in items if not is_adopted(item, fixture_names(item))]
    if records and items and not is_worker(config):
        check_options(config, context_of(config).settings)
    _resolve_cases(config, items, is_rank=rank is not None)
    if any(item.stash[STATE].case.adopted for item in items):
        manager.register(AdoptionPlugin(), "gpubench-adopter")
    if rank is None and not world.is_root and items:
        from gpubench_plugin.launchers.ways import torchrun

        rank = torchrun.join(config, context_of(config))
    elif output is not None and rank is None:
        output.release()  # the ranks run nothing together
    launcher = rank or _choose_launcher(session, items)
    if not (items or rank):
        return
    gate_plugin = None
    if isinstance(launcher, InProcessLauncher):
        if not is_worker(config):  # where measuring is off
            gate_plugin = _record(session, items, launcher)
        _deselect_resumed(session)
        manager.register(SignalInterrupt(session, launcher), "gpubench-interruption")
    launcher.start(session, items)
    if rank is not None and manager.hasplugin(LAUNCHER):  # again, as the last of all plugins
        manager.unregister(rank)
    manager.register(launcher, LAUNCHER)
    manager.register(BenchmarkHooks(config, is_replaceable=rank is not None), "gpubench-hooks")
    if gate_plugin is not None:  # last, since the launcher may deselect items
        gate_plugin.add_items(session, items)


def _deselect_resumed(session: pytest.Session) -> None:
    """Deselect the benchmarks that a resumed run has measured."""
    resumed = context_of(session.config).resumed
    if items := [item for item in session.items if id_of(item) in resumed]:
        session.items[:] = [item for item in session.items if id_of(item) not in resumed]
        session.config.hook.pytest_deselected(items=items)


def _choose_launcher(
    session: pytest.Session, benchmarks: Iterable[pytest.Item]
) -> InProcessLauncher:
    """Plugin that runs the `benchmarks`, not started yet.

    Raises:
        UsageProblem: a flag does not go with this way to run.
    """
    if is_worker(session.config):  # it starts no ranks: tests of several are skipped
        return InProcessLauncher(session.config)
    if context_of(session.config).settings.on:
        from gpubench_plugin.session.shards.front import Front

        return Front(session.config)
    cases = [case for item in benchmarks if (case := case_on_ranks(item)) is not None]
    way = launcher_of(context_of(session.config), cases)
    if way is None:
        return InProcessLauncher(session.config)
    from gpubench_plugin.launchers.controller import Controller

    return Controller(session.config, way)


def _resolve_cases(config: pytest.Config, items: Sequence[pytest.Item], *, is_rank: bool) -> None:
    """Resolve the cases; in the process that records, also ask their components.

    Raises:
        UsageProblem: naming what is wrong, and for which benchmarks.
    """
    context = context_of(config)
    is_front = bool(context.settings.on)  # whose shards know their components
    asks_components = context.ranks.world.is_root and not (is_rank or is_front)
    cases = CaseFactory(
        context.settings,
        config.rootpath,
        local_rank=context.ranks.world.local_rank,
        checks_free_memory=not (is_rank or context.ranks.started_world_size),
    )
    update_context(config, cases=cases)
    refusals: dict[str, list[str]] = {}
    for item in items:
        try:
            check_marks([item])
            case = cases.of(item)
        except UsageProblem as error:
            reason = str(error).removeprefix(f"{item.nodeid}: ")
        else:
            item.stash[STATE] = BenchmarkState(case=case)
            is_left_out = case.adopted or case.skip_reason(context.ranks.started_world_size)
            reason = refusal(item, case) if asks_components and not is_left_out else ""
        if reason:
            refusals.setdefault(reason, []).append(item.nodeid)
    if refusals:
        raise UsageProblem(redact(refusal_text(refusals)))


def _record(
    session: pytest.Session, items: Sequence[pytest.Item], launcher: InProcessLauncher
) -> GatePlugin | None:
    """Open the run, in the one process that writes; return its gate, if any."""
    from gpubench_plugin.session.recording import SessionRecorder

    config, manager = session.config, session.config.pluginmanager
    settings, lookup = context_of(config).settings, config.stash[LOOKUP]
    recording = SessionRecorder(config, {item.nodeid: item.stash[STATE].case for item in items})
    recording.start()
    manager.register(recording, "gpubench-recording")
    world_size = context_of(config).ranks.started_world_size
    usage_errors = UsageErrors(recorder=recording, started_world_size=world_size)
    manager.register(usage_errors, "gpubench-usage-errors")
    if config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) > 0:  # a line per test
        from gpubench_plugin.session.result_words import ResultWords

        own_ids = {i.nodeid for i in items if not i.stash[STATE].case.adopted}
        manager.register(ResultWords(recording, settings, own_ids), "gpubench-result-words")
    if settings.report is not None:
        from gpubench_plugin.session.report import ReportWriter

        file = config.invocation_params.dir / settings.report
        writer = ReportWriter(file, recording, settings.registry)
        manager.register(writer, "gpubench-report")
    if lookup is None:
        return None
    if option := measuring_disabled_option(config):
        if settings.gate:
            manager.register(unjudged_gate(f"nothing is judged with {option}"), "gpubench-gate")
        return None
    from gpubench_plugin.session.gate.judgement import GateJudgement
    from gpubench_plugin.session.gate.lookup import fix_rounds
    from gpubench_plugin.session.gate.plugin import GatePlugin, RemovedBenchmarks

    notes = fix_rounds(items, lookup, recording.run_of(recording.measurements.values()))
    lookup = replace(lookup, notes=(*lookup.notes, *notes))
    confirmation = _confirmation(config, recording, launcher)
    judgement = GateJudgement(recording, lookup, RemovedBenchmarks(session), confirmation)
    gate_plugin = GatePlugin(config, judgement)
    recording.close_gate, recording.failed_verdicts = gate_plugin.close, gate_plugin.failed_ids
    manager.register(gate_plugin, "gpubench-gate")
    return gate_plugin


def _confirmation(
    config: pytest.Config, recording: SessionRecorder, launcher: InProcessLauncher
) -> Confirmation:
    """Confirmation of alarms; without a launch where no process can be started."""
    from gpubench_plugin.session.gate.confirmation import Confirmation

    if context_of(config).ranks.started_world_size or not launcher.replaces_ranks:
        cause = "pytest cannot restart ranks that it has not started"
        return Confirmation(recording, None, why_not=cause)
    if has_debugger(config):
        return Confirmation(recording, None, why_not="a debugger uses the terminal (--pdb)")
    if context_of(config).settings.on:
        from gpubench_plugin.session.shards.front import Front

        assert isinstance(launcher, Front)
        return Confirmation(recording, launcher.remeasure)

    def launch(
        items: Sequence[pytest.Item], rounds: Mapping[str, FixedRounds]
    ) -> Iterator[Measurement]:
        from gpubench_plugin.launchers.controller import Controller
        from gpubench_plugin.launchers.ways.gang import FreshProcess, Gang

        way: Launcher = Gang()
        if isinstance(launcher, Controller):
            way = launcher.launcher
            launcher.close()  # one team measures at a time
        with private_folder() as folder:  # files of these ranks are not part of the run
            for adopted, starter in ((False, way), (True, FreshProcess())):
                own = [item for item in items if item.stash[STATE].case.adopted is adopted]
                if own:
                    yield from Controller(config, starter, folder.path).remeasure(own, rounds)

    return Confirmation(recording, launch)


_SHOWN: Final = 4
"""Reasons in a message."""


def refusal_text(refusals: Mapping[str, list[str]]) -> str:
    """Why a session starts no benchmark: the ids of tests by reason."""
    return listed([_line(reason, ids) for reason, ids in refusals.items()], _SHOWN, "\n")


def _line(reason: str, ids: list[str]) -> str:
    if reason.startswith("--"):  # an option is refused, whichever benchmark meets it first
        return reason
    more = f" (and {counted(len(ids) - 1, 'more benchmark')})" if len(ids) > 1 else ""
    return f"{ids[0]}: {reason}{more}"

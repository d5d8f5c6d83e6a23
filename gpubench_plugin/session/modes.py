"""Which roles this process plays in a session with benchmarks, and how they come together.

=========== ================================== =====================================
way to run  in the process the user started    in the other processes
=========== ================================== =====================================
plain       Session, Rank, Alone
gang        Session, Controller                Rank, Worker
torchrun    Session, Rank, Torchrun (rank 0)   Rank, Torchrun
=========== ================================== =====================================
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.config import Cases, check_marks, fixture_names, is_adopted
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.launchers import (
    STATE,
    Alone,
    BenchmarkState,
    Interruption,
    PrivateFolder,
    Rank,
    Residents,
    case_on_ranks,
    context_of,
)
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.registry import absolute
from gpubench_plugin.session.adoption import Adopter
from gpubench_plugin.session.gate import Unjudged, measuring_is_off
from gpubench_plugin.session.run import Kept
from gpubench_plugin.session.xdist import is_worker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pytest

    from gpubench_plugin.config import Case, FrozenRounds
    from gpubench_plugin.launchers import Valve
    from gpubench_plugin.launchers.gang import Worker
    from gpubench_plugin.records import Measurement
    from gpubench_plugin.session.gate import Confirmation, Gate, Lookup
    from gpubench_plugin.session.recording import Session


class Roles:
    """The roles of this process, decided once the benchmarks are known."""

    def __init__(self, session: pytest.Session):
        self._session = session
        self._config = session.config
        context = context_of(self._config)
        here = self._config.invocation_params.dir  # a benchmark may change the folder
        registry = absolute(context.settings.registry, here=here)
        self._settings = replace(context.settings, registry=registry)
        self._ranks = context.ranks
        self._gate: Gate | None = None

    def start(
        self, items: Sequence[pytest.Item], valve: Valve | None, worker: Worker | None
    ) -> None:
        """Resolve the case of every benchmark among `items`, and take up the roles.

        `valve` holds this process' output back, `worker` is its part in a gang, where it has one.

        Raises:
            UsageProblem: a mark, configuration, device or folder is wrong; nothing has been
                measured.
        """
        if not self._config.pluginmanager.hasplugin("benchmark"):
            raise UsageProblem("-p no:benchmark: benchmarks need pytest-benchmark; remove the flag")
        check_marks(items)
        cases = Cases(
            self._settings, self._config.rootpath, local_rank=self._ranks.world.local_rank
        )
        own = [item for item in items if not is_adopted(item, fixture_names(item))]
        # An adopted test is run by every process as an ordinary one, and recorded by one of them.
        items = items if worker is None and self._ranks.world.is_root else own
        for item in items:
            item.stash[STATE] = BenchmarkState(case=cases.of(item))
        if len(items) > len(own):
            self._register(Adopter(), "gpubench-adopter")
        if worker is not None:
            self._obey(worker, own)
        elif self._ranks.world.size > 1:
            self._join(items, own, valve)
        elif own and self._needs_gang(own):
            self._control(items)
        else:
            self._run(items)
        if self._gate is not None:  # now that nobody changes what runs any more
            self._gate.add_items(self._session, items)

    def _run(self, items: Sequence[pytest.Item]) -> None:
        self._open(items)
        self._register(Interruption(), "gpubench-interruption")
        self._measure()
        if not self._debugs():
            self._register(Alone(self._settings), "gpubench-alone")

    def _control(self, items: Sequence[pytest.Item]) -> None:
        if self._debugs():
            raise UsageProblem(
                "--pdb: a debugger needs the terminal to itself, and a gang has several ranks; "
                "debug one rank in this process with --world-size=1"
            )
        from gpubench_plugin.launchers.gang import Controller

        session = self._open(items)
        # Every gang starts once; what needs none runs before, so that its fixtures end first.
        self._session.items.sort(key=_world_size)
        if session is not None:
            self._register(Interruption(), "gpubench-interruption")
            controller = Controller(self._config, self._settings, session.path)
            self._register(controller, "gpubench-controller")
        if any(case.adopted for case in _cases(items)):
            self._measure()
            self._register(Alone(self._settings, adopted=True), "gpubench-alone")

    def _obey(self, worker: Worker, items: Sequence[pytest.Item]) -> None:
        pytest_benchmark.mute(self._config)
        self._measure()
        worker.join(items, self._ranks)

    def _join(
        self, items: Sequence[pytest.Item], own: Sequence[pytest.Item], valve: Valve | None
    ) -> None:
        self._refuse_within_torchrun()
        if not own:  # nothing that the ranks run together
            if valve is not None:
                valve.release()
            if items:
                self._run(items)
            return
        from gpubench_plugin.launchers.torchrun import Torchrun

        torchrun = Torchrun(self._session, self._settings, self._ranks)
        session = self._open(items)
        kept = torchrun.join(
            own,
            run=session.path if session else None,
            kept=session.kept if session else (),
            valve=valve,
        )
        if session is None:
            self._leave_out(kept)
        self._measure()
        self._register(torchrun, "gpubench-torchrun")

    def _refuse_within_torchrun(self) -> None:
        settings, size = self._settings, self._ranks.world.size
        asked = {
            "--world-size": settings.world_sizes,
            "--launches": settings.launches > 1,
            "--isolate": settings.isolate,
        }
        for flag, given in asked.items():
            if given:
                raise UsageProblem(
                    f"{flag}: pytest starts the ranks itself then, but torchrun has started {size} "
                    f"(WORLD_SIZE={size}); leave the flag out, or run pytest without torchrun"
                )

    def _measure(self) -> None:
        self._register(Rank(self._ranks.world, self._config.rootpath), "gpubench-rank")
        self._register(Residents(), "gpubench-residents")

    def _debugs(self) -> bool:
        return bool(self._config.getoption("usepdb") or self._config.getoption("trace"))

    def _needs_gang(self, items: Sequence[pytest.Item]) -> bool:
        """Whether any benchmark runs on several ranks, or is to have processes of its own.

        Then all do: what one process measured is compared with nothing but other processes.
        """
        sizes = [case.world_size for case in _cases(items) if case.refusal() is None]
        return self._settings.isolate or self._settings.launches > 1 or max(sizes, default=1) > 1

    def _open(self, items: Sequence[pytest.Item]) -> Session | None:
        """Start the session's run directory, in the one process that writes."""
        if not self._ranks.world.is_root or is_worker(self._config):
            return None
        from gpubench_plugin.session.recording import Session

        lookup = self._baseline()
        session = Session(self._config, self._settings, list(_cases(items)))
        session.start()
        self._register(session, "gpubench-session")
        if lookup is not None:
            self._judge(session, self._frozen(items, session, lookup))
        self._leave_out(session.kept)
        return session

    def _baseline(self) -> Lookup | None:
        """What is to be compared with, before anything is written; None without ``--baseline``."""
        if not self._settings.baseline:
            return None
        from gpubench_plugin.session.gate import Lookup

        return Lookup.early(self._settings, self._config.invocation_params.dir)

    def _frozen(self, items: Sequence[pytest.Item], session: Session, lookup: Lookup) -> Lookup:
        """The `items` are timed in the rounds of what `lookup` has, which then says so."""
        from gpubench_plugin.session.gate import freeze

        notes = freeze(items, lookup, session.run())
        return replace(lookup, notes=(*lookup.notes, *notes))

    def _judge(self, session: Session, lookup: Lookup) -> None:
        """Compare what will be measured; where measuring is off there is nothing to compare."""
        if off := measuring_is_off(self._config):
            if self._settings.gate:
                self._register(Unjudged(f"nothing is judged with {off}"), "gpubench-gate")
            return
        from gpubench_plugin.session.gate import Gate, Judgement, Removal

        confirmation = self._confirmation(session)
        judgement = Judgement(session, lookup, Removal(self._session), confirmation)
        self._gate = Gate(self._config, lookup, judgement, confirmation)
        session.judged_by(self._gate)
        self._register(self._gate, "gpubench-gate")

    def _confirmation(self, session: Session) -> Confirmation:
        """Who launches a benchmark again that a history calls regressed."""
        from gpubench_plugin.session.gate import Confirmation

        if self._ranks.world.size > 1:
            why = "pytest cannot start the ranks that torchrun has started"
            return Confirmation(session, None, why_not=why)
        if self._debugs():
            return Confirmation(session, None, why_not="a debugger has the terminal (--pdb)")

        def launch(
            items: Sequence[pytest.Item], rounds: Mapping[str, FrozenRounds]
        ) -> Iterator[Measurement]:
            from gpubench_plugin.launchers.gang import Controller

            if known := self._config.pluginmanager.get_plugin("gpubench-controller"):
                known.close()  # one gang measures at a time
            with PrivateFolder() as folder:  # what the ranks write is no part of the run
                controller = Controller(self._config, self._settings, folder)
                yield from controller.launch_again(items, rounds)

        return Confirmation(session, launch)

    def _leave_out(self, kept: Collection[str]) -> None:
        """Do not run what a resumed run has measured already."""
        if kept:
            role = Kept(kept)
            role.deselect(self._session)
            self._register(role, "gpubench-kept")

    def _register(self, role: object, name: str) -> None:
        self._config.pluginmanager.register(role, name)


def _cases(items: Sequence[pytest.Item]) -> Iterator[Case]:
    return (item.stash[STATE].case for item in items)


def _world_size(item: pytest.Item) -> int:
    case = case_on_ranks(item)
    return 0 if case is None else case.world_size

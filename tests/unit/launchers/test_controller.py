"""What the controller asks of gangs, with gangs that start no process."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gpubench_plugin.launchers.gang import controller
from gpubench_plugin.launchers.gang.controller import GangController

from gpubench_plugin.config.case import Case
from gpubench_plugin.config.marks import BenchmarkMark
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.environment.devices import Device
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.context import CONTEXT, STATE, BenchmarkState, RunContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.launchers.outcome import RankOutcome

    EndedMaker = Callable[..., RankOutcome]


class Gang:
    """Runs nothing; notes what it is asked for, and what it is told is next."""

    is_idle = True

    def __init__(self, noted: list[Any], ending: RankOutcome, size: int, **_: Any):
        self.size = size
        self._noted = noted
        self._ending = ending

    def run(
        self,
        test: str,
        following: str | None,
        patience: object,
        rounds: object,
        *,
        on_event: object,
    ) -> list[RankOutcome]:
        self._noted.append((self.size, test, following))
        return [self._ending]

    def lost_ranks(self) -> str:
        return ""

    def is_healthy(self, grace_s: float) -> bool:
        return True

    def close(self) -> None:
        self._noted.append("closed")

    def kill(self) -> None:
        self._noted.append("killed")


def item(name: str, world_size: int) -> Any:
    """A test, of so many ranks."""
    case = Case(
        id=name,
        params={},
        mark=BenchmarkMark(ranks="any"),
        world_size=world_size,
        device=Device(torch_name="cpu", model="a CPU", memory_gib=None),
        configuration=Configuration[ModelSection](model=ModelSection()),
    )
    stash = pytest.Stash()
    stash[STATE] = BenchmarkState(case=case)
    hook = SimpleNamespace(
        pytest_runtest_logstart=lambda **_: None,
        pytest_runtest_logreport=lambda **_: None,
        pytest_runtest_logfinish=lambda **_: None,
    )
    return SimpleNamespace(
        nodeid=name, name=name, location=(name, 0, name), stash=stash, ihook=hook
    )


def test_fixtures_live_on_for_the_next_test_of_the_same_gang_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, came_to_end: EndedMaker
) -> None:
    """Before another gang is started they are torn down: what they hold, it may need."""
    noted: list[tuple[int, str, str | None]] = []
    monkeypatch.setattr(controller, "Gang", partial(Gang, noted, came_to_end(0)))
    role = controller_in(tmp_path)
    tests = [item("a", 1), item("b", 1), item("c", 2), item("d", 2)]
    for test, following in zip(tests, [*tests[1:], None], strict=True):
        assert role.pytest_runtest_protocol(test, following)
    assert noted == [(1, "a", "b"), (1, "b", None), "closed", (2, "c", "d"), (2, "d", None)]


@pytest.mark.parametrize(
    ("kind", "is_lost", "ended"),
    [("crashed", True, "killed"), ("skipped", True, "killed"), ("failed", False, None)],
    ids=["lost", "expected to be lost", "failed"],
)
def test_process_that_lost_its_context_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    came_to_end: EndedMaker,
    reported: Callable[..., pytest.TestReport],
    kind: str,
    is_lost: bool,
    ended: str | None,
) -> None:
    """Also of a single rank, which goes on after a mere failure; it is not asked to leave."""
    noted: list[Any] = []
    report = reported(outcome="failed", kind=kind, reason="of the device")
    if is_lost:
        report_payload.mark_context_lost(report)
    monkeypatch.setattr(controller, "Gang", partial(Gang, noted, came_to_end(0, report)))
    role = controller_in(tmp_path)
    tests = [item("a", 1), item("b", 1)]
    for test, following in zip(tests, [tests[1], None], strict=True):
        role.pytest_runtest_protocol(test, following)
    between = [] if ended is None else [ended]
    assert [(1, "a", "b"), *between, (1, "b", None)] == noted


def controller_in(folder: Path) -> GangController:
    """A controller whose gangs write into that folder."""
    config: Any = SimpleNamespace(
        getoption=lambda *_: "fd",
        invocation_params=SimpleNamespace(dir=folder, args=()),
        stash=pytest.Stash(),
    )
    settings: Any = SimpleNamespace(launches=1, isolate=False, timeout_s=60.0)
    config.stash[CONTEXT] = RunContext(settings=settings, ranks=settings)
    return GangController(config, folder)

"""``gpubench ab`` killed wherever it writes down what it has done; only the launches are fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.ab.comparison import new_state, resolve_sides
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.saved_state import STATE_FILE, LaunchRecord, SavedState
from tests.support.kill_points import Scenario, survive, unwatched
from tests.unit.cli.ab.stage import Fake, Stage, clear, stage_in

if TYPE_CHECKING:
    from tests.support.kill_points import Ended

pytestmark = pytest.mark.slow


LAUNCHES = 12
"""The warm-up pair and five pairs, after which all is decided."""
APART = 13
"""Twelve times the same is written: so far apart, all there is to kill at is met in turn."""


class Comparing(Scenario):
    """A comparison from its begin to its verdicts."""

    def __init__(self, write_run: Callable[..., Path]):
        self._write_run = write_run

    def prepare(self, folder: Path) -> None:
        stage_in(folder, self._write_run)

    def act(self, folder: Path, ended: Ended) -> None:
        with unwatched():  # the trees are the user's
            stage = stage_in(folder, self._write_run)
        self._run(stage, stage.state(), ended)

    def _run(self, stage: Stage, state: SavedState, ended: Ended) -> None:
        class Launcher(Fake):
            def launch(self, *order: Any, **more: Any) -> LaunchRecord:
                if self.orders:  # the one before is written down
                    ended("a launch")
                with unwatched():
                    return super().launch(*order, **more)

        self.fake = Launcher(self._write_run, clear)
        self.verdicts = stage.runner(self.fake, state).run().comparison().verdicts

    def again(self, folder: Path) -> None:
        stage = stage_in(folder, self._write_run)
        state = (
            SavedState.read(stage.folder) if (stage.folder / STATE_FILE).exists() else stage.state()
        )
        self.before = len(state.launches)
        self._run(stage, state, lambda _: None)

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        if ended:
            assert len(SavedState.read(folder / "ab").launches) >= len(ended)

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        verdicts = {verdict.id: verdict.kind for verdict in self.verdicts}
        assert verdicts == {"t::slow": "regressed", "t::same": "unchanged"}
        kept = self.before // 2 * 2
        warmup_again = 2 if 0 < kept < LAUNCHES else 0
        assert len(self.fake.orders) == LAUNCHES - kept + warmup_again
        done = SavedState.read(folder / "ab").launches
        assert len({launch.folder for launch in done}) == len(done)


@pytest.mark.exhaustive
def test_a_kill_at_any_point_loses_no_launch(
    write_run: Callable[..., Path], in_memory: Path
) -> None:
    """What had ended is not measured again, but for half a pair, and the verdicts are the same."""
    survive(Comparing(write_run), in_memory, apart=APART)


class Beginning(Scenario):
    """A comparison is begun, the first one in this folder of results."""

    def __init__(self, repository: Path):
        self._asked = Request(here=repository, base="main")

    def act(self, folder: Path, ended: Ended) -> None:
        new_state(folder, self._asked, resolve_sides(self._asked))

    def again(self, folder: Path) -> None:
        self.latest = new_state(folder, self._asked, resolve_sides(self._asked))

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        assert SavedState.read(self.latest.folder).seed == self.latest.seed
        assert (folder / "ab" / ".gitignore").read_text() == "*\n"


@pytest.mark.exhaustive
def test_a_kill_at_any_point_of_the_begin_leaves_results_ignored(
    repo: Any, in_memory: Path
) -> None:
    """Else git would take the next results for uncommitted changes."""
    survive(Beginning(repo.path), in_memory)

"""Where comparisons take place, with launches that take no time."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.runner import ComparisonRunner, Progress
from gpubench_plugin.cli.ab.saved_state import LaunchRecord, SavedState
from gpubench_plugin.cli.ab.sides import Side, resolve_side
from gpubench_plugin.compare.effective_limits import SideName

Times = Mapping[str, float | str]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a launch was told."""

    side: Side
    folder: Path
    timeout_s: float
    leave_out: Sequence[str]
    rounds: Path | None


@dataclass
class Fake:
    """Launches that write runs: `times` gives what is measured by side and number of the launch.

    `endings` says for the launches by number what went wrong, `flags` what all of their benchmarks
    raised.
    """

    write: Callable[..., Path]
    times: Callable[[SideName, int], Times]
    endings: dict[int, LaunchRecord] = field(default_factory=dict)
    flags: dict[int, tuple[str, ...]] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    interrupted_at: int = 0
    said: str = ""

    def launch(
        self,
        side: Side,
        folder: Path,
        *,
        timeout_s: float,
        leave_out: Sequence[str] = (),
        rounds: Path | None = None,
    ) -> LaunchRecord:
        order = Order(
            side=side, folder=folder, timeout_s=timeout_s, leave_out=leave_out, rounds=rounds
        )
        self.orders.append(order)
        number = len(self.orders)
        (folder / "report").mkdir(parents=True)
        if number == self.interrupted_at:
            raise KeyboardInterrupt
        if number in self.endings:
            (folder / "output.txt").write_text(self.said)
            return replace(self.endings[number], side=side.name)
        times = self.times(side.name, number)
        going = {name: time for name, time in times.items() if name not in leave_out}
        flags = self.flags.get(number, ())
        run = "results/default/r1"
        self.write(folder / run, going, rounds=7 + number, flags=flags)
        return LaunchRecord(side=side.name, seconds=2.0, run=run)

    @property
    def sides(self) -> str:
        """Whose turn it was, by initial."""
        return "".join(order.side.name[0] for order in self.orders)


@dataclass
class Stage:
    """Where comparisons take place."""

    folder: Path
    sides: dict[SideName, Side]
    write: Callable[..., Path]
    output: io.StringIO = field(default_factory=io.StringIO)

    def runner(
        self,
        fake: Fake,
        state: SavedState | None = None,
        *,
        now: Callable[[], float] = lambda: 0.0,
        **asked: object,
    ) -> ComparisonRunner:
        """A comparison that may call things unchanged by five pairs, which is quickest."""
        state = state or self.state()
        state.request = Request(here=self.folder, base="main", **{"unchanged_from": 5, **asked})
        return ComparisonRunner(
            state=state,
            sides=self.sides,
            repository=None,
            launcher=fake,
            progress=Progress(self.output),
            now=now,
        )

    def state(self) -> SavedState:
        asked = Request(here=self.folder, base="main")
        made = SavedState(folder=self.folder, request=asked, identity={}, seed=0)
        made.write()
        return made

    def fake(self, times: Callable[[SideName, int], Times], **more: object) -> Fake:
        return Fake(self.write, times, **more)


def stage_in(folder: Path, write_run: Callable[..., Path]) -> Stage:
    """The trees of both sides, and beside them the folder of the comparison."""
    sides = {}
    for name in ("base", "head"):
        tree = folder / name
        tree.mkdir(exist_ok=True)
        (tree / "code.py").touch()
        sides[name] = resolve_side(name, f"../{name}", None, cwd=tree, repository=None)
    (folder / "ab").mkdir(exist_ok=True)
    return Stage(folder / "ab", sides, write_run)


def clear(side: SideName, number: int) -> Times:
    """One benchmark is 30% slower, the other as fast, with a little noise."""
    noise = 1 + number % 3 * 1e-4
    return {"t::slow": (1.3 if side == "head" else 1.0) * noise, "t::same": noise}

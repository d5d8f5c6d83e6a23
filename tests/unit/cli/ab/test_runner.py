"""The course of a comparison, with launches that take no time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.ab.comparison import advice
from gpubench_plugin.cli.ab.runner import fix_rounds, side_order
from gpubench_plugin.cli.ab.saved_state import LaunchRecord, Look, SavedState
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.tracker import Tracker
from gpubench_plugin.compare.effective_limits import SideName
from gpubench_plugin.config import rounds_file
from gpubench_plugin.core.errors import NothingComparable, ResultsError, UsageProblem
from gpubench_plugin.core.records import Run
from tests.support.made import timed
from tests.support.messages import mentions
from tests.unit.cli.ab.stage import Fake, Stage, Times, clear, stage_in

pytestmark = pytest.mark.slow  # git makes the trees

ALIKE = timed(1.0, "a")
NOISE = (1.0, 1.2, 0.8, 1.1, 0.9)


@pytest.fixture
def stage(in_memory: Path, write_run: Callable[..., Path]) -> Stage:
    return stage_in(in_memory, write_run)


def one_is_noisy(side: SideName, number: int) -> Times:
    noisy = NOISE[number % 5] if side == "head" else 1.0
    return {**clear(side, number), "t::noisy": noisy}


def a_little_noisy(side: SideName, number: int) -> Times:
    return {"t::noisy": 0.9 + NOISE[number % 5] / 10}


def test_the_time_that_is_left_is_said(stage: Stage) -> None:
    """The longest, and after a look what its reasons make likely; launches take two seconds."""
    fake = stage.fake(a_little_noisy)
    needed = stage.runner(fake, pairs=10).run().pairs_needed
    assert needed is not None
    said = stage.output.getvalue()
    assert mentions(said, "launch 3 of 22, pair 1 ", "10, head, 1 benchmark, at most 40 s left")
    more = stage.fake(a_little_noisy)
    stage.runner(more, SavedState.read(stage.folder), pairs=100).run()
    likely = f"at most {4 * 90 // 60} min left, about {4 * (needed - 10)} s expected"
    assert mentions(stage.output.getvalue(), "launch 23 of 202, pair 11 of at most 100", likely)


def test_pairs_are_interleaved_until_all_is_decided(stage: Stage) -> None:
    """Each side first in turns; rounds and timeouts follow from the warm-up pair."""
    fake = stage.fake(clear)
    tracker = stage.runner(fake).run()
    assert fake.sides == "bhhbbhhbbhhb"
    kinds = {v.id: v.kind for v in tracker.comparison().verdicts}
    assert kinds == {"t::slow": "regressed", "t::same": "unchanged"}
    assert [order.rounds is None for order in fake.orders] == [True, True] + [False] * 10
    frozen = json.loads(fake.orders[-1].rounds.read_text())
    assert frozen["benchmarks"]["t::slow"]["rounds"] == 9
    assert {order.timeout_s for order in fake.orders[2:]} == {2.0 * 10 + 660}
    asked = stage.fake(clear)
    again = SavedState(folder=stage.folder / "2", request={}, identity={}, seed=0)
    again.folder.mkdir()
    stage.runner(asked, again, launch_timeout_s=9.0).run()
    assert {order.timeout_s for order in asked.orders} == {9.0}


@pytest.mark.slow
def test_only_the_undecided_go_on(stage: Stage) -> None:
    """After the first look the decided benchmarks are left out, up to the last pair asked for."""
    fake = stage.fake(one_is_noisy)
    stage.runner(fake, pairs=10).run()
    assert len(fake.orders) == 2 + 20
    last = fake.orders[-1]
    assert last.leave_out == ["t::slow", "t::same"]
    said = stage.output.getvalue()
    assert mentions(said, "judged 5 pairs: 2 of 3 verdicts", "1 benchmark is inconclusive")


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3, 6])
def test_an_interrupted_comparison_goes_on(stage: Stage, at: int) -> None:
    """Whole pairs are kept, half a pair runs again, and the verdicts are those of one go."""
    first = stage.fake(clear, interrupted_at=at)
    with pytest.raises(KeyboardInterrupt):
        stage.runner(first).run()
    second = stage.fake(clear)
    tracker = stage.runner(second, SavedState.read(stage.folder)).run()
    kept = (at - 1) // 2 * 2
    more = 12 - kept + (2 if kept else 0)  # it is warmed up again
    assert len(second.orders) == more
    assert tracker.comparison().count("regressed") == 1
    assert len({order.folder for order in first.orders + second.orders}) == at + more


def test_a_comparison_that_goes_on_warms_up_again(stage: Stage) -> None:
    """Byte code was lost meanwhile; the suite and the rounds are still those of the first time."""
    with pytest.raises(KeyboardInterrupt):
        stage.runner(stage.fake(clear, interrupted_at=5)).run()
    rounds = (stage.folder / "rounds.json").read_text()
    again = stage.fake(lambda side, number: {**clear(side, number), "t::late": 1.0})
    tracker = stage.runner(again, SavedState.read(stage.folder)).run()
    assert again.sides == "bhbhhbbhhb"
    done = SavedState.read(stage.folder).launches
    assert [(one.pair, one.attempt) for one in done[4:6]] == [(0, 2), (0, 2)]
    assert tracker.suite == 2
    assert (stage.folder / "rounds.json").read_text() == rounds
    said = stage.output.getvalue()
    assert "launch 3 of 32, warm-up pair (repeated), base" in said
    assert "launch 5 of 32, pair 2 of at most 15, base" in said


def test_a_disturbed_pair_is_measured_again(stage: Stage) -> None:
    """Both sides of it, before the look; its first launches stay in the record with the reason."""
    fake = stage.fake(clear, flags={4: ("contended", "unsteady")})
    runner = stage.runner(fake)
    tracker = runner.run()
    assert fake.sides == "bhhbbhhbbhhb" + "hb"
    state = SavedState.read(stage.folder)
    first, again = state.all_attempts(1)
    assert {one.replaced for one in first.values()} == {"base: contended"}
    assert state.pair_launches(1) == again
    assert {v.launches for v in tracker.comparison().verdicts} == {5}
    said = stage.output.getvalue()
    assert mentions(said, "pair 1 was disturbed (base: contended)", "again")
    assert mentions(said, "launch 13 of 34, pair 1 ", "15 (repeated), head, 2 benchmarks")
    assert mentions(said, "launch 14 of 34, pair 1 ", "15 (repeated), base")
    assert any("base 1 of 6" in note for note in runner.disturbance_notes())


def test_unchanged_waits_where_a_slow_launch_may_be_gone(stage: Stage) -> None:
    """A pair was replaced for the flags of the head alone: five more pairs must show nothing."""
    fake = stage.fake(clear, flags={3: ("contended",)})
    tracker = stage.runner(fake).run()
    looks = SavedState.read(stage.folder).looks
    assert looks == [Look(pairs=5, unchanged_from=10), Look(pairs=10, unchanged_from=10)]
    launches = {v.id: v.launches for v in tracker.comparison().verdicts}
    assert launches == {"t::slow": 5, "t::same": 10}


def test_a_replaced_pair_does_not_count_after_a_kill(stage: Stage) -> None:
    """What was replaced is measured, however the launch that should do so ended."""
    fake = stage.fake(clear, flags={4: ("contended",)}, interrupted_at=14)
    with pytest.raises(KeyboardInterrupt):
        stage.runner(fake).run()
    again = stage.fake(clear)
    stage.runner(again, SavedState.read(stage.folder)).run()
    assert again.sides == "bh" + "hb"
    assert SavedState.read(stage.folder).repeats() == 1


@pytest.mark.parametrize(
    ("flags", "launches"),
    [
        (dict.fromkeys(range(3, 13), ("unsteady", "drifting", "dependent")), 12),
        (dict.fromkeys((3, 6, 7, 10, 11), ("contended",)), 12),
        (dict.fromkeys(range(3, 13), ("contended",)), 12),
        (dict.fromkeys((3, 4), ("throttled",)), 14),
    ],
    ids=["the numbers' own", "the head's own", "always", "both sides of one pair"],
)
def test_only_a_disturbance_of_the_machine_is_measured_away(
    stage: Stage, flags: dict[int, tuple[str, ...]], launches: int
) -> None:
    """Not what tells of the numbers, what one side alone raises, nor what never ends."""
    fake = stage.fake(clear, flags=flags)
    stage.runner(fake).run()
    assert len(fake.orders) == launches


def test_no_time_that_was_measured_causes_a_repeat(stage: Stage) -> None:
    """A launch that is ten times slower, without a flag, counts as it is."""

    def wild(side: SideName, number: int) -> Times:
        return {"t::same": (10.0 if number == 5 else 1.0) + number * 1e-4}

    fake = stage.fake(wild)
    stage.runner(fake, pairs=5).run()
    assert len(fake.orders) == 12


def test_a_pair_that_a_look_has_judged_stays(stage: Stage) -> None:
    """Also when the comparison goes on, or flags come later."""
    disturbed = dict.fromkeys((4, 6), ("contended",))
    first = stage.fake(one_is_noisy, flags=disturbed)
    stage.runner(first, pairs=5).run()
    assert SavedState.read(stage.folder).repeats() == 1
    later = stage.fake(one_is_noisy, flags={3: ("contended",)})
    stage.runner(later, SavedState.read(stage.folder), pairs=10).run()
    replaced = {one.pair for one in SavedState.read(stage.folder).launches if one.replaced}
    assert min(replaced) <= 5
    assert len(replaced) == 2
    assert replaced - set(range(1, 6)) == {6}


class Clock:
    """Each launch takes so many seconds by it; it says itself that it took two."""

    def __init__(self, fake: Fake, launch_s: float = 2.0):
        self._fake = fake
        self._launch_s = launch_s

    def __call__(self) -> float:
        return self._launch_s * len(self._fake.orders)


@pytest.mark.parametrize(
    ("time_s", "pairs"),
    [(1.0, 5), (40.0, 5), (50.0, 10), (90.0, 20)],
    ids=["five at least", "no time for five more", "for five more", "for fifteen more"],
)
def test_the_time_ends_a_comparison(stage: Stage, time_s: float, pairs: int) -> None:
    """Five pairs are always judged; no five more are begun than there is time for."""
    fake = stage.fake(one_is_noisy)
    tracker = stage.runner(fake, now=Clock(fake), time_s=time_s, pairs=200).run()
    (noisy,) = [v for v in tracker.comparison().verdicts if v.id == "t::noisy"]
    assert (noisy.kind, noisy.launches) == ("inconclusive", pairs)
    assert "left no time to judge" in noisy.reason
    assert len(fake.orders) == 2 + 2 * pairs


def test_the_time_ends_after_the_pair_that_runs(stage: Stage) -> None:
    """Where launches take longer than they did; the pairs that no look judges wait for it."""
    fake = stage.fake(one_is_noisy)
    tracker = stage.runner(fake, now=Clock(fake, 10.0), time_s=150.0).run()
    (noisy,) = [v for v in tracker.comparison().verdicts if v.id == "t::noisy"]
    assert noisy.reason.endswith("; --time left no time to judge 10 pairs")
    assert len(fake.orders) == 2 + 14


def test_the_command_that_decides_is_told(stage: Stage) -> None:
    """With the pairs that the reasons ask for, or from which on things are called unchanged."""
    stage.folder = stage.folder.rename(stage.folder.with_name("a b"))
    fake = stage.fake(a_little_noisy)
    tracker = stage.runner(fake, pairs=5).run()
    state = SavedState.read(stage.folder)
    needed = tracker.pairs_needed
    assert needed is not None
    command = f"gpubench ab '--resume={stage.folder}' --pairs={needed}"
    assert advice(state, tracker) == f"to decide what is still inconclusive: {command}"
    decided = Tracker(Run(label=""), Run(label="", results={"a": ALIKE}))
    assert advice(state, decided) == ""


@pytest.mark.parametrize("others", [False, True])
def test_no_more_pairs_are_advised_where_they_would_not_help(stage: Stage, others: bool) -> None:
    """The reason says so; beside others a command decides only these, and nothing is estimated."""

    def loud(side: SideName, number: int) -> Times:
        noise = NOISE[number % 5] if side == "head" else 1.0
        return {"t::loud": noise, **(a_little_noisy(side, number) if others else {})}

    tracker = stage.runner(stage.fake(loud), pairs=5).run()
    needed = {verdict.id: verdict.pairs_needed for verdict in tracker.undecided}
    assert needed["t::loud"] is None
    assert stage.output.getvalue().endswith("inconclusive\n")
    said = advice(SavedState.read(stage.folder), tracker)
    if others:
        command = f"gpubench ab --resume={stage.folder} --pairs={needed['t::noisy']}"
        assert said == f"to decide what more pairs can: {command}"
    else:
        assert mentions(said, "more pairs would hardly help: quiet the machine")


def test_each_look_is_noted(stage: Stage) -> None:
    """With the pairs from which on it called unchanged: it is taken alike when one goes on."""
    stage.runner(stage.fake(one_is_noisy), pairs=5, unchanged_from=10).run()
    assert SavedState.read(stage.folder).looks == [Look(pairs=5, unchanged_from=10)]
    more = stage.fake(one_is_noisy)
    stage.runner(more, SavedState.read(stage.folder), pairs=10, unchanged_from=15).run()
    looks = SavedState.read(stage.folder).looks
    assert looks == [Look(pairs=5, unchanged_from=10), Look(pairs=10, unchanged_from=15)]


def test_a_verdict_once_given_stays(stage: Stage) -> None:
    """Also where it goes on with fewer pairs than were judged; with more, it is launched."""
    first = stage.runner(stage.fake(a_little_noisy), pairs=10).run().comparison()
    again = stage.fake(a_little_noisy)
    second = stage.runner(again, SavedState.read(stage.folder), pairs=5).run().comparison()
    assert second.verdicts == first.verdicts
    assert again.orders == []
    more = stage.fake(a_little_noisy)
    stage.runner(more, SavedState.read(stage.folder), pairs=15).run()
    assert len(more.orders) == 2 + 10


CRASH = LaunchRecord(side="base", seconds=1.0, problem="was killed by SIGSEGV")


def test_a_failed_launch_repeats_its_pair(stage: Stage) -> None:
    """What it said is shown, and the comparison goes on."""
    fake = stage.fake(clear, endings={4: CRASH}, said="boom")
    stage.runner(fake).run()
    assert len(fake.orders) == 2 + 10 + 2
    said = stage.output.getvalue()
    assert "a launch of the base was killed by SIGSEGV:" in said
    assert "    boom" in said


def test_two_failures_in_a_row_end_it(stage: Stage) -> None:
    """All is kept; the message says how to go on."""
    fake = stage.fake(clear, endings={5: CRASH, 6: CRASH})
    with pytest.raises(ResultsError, match=r"2 launches in a row failed.*--resume=") as caught:
        stage.runner(fake).run()
    assert "output.txt" in str(caught.value)
    assert SavedState.read(stage.folder).pair_launches(1) is not None


def test_arguments_that_pytest_refuses_end_it_at_once(stage: Stage) -> None:
    """Another launch would not understand them either."""
    lines = "usage: pytest\nERROR: file or directory not found: nowhere"
    refused = LaunchRecord(side="base", seconds=1.0, problem="ended", usage_error=True)
    fake = stage.fake(clear, endings={1: refused}, said=lines)
    with pytest.raises(UsageProblem, match="on the base: ERROR: file or directory not found"):
        stage.runner(fake).run()
    assert len(fake.orders) == 1


@pytest.mark.parametrize("number", [1, 12])
def test_a_tree_that_changes_meanwhile_ends_it(stage: Stage, number: int) -> None:
    """No launch counts that may have run half old and half new code, the last one neither."""

    def edited(side: SideName, launch: int) -> Times:
        if launch == number:
            (stage.sides["head"].tree / "code.py").write_text("# edited")
        return clear(side, launch)

    with pytest.raises(UsageProblem, match=r"changed after .*: code\.py \(changed\)"):
        stage.runner(stage.fake(edited)).run()
    assert len(SavedState.read(stage.folder).launches) == number - 1


def test_a_failed_benchmark_is_shown_at_once_with_its_place(stage: Stage) -> None:
    """After the launch in which it failed, which the others go on without; its verdict has it."""

    def breaking(side: SideName, number: int) -> Times:
        if side == "head":
            place = json.dumps({"modules": {}, "rootdir": "", "tests": {"t::breaks": ["a.py", 9]}})
            (fake.orders[-1].folder / "report/1.json").write_text(place)
        fails = "ValueError: oops\nmore" if side == "head" else 1.0
        return {**clear(side, number), "t::breaks": fails}

    fake = stage.fake(breaking)
    tracker = stage.runner(fake).run()
    output = stage.folder / "launches/002-head/output.txt"
    failure = "failed: a.py:9: ValueError: oops"
    shown = f"gpubench ab: failed on the head ({output}):\n    t::breaks: {failure}\n"
    before, after = stage.output.getvalue().split(shown)
    assert "launch 2 of 32, warm-up pair, head" in before
    assert "launch 3 of 32, pair 1 of at most 15, head, 2 benchmarks" in after
    (verdict,) = (v for v in tracker.comparison().verdicts if v.id == "t::breaks")
    assert (verdict.kind, verdict.reason) == ("errored", failure)


class Telling(Fake):
    """Launches that report imports of the base, which is a commit, and the commit they record."""

    own = "6d628c0" * 5 + "abcde"
    modules: Mapping[str, str] = {}
    commit: str | None = own
    rootdir = "base"

    def launch(self, side: Side, folder: Path, **more: Any) -> LaunchRecord:
        outcome = super().launch(side, folder, **more)
        rootdir = str(folder.parents[2] / self.rootdir)
        told = {"modules": self.modules, "tests": {}, "rootdir": rootdir}
        (folder / "report/1.json").write_text(json.dumps(told))
        commit = self.commit if len(self.orders) > 3 else self.own
        summary = folder / outcome.run / "summary.json"
        document = json.loads(summary.read_text())
        document["environment"] = {"git": commit and {"commit": commit, "dirty": True}}
        summary.write_text(json.dumps(document))
        return outcome


def telling(stage: Stage) -> Telling:
    base = stage.sides["base"]
    stage.sides["base"] = replace(base, label="main (6d628c0)", commit=Telling.own, code=None)
    return Telling(stage.write, clear)


def test_code_of_the_other_side_ends_it(stage: Stage) -> None:
    """Found after the first launch, before anything is judged."""
    fake, (base, head) = telling(stage), (stage.sides[name].tree for name in ("base", "head"))
    fake.modules = {"lib": str(head / "lib.py")}
    with pytest.raises(UsageProblem, match=f"both sides import lib .*the base's copy is in {base}"):
        stage.runner(fake).run()


@pytest.mark.parametrize(
    ("commit", "said"), [("429bfdf" * 5 + "abcde", "429bfdf.*abcde"), (None, "no commit")]
)
def test_a_launch_of_another_commit_ends_it(stage: Stage, commit: str | None, said: str) -> None:
    """What a launch of a commit says of itself must be that commit; else nothing is judged."""
    fake = telling(stage)
    fake.commit = commit
    with pytest.raises(UsageProblem, match=rf"main \(6d628c0\), recorded {said}:") as told:
        stage.runner(fake).run()
    assert fake.sides == "bhhb"
    assert len(SavedState.read(stage.folder).launches) == 3
    assert f"--resume={stage.folder}" in str(told.value)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_launches_that_say_nothing_of_another_commit_go_on(stage: Stage, elsewhere: bool) -> None:
    """Benchmarks may write tracked files, or lie in another repository."""
    fake = telling(stage)
    if elsewhere:
        fake.commit, fake.rootdir = "429bfdf", "elsewhere"
    stage.runner(fake).run()
    assert len(fake.orders) == 12


def test_no_benchmark_is_nothing_comparable(stage: Stage) -> None:
    """Launches without a run directory leave nothing to compare."""
    empty = LaunchRecord(side="base", seconds=1.0)
    fake = stage.fake(clear, endings={1: empty, 2: empty})
    with pytest.raises(NothingComparable):
        stage.runner(fake).run()


def test_sides_begin_in_turns() -> None:
    """Each side goes first in every second pair; the seed says which one begins."""
    assert [side_order(pair, 0)[0] for pair in range(4)] == ["base", "head", "base", "head"]
    assert [side_order(pair, 7)[0] for pair in range(4)] == ["head", "base", "head", "base"]
    assert all(set(side_order(pair, 3)) == {"base", "head"} for pair in range(4))


def test_both_sides_take_the_larger_number(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    """Of each benchmark that both have measured; the others follow their rule."""
    base = write_run(tmp_path / "b", {"t::a": 1.0, "t::only": 1.0, "t::c": "broken"}, rounds=12)
    head = write_run(tmp_path / "h", {"t::a": 1.0, "t::c": 1.0}, rounds=30)
    fix_rounds(tmp_path / "rounds.json", base, head)
    read = rounds_file.read(tmp_path / "rounds.json", "--measure.rounds_file")
    assert {name: plan.rounds for name, plan in read.items()} == {"t::a": 30}

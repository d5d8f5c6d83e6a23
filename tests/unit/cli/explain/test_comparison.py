"""A comparison of ``gpubench ab``, explained from what it left on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpubench_plugin.cli.ab.comparison import advice, write_files
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.saved_state import LaunchRecord, SavedState
from gpubench_plugin.cli.ab.tracker import Tracker
from gpubench_plugin.cli.explain.comparison import ExplainedComparison
from gpubench_plugin.compare.effective_limits import SideName
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.core.quality_flags import DEPENDENT, EXPLANATIONS
from tests.support.messages import mentions
from tests.unit.cli.ab.conftest import write_run
from tests.unit.cli.ab.stage import Fake, Stage, Times, clear, stage_in

pytestmark = pytest.mark.slow

NOISE = (1.0, 1.2, 0.8, 1.1, 0.9)


def loud(side: SideName, number: int) -> Times:
    """Beside what :func:`clear` has, one benchmark of whose head nobody can tell anything."""
    return {**clear(side, number), "t::loud": NOISE[number % 5] if side == "head" else 1.0}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return stage_in(tmp_path, write_run)


def begun(stage: Stage, **asked: object) -> SavedState:
    state = stage.state()
    state.request = Request(here=stage.folder, base="main", **asked)
    state.write()
    return state


def compared(
    stage: Stage, fake: Fake, state: SavedState | None = None, *notes: str, **asked: object
) -> Tracker:
    """A comparison that has ended, with its files."""
    tracker = stage.runner(fake, state or begun(stage, **asked), **asked).run()
    write_files(stage.folder, tracker.comparison(*notes))
    return tracker


def test_each_look_is_taken_again_by_the_same_judge(stage: Stage) -> None:
    """Over the whole suite, until the benchmark is decided; the last one is the verdict."""
    tracker = compared(stage, stage.fake(loud), None, "12 launches", pairs=10)
    verdicts = {(v.id, v.metric): v for v in tracker.comparison().verdicts}
    decided = ExplainedComparison(stage.folder).explanation("slow")
    still_open = ExplainedComparison(stage.folder).explanation("loud")
    assert [look.pairs for look in decided.looks] == [5]
    assert [look.pairs for look in still_open.looks] == [5, 10]
    for about in (decided, still_open):
        for verdict in about.looks[-1].verdicts:
            assert verdict == verdicts[verdict.id, verdict.metric]
        assert {v.kind for v in about.verdicts} == {v.kind for v in about.looks[-1].verdicts}
    assert [*still_open.units] == ["step_time_min_s", "step_time_s"]
    assert "12 launches" in decided.notes
    assert decided.advice == ()


def test_launches_stand_in_the_order_of_time_and_what_is_not_judged_is_named(stage: Stage) -> None:
    """Neither the warm-up pair nor a pair with a launch that failed is among them."""
    killed = LaunchRecord(side="base", seconds=1.0, problem="was killed by SIGSEGV")
    fake = stage.fake(clear, endings={6: killed})
    compared(stage, fake)
    about = ExplainedComparison(stage.folder).explanation("slow")
    sides = "".join(point.role[0] for point in about.points)
    assert sides == (fake.sides[2:4] + fake.sides[6:])[: len(sides)]
    assert len(sides) == 10
    assert [point.label for point in about.points[:2]] == ["003-head", "004-base"]
    metric = next(iter(about.units))
    assert about.points[0].values[metric] == pytest.approx(1.3, rel=1e-3)
    assert "base ../base, head ../head; 5 pairs" in about.subject
    assert about.unused == (
        "005-base (pair 2): its pair was remeasured",
        "006-head (pair 2): was killed by SIGSEGV",
    )


def test_a_disturbed_pair_that_was_measured_again_is_not_judged(stage: Stage) -> None:
    """What disturbed it is said."""
    state = begun(stage)
    compared(stage, stage.fake(clear), state)
    state.launches[2:2] = [
        replace(launch, attempt=0, folder=f"launches/9{launch.side}", replaced="head: throttled")
        for launch in state.launches[2:4]
    ]
    state.write()
    about = ExplainedComparison(stage.folder).explanation("slow")
    assert len(about.points) == 10
    for side, line in zip(("head", "base"), about.unused, strict=True):
        assert mentions(line, f"9{side} (pair 1): ", "remeasured", "disturbed (head: throttled)")


def test_a_comparison_that_has_not_ended_says_what_it_has_and_how_to_go_on(stage: Stage) -> None:
    """Its verdicts so far are those of its pairs."""
    state = begun(stage, pairs=5)
    tracker = stage.runner(stage.fake(loud), state, pairs=5).run()
    about = ExplainedComparison(stage.folder).explanation("loud")
    commands = [one.command for one in about.advice if one.command]
    assert advice(state, tracker).partition(": gpubench")[2] == "".join(commands)[len("gpubench") :]
    assert about.subject.endswith("not finished: verdicts so far")
    assert {verdict.kind for verdict in about.verdicts} == {"inconclusive"}
    assert f"gpubench ab --resume={stage.folder} --pairs=" in about.advice[0].command or (
        "no number of pairs" in about.advice[0].text
    )


def test_a_comparison_without_a_look_says_so_and_how_to_go_on(stage: Stage) -> None:
    """It was interrupted within its first five pairs."""
    state = begun(stage, pairs=5)
    stage.runner(stage.fake(loud), state, pairs=5).run()
    state.looks.clear()
    del state.launches[6:]
    state.write()
    about = ExplainedComparison(stage.folder).explanation("loud")
    assert (about.verdicts, len(about.points)) == ((), 4)
    assert about.subject.endswith("2 pairs of launches, not finished: not judged yet")
    (advice,) = about.advice
    assert (advice.text, advice.command) == (
        "measure the missing pairs:",
        f"gpubench ab --resume={stage.folder}",
    )


def test_a_doubt_that_most_launches_raise_is_advised_on(stage: Stage) -> None:
    """With what helps against it."""
    flags = dict.fromkeys(range(3, 13), ("dependent",))
    stage.runner(stage.fake(loud, flags=flags), begun(stage, pairs=5), pairs=5).run()
    about = ExplainedComparison(stage.folder).explanation("loud")
    assert about.advice[-1].text == f"dependent (10 of 10 launches): {EXPLANATIONS[DEPENDENT]}"


def test_looks_and_replaced_pairs_are_those_of_the_comparison(stage: Stage) -> None:
    """Also after it was warmed up again without what was decided, and judged otherwise."""
    flags = {4: ("contended",)}
    stage.runner(stage.fake(loud, flags=flags), begun(stage, pairs=5), pairs=5).run()
    state = SavedState.read(stage.folder)
    more = {"pairs": 10, "unchanged_from": 15}
    state.request = Request(here=stage.folder, base="main", **more)
    state.write()
    compared(stage, stage.fake(loud), state, **more)
    explained = ExplainedComparison(stage.folder)
    about, decided = (explained.explanation(name) for name in ("loud", "same"))
    assert [look.pairs for look in about.looks] == [5, 10]
    assert [look.pairs for look in decided.looks] == [5]
    assert {v.kind for v in decided.looks[0].verdicts} == {"unchanged"}
    said = ("003-head (pair 1): ", "remeasured", "disturbed (base: contended)")
    assert mentions(about.unused[0], *said)


def test_the_limit_is_the_command_lines_where_it_gave_one(stage: Stage) -> None:
    """The judge of the replay is told it as well."""
    compared(stage, stage.fake(clear), limits={"step_time_min_s": "40%"})
    about = ExplainedComparison(stage.folder).explanation("slow")
    assert about.limits["step_time_min_s"] == "from --limit"
    assert about.looks[-1].verdicts[0].limit == "40%"


def test_bad_input_is_one_message(stage: Stage) -> None:
    """No such benchmark, nothing measured yet, and files that are gone or broken."""
    begun(stage)
    with pytest.raises(UsageProblem, match=r"no pair is complete .* gpubench ab --resume="):
        ExplainedComparison(stage.folder).explanation("slow")
    state = begun(stage)
    stage.runner(stage.fake(clear), state).run()
    with pytest.raises(UsageProblem, match=r"matches 'slwo' .did you mean 't::slow'"):
        ExplainedComparison(stage.folder).explanation("slwo")
    launch: LaunchRecord = state.launches[-1]
    run = stage.folder / launch.folder / launch.run
    (run / "summary.json").write_text("{")
    with pytest.raises(ResultsError, match=r"summary\.json"):
        ExplainedComparison(stage.folder).explanation("slow")
    (stage.folder / "state.json").write_text('{"schema_version": 99}')
    with pytest.raises(UsageProblem, match=r"state\.json: schema_version 99") as problem:
        ExplainedComparison(stage.folder).explanation("slow")
    assert "--resume" not in str(problem.value)

"""The verdicts on a session's run, and how its gate items end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.launchers.context import STATE
from gpubench_plugin.results.reader import run_of
from gpubench_plugin.session.gate.confirmation import Confirmation
from gpubench_plugin.session.gate.judgement import NOTHING_MEASURED, GateJudgement, judge
from tests.support.runs_builder import MLP, RESNET, environment, measurement, write_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubench_plugin.core.records import Measurement, Run
    from gpubench_plugin.core.verdicts import Comparison, Verdict

HERE = environment()
ITEMS: Any = [
    SimpleNamespace(
        nodeid=name, stash={STATE: SimpleNamespace(case=SimpleNamespace(id=name, adopted=False))}
    )
    for name in (MLP, RESNET)
]


def run(*measurements: Measurement, label: str = "earlier", **facts: Any) -> Run:
    return run_of(label, measurements, {**HERE, **facts})


def pinned(one: Run) -> Run:
    results = {name: replace(result, pinned=True) for name, result in one.results.items()}
    return replace(one, results=results)


def kinds(comparison: Comparison) -> dict[tuple[str, str], str]:
    return {(v.id, v.metric): v.kind for v in comparison.verdicts}


def judged(reference: Reference, head: Run, kind: Any = "threshold", **options: Any) -> Comparison:
    usual = {"allow_incomparable": False, "is_gone": lambda node_id: False}
    return judge(reference, head, kind, {**usual, **options})


def single(base: Run) -> Reference:
    return Reference(label="base.json", kind="single", runs=(base,))


def test_one_run_is_judged_by_the_threshold() -> None:
    """It is labelled so, and the baseline is called as the user called it."""
    head = run(measurement(MLP, 0.0103))
    found = judged(single(run(measurement(MLP, 0.0100))), head)
    assert kinds(found)[MLP, "step_time_min_s"] == "regressed"
    assert found.base == "base.json"
    assert "threshold, not statistical" in found.notes


def test_a_name_given_to_the_threshold_stands_for_the_median_of_its_pinned_runs() -> None:
    """Neither the latest nor the first of them, and no later run."""
    times = (0.0100, 0.0200, 0.0150)
    later = (run(measurement(MLP, 0.05)),) * 5
    runs = (*(pinned(run(measurement(MLP, time))) for time in times), *later)
    found = judged(
        Reference(label="main", kind="history", runs=runs), run(measurement()), "threshold"
    )
    (verdict,) = (v for v in found.verdicts if v.metric == "step_time_min_s")
    assert verdict.base == pytest.approx(0.0150)


def test_history_judges_by_all_runs() -> None:
    """Ten earlier runs suffice to see a doubling."""
    runs = tuple(run(measurement(MLP, 0.01 + n / 1e6)) for n in range(10))
    found = judged(
        Reference(label="main", kind="history", runs=runs), run(measurement(MLP, 0.02)), "history"
    )
    assert kinds(found)[MLP, "step_time_min_s"] == "regressed"


def test_without_a_baseline_fixed_bounds_are_judged_all_the_same() -> None:
    """Also for a benchmark that the baseline does not know."""
    bounded = run(measurement(MLP, 0.02, limits={"step_time_s": "<=0.01"}))
    missing = Reference(label="none-such", kind="missing", notes=("none",))
    found = judged(missing, bounded, "missing")
    assert kinds(found) == {(MLP, ""): "no_baseline", (MLP, "step_time_s"): "regressed"}
    assert found.notes == ("none",)
    found = judged(single(run(measurement(RESNET))), bounded)
    assert kinds(found)[MLP, "step_time_s"] == "regressed"


def test_runs_without_anything_in_common_have_new_benchmarks() -> None:
    """That is no error of the session: --gate-missing decides."""
    found = judged(single(run(measurement(RESNET))), run(measurement(MLP)))
    assert kinds(found) == {(MLP, ""): "new"}
    assert "in common" in " ".join(found.notes)


def test_only_what_is_gone_is_removed() -> None:
    """A benchmark that was not selected today is not mentioned."""
    base = run(measurement(MLP), measurement(RESNET), measurement("test_x.py::test_a"))
    found = judged(single(base), run(measurement(MLP)), is_gone=lambda node_id: node_id == RESNET)
    assert [v.id for v in found.verdicts if v.kind == "removed"] == [RESNET]


def test_a_lost_case_of_a_test_that_ran_is_noted() -> None:
    """Nobody knows whether it was left out or is gone: it is no verdict, but it is said."""
    case, lost, other = (f"test_x.py::test_{name}" for name in ("a[1]", "a[2]", "b[1]"))
    base = run(*map(measurement, (case, lost, other)))
    found = judged(single(base), run(measurement(case)))
    assert {v.id for v in found.verdicts} == {case}
    (note,) = (note for note in found.notes if "only in the baseline" in note)
    assert note.endswith(f": {lost}")


@dataclass
class Session:
    """As much of a session as is judged."""

    measurements: Mapping[str, Measurement]
    kept: list[Comparison] = field(default_factory=list)

    path: Path = field(default_factory=Path)
    shown: list[str] = field(default_factory=list)

    def run_of(self, measurements: Iterable[Measurement]) -> Run:
        return run(*measurements, label="this run")

    def show(self, text: str) -> None:
        self.shown.append(text)

    def keep_verdicts(self, comparison: Comparison) -> None:
        self.kept.append(comparison)


def judgement(
    *measurements: Measurement,
    reference: Reference | Exception,
    overrides: tuple[str, ...] = (),
    baseline: str = "",
    kind: str = "threshold",
    launch: Any = None,
    session: Session | None = None,
    **policy: str,
) -> tuple[GateJudgement, Session]:
    def looked_up(head: Run) -> Reference:
        if isinstance(reference, Exception):
            raise reference
        return reference

    settings = SimpleNamespace(
        **{"gate_missing": "pass", "gate_inconclusive": "pass", **policy},
        baseline=baseline,
        gate="auto",
        allow_incomparable=False,
        allow_doubt=False,
        overrides=overrides,
    )
    lookup = SimpleNamespace(settings=settings, kind=kind, reference=looked_up)
    session = session or Session({m.id: m for m in measurements})
    session.measurements = {m.id: m for m in measurements}
    confirmation = Confirmation(cast("Any", session), launch, why_not="nobody can")
    confirmation.register(ITEMS)
    found = GateJudgement(cast("Any", session), cast("Any", lookup), lambda _: False, confirmation)
    return found, session


BASE = single(run(measurement(MLP, 0.005), measurement(RESNET, 0.005)))


def test_the_verdicts_are_found_and_recorded_once() -> None:
    """However many gate items ask."""
    found, session = judgement(measurement(MLP), measurement(RESNET), reference=BASE)
    assert [found.gate_outcome(i).outcome for i in (MLP, RESNET, MLP)] == ["failed"] * 3
    assert found.fails
    assert len(session.kept) == 1


def test_a_limit_of_the_sessions_command_line_counts() -> None:
    """One by one or as a mapping: it is nothing that the change under test states."""
    loose = ("step_time_min_s=60%", "={step_time_min_s: 60%}")
    for override in (f"gate.limits.{loose[0]}", f"gate.limits{loose[1]}"):
        head = measurement(MLP, 0.0055, limits={"step_time_min_s": "60%"})
        strict, _ = judgement(head, reference=BASE)
        given, _ = judgement(head, reference=BASE, overrides=("a.b=1", override))
        assert (strict.gate_outcome(MLP).outcome, given.gate_outcome(MLP).outcome) == (
            "failed",
            "passed",
        )


ELSEWHERE: dict[str, Any] = {"cpu": {"model": "abacus"}}


def test_a_gate_fails_where_all_that_could_be_compared_is_incomparable() -> None:
    """A fixed bound beside it compares nothing; one comparable benchmark lets the others pass."""
    bounded = measurement(MLP, 0.01, limits={"step_time_min_s": "<=1"})
    new = measurement(RESNET)
    gone, _ = judgement(bounded, new, reference=single(run(measurement(MLP), **ELSEWHERE)))
    assert [gone.gate_outcome(i).outcome for i in (MLP, RESNET)] == ["failed", "passed"]
    assert gone.fails
    other = measurement(MLP, settings={"training.batch_size": 8})
    some, _ = judgement(bounded, new, reference=single(run(other, new)))
    assert [some.gate_outcome(i).outcome for i in (MLP, RESNET)] == ["passed", "passed"]
    assert not some.fails


@pytest.mark.parametrize(
    ("head", "limit", "offers"),
    [
        (measurement(MLP, 0.02), "2%", True),
        (measurement(MLP, 0.01, settings={"training.batch_size": 8}), "2%", True),
        (measurement(MLP, 0.01), "2%", False),
        (measurement(MLP, 0.01), "<=0.001", False),
    ],
    ids=["regressed", "incomparable", "same", "bound"],
)
def test_a_new_level_is_offered_where_there_is_one(
    head: Measurement, limit: str, offers: bool
) -> None:
    """A fixed bound is no level."""
    runs = tuple(run(measurement(MLP, 0.01 + n / 1e6)) for n in range(10))
    history = Reference(label="main", kind="history", runs=runs)
    found, _ = judgement(
        head,
        reference=history,
        overrides=(f"gate.limits.step_time_min_s={limit}",),
        baseline="main",
        kind="history",
    )
    assert bool(found.accept_command) == offers


NONE = Reference(label="x", kind="missing")
NEW = single(run(measurement("test_x.py::test_a")))
FEW = Reference(label="x", kind="history", runs=(run(measurement(MLP)),))


@pytest.mark.parametrize(
    ("reference", "said", "missing", "inconclusive"),
    [
        (NONE, "nothing was judged: 2 without baseline", True, False),
        (NEW, "nothing was judged: 2 new", True, False),
        (FEW, "nothing was decided: 1 new, 2 inconclusive", True, True),
        (single(run(measurement(MLP), **ELSEWHERE)), "nothing was", True, True),
        (BASE, "", True, True),
    ],
    ids=["none", "new", "few", "incomparable", "judged"],
)
def test_a_gate_that_passed_for_nothing_says_so(
    reference: Reference, said: str, missing: bool, inconclusive: bool
) -> None:
    """No baseline yet, new benchmarks and too few pins pass, unless a flag tightens the gate."""
    kind = "threshold" if reference.kind == "single" else reference.kind
    both = measurement(MLP), measurement(RESNET)
    found, _ = judgement(*both, reference=reference, kind=kind)
    assert found.undecided_text.startswith(said)
    assert found.fails == (missing and inconclusive and reference is not FEW)
    for policy, fails in (("gate_missing", missing), ("gate_inconclusive", inconclusive)):
        strict: dict[str, Any] = {policy: "fail"}
        assert judgement(*both, reference=reference, kind=kind, **strict)[0].fails == fails


def test_the_gate_item_of_a_benchmark_without_numbers_is_skipped() -> None:
    """The benchmark's own result speaks; its gate item says why it has nothing to judge."""
    failed = measurement(RESNET, outcome="failed")
    found, _ = judgement(measurement(MLP, 0.005), failed, reference=BASE)
    ending = found.gate_outcome(RESNET)
    assert (ending.outcome, ending.text) == ("skipped", "failed: said why")
    assert found.gate_outcome("test_x.py::test_never_reached").outcome == "skipped"
    assert found.gate_outcome(MLP).outcome == "passed"
    assert not found.fails


@pytest.mark.parametrize(
    ("measured", "reference", "said"),
    [
        (measurement(MLP, outcome="skipped"), BASE, f"{NOTHING_MEASURED}; skipped: said why"),
        (measurement(MLP), UsageProblem("it is gone"), "judging failed: it is gone"),
        (measurement(MLP), KeyError("x"), "judging failed: KeyError: 'x'"),
    ],
)
def test_a_gate_that_can_judge_nothing_fails_with_every_item(
    measured: Measurement, reference: Reference | Exception, said: str
) -> None:
    """Else a suite that skips itself would pass; nothing that was measured is lost for an error."""
    found, session = judgement(measured, reference=reference)
    ending = found.gate_outcome(MLP)
    assert (ending.outcome, ending.text) == ("failed", said)
    assert found.fails
    assert (found.comparison is None) == isinstance(reference, Exception)
    assert len(session.kept) == (reference is BASE)


PINS = Reference(
    label="main",
    kind="history",
    runs=tuple(
        pinned(run(measurement(MLP, 0.010 + n % 4 / 1e6), measurement(RESNET, 0.020)))
        for n in range(10)
    ),
)


class Launches:
    """Measures a benchmark again: `seconds` of its further launches, None where it fails."""

    def __init__(self, *seconds: float | None):
        self.seconds = list(seconds)
        self.launched: list[tuple[str, ...]] = []

    def __call__(self, items: Any, rounds: Any) -> Iterable[Measurement]:
        self.launched.append(tuple(item.nodeid for item in items))
        step = self.seconds.pop(0)
        for item in items:
            yield (
                measurement(item.nodeid, outcome="crashed")
                if step is None
                else measurement(item.nodeid, step)
            )


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds to wait before each further launch, which begins at once here."""
    waited: list[float] = []
    monkeypatch.setattr("gpubench_plugin.session.gate.confirmation.sleep", waited.append)
    return waited


def alarmed(tmp_path: Path, launch: Launches | None) -> tuple[GateJudgement, Session]:
    """The judgement of a run in which one of two benchmarks is 10% slower than its ten pins."""
    here = Session({}, path=write_run(tmp_path, 0).path)
    slow, fine = measurement(MLP, 0.011), measurement(RESNET, 0.020)
    return judgement(slow, fine, reference=PINS, kind="history", launch=launch, session=here)


def of_mlp(found: GateJudgement) -> Verdict:
    assert found.comparison is not None
    (verdict,) = (
        one for one in found.comparison.verdicts if (one.id, one.metric) == (MLP, "step_time_min_s")
    )
    return verdict


def test_an_alarm_of_a_history_fails_if_the_launches_that_follow_are_out_too(
    tmp_path: Path, pauses: list[float]
) -> None:
    """What has the alarm is launched again, nothing else; the reason has what the launches took.

    They are spread, so that no slow phase of the machine holds all.
    """
    again = Launches(0.0111, 0.0110, 0.0110)
    found, session = alarmed(tmp_path, again)
    assert found.gate_outcome(MLP).outcome == "failed"
    assert again.launched == [(MLP,)] * 3
    reason = of_mlp(found).reason
    assert reason.startswith("confirmed by 3 more launches (11.10 ms, 11.00 ms, 11.00 ms): ")
    assert "10% slower" in reason
    assert len(session.kept) == 1
    assert session.shown == [
        "relaunching 1 benchmark: 1 of 3",
        "relaunching 1 benchmark every 20 s: 2 of 3",
        "relaunching 1 benchmark every 20 s: 3 of 3",
    ]
    assert [round(pause, -1) for pause in pauses] == [0, 20, 20]


def test_an_alarm_that_no_launch_repeats_passes(tmp_path: Path) -> None:
    """The verdict is that of the median, unchanged or inconclusive; it is no regression."""
    found, _ = alarmed(tmp_path, Launches(0.01, 0.010001, 0.010001))
    assert found.gate_outcome(MLP).outcome == "passed"
    verdict = of_mlp(found)
    assert verdict.kind == "unchanged"
    launches = "3 more launches (10.00 ms, 10.00 ms, 10.00 ms): "
    assert verdict.reason.startswith(f"not confirmed by {launches}")
    assert verdict.head == pytest.approx(0.010001)
    assert not found.fails


@pytest.mark.parametrize(
    ("last", "outcome", "start"),
    [(0.0101, "passed", "not confirmed by 3"), (0.0103, "failed", "conf")],
)
def test_an_alarm_needs_every_launch_beyond_the_limit(
    tmp_path: Path, last: float, outcome: str, start: str
) -> None:
    """One within it shows a benchmark that is slow now and then, not slow code."""
    found, _ = alarmed(tmp_path, Launches(0.0111, 0.0111, last))
    assert found.gate_outcome(MLP).outcome == outcome
    verdict = of_mlp(found)
    assert verdict.kind == ("inconclusive" if outcome == "passed" else "regressed")
    assert verdict.reason.startswith(start)


def full(*_: Any) -> Iterable[Measurement]:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("launch", "asked", "end"),
    [
        (Launches(0.01, None, None), MLP, "relaunched, but without a result: crashed (said why)"),
        (None, MLP, "not relaunched: nobody can"),
        (full, MLP, "not relaunched: [Errno 28] No space left on device"),
        (Launches(), "", "not relaunched: the session ended first"),
    ],
    ids=["crashes", "torchrun", "full", "late"],
)
def test_an_alarm_stands_where_the_benchmark_cannot_be_launched_again(
    tmp_path: Path, launch: Any, asked: str, end: str
) -> None:
    """The reason says why; the verdict on the other benchmark is there all the same."""
    found, _ = alarmed(tmp_path, launch)
    if asked:
        assert found.gate_outcome(RESNET).outcome == "passed"
        assert found.gate_outcome(asked).outcome == "failed"
    assert found.fails
    assert of_mlp(found).reason.endswith(f"; {end}")


def test_an_adopted_alarm_that_nothing_confirms_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds of pytest-benchmark vary too much for a single run."""
    monkeypatch.setattr(ITEMS[0].stash[STATE].case, "adopted", True)
    found, _ = alarmed(tmp_path, None)
    assert found.gate_outcome(MLP).outcome == "passed"
    verdict = of_mlp(found)
    assert verdict.kind == "inconclusive"
    assert verdict.reason.startswith("not confirmed: 10% slower")
    assert verdict.reason.endswith("; not relaunched: nobody can")


def test_a_signal_while_a_benchmark_is_launched_again_ends_the_session(tmp_path: Path) -> None:
    """It is no verdict: pytest ends as it does elsewhere, and the alarm says what is missing."""

    def signalled(*_: Any) -> Iterable[Measurement]:
        pytest.exit("interrupted by SIGTERM")

    found, _ = alarmed(tmp_path, cast("Any", signalled))
    with pytest.raises(pytest.exit.Exception):
        found.gate_outcome(MLP)
    assert of_mlp(found).reason.endswith("; not relaunched: the session ended first")


def test_one_pinned_run_judges_nothing_and_says_how_many_are_missing() -> None:
    """The gate has not passed as if it had judged; a fixed bound is none of the baseline's."""
    one = replace(PINS, runs=PINS.runs[:1])
    bound = measurement(MLP, 0.011, limits={"step_time_s": "<=1"})
    found, _ = judgement(bound, reference=one, kind="history")
    assert (found.fails, found.runs_needed) == (False, 9)
    judges, _ = judgement(measurement(MLP, 0.010), reference=PINS, kind="history")
    assert judges.runs_needed == 0

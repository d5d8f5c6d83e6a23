"""A run that was judged by earlier ones, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.explain.run import explain_run
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.reports.explanation import Explanation
from gpubench_plugin.results import verdicts
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.system import json_files
from tests.support.messages import mentions
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

REGRESSED = Verdict(
    id=MLP,
    metric="step_time_s",
    unit="s",
    better="lower",
    kind="regressed",
    method="history",
    base=0.010,
    head=0.011,
    effect=0.1,
    interval=(1.1 / 1.02 - 1, 1.1 * 1.02 - 1),
    launches=3,
    limit="2%",
    reason="10% slower",
)


def explained(results: Path, base: str, verdict: Verdict = REGRESSED) -> Explanation:
    """Run 9 as it was judged by `base`, which has verdicts on RESNET as well."""
    flagged = measurement(MLP, 0.011, flags=("contended",), limits={"step_time_s": "2%"})
    directory = write_run(results, 9, [flagged], commit="feedface00")
    comparison = Comparison(
        base=base, head=directory.run_id, verdicts=(verdict,), notes=("a note",)
    )
    json_files.write_text(directory.verdicts, verdicts.to_text([comparison]))
    return explain_run(
        RunReader(directory).run(),
        verdicts.read(directory.verdicts),
        MLP,
        resolver=Resolver("none", results, results),
    )


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    """Two pinned runs and one of another machine, a later one, and one that lacks the benchmark."""
    for number in (0, 1, 3):
        write_run(tmp_path, number, {MLP: 0.010, RESNET: 0.020}, commit=f"c0ffee{number:03}77")
    write_run(tmp_path, 2, facts={"cpu": {"model": "Another", "usable_cores": 2}})
    write_run(tmp_path, 4, {RESNET: 0.020})
    Baselines(tmp_path).set("main", [run_id(number) for number in range(3)], branch="main")
    return tmp_path


def test_earlier_runs_stand_before_it_in_the_order_of_time(pinned: Path) -> None:
    """Pinned ones are told from later ones; another machine's are counted alone."""
    about = explained(pinned, "main")
    assert [(point.label, point.role) for point in about.points] == [
        (run_id(0), "pinned run"),
        (run_id(1), "pinned run"),
        (run_id(3), "earlier run"),
        (run_id(9), "this run"),
    ]
    assert about.points[-1].values == {"step_time_s": 0.011}
    assert about.points[-1].flags == ("contended",)
    assert about.facts[:2] == (
        "3 earlier runs, 2 of them pinned",
        "1 earlier run not comparable with this run",
    )


def test_the_recorded_verdict_is_shown_with_level_and_prediction(pinned: Path) -> None:
    """The interval of the effect, seen from the level; limit, differences and notes beside it."""
    about = explained(pinned, "main")
    assert about.verdicts == (REGRESSED,)
    said = ("step_time_s: level 10.00 ms, this run 11.00 ms; ", "9.804 ms and 10.20 ms (99%)")
    assert mentions(about.facts[2], *said)
    assert about.limits == {"step_time_s": "the base states none; the head states 2%"}
    assert about.notes == ("a note",)
    commands = [advice.command for advice in about.advice]
    assert commands[0] == f"gpubench ab --base=c0ffee001 -- '{MLP}'"
    assert commands[1].startswith(f"gpubench accept {run_id(9)} '{MLP}' --baseline=main")


def test_the_limit_is_that_of_the_level_whatever_later_runs_state(pinned: Path) -> None:
    """The latest pinned run states none, so that the default counts for the head."""
    write_run(pinned, 5, [measurement(MLP, 0.010, limits={"step_time_s": "60%"})])
    about = explained(pinned, "main")
    assert len(about.points) == 5
    assert about.limits == {"step_time_s": "the base states none; the head states 2%"}


def test_a_broken_fixed_bound_is_not_said_to_need_another_measurement(pinned: Path) -> None:
    """No base tells anything of it."""
    verdict = Verdict(id=MLP, metric="step_time_s", kind="regressed", method="absolute")
    assert explained(pinned, "main", verdict).advice == ()


def test_a_prediction_of_a_rate_is_around_its_level_too(pinned: Path) -> None:
    """Effects of a metric that should be high are counted from the other end."""
    rate = Verdict(
        id=MLP,
        metric="samples_per_s",
        unit="samples/s",
        better="higher",
        kind="inconclusive",
        method="history",
        base=100.0,
        head=80.0,
        effect=0.2,
        interval=(1 - 0.8 * 1.25, 1 - 0.8 / 1.25),
        reason="",
    )
    about = explained(pinned, "main", rate)
    assert "would be between 80/s and 125/s" in about.facts[2].replace(".00", "").replace(".0", "")
    assert about.advice[0].command == "gpubench baseline set main RUN RUN ..."


def test_a_run_that_was_compared_with_the_last_one_is(pinned: Path) -> None:
    """It is looked up again, as it was then."""
    about = explained(pinned, "last")
    assert [point.label for point in about.points] == [run_id(3), run_id(9)]


def test_a_baseline_that_is_gone_is_a_note(tmp_path: Path) -> None:
    """The run itself and its verdict are shown all the same."""
    for base in ("nowhere/at/all.json", "main"):
        results = tmp_path / base.partition("/")[0]
        about = explained(results, base)
        assert [point.role for point in about.points] == ["this run"]
        assert any("cannot be read any more" in n or "no baseline" in n for n in about.notes)

"""The rounds of a run, from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.records import Samples
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import stored

if TYPE_CHECKING:
    from pathlib import Path


def launch(rounds: int) -> dict[str, object]:
    """A launch that was timed in so many rounds of two calls."""
    samples = Samples(
        timer="perf_counter_ns",
        durations_s=(0.5,) * 2 * rounds,
        durations_per_round=2,
        block_s=(float(rounds),),
        block_calls=(2 * rounds,),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    return {"samples": stored.dump(samples)}


@pytest.mark.parametrize(("launches", "rounds"), [((4,), 4), ((4, 5, 9), 5), ((4, 9), 4)])
def test_of_several_launches_the_middle_one_counts(
    tmp_path: Path, launches: tuple[int, ...], rounds: int
) -> None:
    """As their metrics do: minima of the most rounds would be compared with none of them."""
    directory = RunDirectory(path=tmp_path)
    with Journal(directory.journal) as lines:
        per_launch = [launch(one) for one in launches]
        lines.append({"event": "benchmark", "id": "a", **launch(20), "per_launch": per_launch})
    frozen = FixedRounds(rounds=rounds, durations_per_round=2, calls_per_duration=1)
    assert RunReader(directory).rounds() == {"a": frozen}

"""The suite of collectives, as this repository ships it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    from tests.support.projects import Project

SUITE = Path(__file__).parents[2] / "benchmarks" / "distributed" / "test_collectives.py"


@pytest.mark.exhaustive
def test_two_ranks_measure_every_collective(project: Project) -> None:
    """Each is verified and has both bandwidths; what is too large is unsupported, and says so."""
    project.write("test_it.py", SUITE.read_text())

    run = project.run("-k", "64KiB or all-reduce-64MiB", ranks=2, env={"COLUMNS": "120"})

    assert run.code == 0, run.out + run.err
    names = catalog.choices("collectives")
    small = {f"test_collective[{name}-64KiB-fp32-ranks2]": "measured" for name in names}
    large = {"test_collective[all-reduce-64MiB-fp32-ranks2]": "unsupported"}
    assert run.outcomes == {**small, **large}
    assert "exceeds distributed.largest_message_bytes=4194304" in run.out
    assert re.search(r"[MG]B/s busbw", run.out)
    lines = [line for line in run.journal if line.get("outcome") == "measured"]
    factors = {}
    for line in lines:
        bandwidth = {m: line["metrics"][f"{m}_bytes_per_s"]["value"] for m in ("algbw", "busbw")}
        samples = line["samples"]
        moved = bandwidth["algbw"] * sum(samples["block_s"]) / sum(samples["block_calls"])
        name = line["correctness"]["collective"]
        factors[name] = bandwidth["busbw"] / bandwidth["algbw"]
        assert moved == pytest.approx(65520 if name == "all-to-all-uneven" else 65536)
    assert factors["all-reduce"] == pytest.approx(1)
    assert factors["all-gather"] == pytest.approx(1 / 2)
    assert factors.keys() == set(names)

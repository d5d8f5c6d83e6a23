"""The suite's mixture-of-experts layer, as this repository ships it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

SUITE = Path(__file__).parents[2] / "benchmarks" / "distributed" / "test_moe.py"
WRONG = """
    import pytest

    @pytest.mark.parametrize("key", [
        pytest.param("sorter", marks=pytest.mark.gpubench_set("moe.rank_sorter=by-lod")),
        pytest.param("groups", marks=pytest.mark.gpubench_set("moe.expert_parallel=3")),
    ])
    @pytest.mark.precision("fp32")
    @pytest.mark.gpubench(config="moe", ranks="any")
    def test_wrong(gpubench, moe_layer, key):
        gpubench(moe_layer("forward").step)
"""


@pytest.mark.exhaustive
def test_the_layer_is_measured_and_what_is_wrong_is_refused(project: Project) -> None:
    """The record has errors, phases and their shares; what cannot be done says so, alone."""
    project.write("test_it.py", SUITE.read_text())
    project.write("test_wrong.py", WRONG)
    chosen = "wrong or pinned or grouped and moe_layer and backward"

    run = project.run("-k", chosen, "--precision=bf16,fp32", "--distributed.threads=1")

    layer = "test_moe_layer[forward-backward-{}-grouped-{}]"
    kinds = {"local": "measured"} | dict.fromkeys(
        ("local-te", "all-gather", "all-to-all"), "unsupported"
    )
    assert run.code == 4
    assert run.outcomes == {
        **{layer.format(n, p): o for n, o in kinds.items() for p in ("bf16", "fp32")},
        "test_moe_pinned_cache[fp32]": "unsupported",
        "test_moe_pinned_cache[bf16]": "skipped",
        "test_wrong[sorter-fp32]": "misconfigured",
        "test_wrong[groups-fp32]": "unsupported",
        **{f"test_wrong[{key}-bf16]": "unsupported" for key in ("sorter", "groups")},
    }
    assert "moe.rank_sorter: unknown 'by-lod' (did you mean 'by-load'?)" in run.out
    (groups,) = (b for b in run.summary["benchmarks"] if b["name"] == "test_wrong[groups-fp32]")
    assert groups["reason"] == "moe.expert_parallel=3 does not divide 1 ranks; allowed: 1"
    for precision in ("bf16", "fp32"):
        (record,) = (
            b for b in run.summary["benchmarks"] if b["name"] == layer.format("local", precision)
        )
        metrics = {name: metric["value"] for name, metric in record["metrics"].items()}
        shares = [value for name, value in metrics.items() if name.endswith("_share")]
        assert (len(shares), sum(shares)) == (8, pytest.approx(1))
        assert metrics["phase_experts_s"] > 0
        errors = record["correctness"]["error_against_one_process"]
        assert set(errors.values()) == {0.0}

"""Precisions in whole sessions: whose id names one, and what bears it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

TESTS = """
    import pytest, torch

    @pytest.fixture
    def matrix(torch_device):
        return torch.ones(64, 64, device=torch_device)

    @pytest.fixture
    def converted(matrix, precision):
        return precision.convert_batch(matrix)

    def test_plain(gpubench, matrix):
        gpubench(lambda: matrix @ matrix, flops=2 * 64**3)

    @pytest.mark.precision("bf16")
    def test_marked(gpubench, matrix):
        gpubench(lambda: matrix @ matrix)

    def test_ignored(gpubench, matrix, precision):
        gpubench(lambda: matrix @ matrix)

    def test_entered(gpubench, matrix, precision, torch_device):
        def step():
            with precision.forward_context(torch_device):
                matrix @ matrix
        gpubench(step)

    def test_through_a_fixture(gpubench, converted):
        gpubench(lambda: torch.softmax(converted, 0))

    @pytest.mark.gpubench(config="mlp")
    @pytest.mark.gpubench_set("model.compile=default", "model.compile_backend=aot_eager")
    def test_compiled(gpubench, trainer):
        gpubench(trainer)

    @pytest.mark.gpubench(config="convergence-diabetes")
    def test_convergence(gpubench, convergence):
        gpubench(convergence, setup=convergence.restart)
"""


@pytest.mark.slow
def test_a_precision_stands_where_it_is_used(project: Project) -> None:
    """And is flagged where nothing computes in it, of compiled code and of whole trainings too."""
    project.write("test_it.py", TESTS)

    run = project.run("--precision=bf16,bf16-true", "--preset=tiny", "-k", "not convergence")

    found = {b["name"].removeprefix("test_"): b for b in run.summary["benchmarks"]}
    for name in ("plain", "marked"):
        assert found[f"{name}"]["outcome"] == "unsupported"
        assert found[f"{name}"]["reason"].startswith("does not use precision: ")
    unused = [name for name, b in found.items() if "precision_unused" in b["flags"]]
    assert unused == [
        "ignored[bf16]",
        "ignored[bf16-true]",
        "entered[bf16-true]",
        "through_a_fixture[bf16]",
    ]
    products = {n: b["correctness"].get("product_dtypes") for n, b in found.items()}
    assert products["ignored[bf16]"] == {"fp32": 1}
    assert products["entered[bf16]"] == {"bf16": 1}
    assert products["through_a_fixture[bf16-true]"] == {}
    assert products["compiled[bf16]"]["bf16"] > 0
    assert products["compiled[bf16-true]"].keys() == {"bf16"}


def test_a_mark_that_says_what_the_flag_says_contradicts_nothing(project: Project) -> None:
    """Also of a benchmark that uses no precision, which is told that."""
    project.write(
        "test_it.py",
        """
        import pytest
        pytestmark = pytest.mark.gpubench_set("precision.name=bf16")
        def test_plain(gpubench):
            gpubench(lambda: sum(range(1000)))
        def test_using(gpubench, precision):
            gpubench(lambda: sum(range(1000)))
        """,
    )

    run = project.run("--precision=bf16")

    assert run.outcomes == {"test_plain": "unsupported", "test_using[bf16]": "measured"}
    assert run.summary["benchmarks"][0]["reason"].startswith("does not use precision: ")
    assert '"bf16" contradicts "fp32"' in project.run().err


def test_a_benchmark_without_precision_is_measured_once(project: Project) -> None:
    """By default and as fp32, however many others are asked for; no peak is known for it."""
    project.write("test_it.py", TESTS)

    run = project.run("--precision=fp32,amp", "-k", "plain or marked or convergence")

    assert run.outcomes == {
        "test_plain": "measured",
        "test_marked": "unsupported",
        "test_convergence[fp32]": "measured",
        "test_convergence[amp]": "measured",
    }
    plain, _, *trained = run.summary["benchmarks"]
    assert "product_dtypes" not in plain["correctness"]
    assert [list(b["correctness"]["product_dtypes"]) for b in trained] == [["fp32"], ["fp16"]]
    titles, row = run.out.partition("by precision")[2].splitlines()[:2]
    assert titles.split() == ["fp32", "amp"]
    assert row.startswith("convergence")

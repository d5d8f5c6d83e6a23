"""Steps and the trainer beside them, in whole sessions: whose amounts a record has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project

TRAINING = """
    import pytest

    mlp = pytest.mark.gpubench(config="mlp")

    @mlp
    def test_trainer(gpubench, trainer):
        gpubench(trainer)
        assert gpubench.result is None

    @mlp
    def test_its_step(gpubench, inference, trainer):
        gpubench(trainer.step, samples=trainer.samples_per_step)

    @mlp
    def test_behind(gpubench, trainer, inference):
        gpubench(inference)

    @mlp
    def test_before(gpubench, inference, trainer):
        gpubench(inference)

    @mlp
    def test_no_op(gpubench, trainer):
        gpubench(lambda: sum(range(1000)))

    @mlp
    def test_wrapped(gpubench, trainer):
        gpubench(lambda: trainer.step(), samples=10**6)

    @mlp
    def test_idle(gpubench, trainer):
        def step():
            trainer.step
        gpubench(step, samples=trainer.samples_per_step)

    @mlp
    def test_forward(gpubench, model, data, trainer):
        inputs = next(iter(data)).inputs
        gpubench(lambda: model(inputs), samples=trainer.samples_per_step)

    def test_impossible(gpubench):
        gpubench(lambda: None, flops=1e15)
"""
"""The mutants are those of which numbers were reported before steps belonged to their subjects."""

REFUSED = {
    "test_wrapped": "samples=1e+06, but a step of the Trainer has samples=",
    "test_idle": "one step of the Trainer, but the measured call took no step",
    "test_impossible": "the FLOPs of a call or the clock are wrong",
}


def test_amounts_are_those_of_what_is_timed(project: Project) -> None:
    """Whatever stands in the test beside it, and in whatever order."""
    project.write("test_it.py", TRAINING)

    run = project.run("--precision=fp32", "--training.steps=2", "--training.loss_drop=null")

    assert [e for e in run.journal if e["event"] == "flops" and "reason" in e] == []
    found = {b["name"].partition("[")[0]: b for b in run.summary["benchmarks"]}
    assert {name: found[name]["outcome"] for name in REFUSED} == dict.fromkeys(REFUSED, "failed")
    for name, said in REFUSED.items():
        assert said in found[name]["reason"]
    trained, inferred = found["test_trainer"]["work"], found["test_behind"]["work"]
    assert trained["samples"] > 0
    assert found["test_its_step"]["work"] == {
        **trained,
        "samples": inferred["samples"],
        "flops": (trained["flops"] * inferred["samples"] / trained["samples"]),
    }
    assert found["test_before"]["work"] == inferred
    assert found["test_forward"]["work"]["samples"] == trained["samples"]
    assert trained["flops"] > inferred["flops"] > 0
    assert set(found["test_no_op"]["work"].values()) == {None}
    assert not {"samples_per_s", "tflops", "loss_last"} & set(found["test_no_op"]["metrics"])
    assert len(found["test_no_op"]["correctness"]["losses"]) == 2


COMPILED = """
    import pytest

    @pytest.mark.gpubench(config="convergence-diabetes")
    def test_convergence(gpubench, convergence):
        gpubench(convergence, setup=convergence.restart)

    @pytest.mark.gpubench(config="mlp")
    def test_foreign(gpubench, trainer):
        gpubench(lambda: trainer.step())

    @pytest.mark.gpubench(config="mlp")
    @pytest.mark.parametrize("called", [False, True])
    def test_model(gpubench, model, data, called):
        inputs = next(iter(data)).inputs
        if called:
            model(inputs)
        gpubench(lambda: model(inputs))
"""


@pytest.mark.slow
def test_compiling_is_seen_where_it_happens(project: Project) -> None:
    """In the untimed training to a target; what the test may have called before is not guessed."""
    project.write("test_it.py", COMPILED)

    run = project.run("--precision=fp32", "--model.compile=default", "--preset=tiny",
                      "--model.compile_backend=aot_eager")  # fmt: skip

    assert set(run.outcomes.values()) == {"measured"}
    compiled, foreign, new, called = (
        benchmark["metrics"] for benchmark in run.summary["benchmarks"]
    )
    compile_s, first_s = compiled["compile_time_s"]["value"], compiled["first_step_s"]["value"]
    assert compile_s == first_s - compiled["step_time_s"]["value"]
    assert compile_s > 2 * compiled["step_time_s"]["value"]
    assert not {"compile_time_s", "first_step_s"} & (foreign.keys() | called.keys())
    assert {"compile_time_s", "first_step_s"} <= new.keys()


SCOPED = """
    import pytest

    @pytest.mark.gpubench(config="mlp")
    def test_train(gpubench, trainer):
        gpubench(trainer)

    @pytest.mark.gpubench(config="mlp")
    def test_infer(gpubench, inference):
        gpubench(inference)
"""


@pytest.mark.slow
@pytest.mark.parametrize("scope", shown("blocks", exhaustively=("model", "step")))
def test_every_scope_is_checked_evaluated_saved_and_profiled(project: Project, scope: str) -> None:
    """Compiled in any scope training is compared with fp32, and has all that eager training has."""
    project.write("test_it.py", SCOPED)

    run = project.run("--precision=bf16", "--model.compile=default", "--preset=tiny", "--profile",
                      "--model.compile_backend=aot_eager", f"--model.compile_scope={scope}",
                      "--training.evaluate=true", "--training.checkpoint=true")  # fmt: skip

    trained, inferred = run.summary["benchmarks"]
    assert [trained["outcome"], inferred["outcome"]] == ["measured"] * 2
    assert trained["correctness"]["evaluation"]["test_accuracy"] > 0.5
    assert trained["correctness"]["reference"]["loss_errors"][0] < 0.005
    assert trained["settings"]["model.compile_scope"] == scope
    assert {"compile_time_s", "first_step_s"} <= trained["metrics"].keys()

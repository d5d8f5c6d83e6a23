"""Inference of language models through the fixtures, in one session."""

from __future__ import annotations

import pytest

from tests.support.projects import InlineProject, Run

SMALL = """\
    model:
      name: {name}
      layers: 1
      width: 32
      heads: 4
      intermediate_size: 64
      vocabulary: 100
      sequence_length: 16
    training:
      batch_size: 3
    inference:
      largest_batch_size: 5
"""

BENCHMARKS = """\
    import pytest

    from gpubench_plugin.config.marks import batch_sizes

    @pytest.mark.gpubench(config="text")
    def test_prefill(gpubench, prefill):
        gpubench(prefill.step)

    @pytest.mark.gpubench(config="text")
    def test_decode(gpubench, decode):
        gpubench(decode.step)

    @batch_sizes
    @pytest.mark.gpubench(config="masked")
    def test_infer(gpubench, inference, batch):
        gpubench(inference.step)

    @pytest.mark.gpubench(config="masked")
    def test_fill_in(gpubench, decode):
        gpubench(decode.step)

    @pytest.mark.gpubench_set("distributed.parallelism=fsdp2")
    @pytest.mark.gpubench(config="text")
    def test_shared(gpubench, decode):
        gpubench(decode.step)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session with all of them."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("configs/text.yaml", SMALL.format(name="llama"))
    project.write("configs/masked.yaml", SMALL.format(name="bert"))
    project.write("test_inference.py", BENCHMARKS)
    return project.run("--distributed.threads=1")


def metric(run: Run, name: str, metric: str) -> float:
    found = next(b for b in run.summary["benchmarks"] if b["name"] == f"test_{name}")
    return float(found["metrics"][metric]["value"])


def test_what_generates_is_measured_and_the_rest_says_why_not(run: Run) -> None:
    """Prompts, tokens and forward passes are measured; BERT generates nothing, nor do shards."""
    outcomes = run.outcomes
    assert outcomes == {
        "test_prefill[fp32]": "measured",
        "test_decode[fp32]": "measured",
        "test_infer[b1-fp32]": "measured",
        "test_infer[b32-fp32]": "measured",
        "test_infer[bmax-fp32]": "measured",
        "test_fill_in[fp32]": "unsupported",
        "test_shared[fp32]": "unsupported",
    }
    reasons = {b["name"]: b["reason"] for b in run.summary["benchmarks"]}
    assert "bert: this model does not generate text" in reasons["test_fill_in[fp32]"]
    assert "fsdp2: text generation runs on one rank" in reasons["test_shared[fp32]"]


def test_latencies_are_the_median_calls(run: Run) -> None:
    """The time to first token and the time per output token are those of one call."""
    assert metric(run, "prefill[fp32]", "ttft_s") == metric(run, "prefill[fp32]", "step_time_s")
    assert metric(run, "decode[fp32]", "tpot_s") == metric(run, "decode[fp32]", "step_time_s")


def per_call(run: Run, name: str, kind: str) -> float:
    """The work of a call: its rate over that of floating-point operations, of which we know."""
    flops = next(
        line["per_call"]
        for line in run.journal
        if line["event"] == "flops" and line["benchmark"].endswith(f"::test_{name}")
    )
    return metric(run, name, f"{kind}_per_s") / (metric(run, name, "tflops") * 1e12) * flops


@pytest.mark.parametrize(("batch", "samples"), [("b1", 1), ("b32", 32), ("bmax", 5)])
def test_the_batch_is_the_one_named(run: Run, batch: str, samples: int) -> None:
    """Samples are as many as the variant says, and each has the tokens of a row."""
    name = f"infer[{batch}-fp32]"
    assert per_call(run, name, "samples") == pytest.approx(samples)
    assert per_call(run, name, "tokens") == pytest.approx(16 * samples)


@pytest.mark.parametrize(("kind", "tokens"), [("prefill", 8), ("decode", 1)])
def test_rows_are_those_of_training_unless_said_otherwise(run: Run, kind: str, tokens: int) -> None:
    """Without inference.batch_size three rows are one call: half the positions, or a token."""
    assert per_call(run, f"{kind}[fp32]", "tokens") == pytest.approx(3 * tokens)

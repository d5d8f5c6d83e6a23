"""Generation with a Llama from a static cache: the prompt, and token after token."""

import pytest

from gpubench_plugin.config.marks import MOST_SAMPLES, ONE_SAMPLE, Variant, param_variants

# Eager, and compiled with reduced overhead: on CUDA as a captured graph.
executions = param_variants(
    Variant(name="eager"),
    Variant(name="reduce-overhead", assignments=("model.compile=reduce-overhead",), full=True),
    argument="execution",
)


@executions
@pytest.mark.gpubench_set("inference.batch_size=1")
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="llama")
def test_llama_prefill(gpubench, prefill, execution):
    """One prompt up to its first token: ttft_s."""
    gpubench(prefill)


@param_variants(ONE_SAMPLE, MOST_SAMPLES, argument="batch")
@executions
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="llama")
def test_llama_decode(gpubench, decode, execution, batch):
    """One more token of every row, chosen greedily: tpot_s."""
    gpubench(decode)

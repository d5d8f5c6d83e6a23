"""What a reader of generated text waits for."""

from __future__ import annotations

import pytest

from gpubench_plugin.measure.metrics.throughput import token_latency


@pytest.mark.parametrize(
    ("fact", "tokens", "name", "seconds"),
    [
        ("first_tokens", 1.0, "ttft_s", 0.55),
        ("output_tokens", 1.0, "tpot_s", 0.55),
        ("output_tokens", 5.0, "tpot_s", 0.11),
    ],
)
def test_latency_is_the_median_call_over_its_tokens(observe, fact, tokens, name, seconds):
    """Ten calls of 0.1 to 1.0 s have the median 0.55 s, shared by the tokens of a row."""
    (metric,) = token_latency(observe(facts={fact: tokens}))
    assert (name, pytest.approx(seconds), "s", "lower") == (
        metric.name,
        metric.value,
        metric.unit,
        metric.better,
    )


def test_what_generates_nothing_has_no_latency(observe):
    """Without such a fact there is no metric."""
    assert list(token_latency(observe())) == []

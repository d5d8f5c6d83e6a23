"""What a record says of variants: the candidate's numbers, and the doubts of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubench_plugin.bench.variants import with_variants
from gpubench_plugin.core.records import Check, Observation, Samples, Work
from gpubench_plugin.measure.paired_turns import variant_metrics


def observed(step_s: float, *flags: str, turns: int = 20) -> Observation:
    """A variant whose every turn is one call of `step_s`."""
    return Observation(
        samples=Samples(
            timer="a clock",
            durations_s=(step_s,) * turns,
            block_s=(step_s,) * turns,
            block_calls=(1,) * turns,
            first_step_s=None,
            warmup_s=(),
            warmup_calls=0,
            flags=flags,
        ),
        work=Work(),
        device="cpu",
        device_name="",
        precision="",
        world_size=1,
        facts={"confidence": 0.95},
    )


def test_a_doubt_of_any_variant_is_one_of_the_record() -> None:
    """A note of another variant is not; the record says which flags are whose."""
    observation, check = with_variants(
        {"eager": observed(0.2, "outliers", "drifting"), "compiled": observed(0.1, "stalls")},
        Check(correctness={"variants_agree": "close"}),
    )
    assert observation.samples.flags == ("stalls", "drifting")
    assert check.correctness == {
        "variants_agree": "close",
        "variants": [
            {"name": "eager", "flags": ["outliers", "drifting"]},
            {"name": "compiled", "flags": ["stalls"]},
        ],
    }
    assert observation.samples.durations_s[0] == 0.1


def test_speed_ups_of_several_variants_have_their_names() -> None:
    """Of two there is one speed-up; of more, one of each but the reference."""
    two = {"eager": observed(0.2), "compiled": observed(0.1)}
    facts = with_variants(two, Check())[0].facts
    assert facts["speed_up"] == pytest.approx(2)
    assert facts["speed_up_ci_low"] == pytest.approx(2 * 0.98)  # placement may cause 2%
    assert facts["speed_up_ci_high"] == pytest.approx(2 * 1.02)
    assert variant_metrics([*two]) <= facts.keys()
    three = {**two, "fused": observed(0.4, turns=20)}
    facts = with_variants(three, Check())[0].facts
    assert [facts["speed_up_compiled"], facts["speed_up_fused"]] == pytest.approx([2, 0.5])
    assert "speed_up" not in facts


def test_a_speed_up_without_a_conclusion_is_no_metric() -> None:
    """Where medians contradict the turns the record has both ratios, and gates nothing to read."""
    slow_turns = observed(0.1)
    stalled = replace(slow_turns.samples, block_s=(1.4,) * 20)
    variants = {"eager": observed(0.2), "compiled": replace(slow_turns, samples=stalled)}
    observation, check = with_variants(variants, Check())
    assert not [name for name in observation.facts if name.startswith("speed_up")]
    assert observation.facts["variant_compiled_step_time_s"] == 0.1
    ratios = check.correctness["variants"][1]["no_conclusion"]
    assert ratios == pytest.approx({"turns": 1 / 7, "medians": 2})


def test_a_single_step_stays_as_it_is() -> None:
    """Nothing is added to its observation and its check."""
    single, check = observed(0.1), Check(correctness={"losses": [1.0]})
    assert with_variants({"": single}, check) == (single, check)

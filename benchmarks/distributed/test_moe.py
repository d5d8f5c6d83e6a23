"""The mixture-of-experts layer: as a whole, each phase alone, and its options.

Every case is compared with one process that has all tokens and all experts before it is timed.
"""

import pytest

PHASES = (
    "router",
    "dispatch_preprocess",
    "dispatch",
    "dispatch_postprocess",
    "experts",
    "combine_preprocess",
    "combine",
    "combine_postprocess",
)


def setting(name, *assignments):
    """A case called `name` that sets some keys."""
    return pytest.param(name, marks=pytest.mark.gpubench_set(*assignments))


layers = [
    setting(f"{dispatcher}-{kind}", f"moe.dispatcher={dispatcher}", f"moe.expert_kind={kind}")
    for dispatcher, kind in (
        ("local", "sequential"),
        ("local", "grouped"),
        ("local", "te-grouped"),
        ("all-gather", "sequential"),
        ("all-gather", "grouped"),
        ("all-to-all", "sequential"),
        ("all-to-all", "grouped"),
    )
]
dispatchers = [
    setting("local", "moe.dispatcher=local"),
    setting("all-to-all", "moe.dispatcher=all-to-all"),
    pytest.param(
        "all-gather",
        marks=[
            pytest.mark.gpubench_set("moe.dispatcher=all-gather"),
            pytest.mark.gpubench_full(),
        ],
    ),
]
options = [
    setting("capacity", "moe.capacity_factor=1.0"),
    setting("z-loss", "moe.balancing=z-loss"),
    setting("sorted-by-load", "moe.rank_sorter=by-load"),
]
several_ranks = [
    setting("data-parallel", "moe.expert_parallel=1"),
    setting("tensor-parallel", "moe.expert_parallel=1", "moe.tensor_parallel=2"),
]
weight_devices = [
    setting("cpu", "moe.device_initialisation=false"),
    setting("device", "moe.device_initialisation=true"),
]
not_half_on_cpu = pytest.mark.gpubench_full("amp", "fp16-true", "bf16-true")
fp32_on_cpu = pytest.mark.gpubench_full("amp", "fp16-true", "bf16", "bf16-true")


@pytest.mark.parametrize("layer", layers)
@pytest.mark.parametrize(
    "part",
    [
        pytest.param("forward", marks=pytest.mark.gpubench_full),
        "forward-backward",
    ],
)
@not_half_on_cpu
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_layer(gpubench, moe_layer, part, layer):
    """The whole layer; the record has the time and share of each phase."""
    gpubench(moe_layer(part))


@pytest.mark.parametrize("dispatcher", dispatchers)
@pytest.mark.parametrize("phase", PHASES)
@fp32_on_cpu
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_phase(gpubench, moe_layer, phase, dispatcher):
    """One phase alone, forward, on what the phases before it gave."""
    gpubench(moe_layer(phase))


@pytest.mark.parametrize("option", options)
@fp32_on_cpu
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_option(gpubench, moe_layer, option):
    """The whole layer with dropping, another balancing loss, or experts moved between ranks."""
    gpubench(moe_layer("forward-backward"))


@pytest.mark.parametrize("groups", several_ranks)
@fp32_on_cpu
@pytest.mark.gpubench(config="moe", ranks=">=2")
def test_moe_groups(gpubench, moe_layer, groups):
    """Ranks that share no experts but weights (data parallel), or each expert (tensor parallel)."""
    gpubench(moe_layer("forward-backward"))


@pytest.mark.parametrize("drawn", weight_devices)
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_initialisation(gpubench, moe_layer, drawn):
    """Drawing a rank's experts, which are the same bit for bit wherever they are drawn."""
    gpubench(moe_layer("initialisation"))


@pytest.mark.gpubench_set("moe.pinned_cache=2")
@fp32_on_cpu
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_pinned_cache(gpubench, moe_layer):
    """Inference with experts in pinned memory, of which the device holds two."""
    gpubench(moe_layer("forward"))


@pytest.mark.parametrize("part", ["forward", "forward-backward"])
@pytest.mark.gpubench_set("moe.graph_capture=true")
@fp32_on_cpu
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_graph_capture(gpubench, moe_layer, part):
    """The layer with its router replayed as a CUDA graph."""
    gpubench(moe_layer(part))

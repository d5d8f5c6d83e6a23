"""How much of the exchange of gradients a backward pass hides, over the size of DDP's buckets.

Li et al., PyTorch Distributed, VLDB 2020, section 5.2, sweep the same:
https://arxiv.org/abs/2006.15704
"""

import pytest


def bucket(mib, *marks):
    """The case of buckets of so many MiB of gradients."""
    return pytest.param(
        marks=[pytest.mark.gpubench_set(f"distributed.bucket_cap_mb={mib}"), *marks],
        id=f"bucket-{mib}MiB",
    )


@pytest.mark.parametrize((), [bucket(0.1), bucket(1.0, pytest.mark.gpubench_full), bucket(25.0)])
@pytest.mark.gpubench(config="llama-parallel", ranks=">=2")
@pytest.mark.gpubench_set("distributed.parallelism=ddp")
@pytest.mark.gpubench_full("bf16", "bf16-true", "amp", "fp16-true")
def test_llama_train_overlap(gpubench, trainer, exposed_communication):
    """A training step, and what of it is left waiting for other ranks' gradients."""
    gpubench(trainer)

"""What FSDP2 refuses, before any rank waits for another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from gpubench_plugin.config.sections import DistributedSection, ModelSection, TrainingSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.training.parallelism.fsdp2 import FSDP2


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_batch_norm_in_a_16_bit_type_is_unsupported(dtype: str) -> None:
    """A network with batch normalisation is not sharded in a 16-bit type; the reason names it."""
    section = DistributedSection(parallelism="fsdp2", fsdp_param_dtype=dtype)
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    with pytest.raises(Unsupported, match=f"fsdp_param_dtype={dtype}: .* of batch norm"):
        FSDP2(None, section).wrap(module)


@pytest.mark.parametrize("scope", ["model", "step"])
def test_a_graph_of_more_than_a_block_is_unsupported(scope: Any) -> None:
    """Hooks gather the blocks between graphs; blocks and null are allowed."""
    fsdp2, training = FSDP2(None, DistributedSection(parallelism="fsdp2")), TrainingSection()
    workload: Any = SimpleNamespace(section=ModelSection(compile="default", compile_scope=scope))
    with pytest.raises(Unsupported, match=f"compile_scope={scope}: a graph.*allowed: blocks, null"):
        fsdp2.configure(workload, training)
    for allowed in ("blocks", None):
        workload.section = ModelSection(compile="default", compile_scope=allowed)
        fsdp2.configure(workload, training)

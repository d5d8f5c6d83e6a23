"""What FSDP2 refuses, before any rank waits for another."""

from __future__ import annotations

import pytest
from torch import nn

from gpubench_plugin.config import DistributedSection
from gpubench_plugin.distributed.parallelism.fsdp2 import FSDP2
from gpubench_plugin.errors import Unsupported


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_batch_norm_in_a_16_bit_type_is_unsupported(dtype: str) -> None:
    """A network with batch normalisation is not sharded in a 16-bit type; the reason names it."""
    section = DistributedSection(parallelism="fsdp2", fsdp_param_dtype=dtype)
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    with pytest.raises(Unsupported, match=f"fsdp_param_dtype={dtype}: 1 is a batch norm"):
        FSDP2(None, section).wrap(module)

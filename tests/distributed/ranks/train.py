"""Gradients of one global batch under DDP, whole and accumulated; each rank writes them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from gpubench_plugin import catalog
from gpubench_plugin.distributed.process_group import ProcessGroup
from gpubench_plugin.distributed.world import World

BATCH = 16


def build(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4))


def gradients(module: nn.Module) -> list[float]:
    return torch.cat([p.grad.flatten() for p in module.parameters()]).tolist()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, 12, generator=generator), torch.arange(BATCH) % 4


def whole_batch() -> list[float]:
    """What one process computes on the global batch."""
    module = build(0)
    inputs, labels = batch()
    nn.functional.cross_entropy(module(inputs), labels).backward()
    return gradients(module)


def main() -> None:
    world = World.from_environment(os.environ)
    inputs, labels = (part.chunk(world.size)[world.rank] for part in batch())
    with ProcessGroup(world, device=torch.device("cpu")) as group:
        ddp = catalog.load("parallelism", "ddp")(group)
        # Rank one starts from other weights: wrapping gives it rank zero's.
        module = ddp.wrap(build(world.rank))
        nn.functional.cross_entropy(module(inputs), labels).backward()
        at_once = gradients(module)

        module.zero_grad()
        first, last = zip(inputs.chunk(2), labels.chunk(2), strict=True)
        with ddp.no_sync(module):
            (nn.functional.cross_entropy(module(first[0]), first[1]) / 2).backward()
        local = gradients(module)
        (nn.functional.cross_entropy(module(last[0]), last[1]) / 2).backward()
        group.wait_for_all("leave")
    record = {"at_once": at_once, "local": local, "accumulated": gradients(module)}
    Path(sys.argv[1], f"{world.rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()

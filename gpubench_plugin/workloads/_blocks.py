"""Blocks of a model: the layers that it repeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from torch import nn

_LISTS: Final = (nn.ModuleList, nn.Sequential)


class BlockPosition(NamedTuple):
    """A block, the module that holds it, and its name there."""

    parent: nn.Module
    name: str
    block: nn.Module


def blocks_of(module: nn.Module) -> Iterator[BlockPosition]:
    """Blocks of `module`: the entries with parameters of its outermost lists of layers.

    Layers outside of lists are in no block.
    """
    in_list = isinstance(module, _LISTS)
    for name, child in module.named_children():
        if not in_list or isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from blocks_of(child)
        elif any(True for _ in child.parameters()):
            yield BlockPosition(module, name, child)

"""Collectives to measure, one per module, with the conventions of nccl-tests."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.distributed.collectives.base import Collective

__getattr__ = lazy_names(__name__)

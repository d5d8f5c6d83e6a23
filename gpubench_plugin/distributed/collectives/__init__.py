"""What ranks exchange: one module per collective, each measured as nccl-tests measures it."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.distributed.collectives.base import Collective

__getattr__ = lazy_names(__name__)

"""What numbers are computed in: one class per precision, chosen by ``--precision``."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.precision._fp32_switches import operations
    from gpubench_plugin.precision.base import Precision

__getattr__ = lazy_names(__name__)

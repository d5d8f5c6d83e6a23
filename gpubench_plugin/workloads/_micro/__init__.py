"""What the benchmarks of single operations share: checks, layouts, observers."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.workloads._micro.attention import BACKENDS, attend, flops
    from gpubench_plugin.workloads._micro.backward import Chains, NodeTimes
    from gpubench_plugin.workloads._micro.checks import (
        DTYPES,
        TOLERANCES,
        lacking,
        require_close,
        require_equal,
    )
    from gpubench_plugin.workloads._micro.layouts import LAYOUTS, laid_out
    from gpubench_plugin.workloads._micro.parameter_lists import (
        IMPLEMENTATIONS,
        OPTIMIZERS,
        TENSORS_MOVED,
        check,
        optimizer,
        parameters,
    )

__getattr__ = lazy_names(__name__)

"""Shared code of micro benchmarks: checks, layouts, observers."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.workloads._micro.attention import BACKENDS, flops, run_attention
    from gpubench_plugin.workloads._micro.backward import LinearStacks, NodeTimes
    from gpubench_plugin.workloads._micro.checks import (
        DTYPES,
        TOLERANCES,
        require_close,
        require_equal,
        skip_if_unsupported,
    )
    from gpubench_plugin.workloads._micro.layouts import LAYOUTS, with_layout
    from gpubench_plugin.workloads._micro.parameter_lists import (
        IMPLEMENTATIONS,
        OPTIMIZERS,
        TENSORS_MOVED,
        check,
        optimizer,
        parameters,
    )

__getattr__ = lazy_names(__name__)

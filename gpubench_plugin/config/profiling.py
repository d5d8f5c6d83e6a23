"""The keys of profiling."""

from __future__ import annotations

from pydantic import Field

from gpubench_plugin.config.section import PositiveInt, Section


class ProfilingSection(Section):
    """torch.profiler on extra steps after the measurement, never during it."""

    enabled: bool = Field(default=False, description="Also set by --profile")
    steps: PositiveInt = Field(default=3, description="Steps profiled")
    record_shapes: bool = Field(default=False, description="With the shapes of inputs")
    with_stack: bool = Field(default=False, description="With Python stacks")

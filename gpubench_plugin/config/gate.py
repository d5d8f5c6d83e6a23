"""The keys of the gate."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpubench_plugin.config.section import Section

LimitText = Annotated[str, Field(examples=["3%", "<=0.25"])]


class GateSection(Section):
    """What ``--gate`` judges; no part of what makes two measurements comparable."""

    limits: dict[str, LimitText] = Field(
        default={}, description="By metric: how much worse it may get, or a fixed bound"
    )

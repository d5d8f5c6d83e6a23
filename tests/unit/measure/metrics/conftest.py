from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import observations

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation


@pytest.fixture
def everything() -> Observation:
    """An observation to which every metric applies."""
    return observations.everything()

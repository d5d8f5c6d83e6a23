"""What pytest does from a version on."""

from __future__ import annotations

from typing import Final

import pytest

PYTEST_9: Final = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="rests on what pytest 9 brought"
)

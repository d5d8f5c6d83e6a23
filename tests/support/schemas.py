"""The published schemas, whose text depends on the version of pydantic."""

from __future__ import annotations

from typing import Final

import pydantic
import pytest

DESCRIBES: Final = pytest.mark.skipif(
    pydantic.VERSION < "2.14", reason="pydantic before 2.14 leaves out descriptions of records"
)

"""Which values of a parameter are tested by every run of tox, and which by ``tox -e all`` only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def shown(*values: Any, exhaustively: Iterable[Any] = ()) -> list[Any]:
    """The `values`, then those of `exhaustively` that are not among them, marked ``exhaustive``."""
    further = (value for value in exhaustively if value not in values)
    return [*values, *(pytest.param(value, marks=pytest.mark.exhaustive) for value in further)]

"""Sizes of messages."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.training.timed_collective import parse


def test_sizes_are_binary() -> None:
    """A kibibyte has 1024 bytes."""
    assert [parse(text) for text in ("100B", "1KiB", "64MiB", "1GiB")] == [
        100,
        1024,
        64 * 2**20,
        2**30,
    ]


@pytest.mark.parametrize("text", ["1KB", "1.5MiB", "0B", "KiB", "-1B", "1 KiB", ""])
def test_anything_else_is_refused(text: str) -> None:
    """The message shows what was given."""
    with pytest.raises(Misuse, match=f"message size {text!r}"):
        parse(text)

"""What a message has to say: its names and values in their order, whatever the sentence."""

from __future__ import annotations

import re


def mentions(message: object, word: str, *more: str) -> bool:
    """Whether the words stand in one line of ``message``, one after the other."""
    return re.search(".*".join(map(re.escape, (word, *more))), str(message)) is not None

"""What a format of comparisons is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gpubench_plugin.reports.text import UNICODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import Comparison
    from gpubench_plugin.reports.text import Glyphs


class Format(ABC):
    """One format; its name is the module's."""

    @abstractmethod
    def render(
        self,
        comparisons: Sequence[Comparison],
        *,
        only_changed: bool = False,
        width: int = 80,
        color: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> str:
        """The `comparisons` as text that ends with a line's end.

        Args:
            comparisons: one per head, all with the same base.
            only_changed: leave out what is known to be unchanged.
            width: columns of the terminal, for formats that look at it; so are `color` and
                `glyphs`.
        """


BASE = Format

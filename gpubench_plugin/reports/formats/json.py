"""The verdicts as the JSON document that ``verdicts.json`` is too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.reports.text import UNICODE
from gpubench_plugin.reports.verdict_table import changed, worst_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import Comparison
    from gpubench_plugin.reports.text import Glyphs


class Json(Format):
    """Strict JSON: ``gpubench schema verdicts`` prints its schema."""

    def render(
        self,
        comparisons: Sequence[Comparison],
        *,
        only_changed: bool = False,
        width: int = 80,
        color: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> str:
        """One document, also of several comparisons, the worst of each first."""
        from gpubench_plugin.results import verdicts as verdict_document

        return verdict_document.to_text(
            [_shown(comparison, only_changed=only_changed) for comparison in comparisons]
        )


def _shown(comparison: Comparison, *, only_changed: bool) -> Comparison:
    verdicts = worst_first(comparison.verdicts)
    return replace(comparison, verdicts=tuple(changed(verdicts) if only_changed else verdicts))

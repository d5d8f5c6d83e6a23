"""The table of all keys in ``docs/configuration.md``, generated so that it cannot go stale."""

from __future__ import annotations

import json

from gpubench_plugin.config import explain
from gpubench_plugin.config.sections import Configuration, ModelSection


def markdown_table(schema: explain.Schema = Configuration[ModelSection]) -> str:
    """Every key of `schema` with what it allows, its default and its meaning."""
    rows = [
        (
            f"`{'.'.join(key)}`",
            explain.allowed(explain.annotation_of(field)),
            "required" if field.is_required() else f"`{json.dumps(field.get_default())}`",
            field.description or "",
        )
        for key, field in explain.walk(schema)
    ]
    header = ("Key", "Allowed", "Default", "Meaning")
    return "".join(_row(cells) for cells in (header, ("---",) * len(header), *rows))


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"

"""What the result table of a session shows: its columns, their order, and groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.errors import UsageProblem

AUTO: Final = "auto"
NONE: Final = "none"
BY_FILE: Final = "file"
BY_FUNCTION: Final = "function"


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Columns, order and groups of the result table.

    Empty `columns` are those that have a value and fit. `sort` is ``name``, a column or a metric,
    or empty for the order of the tests; `descending` puts the largest first. `group_by` is
    ``file``, ``function``, ``none`` or a parameter.
    """

    shown: bool = True
    columns: tuple[str, ...] = ()
    sort: str = ""
    descending: bool = False
    group_by: str = BY_FILE

    @classmethod
    def parse(cls, columns: str, *, sort: str, group_by: str) -> TableOptions:
        """Options from the values of ``--table``, ``--table-sort`` and ``--table-group-by``.

        Raises:
            UsageProblem: a value is empty, or names no column.
        """
        key = sort.removeprefix("-").strip()
        if sort and not key:
            raise UsageProblem(f"--table-sort={sort}: names no column")
        if not group_by.strip():
            raise UsageProblem(
                "--table-group-by=: empty; allowed: file, function, none, or a parameter"
            )
        return cls(
            shown=columns.strip() != NONE,
            columns=() if columns.strip() in {AUTO, NONE} else _names(columns),
            sort=key,
            descending=sort.startswith("-"),
            group_by=group_by.strip(),
        )


AUTO_TABLE: Final = TableOptions()
"""All columns that have a value and fit, files apart."""


def _names(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageProblem(
            f"--table={text}: an empty name in the list; allowed: auto, none, or names of "
            "columns and metrics"
        )
    if AUTO in names or NONE in names:
        raise UsageProblem(f"--table={text}: auto and none stand alone")
    return tuple(dict.fromkeys(names))

"""Comma-separated values that a spreadsheet does not execute."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Final

Cell = str | float | None

_FORMULA: Final = re.compile(r"\s*[=+\-@]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Format `rows`, the titles first.

    Numbers round-trip exactly, and None is an empty cell. Text that a spreadsheet would run as a
    formula (``=``, ``+``, ``-`` or ``@`` first) gets an apostrophe in front, and control characters
    are escaped (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(_cell_text, row) for row in rows)
    return text.getvalue()


def _cell_text(cell: Cell) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return repr(cell) if isinstance(cell, int) else repr(float(cell))
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), cell)
    return f"'{text}" if _FORMULA.match(text) else text

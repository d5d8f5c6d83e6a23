"""JSON files: reads with one error for whatever is wrong, atomic writes.

Output conforms to RFC 8259: no NaN, no infinity, no lone surrogate, keys are strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.core.errors import BrokenFile, UsageProblem, suggest
from gpubench_plugin.system import files

LIMIT_BYTES: Final = 1 << 30
"""Limit of files with every sample of a run. 5,000 benchmarks with 2,400 samples of 20 bytes each
make 240 MB; this leaves room for four times as many."""

LIMIT_OF_FACTS_BYTES: Final = 64 << 20
"""Limit of files without samples: verdicts, system facts, baselines, states. 5,000 benchmarks with
three verdicts of 600 bytes each make 9 MB."""

MALFORMED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of code that assumes a structure which parsed values do not have."""


def load(path: Path, *, limit: int = LIMIT_BYTES) -> Any:
    """Load the JSON file at `path`.

    Raises:
        UsageProblem: there is no such file.
        BrokenFile, ResultsError: as :func:`parse` and :func:`.files.read`.
    """
    try:
        data = files.read(path, limit=limit)
    except FileNotFoundError:
        raise UsageProblem(f"{path}: no such file{nearest_hint(path)}") from None
    return parse(data, str(path))


def parse(data: str | bytes, label: str) -> Any:
    """Parse JSON `data`, called `label` in messages.

    Raises:
        BrokenFile: it is not JSON, as a truncated file, nested too deeply, or too large for memory.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise BrokenFile(f"{label} is not JSON: {error or 'too large for memory'}") from None


def nearest_hint(path: Path) -> str:
    """Suggestion of the nearest file name in the folder."""
    with suppress(OSError):
        return suggest(path.name, [entry.name for entry in path.parent.iterdir()])
    return ""


def text(value: object, *, indent: int | None = None) -> str:
    """Serialize `value` as ASCII JSON; see :func:`jsonable` for other types."""
    return json.dumps(jsonable(value), indent=indent, allow_nan=False)


def jsonable(value: object, *, dropped: dict[str, str] | None = None, pointer: str = "") -> Any:
    """Convert `value` to JSON types.

    Tuples and sets become lists, arrays and scalars of other libraries Python's own, all else its
    text, and non-finite numbers null. `dropped` receives the JSON pointer (RFC 6901) of each of
    these and ``nan``, ``inf`` or ``-inf``.
    """
    if callable(tolist := getattr(value, "tolist", None)):
        value = tolist()
    if isinstance(value, Mapping):
        return {
            escape_surrogates(str(k)): jsonable(
                v, dropped=dropped, pointer=f"{pointer}/{_escaped(str(k))}"
            )
            for k, v in value.items()
        }
    if isinstance(value, AbstractSet):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        if {*map(type, value)} == {float} and math.isfinite(sum(value)):
            return [*value]  # a hundred thousand durations
        return [jsonable(v, dropped=dropped, pointer=f"{pointer}/{i}") for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        if dropped is not None:
            dropped[pointer] = str(value)
        return None
    is_json = value is None or isinstance(value, int | float)
    return value if is_json else escape_surrogates(str(value))


def escape_surrogates(string: str) -> str:
    """`string` with lone surrogates (as in non-UTF-8 file names) escaped."""
    return string.encode("utf-8", "backslashreplace").decode("utf-8")


def _escaped(key: str) -> str:
    return escape_surrogates(key).replace("~", "~0").replace("/", "~1")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 `text` to `path` durably, replacing a symbolic link there.

    Raises:
        ResultsError: the write failed: the content is the previous one; or only the sync of the
            folder, and it is the new one.
    """
    data = text.encode("utf-8", "backslashreplace")
    with files.refusals("write", path):
        files.write(path, lambda file: file.write(data))


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` as indented JSON; raises as :func:`write_text`."""
    write_text(path, text(value, indent=2) + "\n")


def remove(path: Path) -> None:
    """Remove the file at `path` durably, if it exists; raises ResultsError."""
    with files.refusals("remove", path):
        path.unlink(missing_ok=True)
        files.sync_folder(path.parent)

"""The name of a run: sortable by time, unique without a counter, safe as a folder's name."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST: Final = 80
"""Characters in an experiment or a tag: a run id stays far below the 255 bytes of a file name."""

RUN_ID: Final = re.compile(r"(\d{8}T\d{6}Z)_.+_[0-9a-f]{6}")
"""What :func:`new_run_id` gives."""

_STAMP: Final = "%Y%m%dT%H%M%SZ"
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def new_run_id(
    tag: str | None, now: datetime, random: Callable[[int], str] = secrets.token_hex
) -> str:
    """``YYYYmmddTHHMMSSZ_<tag|run>_<6 hex>``.

    Args:
        tag: a word of the user's, or None.
        now: the time of the start, with its time zone.
        random: gives twice as many hexadecimal digits as its argument says.

    Raises:
        UsageProblem: the tag cannot be part of a folder's name.
    """
    stamp = now.astimezone(UTC).strftime(_STAMP)
    return f"{stamp}_{path_component('--tag', tag or 'run')}_{random(3)}"


def began(run_id: str) -> datetime | None:
    """When the run began, to the second; None where somebody gave it another name."""
    try:
        return datetime.strptime(run_id.partition("_")[0], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def tag_of(run_id: str) -> str:
    """The tag in a run id, ``run`` where there was none."""
    return run_id.partition("_")[2].rpartition("_")[0]


def is_path_component(value: str) -> bool:
    """Whether `value` is safe as the name of one folder."""
    return _SAFE.fullmatch(value) is not None and len(value) <= LONGEST


def path_component(option: str, value: str) -> str:
    """`value`, which is safe as the name of one folder.

    Raises:
        UsageProblem: it is not; the message proposes the nearest one that is.
    """
    if is_path_component(value):
        return value
    nearest = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("._-")[:LONGEST]
    hint = f" (did you mean {nearest!r}?)" if nearest else ""
    raise UsageProblem(
        f"{option}: {value!r} cannot name a folder{hint}; allowed: letters, digits, '.', '_' and "
        f"'-', a letter or digit first, at most {LONGEST}"
    )

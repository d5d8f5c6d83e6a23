"""Whose ``OMP_NUM_THREADS`` it is: the user's, which is obeyed, or what a launcher set instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "OMP_NUM_THREADS"

SHARE: Final = "GPUBENCH_OMP_NUM_THREADS"
"""Environment variable with the number that a gang set, since the user had set none."""

_TORCHRUN: Final = "TORCHELASTIC_RUN_ID"


def is_set_by_launcher(environ: Mapping[str, str]) -> bool:
    """Whether a gang or torchrun set the variable, which the user had left open.

    torchrun sets 1 for several ranks (``torch/distributed/run.py``). So 1 is its own if torchrun,
    the first ancestor that is no rank of it, began without the variable; where the system does not
    tell, it is the user's.
    """
    value = environ.get(VARIABLE, "")
    if value != "1" or _TORCHRUN not in environ:
        return bool(value) and value == environ.get(SHARE)
    import psutil

    try:
        began_with = (process.environ() for process in psutil.Process().parents())
        outside = next((begin for begin in began_with if _TORCHRUN not in begin), {VARIABLE: value})
    except (psutil.Error, OSError):
        return False
    return VARIABLE not in outside

"""Places in the user's code: those of a stack that are neither torch's nor gpubench's own.

A place is a frame with its source line, or instead of that a reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import FrameSummary, walk_stack
from typing import Final

import torch

from gpubench_plugin.environment.redaction import redact

_TORCH: Final = f"{Path(torch.__file__).parent}/"
_OWN: Final = f"{Path(__file__).parents[2]}/"


def owner_of(place: FrameSummary) -> str:
    """``user``, also of a library or workload, ``torch``, ``gpubench``, or empty: a probe's own."""
    if place.filename.startswith(("<", f"{_OWN}measure/probes/")):
        return ""
    if place.filename.startswith(_OWN) and not place.filename.startswith(f"{_OWN}workloads/"):
        return "gpubench"
    return "torch" if place.filename.startswith(_TORCH) else "user"


def of_user(places: Iterable[FrameSummary]) -> FrameSummary | None:
    """The first of `places` that is the user's."""
    return next((place for place in places if owner_of(place) == "user"), None)


def places_here() -> Iterator[FrameSummary]:
    """The stack of the caller, the innermost first, as far as gpubench's call of the step."""
    for frame, line in walk_stack(sys._getframe(1)):
        code = frame.f_code
        place = FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
        yield place
        if owner_of(place) == "gpubench":
            return


def place_text(place: FrameSummary, root: Path) -> str:
    """``models/net.py:12 in forward: loss.item()``, without secrets.

    The file is relative to where libraries are, or to `root`, else it has no folder.
    """
    folders = [path for path in sys.path if path.endswith("-packages")]
    folders += [str(root), str(Path(_OWN).parent)]
    inside = (folder for folder in folders if place.filename.startswith(f"{folder}/"))
    file = place.filename.removeprefix(f"{next(inside, Path(place.filename).parent)}/")
    function = re.sub(r"^torch_dynamo_resume_in_(\w+)_at_\d+$", r"\1", place.name)
    return f"{file}:{place.lineno} in {function}: {redact(place.line or '')[:80]}"

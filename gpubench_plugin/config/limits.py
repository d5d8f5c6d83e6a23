"""Limits of metrics: an allowed regression, ``"3%"``, or an absolute bound, ``"<=0.25"``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gpubench_plugin.core.errors import UsageProblem

DEFAULT: Final = "2%"
"""Limit of a gated metric for which none is stated."""

_RELATIVE: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)\s*%")
_ABSOLUTE: Final = re.compile(
    r"(?P<operator><=|>=)\s*(?P<number>[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?)"
)
_KINDS: Final[Mapping[str, Literal["at_most", "at_least"]]] = {"<=": "at_most", ">=": "at_least"}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Bound on the effect (as a fraction) or on the value itself.

    With `kind` ``relative``, worse by `bound` or more is a regression; with ``at_most`` or
    ``at_least``, the head's value beyond `bound` is one, whatever the base.
    """

    text: str = field(compare=False)
    kind: Literal["relative", "at_most", "at_least"]
    bound: float

    @classmethod
    def parse(cls, text: str, label: str) -> Limit:
        """Parse a limit; `label` names the key in messages.

        Raises:
            UsageProblem: it is not a limit; the message says what is allowed.
        """
        text = text.strip()
        if match := _RELATIVE.fullmatch(text):
            share = float(f"{match['number']}e-2")  # division by 100 would round a second time
            if 0 < share < 1:
                return cls(text=text, kind="relative", bound=share)
        if match := _ABSOLUTE.fullmatch(text):
            bound = float(match["number"])
            if math.isfinite(bound):
                return cls(text=text, kind=_KINDS[match["operator"]], bound=bound)
        raise UsageProblem(
            f"{label}: {text!r} is not a limit; allowed: a percentage between 0 and 100 such "
            "as '3%' or '2.5%', or an absolute bound such as '<=0.25' or '>=1000'"
        )

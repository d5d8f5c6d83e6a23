"""Amounts of one call: those stated in a benchmark, beside those that its subject knows."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, cast

from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.records import Work, is_same_amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.measure.protocols import Subject


def stated_work(amounts: Mapping[str, object]) -> Work:
    """Work of the `amounts` stated in a benchmark, None for those left out.

    Raises:
        Misuse: an amount is not a positive number.
    """
    stated = {name: amount for name, amount in amounts.items() if amount is not None}
    for name, amount in stated.items():
        if not _is_amount(amount):
            raise Misuse(f"{name}={_format_amount(amount)}; allowed: a number above 0")
    return Work(**{name: float(cast("float", amount)) for name, amount in stated.items()})


def refuse_contradicting_amounts(stated: Work, subject_work: Work, subject: Subject) -> None:
    """Refuse a `stated` amount that contradicts the subject's `subject_work`."""
    for name, amount in stated.known_amounts.items():
        actual = subject_work.known_amounts.get(name, amount)
        if not is_same_amount(amount, actual):
            raise Misuse(
                f"{name}={amount:g}, but a step of the {type(subject).__name__} has "
                f"{name}={actual:g}; leave it out, or measure another step with its own amounts"
            )


def refuse_borrowed_amounts(stated: Work, subject: Subject) -> None:
    """Refuse amounts that equal the `subject`'s for a step that did nothing."""
    known_work = subject.work().known_amounts
    for name, amount in stated.known_amounts.items():
        if name in known_work and is_same_amount(amount, known_work[name]):
            kind = type(subject).__name__
            raise Misuse(
                f"{name}={amount:g} is the amount of one step of the {kind}, "
                "but the measured call took no step and did nothing else; write "
                f"gpubench({kind.lower()}), or call its step: gpubench(lambda: "
                f"{kind.lower()}.step())"
            )


def _is_amount(amount: object) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, Real):
        return False
    try:
        return 0 < float(amount) < math.inf
    except OverflowError:  # an integer above all floats
        return False


def _format_amount(amount: object) -> str:
    try:
        return f"{amount!r:.40}"
    except ValueError:  # sys.get_int_max_str_digits(), 4,300 by default
        return "a number with thousands of digits"

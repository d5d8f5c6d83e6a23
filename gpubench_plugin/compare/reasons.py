"""Why a verdict is what it is, in one line for people."""

from __future__ import annotations

from gpubench_plugin.compare.series import Series


def percent(share: float) -> str:
    """A share with the digits that matter: ``0.35 %``, ``4.1 %``, ``12 %``."""
    size = abs(share) * 100
    if size >= 10_000:
        return f"{share * 100:.0e} %"
    digits = 0 if size >= 9.95 or size == 0 else 1 if size >= 0.995 else 2
    text = f"{share * 100:.{digits}f}"
    return f"{text.removeprefix('-') if not float(text) else text} %"


def change(series: Series, effect: float) -> str:
    """The effect in the words of its metric: ``4.1 % slower``, ``12 % higher``, ``no change``."""
    return f"{percent(abs(effect))} {_word(series, effect)}" if effect else "no change"


def within(series: Series, interval: tuple[float, float]) -> str:
    """The interval of an effect: ``99 % interval 3.7 to 6.0 %``, or with words where it holds zero.

    Then it reads ``99 % interval 0.4 % faster to 1.2 % slower``. Otherwise it is in the words of
    the effect, which lies within.
    """
    low, high = interval
    if low < 0 < high:
        return f"99 % interval {change(series, low)} to {change(series, high)}"
    near, far = sorted((abs(low), abs(high)))
    return f"99 % interval {percent(near).removesuffix(' %')} to {percent(far)}"


def _word(series: Series, effect: float) -> str:
    if series.unit in {"s", "ms", "us", "ns"} and series.better == "lower":
        return "slower" if effect > 0 else "faster"
    return "higher" if (effect > 0) == (series.better == "lower") else "lower"


def counted(number: int, noun: str) -> str:
    """``1 pair``, ``5 pairs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

from fractions import Fraction

import pytest

from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.errors import UsageProblem


@pytest.mark.parametrize(
    ("text", "kind", "bound"),
    [
        ("3%", "relative", 0.03),
        (" 2.5 % ", "relative", 0.025),
        (".5%", "relative", 0.005),
        ("<=0.25", "at_most", 0.25),
        (">= 1e3", "at_least", 1000.0),
        ("<=-1", "at_most", -1.0),
    ],
)
def test_a_limit_is_a_percentage_or_a_fixed_bound(text, kind, bound):
    """Fractions of a percent, spaces and exponents are allowed."""
    limit = Limit.parse(text, "gate.limits.x")
    assert (limit.kind, limit.bound) == (kind, pytest.approx(bound))


@pytest.mark.parametrize("text", ["1.1%", "2.2%", "2.3%", "0.7%", "14.5%"])
def test_a_percentage_is_the_nearest_float_of_its_fraction(text):
    """So that an effect of exactly the limit reaches it."""
    assert Limit.parse(text, "limit").bound == float(Fraction(text.removesuffix("%")) / 100)


@pytest.mark.parametrize(
    "text",
    [
        *(f"0.{'0' * 400}1%", f"99.{'9' * 30}%"),  # zero and one as floats
        *("", "3", "0%", "100%", "-3%", "<0.25", "<=nan", ">=1e999", "<=", "three%", "=1"),
        *("\u0663%", "<=\u0663"),  # other digits
    ],
)
def test_what_is_no_limit_is_refused_with_what_is_allowed(text):
    """The message names the key, the text and both forms."""
    with pytest.raises(UsageProblem, match=r"gate\.limits\.x: .* is not a limit; allowed: a perc"):
        Limit.parse(text, "gate.limits.x")

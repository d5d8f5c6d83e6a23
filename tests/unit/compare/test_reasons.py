import pytest

from gpubench_plugin.compare import change, counted, percent, within
from tests.support.made import series


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0035, "0.35 %"),
        (0.041, "4.1 %"),
        (0.1234, "12 %"),
        (-0.041, "-4.1 %"),
        (543.2, "5e+04 %"),
    ],
)
def test_a_percentage_has_the_digits_that_matter(share, text):
    """Two decimals below one percent, one below ten, none above."""
    assert percent(share) == text


def test_no_percentage_is_a_negative_zero():
    """What rounds to nothing has no sign."""
    assert percent(-1e-9) == "0.00 %"


def test_an_effect_is_told_in_the_words_of_its_metric():
    """Times are slower or faster, others higher or lower as the value itself went."""
    time, memory = series([1], [1]), series([1], [1], metric="peak_memory_bytes")
    rate = series([1], [1], metric="samples_per_s")
    assert [change(one, 0.05) for one in (time, memory, rate)] == [
        "5.0 % slower",
        "5.0 % higher",
        "5.0 % lower",
    ]
    assert [change(one, -0.05) for one in (time, memory, rate)] == [
        "5.0 % faster",
        "5.0 % lower",
        "5.0 % higher",
    ]
    assert change(time, 0) == "no change"


def test_an_interval_names_both_directions_only_where_it_holds_both():
    """Otherwise it is in the direction of the effect."""
    time = series([1], [1])
    assert within(time, (0.037, 0.06)) == "99 % interval 3.7 to 6.0 %"
    assert within(time, (-0.06, -0.037)) == "99 % interval 3.7 to 6.0 %"
    assert within(time, (-0.004, 0.012)) == "99 % interval 0.40 % faster to 1.2 % slower"


def test_counts_have_their_plural():
    """One pair, two pairs."""
    assert (counted(1, "pair"), counted(2, "pair")) == ("1 pair", "2 pairs")

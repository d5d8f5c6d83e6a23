from gpubench_plugin.compare.launch_values import effect_text, interval_text, variation_text
from gpubench_plugin.compare.pairs import judge_pairs
from tests.support.made import series


def test_an_effect_is_told_in_the_words_of_its_metric():
    """Slower or faster, higher or lower; an interval has directions where it holds both."""
    time, memory = series([1], [1]), series([1], [1], metric="peak_memory_bytes")
    rate = series([1], [1], metric="samples_per_s")
    assert [effect_text(one, 0.05) for one in (time, memory, rate)] == [
        "5.0% slower",
        "5.0% higher",
        "5.0% lower",
    ]
    assert [effect_text(one, -0.05) for one in (time, memory, rate)] == [
        "5.0% faster",
        "5.0% lower",
        "5.0% higher",
    ]
    assert effect_text(time, 0) == "no change"
    time = series([1], [1])
    assert interval_text(time, (0.037, 0.06)) == "99% interval 3.7% to 6.0%"
    assert interval_text(time, (-0.06, -0.037)) == "99% interval 3.7% to 6.0%"
    assert interval_text(time, (-0.004, 0.012)) == "99% interval 0.40% faster to 1.2% slower"


def test_launches_that_vary_too_much_have_no_interval():
    """Nobody reads 99% faster to 1e+04% slower: the reason says how much they vary."""
    time = series([1.0, 2.7, 1.5], [1.3, 1.4, 1.5])
    rate = series([1.0, 1.5], [1.0, 2.0], metric="samples_per_s")
    loud = "launches vary by a factor of {}"
    assert variation_text(time, (-0.4, 1.2)) == loud.format("2.7")
    assert variation_text(time, (-0.99, 0.3)) == loud.format("2.7")
    assert variation_text(rate, (-1.2, 0.1)) == loud.format("2.0")
    assert variation_text(rate, (-0.1, 0.6)) == loud.format("2.0")
    assert variation_text(series([1e-5, 1.0], [1.0, 1.0]), (-0.9, 9.0)) == loud.format("> 1000")
    for one, interval in ((time, (-0.4, 0.9)), (time, (0.5, 3.0)), (rate, (-0.9, 0.4))):
        assert variation_text(one, interval) == ""
    base, head = (1.0, 1.1, 0.9, 1.0, 1.2), (0.5, 2.0, 0.6, 1.9, 1.0)
    (verdict,) = judge_pairs([series(base, head)])
    assert "launches vary by a factor of 4.0" in verdict.reason
    assert "interval" not in verdict.reason
    assert "faster" not in verdict.reason

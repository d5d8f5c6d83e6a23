"""When pairs are looked at, and what each look may cost."""

import pytest

from gpubench_plugin.compare import looks


def test_all_looks_together_cost_one_false_alarm_in_a_hundred():
    """However many follow, each stricter: the rates of 100,000 looks sum up to it."""
    spent = sum(looks.false_discovery_rate(number) for number in range(1, 100_000))
    assert spent == pytest.approx(looks.FALSE_ALARMS, rel=1e-4)
    assert spent < looks.FALSE_ALARMS
    rates = [looks.false_discovery_rate(number) for number in range(1, 9)]
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[3] < min(rates[:3])


@pytest.mark.parametrize(("pairs", "share"), [(5, 0.45), (10, 0.26), (15, 0.18)])
def test_what_no_launch_showed_may_still_be_in_so_many(pairs, share):
    """1 − 0.05^(1/n): with that share, n pairs show none of it once in twenty times."""
    assert looks.undetected_share(pairs) == pytest.approx(share, abs=0.005)
    assert (1 - looks.undetected_share(pairs)) ** pairs == pytest.approx(0.05)

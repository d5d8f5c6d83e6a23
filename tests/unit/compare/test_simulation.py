"""What the gates make of suites whose truth is known; all draws are seeded."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from gpubench_plugin.compare import history, threshold
from gpubench_plugin.compare.pairs import judge_pairs
from gpubench_plugin.compare.step_time import merge_parts
from tests.support import simulation as sim
from tests.support.exhaustive import shown
from tests.support.made import series

SUITES = 2000


@cache
def rates(noise, effect):
    """Of the paired gate; the launches of all are the same draws, scaled."""
    return sim.rates(sim.by_pairs(sim.normal(noise, 1), effect, SUITES), effect)


def drawn(suites, launches, noise, effect):
    base, head = (sim.normal(noise, seed)(suites, launches) for seed in (1, 2))
    return base, sim.slower(head, effect)


@pytest.mark.parametrize("noise", [0.005, 0.02])
@pytest.mark.parametrize("effect", [0.0, -0.05, 0.05])
def test_the_simulated_paired_gate_is_the_one_that_judges(noise, effect):
    """Suite by suite and look by look, only undecided series going on, as with real launches."""
    base, head = drawn(4, 15, noise, effect)
    simulated = sim.sequential(head - base).kinds
    for suite in range(len(base)):
        kinds = ["inconclusive"] * sim.BENCHMARKS
        decided = []
        for look in (5, 10, 15):
            undecided = [i for i, kind in enumerate(kinds) if kind == "inconclusive"]
            launches = [
                series(np.exp(base[suite, i, :look]), np.exp(head[suite, i, :look]), name=str(i))
                for i in undecided
            ]
            verdicts = judge_pairs(launches, m=sim.BENCHMARKS, decided_series=decided)
            for i, one, verdict in zip(undecided, launches, verdicts, strict=True):
                kinds[i] = verdict.kind
                decided += [one] if verdict.kind != "inconclusive" else []
        assert kinds == simulated[suite].tolist()


def test_the_simulated_gate_of_step_times_is_the_one_that_judges():
    """Floor, median and rate of each benchmark, two of them louder than the others."""
    limits = {"floor": sim.LIMIT, "median": sim.LIMIT, "rate": sim.LOOSE}
    differences = sim.loud_ones(2, seed=8)(4, 15)
    differences["floor"][:, 5:10] += 0.04
    simulated = sim.step_times(differences, limits).kinds
    assert len({*simulated.flat}) > 2
    for suite in range(len(simulated)):
        kinds = ["inconclusive"] * sim.BENCHMARKS
        decided = []
        for look in (5, 10, 15):
            parts = [
                replace(
                    series([1.0] * look, np.exp(values[suite, i, :look]), name=str(i), metric=part),
                    part=part,
                    limit=limits[part],
                    is_lenient=part == "rate",
                )
                for part, values in differences.items()
                for i, kind in enumerate(kinds)
                if kind == "inconclusive"
            ]
            verdicts = judge_pairs(parts, m=3 * sim.BENCHMARKS, decided_series=decided)
            for (name, _), verdict in merge_parts(parts, verdicts).items():
                kinds[int(name)] = verdict.kind
            decided += [one for one in parts if kinds[int(one.id)] != "inconclusive"]
        assert kinds == simulated[suite].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("loud", shown(1, exhaustively=[2]))
def test_a_benchmark_that_is_louder_than_its_suite_gives_no_false_alarms(loud):
    """Three numbers of it are not three chances to seem quiet."""
    limits = {"floor": sim.LIMIT, "median": sim.LIMIT, "rate": sim.LOOSE}
    kinds = sim.step_times(sim.loud_ones(loud, seed=9)(2 * SUITES, 15), limits).kinds
    assert sim.rates(kinds, 0.0).alarms <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.003, 0.01])
def test_a_clear_effect_on_a_quiet_benchmark_is_called_in_the_loudest_suite(noise):
    """At ten pairs, nearly always: it proves itself; the others prove nothing about it."""
    differences = sim.among_loud(noise, seed=8)(SUITES, 15)
    differences[:, 0] += np.log1p(0.1)
    course = sim.sequential(differences)
    assert ((course.kinds == "regressed") & (course.pairs == 10))[:, 0].mean() >= 0.98
    assert sim.rates(course.kinds, 0.1).alarms <= 0.01


def test_the_simulated_history_and_threshold_are_those_that_judge():
    """Each suite's verdicts are equal, one by one."""
    noise, effect, suites = 0.01, 0.05, 4
    draw = sim.normal(noise, 1)
    base, head = draw(suites, 10), sim.slower(draw(suites, 1), effect)
    simulated = sim.by_history(sim.normal(noise, 1), effect, suites)
    for suite in range(suites):
        rows = zip(np.exp(base[suite]), np.exp(head[suite]), strict=True)
        assert [one.kind for one in history.judge_history([series(*row) for row in rows])] == (
            simulated[suite].tolist()
        )
    draw = sim.normal(noise, 1)
    base, head = draw(suites, 1), sim.slower(draw(suites, 1), effect)
    called = sim.by_threshold(sim.normal(noise, 1), effect, suites) == "regressed"
    for suite in range(suites):
        rows = zip(np.exp(base[suite]), np.exp(head[suite]), strict=True)
        judged = threshold.judge_threshold([series(*row) for row in rows])
        assert [one.kind == "regressed" for one in judged] == called[suite].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("noise", shown(exhaustively=sim.NOISES))
def test_at_most_one_suite_of_a_hundred_has_a_false_alarm(noise):
    """Base equal to head, 20 benchmarks, up to three looks."""
    alarms = sim.rates(sim.by_pairs(sim.normal(noise, 7), 0.0, 20_000), 0.0).alarms
    assert alarms <= 0.01


@pytest.mark.slow
def test_the_paired_gate_catches_five_percent():
    """At least 95% of them at up to one percent of noise, 80% at two."""
    assert rates(0.005, 0.05).caught >= 0.95
    assert rates(0.01, 0.05).caught >= 0.95
    assert rates(0.02, 0.05).caught >= 0.80


@pytest.mark.exhaustive
def test_power_falls_with_the_noise_and_rises_with_the_effect():
    """Up to the chance of the simulation."""
    chance = 0.01
    for effect in sim.EFFECTS[1:]:
        power = [rates(noise, effect).caught for noise in sim.NOISES]
        assert all(more >= less - chance for more, less in pairwise(power))
    for noise in sim.NOISES:
        power = [rates(noise, effect).caught for effect in sim.EFFECTS]
        assert all(less <= more + chance for less, more in pairwise(power))


@pytest.mark.slow
@pytest.mark.parametrize("effect", shown(0.03, exhaustively=[0.05, 0.10]))
def test_a_true_slowdown_is_not_called_unchanged(effect):
    """At most one of a hundred, at every noise, also one that hardly exceeds the limit."""
    assert all(rates(noise, effect).cleared <= 0.01 for noise in sim.NOISES)


@pytest.mark.slow
def test_no_effect_is_called_unchanged_where_the_noise_allows_it():
    """Nearly always at up to one percent of noise."""
    assert rates(0.005, 0.0).cleared >= 0.99
    assert rates(0.01, 0.0).cleared >= 0.97


@pytest.mark.slow
def test_of_many_regressions_hardly_any_is_false():
    """Half of a suite is slower by 5%: of the benchmarks called, at most 1% are none of them."""
    base, head = (sim.normal(0.02, seed)(SUITES, 15) for seed in (1, 2))
    half = sim.BENCHMARKS // 2
    head[:, :half] += np.log1p(0.05)
    called = sim.sequential(head - base).kinds == "regressed"
    assert called[:, half:].sum() / called.sum() <= 0.01
    assert called[:, :half].mean() >= 0.9


@pytest.mark.slow
def test_history_is_honest_but_weak():
    """Hardly a false alarm, but it mostly misses 5% at 1% of noise."""
    for noise in sim.NOISES:
        silent = sim.rates(sim.by_history(sim.normal(noise, 3), 0.0, 5000), 0.0)
        assert silent.alarms <= 0.01
    ten, twenty = (
        sim.rates(sim.by_history(sim.normal(0.01, 3), 0.05, SUITES, earlier), 0.05)
        for earlier in (10, 20)
    )
    assert ten.caught < 0.5 < twenty.caught
    assert ten.cleared <= 0.01


def test_a_threshold_cries_wolf_where_there_is_noise():
    """Between single launches, and within processes even where there is little noise."""
    assert sim.rates(sim.by_threshold(sim.normal(0.02, 4), 0.0, 500), 0.0).alarms > 0.9
    assert sim.rates(sim.by_threshold(sim.normal(0.005, 4), 0.0, 500), 0.0).alarms < 0.1

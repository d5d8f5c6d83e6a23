import pytest

from gpubench_plugin.compare.matched_metrics import is_device_timed, judged_metrics, value_of
from tests.support.made import result

ALL = {
    "step_time_s": 2.0,
    "step_time_min_s": 1.0,
    "samples_per_s": 8.0,
    "tokens_per_s": 9.0,
    "peak_memory_bytes": 512.0,
    "mfu": 0.4,
}


HOST = {"step_time_min_s": "2%", "step_time_s": "2%", "samples_per_s": "5%"}
DEVICE = {"step_time_s": "2%", "samples_per_s": "2%"}


@pytest.mark.parametrize(
    ("timer", "step_time"),
    [
        ("perf_counter_ns", HOST),
        ("mps_synchronised", HOST),
        ("cuda_events", DEVICE),
        ("cuda_kernel_cold", DEVICE),
    ],
)
def test_the_step_time_is_judged_by_several_numbers(timer, step_time):
    """Floor, median and one rate on the host, whose total is noisy; without floor on a device."""
    assert judged_metrics(result(timer=timer, **ALL)) == {**step_time, "peak_memory_bytes": "2%"}


@pytest.mark.parametrize(("bounds", "rate"), [(1, "tokens_per_s"), (2, "step_time_mean_s")])
def test_beside_a_fixed_bound_on_the_rate_another_number_is_the_rate(bounds, rate):
    """Else a head of which every 8th call takes 10 times as long would be unchanged."""
    fixed = dict.fromkeys(("samples_per_s", "tokens_per_s")[:bounds], ">=1")
    chosen = judged_metrics(result(**ALL, step_time_mean_s=2.5, limits=fixed))
    assert chosen == {
        "step_time_min_s": "2%",
        "step_time_s": "2%",
        rate: "5%",
        "peak_memory_bytes": "2%",
        **fixed,
    }


@pytest.mark.parametrize(("limit", "of_rate"), [("1%", "5%"), ("8%", "8%")])
@pytest.mark.parametrize("name", ["step_time_s", "step_time_min_s"])
def test_a_percentage_for_one_step_time_counts_for_both(name, limit, of_rate):
    """The rate is never held to less than what its noise allows, nor to less than they are."""
    chosen = judged_metrics(result(**ALL, limits={name: limit}))
    assert (chosen["step_time_s"], chosen["step_time_min_s"]) == (limit, limit)
    assert chosen["samples_per_s"] == of_rate


def test_stated_limits_add_metrics_and_replace_the_default():
    """The caller's override the benchmark's; of several launches the latest one that is stated."""
    one = result(**ALL, limits={"step_time_s": "3%", "mfu": ">=0.3", "speed": "1%"})
    assert judged_metrics(one, limits={"step_time_s": "4%"}) == {
        "step_time_min_s": "4%",
        "step_time_s": "4%",
        "samples_per_s": "5%",
        "peak_memory_bytes": "2%",
        "mfu": ">=0.3",
        "speed": "1%",
    }
    limits = {"step_time_s": "4%", "step_time_min_s": "3%"}
    assert limits.items() <= judged_metrics(result(**ALL, limits=limits)).items()
    memory = result(step_time_s=1.0, peak_memory_bytes=1.0, limits={"step_time_s": "3%"})
    stated = result(step_time_s=1.0, limits={"step_time_s": "4%", "mfu": ">=0.3"})
    assert judged_metrics(memory, stated, result(step_time_s=1.0)) == {
        "step_time_s": "4%",
        "peak_memory_bytes": "2%",
        "mfu": ">=0.3",
    }
    one = result(step_time_s=2.0, step_time_mean_s=2.5)
    assert judged_metrics(one) == {"step_time_s": "2%", "step_time_mean_s": "5%"}
    assert list(judged_metrics(result(step_time_s=2.0))) == ["step_time_s"]


@pytest.mark.parametrize("name", ["step_time_s", "step_time_min_s"])
def test_a_limit_on_one_step_time_takes_the_place_of_the_default_one(name):
    """Who states one says which of them is meant: under its name stands its number."""
    one = result(**ALL, limits={name: "<=1.5"})
    assert judged_metrics(one) == {"peak_memory_bytes": "2%", name: "<=1.5"}
    assert value_of(one, name) == ALL[name]


def test_a_run_of_several_launches_counts_as_their_median():
    """Not as the metrics over all of its samples, unless launches are not recorded."""
    launches = [{**ALL, "step_time_min_s": seconds} for seconds in (3.0, 1.5, 9.0)]
    assert value_of(result(launches=launches, **ALL), "step_time_min_s") == 3.0
    old = result(step_time_s=2.0, launches=[{"rounds": 1.0}])
    assert value_of(old, "step_time_s") == 2.0
    assert value_of(result(launches=[{"step_time_s": 3.0}], step_time_s=2.0), "step_time_s") == 3.0
    assert value_of(old, "mfu") is None
    assert value_of(result(rounds=1.0), "step_time_s") is None
    assert [is_device_timed(timer) for timer in ("cuda_events", "xpu_synchronised")] == [
        True,
        False,
    ]

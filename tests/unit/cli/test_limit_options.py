"""Tests of limits given on the command line."""

from __future__ import annotations

import pytest

from gpubench_plugin.cli.commands.compare import LimitOptions
from gpubench_plugin.compare.matched_metrics import judged_metrics
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import Metric, Result, Run

TIME = Metric(name="step_time_s", value=1.0, unit="s", better="lower")
RATE = Metric(name="samples_per_s", value=1.0, unit="samples/s", better="higher")


def run(timer: str) -> Run:
    metrics = {metric.name: metric for metric in (TIME, RATE)}
    stated = {"step_time_s": "9%"}
    result = Result(id="a", outcome="measured", timer=timer, metrics=metrics, limits=stated)
    return Run(label="run", results={"a": result})


def test_limits_are_of_one_metric_or_of_all() -> None:
    """The last of two for a metric counts; a metric that no benchmark has is a usage error."""
    options = LimitOptions.parse(["5%", "step_time_s=<=0.25", "mfu=4%", "3%", "mfu = 1.5%"])
    assert options.default_limit == "3%"
    assert options.by_metric == {"step_time_s": "<=0.25", "mfu": "1.5%"}
    options = LimitOptions.parse(["step_time=3%"])
    with pytest.raises(UsageProblem, match=r"unknown 'step_time' \(did you mean 'step_time_s'\?\)"):
        options.apply(run("perf_counter"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "--limit: '5' is not a limit"),
        ("step_time_s=fast", "--limit=step_time_s: 'fast' is not a limit"),
        ("<=0.25", "is an absolute bound and needs a metric"),
        ("step_time_s<=0.25", "is not a limit"),
        ("", "is not a limit"),
        ("=3%", "is not a limit"),
    ],
)
def test_what_is_no_limit_is_refused(text: str, message: str) -> None:
    """The message names the option, the text and what is allowed."""
    with pytest.raises(UsageProblem, match=message):
        LimitOptions.parse([text])


def test_general_limit_is_that_of_every_judged_metric() -> None:
    """No further metric is judged; the throughput follows the step time's limit."""
    options = LimitOptions.parse(["7%"])
    (host,) = options.apply(run("perf_counter"))
    (device,) = options.apply(run("cuda_events"))
    assert host.results["a"].limits == {"step_time_s": "7%"}
    assert device.results["a"].limits == {"step_time_s": "7%"}
    assert judged_metrics(device.results["a"]) == {"step_time_s": "7%", "samples_per_s": "7%"}

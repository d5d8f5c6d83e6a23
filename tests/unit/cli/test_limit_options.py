"""Tests of limits given on the command line."""

from __future__ import annotations

import pytest

from gpubench_plugin.cli.commands.compare import LimitOptions
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import Metric, Result, Run

TIME = Metric(name="step_time_s", value=1.0, unit="s", better="lower")
RUN = Run(label="run", results={"a": Result(id="a", outcome="measured", metrics={TIME.name: TIME})})


def test_limits_are_of_one_metric_or_of_all() -> None:
    """The last of two for a metric counts; a metric that no benchmark has is a usage error."""
    options = LimitOptions.parse(["5%", "step_time_s=<=0.25", "mfu=4%", "3%", "mfu = 1.5%"])
    assert options.default_limit == "3%"
    assert options.by_metric == {"step_time_s": "<=0.25", "mfu": "1.5%"}
    options = LimitOptions.parse(["step_time=3%"])
    with pytest.raises(UsageProblem, match=r"unknown 'step_time' \(did you mean 'step_time_s'\?\)"):
        options.check(RUN)


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

"""Points of curves that a benchmark logs, and what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpubench_plugin.bench.journal_events import MetricLog
from gpubench_plugin.core.errors import UsageProblem


def test_every_kind_of_number_is_logged_as_a_float() -> None:
    """Numbers of Python and numpy, and tensors without a dimension."""
    events: list[Any] = []
    metrics = {"a": 1, "b": 0.5, "c": np.float32(2), "d": torch.tensor(3), "e/f.g-h": 4}
    MetricLog(events.append).log(np.int64(7), metrics)
    ((event),) = events
    values = {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0, "e/f.g-h": 4.0}
    assert event == {"event": "log", "step": 7, "metrics": values}
    assert {type(value) for value in event["metrics"].values()} == {float}


@pytest.mark.parametrize(
    ("step", "metrics", "message"),
    [
        (-1, {"a": 1}, r"step=-1; allowed: an integer from 0"),
        (1.5, {"a": 1}, r"step=1\.5; allowed: an integer"),
        (True, {"a": 1}, r"step=True; allowed: an integer"),
        (1, {}, r"no metric given; write gpubench\.log\(step=…, loss=…\)"),
        (1, {"a": "fast"}, r"a='fast'; allowed: a number, or a tensor with one number"),
        (1, {"a": None}, r"a=None; allowed"),
        (1, {"a": True}, r"a=True; allowed"),
        (1, {"a": 1j}, r"a=1j; allowed"),
        (1, {"a": torch.ones(3)}, r"a=tensor\(.*; allowed"),
        (1, {"a": torch.tensor(1j)}, r"a=tensor\(0\.\+1\.j\); allowed"),
        (1, {"a": 10**400}, r"a=10000.*…; allowed"),
        (1, {"a\x1b[2J": 1}, r"'a\\x1b\[2J' is no name .*; allowed: up to 100 ASCII"),
        (1, {"": 1}, r"'' is no name of a metric"),
    ],
)
def test_what_is_no_point_is_refused(step: Any, metrics: Any, message: str) -> None:
    """One message names what was given, and what is allowed; nothing is written."""
    events: list[Any] = []
    with pytest.raises(UsageProblem, match=rf"^gpubench\.log: {message}"):
        MetricLog(events.append).log(step, metrics)
    assert events == []


def test_timed_calls_log_nothing_but_what_runs_around_them_does() -> None:
    """Setup and teardown are not timed; after the timed calls all is as before."""
    events: list[Any] = []
    log = MetricLog(events.append)
    setup = log.around_calls(lambda: log.log(1, {"a": 1}))
    assert setup is not None
    assert log.around_calls(None) is None
    with log.refused():
        setup()
        with pytest.raises(UsageProblem, match="called within the step that is measured"):
            log.log(2, {"a": 1})
    log.log(3, {"a": 1})
    assert [event["step"] for event in events] == [1, 3]

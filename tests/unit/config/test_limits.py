"""Limits of the gate: read from files and dot keys, and refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.core.errors import UsageProblem
from tests.support.resolving import resolved


def test_a_mark_stands_between_files_and_command_line(tmp_path: Path) -> None:
    """Metric by metric; a text that is no limit is refused with its source."""
    yaml, mark = "gate: {limits: {a: 1%, b: 1%, c: 1%}}", {"b": "2%", "c": "2%"}
    both = resolved(tmp_path, "gate.limits.c=3%", file=yaml, limits=mark)
    assert both.gate.limits == {"a": "1%", "b": "2%", "c": "3%"}
    with pytest.raises(UsageProblem, match=r"^mark gpubench: gate.limits.a: .*'3' is not a limit"):
        resolved(tmp_path, limits={"a": "3"})


def test_the_command_line_adds_to_them(tmp_path: Path) -> None:
    """Metric by metric, or several as a mapping; a percentage needs no quotes in YAML."""
    yaml = "gate: {limits: {step_time_s: 3%, mfu: 1%}}"
    one = resolved(tmp_path, "gate.limits.step_time_s=<=0.25", file=yaml)
    assert one.gate.limits == {"step_time_s": "<=0.25", "mfu": "1%"}
    more = resolved(tmp_path, "gate.limits={step_time_s: 5%, loss_last: 4%}", file=yaml)
    assert more.gate.limits == {"step_time_s": "5%", "mfu": "1%", "loss_last": "4%"}
    yaml = 'gate: {limits: {step_time_s: 3%, peak_memory_bytes: "<=8e9"}}'
    limits = resolved(tmp_path, file=yaml).gate.limits
    assert limits == {"step_time_s": "3%", "peak_memory_bytes": "<=8e9"}


@pytest.mark.parametrize(
    ("yaml", "overrides", "said"),
    [
        ("limits: {step_time_s: 3}", (), "gate.limits.step_time_s: 3 is not allowed"),
        ("limits: {step_time_s: {max: 3%}}", (), 'gate.limits.step_time_s: {"max": "3%"} is not'),
        ("limits: {step_time_s: null}", (), "gate.limits.step_time_s: null is not allowed"),
        ("limits: [3%]", (), 'gate.limits: ["3%"] is not allowed'),
        (
            "limits: {a: 3}",
            ("gate.limits.a=banana",),
            "--gate.limits.a=banana: limit: 'banana' is not",
        ),
        ("limit: {a: 3%}", (), "gate.limit: unknown key (did you mean 'gate.limits'?)"),
        ("", ("gate.limits=3%",), '--gate.limits=3%: "3%" is not allowed'),
        ("", ("gate.limt.a=3%",), "unknown key (did you mean 'gate.limits'?)"),
    ],
)
def test_other_shapes_are_refused(
    tmp_path: Path, yaml: str, overrides: tuple[str, ...], said: str
) -> None:
    """The message names the file or flag, the key, the value and what is allowed."""
    with pytest.raises(UsageProblem) as caught:
        resolved(tmp_path, *overrides, file=f"gate: {{{yaml}}}")
    assert said in str(caught.value)
    assert str(caught.value).startswith("--gate." if overrides else "configs/a.yaml: ")

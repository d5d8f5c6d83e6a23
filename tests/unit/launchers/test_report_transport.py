"""Reports and warnings on their way from a rank to rank zero or its controller."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.records import Measurement, Samples
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.report_transport import (
    LONGEST_TEXT,
    decode,
    encode,
    exit_to_json,
    warning_from_json,
    warning_to_json,
)
from gpubench_plugin.launchers.torchrun import rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Json

    ReportMaker = Callable[..., pytest.TestReport]


@pytest.fixture
def warned() -> Callable[..., Json]:
    """Makes warnings as a rank keeps them."""

    def make(text: str, category: type[Warning] = UserWarning) -> Json:
        message = warnings.WarningMessage(category(text), category, "test_x.py", 4)
        return warning_to_json(message, "runtest", "test_x.py::test_x", ("test_x.py", 4, "f"))

    return make


def test_report_is_the_same_after_the_way_through_json(
    pytestconfig: pytest.Config, reported: ReportMaker
) -> None:
    """JSON has no tuples, pytest's terminal insists on them; our notes travel along."""
    skip = reported(
        "setup",
        "skipped",
        reason="not here",
        longrepr=("test_x.py", 3, "Skipped: not here"),
        sections=[("Captured stdout setup", "text")],
        user_properties=[("memory", 3)],
    )

    message = json.loads(json.dumps(encode(pytestconfig, [skip], recorded=True)))
    (back,) = decode(pytestconfig, 1, message).reports

    assert vars(back) == {**vars(skip), "$report_type": "TestReport"}
    assert report_payload.read(back)["reason"] == "not here"


def test_traceback_keeps_its_form(request: pytest.FixtureRequest) -> None:
    """A failure of usual length is shown as pytest shows it; of a huge one the end is kept."""

    def fail(length: int) -> None:
        raise ValueError(length * "x" + " is too much")

    short, long = (
        pytest.TestReport.from_item_and_call(
            request.node, pytest.CallInfo.from_call(lambda length=length: fail(length), "call")
        )
        for length in (10, 10**6)
    )

    (back,) = decode(request.config, 1, encode(request.config, [short])).reports
    assert back.longreprtext == short.longreprtext
    assert back.longrepr.reprcrash.message == "ValueError: xxxxxxxxxx is too much"

    (back,) = decode(request.config, 1, encode(request.config, [long])).reports
    assert back.longreprtext.startswith("[")
    assert back.longreprtext.endswith("ValueError")
    assert len(back.longreprtext) < 1.1 * LONGEST_TEXT


def test_what_a_rank_sends_is_bounded(
    pytestconfig: pytest.Config, reported: ReportMaker, warned: Callable[..., Json]
) -> None:
    """However much was captured, raised and warned; the ends are kept."""
    huge = "x" * 10**6
    call = reported(
        "call",
        "failed",
        longrepr=f"{huge} the cause",
        sections=[(f"Captured {n}", f"{huge} end {n}") for n in range(20)],
        user_properties=[("name", huge)],
    )
    told = encode(pytestconfig, [call], [warned(f"{huge} {n}") for n in range(30)])

    assert len(json.dumps(told)) < 50 * LONGEST_TEXT
    (back,) = decode(pytestconfig, 1, told).reports
    assert back.longrepr.endswith("x the cause")
    assert back.sections[-1][0] == "Captured 19"
    assert "10 more warnings" in told["warnings"][-1]["text"]


def test_texts_that_fit_are_whole(
    pytestconfig: pytest.Config, reported: ReportMaker, warned: Callable[..., Json]
) -> None:
    """Only what is too long is cut, to its end; the measurement is not counted."""
    text = "x" * LONGEST_TEXT
    call = reported(longrepr=None, sections=[("whole", text), ("cut", f"begin{text}")])
    samples = Samples(
        timer="a clock",
        durations_s=tuple(map(float, range(50_000))),
        block_s=(1.0,),
        block_calls=(50_000,),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    measurement = Measurement(
        id="a", name="a", params={}, world_size=2, outcome="measured", samples=samples
    )
    report_payload.set_outcome(call, "measured", "")
    report_payload.read(call)["measurement"] = measurement

    told = encode(pytestconfig, [call], [warned("careful")], recorded=True)

    assert told["reports"][0]["sections"] == [
        ["whole", text],
        ["cut", f"[5 characters omitted]\n{text}"],
    ]
    (back,) = decode(pytestconfig, 0, told).reports
    assert report_payload.read(back)["measurement"] == measurement
    assert told["warnings"] == [warned("careful")]


def test_properties_that_json_has_no_form_for_are_text(
    pytestconfig: pytest.Config, reported: ReportMaker
) -> None:
    """Keys that are no text, circles, objects; a text that is too long loses its beginning."""
    circle: list[object] = []
    circle.append(circle)
    properties = [
        ("pairs", {("a", 1): 2}),
        ("circle", circle),
        ("objects", {"error": ValueError("no")}),
        ("numbers", {1: [2.5, None]}),
        ("long", "x" * 10**6),
    ]

    told = encode(pytestconfig, [reported(user_properties=properties)])

    (back,) = decode(pytestconfig, 1, told).reports
    found = dict(back.user_properties)
    long = found.pop("long")
    assert found == {
        "pairs": "{('a', 1): 2}",
        "circle": "[[...]]",
        "objects": {"error": "no"},
        "numbers": {"1": [2.5, None]},
    }
    assert len(long) < 1.1 * LONGEST_TEXT


def test_warning_names_its_ranks_and_its_category(warned: Callable[..., Json]) -> None:
    """A category of Python's own stays; another one is named, since it may not be importable."""

    class Peculiar(UserWarning):
        pass

    old = warning_from_json(json.loads(json.dumps(warned("old", DeprecationWarning))), "")
    odd = warning_from_json(warned("odd", Peculiar), "[all ranks] ")

    assert old["warning_message"].category is DeprecationWarning
    assert str(old["warning_message"].message) == "old"
    assert old["location"] == ("test_x.py", 4, "f")
    assert odd["warning_message"].category is UserWarning
    assert str(odd["warning_message"].message) == "[all ranks] Peculiar: odd"


def test_under_torchrun_a_rank_sends_the_end_of_its_traceback_alone(
    pytestconfig: pytest.Config, reported: ReportMaker
) -> None:
    """There it says what went wrong; what was captured stays in the rank's log."""
    frames = "frame\n" * 4000
    failed = reported(
        "call",
        "failed",
        longrepr=f"{frames}E   no luck",
        reason="RuntimeError: no luck",
        sections=[("Captured stdout call", "text")],
        user_properties=[("memory", 3)],
    )
    ending = decode(pytestconfig, 1, encode(pytestconfig, [failed], **rank.COMPACT))
    (report,) = ending.reports
    assert report.longreprtext.endswith("frame\nE   no luck")
    assert len(report.longreprtext) < 1.01 * rank.COMPACT["max_text"]
    assert (report.sections, report.user_properties) == ([], [])
    assert ending.reason == "RuntimeError: no luck"


def test_that_a_test_ends_the_session_is_told(pytestconfig: pytest.Config) -> None:
    """With its reason, which has a limit, and its exit code."""
    with pytest.raises(pytest.exit.Exception) as exit:
        pytest.exit("enough" * 1000, returncode=9)
    message = encode(pytestconfig, []) | exit_to_json(exit.value)
    ending = decode(pytestconfig, 1, json.loads(json.dumps(message)))
    assert ending.exit_code == 9
    assert ending.exit == ("enough" * 1000)[: report_payload.MAX_REASON_CHARS]

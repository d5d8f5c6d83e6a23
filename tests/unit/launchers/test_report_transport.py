"""Reports and warnings on their way from a rank to rank zero or its controller."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.launchers.report_transport import (
    LONGEST_TEXT,
    WarningKeeper,
    decode,
    encode,
    exit_to_json,
    merged_warnings,
)
from gpubench_plugin.results import report_payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.launchers.outcome import RankOutcome

    ReportMaker = Callable[..., pytest.TestReport]


@pytest.fixture
def warned() -> Callable[..., Json]:
    """Makes warnings as a rank keeps them."""

    def make(text: str, category: type[Warning] = UserWarning) -> Json:
        message = warnings.WarningMessage(category(text), category, "test_x.py", 4)
        keeper = WarningKeeper()
        where = {"nodeid": "test_x.py::test_x", "location": ("test_x.py", 4, "f")}
        keeper.pytest_warning_recorded(message, "runtest", **where)
        return keeper._warnings[0]

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
    fits = "x" * LONGEST_TEXT
    call = reported(
        "call",
        "failed",
        longrepr=f"{huge} the cause",
        sections=[*((f"Captured {n}", f"{huge} end {n}") for n in range(20)), ("whole", fits)],
        user_properties=[("name", huge)],
    )
    told = encode(pytestconfig, [call], [warned(f"{huge} {n}") for n in range(30)])

    assert len(json.dumps(told)) < 50 * LONGEST_TEXT
    assert len(told["warnings"]) == 20
    (back,) = decode(pytestconfig, 1, told).reports
    assert back.longrepr.endswith("x the cause")
    assert back.sections[-2][1].startswith("[988007 characters omitted]\n")
    assert back.sections[-1] == ("whole", fits)


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


def test_warning_names_its_ranks_and_its_category(
    came_to_end: Callable[..., RankOutcome], warned: Callable[..., Json]
) -> None:
    """Whether or not the category could be imported here."""

    class Peculiar(UserWarning):
        pass

    given = (("old", DeprecationWarning), ("odd", Peculiar))
    sent = [json.loads(json.dumps(warned(text, category))) for text, category in given]
    both = [came_to_end(0, warnings=sent), came_to_end(1, warnings=sent[1:])]
    old, odd = merged_warnings(both)

    assert old["warning_message"].category.__name__ == "DeprecationWarning"
    assert str(old["warning_message"].message) == "[rank 0] old"
    assert old["location"] == ("test_x.py", 4, "f")
    assert odd["warning_message"].category.__name__ == "Peculiar"
    assert str(odd["warning_message"].message) == "[all ranks] odd"


def test_that_a_test_ends_the_session_is_told(pytestconfig: pytest.Config) -> None:
    """With its reason, which has a limit, and its exit code."""
    with pytest.raises(pytest.exit.Exception) as exit:
        pytest.exit("enough" * 1000, returncode=9)
    message = encode(pytestconfig, []) | exit_to_json(exit.value)
    ending = decode(pytestconfig, 1, json.loads(json.dumps(message)))
    assert ending.exit_code == 9
    assert ending.exit == ("enough" * 1000)[: report_payload.MAX_REASON_CHARS]

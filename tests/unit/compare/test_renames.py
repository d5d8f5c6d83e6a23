"""Tests of likely renames."""

from dataclasses import replace
from time import process_time

import pytest

from gpubench_plugin.compare.comparison import compare_runs
from gpubench_plugin.compare.matching import match
from gpubench_plugin.core.errors import NothingComparable
from tests.support.made import result, run
from tests.support.messages import mentions

OLD, NEW = "test_it.py::test_old[8]", "test_it.py::test_new[8]"


def like(name, work=(("samples", 8.0),), **more):
    return replace(result(name, **more), work=dict(work))


def reasons(olds, news, *, paired=False, **options):
    found = match([run("a", *olds)], [run("b", *news)], paired=paired, **options)
    return {one.id: one.reason for one in found.verdicts if one.kind in {"new", "removed"}}


@pytest.mark.parametrize("new", [NEW, "elsewhere/test_it.py::test_old[8]"])
def test_a_likely_rename_is_said_on_both_sides(new):
    """Another function of the file, or the same one in another file, and all else alike.

    Pairs are compared without a baseline, in which a level could be accepted.
    """
    found = reasons([like(OLD)], [like(new)])
    assert found.keys() == {new, OLD}
    assert mentions(found[new], f"renamed from {OLD}: keep the old name", "or `gpubench accept`")
    assert mentions(found[OLD], f"only in the base; likely renamed to {new}")
    paired = reasons([like(OLD)], [like(new)], paired=True)
    assert paired[new].endswith(": keep the old name to compare them")


def test_the_only_benchmark_is_said_to_be_renamed_where_nothing_can_be_compared():
    """It is why there is nothing in common; hundreds cost no quadratic time."""
    with pytest.raises(NothingComparable, match="a has 1, b has 1; ") as caught:
        compare_runs(run("a", like(OLD)), run("b", like(NEW)))
    assert str(caught.value).endswith(f"; {OLD}: likely renamed to {NEW}")
    olds, news = ([like(f"test_it.py::test_{n}{i}") for i in range(300)] for n in ("old", "new"))
    began = process_time()
    assert not any("renamed" in why for why in reasons(olds, news).values())
    assert process_time() - began < 1


@pytest.mark.parametrize(
    "new",
    [
        like("test_it.py::test_new[16]"),
        like("test_other.py::test_new[8]"),
        like(NEW, settings={"training.batch_size": 16}),
        like(NEW, timer="cuda_events"),
        like(NEW, work=[("samples", 16.0)]),
        like(NEW, step_time_s=50.0),
        result(NEW, outcome="skipped"),
    ],
    ids=["params", "place", "settings", "clock", "work", "magnitude", "unmeasured"],
)
def test_what_differs_in_more_than_its_name_was_not_renamed(new):
    """It is another benchmark."""
    assert not any("renamed" in reason for reason in reasons([like(OLD)], [new]).values())


def test_where_several_fit_none_is_named():
    """On either side; nor is what was only not selected."""
    more = "test_it.py::test_more[8]"
    assert not any(
        "renamed" in why for why in reasons([like(OLD)], [like(NEW), like(more)]).values()
    )
    assert not any(
        "renamed" in why for why in reasons([like(OLD), like(more)], [like(NEW)]).values()
    )
    found = reasons([like(OLD)], [like(NEW)], is_gone=lambda name: name != OLD)
    assert found[NEW] == "the base has no such benchmark"

"""Tests of whose limits count where base and head state different ones."""

from dataclasses import replace

import pytest

from gpubench_plugin.compare.matching import match
from tests.support.made import result, run
from tests.support.messages import mentions

TIME = "step_time_min_s"


def limited(*texts, **more):
    """A benchmark with these limits of its time, of which the default is none."""
    return result(**{TIME: 1.0, **more}, limits=dict(zip([TIME], texts, strict=False)))


def matched(base, head, **options):
    return match([run("a", base)], [run("b", head)], paired=False, **options)


def judged(found):
    return {one.metric: one.limit.text for one in found.series}


@pytest.mark.parametrize(
    ("base", "head", "note"),
    [
        (["3%"], ["60%"], f"changes the limit of {TIME} from 3% to 60%"),
        (["3%"], ["1%"], f"changes the limit of {TIME} from 3% to 1%"),
        ([], ["60%"], f"changes the limit of {TIME} from 2% to 60%"),
        (["1%"], [], f"changes the limit of {TIME} from 1% to 2%"),
        (["<=1"], ["<=2"], f"changes the limit of {TIME} from <=1 to <=2"),
        ([">=2"], [">=1"], f"changes the limit of {TIME} from >=2 to >=1"),
        (["<=1"], ["60%"], f"changes the limit of {TIME} from <=1 to 60%"),
    ],
)
def test_the_bases_limit_counts_and_what_the_head_does_with_it_is_said(base, head, note):
    """Also where one of the two is the default: a head that set its own would judge itself."""
    found = matched(limited(*base), limited(*head))
    assert judged(found) == {TIME: base[0] if base else "2%"}
    assert found.notes == (f"the head {note} (test_a); the base's counts",)


def test_a_limit_that_the_head_drops_still_counts():
    """Of what the base does not judge the head's counts, but not its defaults."""
    found = matched(result(**{TIME: 1.0}, mfu=0.4, limits={"mfu": ">=0.3"}), limited(mfu=0.2))
    assert judged(found) == {TIME: "2%", "mfu": ">=0.3"}
    assert mentions(*found.notes, "of mfu from >=0.3 to none (test_a)", "the base's counts")
    head = result(**{TIME: 1.0}, mfu=0.4, new=1.0, limits={"mfu": ">=0.3", "new": "<=2"})
    found = matched(limited(mfu=0.2), head)
    assert judged(found) == {TIME: "2%", "mfu": ">=0.3", "new": "<=2"}
    assert mentions(*found.notes, "of mfu from none to >=0.3 (test_a)", "the head's counts")
    both = {"step_time_s": 1.0, TIME: 1.0}
    found = matched(result(**both, limits={"step_time_s": "<=2"}), result(**both))
    assert judged(found) == {"step_time_s": "<=2"}


def test_one_note_counts_the_benchmarks_of_a_change():
    """Metrics are enumerated; the latest pinned run limits until another is accepted."""
    base = run("a", *(replace(limited("3%"), id=f"test_{n}") for n in range(8)))
    head = run("b", *(replace(limited("9%"), id=f"test_{n}") for n in range(8)))
    found = match([base], [head], paired=False)
    assert mentions(*found.notes, f"of {TIME} from 3% to 9% (8 benchmarks)", "the base's counts")
    base = result(**{TIME: 1.0, "step_time_s": 1.0, "step_time_mean_s": 1.0})
    found = matched(replace(base, limits={TIME: "10%"}), replace(base, limits={TIME: "20%"}))
    said = f"of {TIME}, step_time_s, step_time_mean_s from 10% to 20% (test_a)"
    assert mentions(*found.notes, said, "the base's counts")
    pins = [replace(limited(text), pinned=True) for text in ("1%", "3%")]
    bases = [run("a", one) for one in (*pins, limited("50%"))]
    found = match(bases, [run("b", limited("60%"))], paired=False)
    assert judged(found) == {TIME: "3%"}
    assert found.notes[0].endswith("the base's counts until `gpubench accept`")


def test_whose_limit_counts_is_the_callers_choice():
    """The caller's own outrank both; a foreign base has none; equal ones need no note."""
    found = matched(limited("3%"), limited("60%"), limits={TIME: "7%"})
    assert (judged(found), found.notes) == ({TIME: "7%"}, ())
    assert matched(limited("2.0 %"), limited("2%")).notes == ()
    found = matched(replace(limited(), foreign=True), limited("60%"))
    assert (judged(found), found.notes) == ({TIME: "60%"}, ())
    found = matched(limited("3%"), limited("60%"), limits_from="head")
    assert judged(found) == {TIME: "60%"}
    assert mentions(*found.notes, f"of {TIME} from 3% to 60% (test_a)", "the head's counts")


@pytest.mark.parametrize(("head", "limit"), [(["60%"], "60%"), ([], "2%")])
def test_a_limit_of_the_base_that_is_none_is_the_heads(head, limit):
    """Its author can mend only what the head states; the default is better than none."""
    assert judged(matched(limited("banana"), limited(*head))) == {TIME: limit}

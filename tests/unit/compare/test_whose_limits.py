"""Tests of whose limits count where base and head state different ones."""

from dataclasses import replace

import pytest

from gpubench_plugin.compare.matching import match
from gpubench_plugin.core.records import Metric
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


def metric(name, value, unit="1", better="higher"):
    return Metric(name=name, value=value, unit=unit, better=better)


def recall(limits, value=0.9, *, name="test_it.py::test_a", work=8.0, **metrics):
    """A benchmark with a `recall`, unless another metric of that name is given."""
    one = result(name, **{TIME: 1.0}, limits=limits)
    found = {"recall": metric("recall", value), **metrics}
    kept = {n: m for n, m in found.items() if m is not None}
    launch = {n: m.value for n, m in {**one.metrics, **kept}.items()}
    return replace(one, metrics={**one.metrics, **kept}, launches=(launch,), work={"samples": work})


GONE = {"recall": None}
TURNED = {"recall": metric("recall", 0.1, better="lower")}
NEITHER = {"recall": metric("recall", 0.1, better="none")}
PERCENT = {"recall": metric("recall", 90.0, unit="%")}
RENAMED = {"recall": None, "recall_at_10": metric("recall_at_10", 0.1)}


@pytest.mark.parametrize("paired", [False, True], ids=["unpaired", "paired"])
@pytest.mark.parametrize(
    ("text", "head", "kind", "said"),
    [
        ("2%", recall({}, **GONE), "not_measured", "does not measure"),
        (">=0.85", recall({}, **GONE), "not_measured", "limit >=0.85 on recall"),
        (">=0.85", recall({"recall_at_10": ">=0"}, **RENAMED), "not_measured", "recall_at_10"),
        ("2%", recall({"recall": "2%"}, **TURNED), "incomparable", "better: lower) in head"),
        ("2%", recall({}, **NEITHER), "incomparable", "better: none) in head"),
        ("2%", recall({}, **PERCENT), "incomparable", "(%, better: higher) in head"),
        (">=0.85", recall({"recall": ">=1"}, **PERCENT), "incomparable", "(%, better"),
        ("2%", recall({"recall": "2%"}, 0.1, work=9.0), "incomparable", "work.samples 8 in base"),
        ("2%", recall({}, 0.1, name="test_it.py::test_b"), "incomparable", "likely renamed"),
        (">=0.85", recall({}, name="test_it.py::test_b", **GONE), "not_measured", ">=0.85"),
    ],
)
@pytest.mark.parametrize("by", ["base", "caller"])
def test_a_head_cannot_escape_a_limit_of_the_base_or_the_caller(text, head, kind, said, paired, by):
    """By whatever makes its metric vanish or another one: the limit is then unchecked."""
    limits = {"recall": text}
    base, limits = (recall(limits), {}) if by == "base" else (recall({}), limits)
    found = match([run("a", base)], [run("b", head)], paired=paired, limits=limits)
    (verdict,) = [v for v in found.verdicts if v.metric == "recall"]
    assert verdict.is_unchecked
    assert (verdict.kind, verdict.limit) == (kind, text)
    assert said in verdict.reason


@pytest.mark.parametrize("stated", [{}, {"recall": "2%"}], ids=["default", "stated"])
def test_a_default_limit_of_the_caller_is_not_one_that_the_base_states(stated):
    """It replaces what both state or have by default; the throughput follows the step time's."""
    rate, memory = (metric(name, 1.0) for name in ("samples_per_s", "peak_memory_bytes"))
    base = recall(stated, samples_per_s=rate, peak_memory_bytes=memory)
    head = recall({TIME: "50%"}, samples_per_s=rate, **GONE)
    found = matched(base, head, default_limit="7%")
    assert judged(found) == {TIME: "7%", "samples_per_s": "7%"}
    kinds = {v.metric: (v.kind, v.is_unchecked) for v in found.verdicts}
    lost = {"recall": ("not_measured", True)} if stated else {}
    assert kinds == {"peak_memory_bytes": ("removed", False), **lost}
    assert len(found.notes) == len(lost)
    other = matched(base, replace(head, work={"samples": 9.0}), default_limit="7%")
    assert {v.metric for v in other.verdicts if v.is_unchecked} == lost.keys()


def test_another_machine_is_no_escape_from_a_limit():
    """The benchmark is incomparable as a whole, which the policy for missing ones decides about."""
    base, head = (run(it, recall({"recall": "2%"}), machine={"cpu.model": it}) for it in "ab")
    (verdict,) = match([base], [head], paired=False).verdicts
    assert (verdict.kind, verdict.is_unchecked) == ("incomparable", False)


def test_other_threads_are_an_escape_from_a_limit():
    """A change can set them; the limit could not be checked."""
    base, head = (
        run(it, replace(recall({"recall": "2%"}), machine={"torch.threads": threads}))
        for it, threads in (("a", 1), ("b", 2))
    )
    verdicts = match([base], [head], paired=False).verdicts
    assert [v.metric for v in verdicts if v.is_unchecked] == ["recall"]


def test_a_fixed_bound_of_the_base_holds_for_other_work_and_another_name():
    """A looser one of the head does not count there either."""
    base = recall({"recall": ">=0.85"})
    for head in (
        recall({"recall": ">=0.1"}, 0.2, work=9.0),
        recall({"recall": ">=0.1"}, 0.2, name="test_it.py::test_b"),
    ):
        found = matched(base, head)
        assert judged(found) == {"recall": ">=0.85"}
        assert mentions(*found.notes, "of recall from >=0.85 to >=0.1", "the base's counts")


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (recall({"precise": "2%"}), recall({})),
        (recall({}), recall({}, **TURNED)),
        (recall({}), recall({"recall": "2%"}, **TURNED)),
    ],
    ids=["never had", "no limit", "heads own"],
)
def test_a_limit_that_the_base_does_not_check_either_is_not_required(base, head):
    """Of a whole suite's limits those of other benchmarks; nor one that the head adds."""
    assert not any(v.is_unchecked for v in matched(base, head).verdicts)
    assert not any(v.is_unchecked for v in matched(base, head, limits_from="head").verdicts)


def test_the_caller_may_ask_for_the_heads_limits():
    """Then nothing of the base's is required."""
    found = matched(recall({"recall": "2%"}), recall({}, **GONE), limits_from="head")
    assert [(v.metric, v.kind, v.is_unchecked) for v in found.verdicts] == [
        ("recall", "removed", False)
    ]

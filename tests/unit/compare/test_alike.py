from dataclasses import replace

import pytest

from gpubench_plugin.compare.comparability import (
    Comparability,
    differences_text,
    is_same_machine,
    kind_of_time,
    machine_differences,
    reported_differences,
    settings_differences,
)
from gpubench_plugin.core.records import Metric
from gpubench_plugin.core.verdicts import FactDifference
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock
from tests.support.made import result, run
from tests.support.messages import mentions


def of_settings(base, head, *, partly=False):
    return [one.key for one in settings_differences(base, head, is_partial=partly)]


def of_machines(base_run, head_run, base=None, head=None):
    """Machine facts that differ of a benchmark of both runs."""
    return machine_differences(base_run, base or result(), head_run, head or result())


def exempting(prefix, base=None, head=None, *, runs=None):
    """What two results or runs differ in, beside dot keys that begin so."""
    (base_run, head_run), sides = runs or (run("a"), run("b")), [base or result(), head or result()]
    comparability = Comparability(exempt=[prefix], allow=False)
    return comparability.differences(base_run, sides[0], head_run, sides[1])


def test_facts_of_the_machine_that_differ_are_named_with_both_values():
    """One that a side lacks differs, unless its file is foreign; informative facts come last."""
    base = run("a", machine={"cpu.model": "A", "gpu.driver": "1", "torch.version": "2"})
    head = run("b", machine={"cpu.model": "B", "gpu.driver": "1"})
    assert of_machines(base, head) == (
        FactDifference(key="cpu.model", base="A", head="B"),
        FactDifference(key="torch.version", base="2", head=None),
    )
    ours = run("a", machine={"cpu.model": "A", "torch.version": "2"})
    theirs = run("b", machine={"cpu.model": "B"}, foreign=True)
    assert [one.key for one in of_machines(ours, theirs)] == ["cpu.model"]
    base = run("a", result(), machine={"x": 1}, environment={"git.commit": "1"})
    head = run("b", result(), machine={"x": 2}, environment={"git.commit": "2"})
    assert [one.key for one in reported_differences(base, head)] == ["x", "git.commit"]
    facts = {"packages.pytest-gpubench": "1"}, {"packages.pytest-gpubench": "9.9"}
    base, head = (run("a", environment=one) for one in facts)
    assert of_machines(base, head) == ()
    assert [one.key for one in reported_differences(base, head)] == ["packages.pytest-gpubench"]


def test_what_has_no_record_differs_in_nothing():
    """A side without benchmarks, and a fact that nobody looked for as the benchmark had failed."""
    full = run("b", result(), machine={"x": 2}, environment={"hostname": "h", "git.commit": "2"})
    for sides in ((run("a"), full), (full, run("a"))):
        assert [*reported_differences(*sides)] == []
    threads = replace(result(), machine={"torch.threads": 1, "torch.version": "2"})
    failed = replace(result(outcome="failed"), machine={"torch.version": "1"})
    measured, broken = run("a", threads), run("b", failed)
    for sides in ((measured, broken), (broken, measured)):
        assert [one.key for one in reported_differences(*sides)] == ["torch.version"]


def test_facts_of_the_ranks_take_the_place_of_the_runs():
    """So that what counts is what measured a benchmark, not which process controlled it."""
    own = replace(result(), machine={"torch.threads": 1})
    gang, torchrun = (run(str(n), machine={"torch.threads": n}) for n in (2, 1))
    assert of_machines(gang, torchrun, own) == ()
    assert of_machines(gang, gang, own) == (FactDifference(key="torch.threads", base=1, head=2),)
    assert not is_same_machine(gang, run("c", machine={"cpu.model": "another"}))
    other = replace(result("test_b"), machine={"torch.threads": 2})
    reported = reported_differences(
        run("a", own, other, machine={}), run("b", own, result("test_b"))
    )
    assert [*reported] == [FactDifference(key="torch.threads", base=2, head=None)]


def test_another_host_counts_where_it_differs_by_more_than_its_name():
    """An unequal one is named with the fact."""
    other = replace(result(), machine={"hosts.node-2.cpu.model": "B"})
    runs = [run(name, machine={"cpu.model": "A"}) for name in "ab"]
    text = "hosts.node-2.cpu.model absent in base, B in head"
    assert differences_text(of_machines(*runs, None, other)) == text
    assert of_machines(*runs, other, other) == of_machines(*runs) == ()


def test_devices_of_other_benchmarks_do_not_count():
    """A run of some benchmarks is compared with one of all."""
    both = run("a", machine={"devices.cpu": "A", "devices.cuda:0": "H200"})
    cpu, other = (run("b", machine={"devices.cpu": model}) for model in "AB")
    on_gpu = result(settings={"experiment.device": "cuda"})
    assert of_machines(both, cpu) == of_machines(both, other, on_gpu, on_gpu)[1:] == ()
    assert [one.key for one in of_machines(both, other)] == ["devices.cpu"]
    assert [one.key for one in of_machines(both, cpu, on_gpu, on_gpu)] == ["devices.cuda:0"]


def test_facts_under_comparison_are_exempt():
    """By the beginning of the dot key, also of settings; another measuring method differs."""
    first, second = (run("a", machine={"gpubench.measuring_method": n}) for n in (1, 2))
    text = differences_text(of_machines(first, second))
    assert text == "gpubench.measuring_method 1 in base, 2 in head"
    assert of_machines(run("b", foreign=True), second) == ()
    assert exempting("gpubench.", runs=(first, second)) == ""
    base, head = (run(v, machine={"torch.version": v, "torch.cuda": v}) for v in "12")
    assert exempting("torch.", runs=(base, head)) == ""
    assert exempting("torch.version", runs=(base, head)) == "torch.cuda 1 in base, 2 in head"
    base, head = (result(settings={"precision.name": name}) for name in ("fp32", "tf32"))
    assert exempting("precision", base, head) == ""
    assert exempting("training", base, head) == "precision.name fp32 in base, tf32 in head"


def test_a_setting_that_only_one_side_states_is_compared_with_the_others_default():
    """A default that both know and that changed differs; a new key with a default does not."""
    stated = result(settings={"model.depth": 4}, configuration={"model.depth": 4})
    same = result(configuration={"model.depth": 4})
    other = result(configuration={"model.depth": 2})
    unknown = result()
    assert of_settings(stated, same) == of_settings(same, stated) == []
    assert of_settings(stated, other) == of_settings(other, stated) == ["model.depth"]
    assert of_settings(stated, unknown) == ["model.depth"]
    base, head = (result(configuration={"measure.max_time_s": s}) for s in (3, 5))
    assert of_settings(base, head) == ["measure.max_time_s"]
    base = result(configuration={"a": 1})
    head = result(configuration={"a": 1, "new": 2})
    assert of_settings(base, head) == []


@pytest.mark.parametrize(
    "key",
    [
        "experiment.notes",
        "gate.limits.step_time_s",
        "profiling.steps",
        "measure.profile",
        "measure.rounds_file",
        "measure.timeout_s",
        "measure.throttle",
        "distributed.failure_grace_s",
        "distributed.divergence_s",
    ],
)
def test_keys_that_change_no_number_never_differ(key):
    """Neither stated nor as a changed default."""
    base = result(settings={key: 1}, configuration={key: 1})
    assert of_settings(base, result(configuration={key: 2})) == []
    assert of_settings(base, result()) == []


def test_a_foreign_file_has_no_settings_to_differ_in():
    """What one side lacks is no difference then, also of one entry of a file that is ours."""
    assert of_settings(result(settings={"a": 1}), result(), partly=True) == []
    base, head = result(settings={"a": 1}), result(settings={"a": 2})
    assert of_settings(base, head, partly=True) == ["a"]
    default = result(configuration={"a": 1})
    assert of_settings(default, head, partly=True) == ["a"]
    assert of_settings(default, base, partly=True) == []
    ours, theirs = result(settings={"a": 1}), replace(result(), foreign=True)
    likeness = Comparability(exempt=(), allow=False)
    runs = run("a", ours), run("b", theirs)
    assert likeness.differences(runs[0], ours, runs[1], theirs) == ""
    assert likeness.differences(runs[1], theirs, runs[0], ours) == ""
    assert likeness.differences(runs[0], ours, runs[1], result()) != ""


def test_two_clocks_are_not_comparable():
    """An unknown one is; of a foreign file the kind of time counts, not the clock's name."""
    wall, events = result(timer="perf_counter_ns"), result(timer="cuda_events")
    theirs = result(timer="perf_counter")
    assert of_settings(wall, events) == of_settings(wall, theirs) == ["timer"]
    assert of_settings(wall, result(timer="")) == []
    assert of_settings(wall, theirs, partly=True) == []
    assert of_settings(events, theirs, partly=True) == ["timer"]
    for other in (wall, theirs, events):
        processor = result(timer="process_time")
        assert settings_differences(other, processor, is_partial=True) == (
            FactDifference(key="timer", base=other.timer, head="process_time"),
        )
    assert exempting("timer", wall, events) == ""


def test_a_description_is_short():
    """Four keys, long values cut, the others counted; allowed differences are one note."""
    found = [FactDifference(key=f"k{number}", base="x" * 99, head=None) for number in range(6)]
    text = differences_text(found)
    assert text.startswith(f"k0 {'x' * 39}… in base, absent in head; k1 ")
    assert text.endswith("; and 2 more")
    text = differences_text([FactDifference(key="k", base="a\n b", head=1)])
    assert text == "k a b in base, 1 in head"
    base, head = (run(v, machine={"cpu.model": v}) for v in "AB")
    likeness = Comparability(exempt=(), allow=True)
    for name in ("test_a", "test_b", "test_b"):
        assert likeness.differences(base, result(name), head, result(name)) == ""
    said = ("although incomparable (2 benchmarks)", "cpu.model A in base, B in head")
    assert mentions(*likeness.notes, *said)


def test_a_result_measured_beside_a_debugger_is_like_another_such_only():
    """The flag counts where facts are older; a locked clock where both are known."""
    plain, flagged = result(), replace(result(), flags=("instrumented",))
    base, head = run("a"), run("b")
    likeness = Comparability(exempt=(), allow=False)
    text = likeness.differences(base, plain, head, flagged)
    assert text == "instrumented absent in base, True in head"
    assert likeness.differences(base, flagged, head, flagged) == ""
    foreign = replace(plain, foreign=True)
    assert likeness.differences(base, foreign, head, flagged) == ""
    key = "gpu.devices.0.locked_clock_mhz"
    unknown, unlocked, low, high = (
        run("a", machine=machine) for machine in ({}, *({key: mhz} for mhz in (0, 1200, 1500)))
    )
    for known in (unlocked, low, high):
        assert of_machines(unknown, known) == of_machines(known, unknown) == ()
    for base, head in ((unlocked, low), (low, high), (high, unlocked)):
        assert [one.key for one in of_machines(base, head)] == [key]


def of_work(base, head, exempt=(), **metrics):
    sides = [replace(one, metrics=metrics) for one in (base, head)]
    return Comparability(exempt=exempt, allow=False).differences(
        run("a", sides[0]), sides[0], run("b", sides[1]), sides[1]
    )


def test_other_work_in_a_call_makes_times_incomparable():
    """Also amounts on one side alone; not unrecorded ones, nor those of a training to a target."""
    base, head = (replace(result(), work={"samples": n, "flops": 1e9}) for n in (64.0, 128.0))
    assert of_work(base, head) == "work.samples 64 in base, 128 in head"
    assert of_work(base, head, ["work."]) == ""
    assert of_work(base, replace(base, work={"samples": 64.0 * (1 + 1e-12), "flops": 1e9})) == ""
    base, head = replace(result(), work={"samples": 64.0}), replace(result(), work={})
    assert of_work(base, head) == "work.samples 64 in base, absent in head"
    assert of_work(head, base) == "work.samples absent in base, 64 in head"
    known = replace(result(), work={"samples": 64.0})
    assert of_work(known, result()) == of_work(result(), known) == ""
    base, head = (replace(result(), work={"samples": n}) for n in (64.0, 128.0))
    steps = Metric(name="steps_to_target", value=8.0, unit="count", better="lower")
    assert of_work(base, head, steps_to_target=steps) == ""


WALL = (
    CpuClock.timer,
    "perf_counter",
    "time.perf_counter",
    "time.perf_counter_ns",
    "monotonic",
    "time.monotonic_ns",
    "time",
    "time.time",
    "timeit.default_timer",
    "mps_synchronised",
    "xpu_synchronised",
    "cuda_synchronised",
    "cuda_synchronised_monotonic",
)
PROCESS = ("process_time", "time.process_time_ns", "cuda_synchronised_process_time")
DEVICE = (CudaStepClock.timer, "cuda_kernel_hot", "cuda_kernel_cold")
KINDS = (WALL, PROCESS, DEVICE, ("thread_time", "thread_time_ns"), ("my_timer",), ("mine.time",))


@pytest.mark.parametrize("kind", KINDS)
def test_clocks_of_one_kind_are_alike_and_no_others(kind):
    """Wall time, the device's, processor time; what is unknown only by its name."""
    for one in kind:
        for other in (name for names in KINDS for name in names):
            assert (kind_of_time(one) == kind_of_time(other)) is (other in kind)

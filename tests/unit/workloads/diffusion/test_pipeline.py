"""The pipeline as a thing to measure, on ranks that are threads."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, MeasurementError, Unsupported
from gpubench_plugin.measure.probes.operations import count_flops
from gpubench_plugin.workloads.diffusion import pipeline as pipelines
from gpubench_plugin.workloads.diffusion.pipeline import build_pipeline, ideal_speed_up
from gpubench_plugin.workloads.diffusion.transport import Transport
from tests.unit.workloads.diffusion.conftest import Place, Ranks, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubench_plugin.workloads.diffusion.pipeline import DenoisingPipeline

    Make = Callable[..., DenoisingPipeline]


def ignored(event: object) -> None:
    """Journal nothing."""


def joined(make: Make, ranks: int, **keys: Any) -> list[DenoisingPipeline]:
    """Pipelines of as many ranks, whose messages stay in this process."""
    made = [make(ranks=Ranks(Place(rank, ranks)), **keys) for rank in range(ranks)]
    between = [Wire(queue.Queue()) for _ in range(ranks)]
    for rank, pipeline in enumerate(made):
        pipeline.transport = Ends(between[rank - 1], between[rank])  # type: ignore[assignment] # a stand-in
    return made


class Ends:
    """What comes from the rank before, and goes to the next one."""

    def __init__(self, before: Wire, behind: Wire):
        self.receive = before.receive
        self.send = behind.send
        self.flush = behind.flush


def together(
    pipelines: Sequence[DenoisingPipeline], act: Callable[[DenoisingPipeline], Any]
) -> list[Any]:
    with ThreadPoolExecutor(len(pipelines)) as threads:
        return list(threads.map(act, pipelines))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "keys"),
    [
        (2, {"samples": 1}),
        (2, {"samples": 8, "scheduler": "ddpm"}),
        (3, {"samples": 3, "remainder": "spread"}),
        (2, {"samples": 2, "scheduler": "heun", "remainder": "first"}),
    ],
)
def test_ranks_compute_what_one_process_does(
    ranks: int, keys: dict[str, Any], make_pipeline: Make
) -> None:
    """The check passes on all ranks, and so does what a timed call leaves."""
    pipelines = joined(make_pipeline, ranks, **keys)
    checks = together(pipelines, lambda pipeline: pipeline.prepare(ignored))
    for pipeline in pipelines:
        pipeline.begin()
    together(pipelines, lambda pipeline: pipeline.step())
    together(pipelines, lambda pipeline: pipeline.finish())
    assert all(check.correctness["bitwise_equal_to_one_process"] for check in checks)
    assert [check.facts["one_process_s"] > 0 for check in checks] == [False] * (ranks - 1) + [True]
    work = sum(pipeline.work().samples or 0 for pipeline in pipelines)
    assert work == pytest.approx(keys["samples"])


def test_another_rank_with_other_weights_is_found_out(make_pipeline: Make, unet: Any) -> None:
    """A rank whose network differs in one weight fails the check, and the sample is named."""
    first, last = joined(make_pipeline, 2, samples=2)
    module, workload = unet
    torch.manual_seed(0)
    other = workload.build()
    with torch.no_grad():
        other.outward.bias[0] += 1e-3
    assert all(
        torch.equal(a, b) for a, b in zip(other.inward.weight, module.inward.weight, strict=True)
    )
    first.denoising.module = other
    with pytest.raises(CorrectnessError, match=r"sample 0: \d+ of 256 values differ .* at most"):
        together([first, last], lambda pipeline: pipeline.prepare(ignored))


def test_wrong_output_of_the_timed_calls_is_found_out(make_pipeline: Make) -> None:
    """What was right before the timing has to be right after it."""
    pipeline = make_pipeline(samples=2)
    pipeline.prepare(ignored)
    pipeline.step()
    pipeline.finish()
    pipeline._latents = (pipeline._latents[0], pipeline._latents[1] + 1)
    pipeline.step()
    with pytest.raises(CorrectnessError, match="sample 1: 256 of 256 values differ"):
        pipeline.finish()


def test_ranks_meet_at_a_barrier_before_each_call(make_pipeline: Make) -> None:
    """The first rank waits for the last one, though its own steps have long been done."""
    pipeline, met = make_pipeline(), list[int]()
    pipeline.barrier = lambda: met.append(1)
    pipeline.meet()
    assert met == [1]


def test_timed_calls_that_denoise_nothing_are_found_out(make_pipeline: Make) -> None:
    """What the check has left behind is not taken for theirs."""
    pipeline = make_pipeline(samples=2, denoising_steps=1)
    pipeline.prepare(ignored)
    pipeline.begin()
    with pytest.raises(CorrectnessError, match="the timed calls denoised 0 instead of 2 samples"):
        pipeline.finish()


def test_outputs_that_are_not_finite_fail_the_check(make_pipeline: Make) -> None:
    """A pipeline and one process that agree on NaN are both wrong."""
    pipeline = make_pipeline()
    pipeline._latents = (pipeline._latents[0] * float("nan"),)
    with pytest.raises(CorrectnessError, match="sample 0: the denoised latents are not finite"):
        pipeline.prepare(ignored)


def test_one_process_is_timed_as_long_as_it_takes_to_be_a_measure(
    make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of 60 ms four times, those of a second three times; their median is told."""
    _, last = joined(make_pipeline, 2)
    for length_s, times in ((0.06, 4), (1.0, 3)):
        clock = count(0, length_s)
        monkeypatch.setattr(pipelines, "perf_counter", lambda clock=clock: next(clock))
        assert last._run_on_one_rank()[1] == pytest.approx(length_s)
        assert next(clock) == pytest.approx(2 * times * length_s)


def test_one_rank_has_no_speed_up(make_pipeline: Make) -> None:
    """The plain loop is not compared with itself."""
    facts = make_pipeline().prepare(ignored).facts
    assert facts.keys() == {"first_step_s"}


@pytest.mark.parametrize("call", ["first", "timed"])
def test_a_call_that_fails_is_logged_with_its_error(call: str, make_pipeline: Make) -> None:
    """What it was, how far this rank came, and why it failed; timed calls log nothing else."""
    kept: list[dict[str, Any]] = []
    pipeline = make_pipeline(ranks=Ranks(Place(0, 2)), kept=kept, samples=2)
    pipeline.transport = wire = Wire(queue.Queue())  # type: ignore[assignment] # a stand-in
    pipeline.step()
    assert kept == []

    def lost(latents: Any, header: Any) -> None:
        raise MeasurementError(f"no rank {header.receiver}")

    wire.send = lost  # type: ignore[method-assign] # of this one
    with pytest.raises(MeasurementError, match="no rank 1"):
        pipeline.step() if call == "timed" else pipeline.prepare(ignored)
    begun, *events, failed = kept
    assert begun == {"event": "pipeline", "call": 2, "steps": [0, 2], "samples": 2}
    assert failed == {"event": "failed", "error": "MeasurementError: no rank 1"}
    steps = ["step", "step", "send"] if call == "first" else []
    assert [event["event"] for event in events] == steps


@pytest.mark.parametrize(
    ("remaining_s", "keys", "timeout_s"),
    [
        (60.0, {}, 55.0),
        (8.0, {}, 4.0),
        (-3.0, {}, 5.0),  # the process was stopped meanwhile
        (60.0, {"receive_timeout_s": 7.0}, 7.0),
    ],
)
def test_messages_are_waited_for_until_shortly_before_the_timeout(
    remaining_s: float, keys: dict[str, Any], timeout_s: float, make_pipeline: Make
) -> None:
    """So a rank that waits in vain reports it before it is ended; the key overrides this."""
    ranks = Ranks(Place(1, 2))
    transport = make_pipeline(ranks=ranks, remaining_s=remaining_s, **keys).transport
    assert transport is not None
    assert transport.timeout_s() == timeout_s
    assert transport._steps == " (steps 2 to 3)"


def test_ideal_speed_up_waits_for_the_longest_rank() -> None:
    """Of 3 + 1 steps every further sample takes 3."""
    assert ideal_speed_up([range(3), range(3, 4)], 5) == pytest.approx(5 * 4 / (4 + 4 * 3))


def test_flops_of_a_rank_are_those_of_its_steps(make_pipeline: Make, unet: Any) -> None:
    """Half of the steps, half of the FLOPs of one process, and those in proportion to samples."""
    half = make_pipeline(ranks=Ranks(Place(0, 2)), samples=4)
    whole = make_pipeline(samples=2)
    counted = [count_flops(pipeline.flops_step).per_call for pipeline in (half, whole)]
    workload = unet[1].for_fake_tensors()

    def one() -> None:
        built = workload.build()
        workload.forward(built, workload.synthetic_batch(1, device=torch.device("cpu")))

    assert counted == [8 * count_flops(one).per_call] * 2


def test_workload_without_steps_is_unsupported() -> None:
    """A classifier cannot be asked to denoise."""
    mlp = catalog.load("workloads", "mlp")
    with pytest.raises(Unsupported, match=r"model.name=mlp has no denoising steps"):
        build_pipeline(
            None,
            mlp(mlp.Section(name="mlp")),
            section=None,
            seed=0,
            precision=None,
            group=None,
            remaining_s=lambda: 60.0,
            on_events=None,
        )


@pytest.mark.parametrize(
    ("backend", "device", "staged"),
    [("gloo", "cpu", False), ("gloo", "cuda:0", True), ("nccl", "cuda:1", False)],
)
def test_tensors_go_through_the_host_only_where_they_must(
    backend: str, device: str, staged: bool
) -> None:
    """NCCL sends from device to device, its headers between hosts; gloo stages a device's."""
    hosts = object()
    group: Any = SimpleNamespace(
        backend=backend, device=torch.device(device), agreement=SimpleNamespace(group=hosts)
    )
    transport = Transport(group=group, timeout_s=lambda: 60.0, timeout_key="")
    assert (transport._transfer_device.type == "cpu") == (staged or device == "cpu")
    assert transport._headers is (hosts if backend == "nccl" else None)

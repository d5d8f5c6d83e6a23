"""What two ranks denoise together, and what becomes of wrong messages and of none at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import distributed as dist

from gpubench_plugin.core.errors import CorrectnessError, MeasurementError
from gpubench_plugin.training.model import build_model
from gpubench_plugin.workloads.diffusion import pipeline as pipelines
from gpubench_plugin.workloads.diffusion.denoising import SPLIT_SAFE
from gpubench_plugin.workloads.diffusion.pipeline import build_pipeline
from gpubench_plugin.workloads.diffusion.transport import LENGTH, Header, Transport
from tests.e2e.distributed.ranks import common
from tests.e2e.distributed.ranks.common import CPU
from tests.e2e.distributed.ranks.waiting import wait_for_all

SAMPLES = (1, 2, 4, 8)
DUMMY = {f"dummy {name} 2": (name, "fp32", 2) for name in SPLIT_SAFE}
REAL = {
    **{f"conditional ddim {count}": ("ddim", "fp32", count) for count in SAMPLES},
    "conditional bf16": ("ddim", "bf16", 2),
    "conditional bf16-true": ("ddim", "bf16-true", 2),
}
CASES = {**DUMMY, **{f"dummy ddim {count}": ("ddim", "fp32", count) for count in SAMPLES}, **REAL}

EXPECTED = Header(
    call=1, sample=3, step=4, sender=0, receiver=1, dtype=torch.float32, shape=(1, 4, 8, 8)
)
WRONG = {
    "step": {"step": 5},
    "sample": {"sample": 2},
    "shape": {"shape": (1, 4, 16, 16)},
    "dtype": {"dtype": torch.bfloat16},
    "receiver": {"receiver": 1, "sender": 7},
}


def made(case, group):
    """The pipeline of a case, and the parts that one process needs to do the same."""
    scheduler, precision_name, samples = CASES[case]
    configuration = common.configured(
        "diffusion",
        f"model.unet={case.partition(' ')[0]}",
        f"diffusion.scheduler={scheduler}",
        f"diffusion.samples={samples}",
        f"diffusion.remainder={'first' if scheduler == 'heun' else 'refuse'}",
        precision=precision_name,
        ranks=group.world.size,
    )
    workload, precision = common.made(configuration), common.precise(precision_name)
    module = build_model(workload, seed=0, device=CPU, precision=precision)
    return build_pipeline(
        module,
        workload,
        section=configuration.diffusion,
        seed=0,
        precision=precision,
        group=group,
        remaining_s=lambda: 60.0,
        on_events=lambda events: None,
    )


def transport(timeout_s):
    return Transport(
        group=SimpleNamespace(backend="gloo", device=CPU),
        timeout_s=lambda: timeout_s,
        timeout_key="measure.timeout_s",
    )


def digest(outputs):
    return [hashlib.sha256(output.numpy().tobytes()).hexdigest() for output in outputs]


def outputs_of(case, group, world):
    """Of the last rank what came through the pipeline, of the first what it computes alone."""
    pipe = made(case, group)
    checked = pipe.prepare(lambda event: None)
    pipe.begin()
    pipe.meet()
    pipe.step()
    pipe.finish()
    outputs = pipe._run_on_one_rank()[0] if world.is_root else pipe._outputs
    return {"outputs": digest(outputs), "ideal": checked.facts["ideal_speed_up"]}


def refusal(act):
    try:
        act()
    except (CorrectnessError, MeasurementError) as complaint:
        return type(complaint).__name__, str(complaint)
    return "nothing", ""


def mismatches(transport, world):
    """What the receiver says of each wrong message; it then takes the payload out of the way."""
    found = {}
    for name, changes in WRONG.items():
        sent = replace(EXPECTED, **changes)
        payload = torch.ones(sent.shape, dtype=sent.dtype)
        if world.is_root:
            transport.send(payload, sent)
            transport.flush()
        else:
            found[name] = refusal(lambda: transport.receive(EXPECTED))
            dist.recv(payload, 0)
    if world.is_root:
        dist.send(torch.zeros(LENGTH, dtype=torch.uint8), 1)
    else:
        found["no header"] = refusal(lambda: transport.receive(EXPECTED))
    return found


def find(group):
    torch.set_num_threads(1)
    pipelines._MIN_REPETITIONS = pipelines._MAX_REPETITIONS = 1
    world = group.world
    found = {case: outputs_of(case, group, world) for case in CASES}
    patient = transport(60.0)
    found["mismatches"] = mismatches(patient, world)
    wait_for_all(group.control, "mismatches")
    # The last thing: gloo ends a connection on which something was waited for in vain.
    if not world.is_root:
        hasty = transport(0.2)
        found["silence"] = refusal(lambda: hasty.receive(EXPECTED))
    wait_for_all(group.control, "silence")
    if world.is_root:
        found["lost"] = refusal(lambda: lose(patient))
    return found


def lose(transport):
    """Send to the rank that has ended the connection."""
    for _ in range(2):
        transport.send(torch.ones(EXPECTED.shape), EXPECTED)
        transport.flush()


if __name__ == "__main__":
    common.write(find)

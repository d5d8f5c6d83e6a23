"""The stages in order of value, each a function in a module; their processes import them."""

from __future__ import annotations

from typing import Final

from gpubench_plugin.cli.gpu_check.stage import Stage

_HERE: Final = "gpubench_plugin.cli.gpu_check.stages"

STAGES: Final = (
    Stage(
        name="facts",
        parts=("proof", "speed"),
        limit_s=150,  # torch from a cold disk may take the two minutes of its child process
        least_s=0,
        program=f"{_HERE}.facts:facts",
        required=True,
    ),
    Stage(
        name="clocks",
        parts=("proof",),
        limit_s=90,
        program=f"{_HERE}.clocks:clocks",
        proves=(
            "a step takes what it takes in a bare loop (0.5%), a kernel what do_bench says (2%)",
            "cold kernels read memory; launch_bound and elsewhere are raised where they should be",
            "a spin lasts as long as it should, whatever the clock of the GPU was before",
        ),
    ),
    Stage(
        name="counters",
        parts=("proof",),
        limit_s=40,
        program=f"{_HERE}.counters:counters",
        proves=("NVML's counters move with the load; energy is the integral of power (10%)",),
    ),
    Stage(
        name="out-of-memory",
        parts=("proof",),
        limit_s=60,
        program=f"{_HERE}.faults:out_of_memory",
        proves=(
            "out of memory is reported as such, the memory is freed, and the next benchmark runs",
        ),
    ),
    Stage(
        name="lost-context",
        parts=("proof",),
        limit_s=90,
        program=f"{_HERE}.faults:lost_context",
        proves=(
            "a lost context costs one benchmark with --isolate, else it ends the session, exit 1",
        ),
    ),
    Stage(
        name="tests",
        parts=("proof",),
        limit_s=120,
        program=f"{_HERE}.tests:tests",
        proves=("the tests that need a device pass",),
    ),
    Stage(
        name="ranks",
        parts=("proof",),
        limit_s=90,
        program=f"{_HERE}.ranks:ranks",
        proves=("a gang of one and torchrun of one exchange over NCCL",),
    ),
    Stage(
        name="traces",
        parts=("proof",),
        limit_s=60,
        program=f"{_HERE}.traces:traces",
        proves=("a trace holds the kernels of the steps; a memory snapshot what they allocate",),
    ),
    Stage(
        name="resnet50",
        parts=("speed",),
        limit_s=180,
        program=f"{_HERE}.headline:resnet50",
        proves=("ResNet-50 in amp: images per second beside a loop written by hand (0.5%)",),
    ),
    Stage(
        name="llama",
        parts=("speed",),
        limit_s=300,
        program=f"{_HERE}.headline:llama",
        proves=("Llama of 1.1 billion in bf16: MFU beside a loop written by hand (0.5%)",),
    ),
    Stage(
        name="decode",
        parts=("proof",),
        limit_s=150,
        program=f"{_HERE}.decode:decode",
        proves=("decoding of one graph is captured and replayed",),
    ),
    Stage(
        name="same-code",
        parts=("proof",),
        limit_s=180,
        program=f"{_HERE}.same_code:same_code",
        proves=("gpubench ab calls no change where there is none",),
    ),
    Stage(
        name="resnet50-b1024",
        parts=("speed",),
        limit_s=120,
        program=f"{_HERE}.headline:resnet50_b1024",
        proves=("ResNet-50 in amp at a batch of 1024",),
    ),
    Stage(
        name="breadth",
        parts=("speed",),
        limit_s=240,
        program=f"{_HERE}.breadth:breadth",
        proves=("one number each of products, attention, copies and the other models",),
    ),
)
"""What other numbers rest on first; then the numbers to show, before longer proofs."""

"""One number each of operations and models, cheapest first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpubench_plugin.cli.gpu_check.rows import row_of

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import StageRun

_TRAINING: Final = "not compiled and not accumulated and not checkpointed and not fsdp2"

SELECTIONS: Final = (
    ("micro/test_gemm.py", "test_matmul and x1 and not cold", "fp32,tf32,bf16,fp16-true"),
    ("micro/test_gemm.py", "fp8 and not cold", "bf16"),
    ("micro/test_attention.py", "attention and not backward and not math", "bf16"),
    ("micro/test_copies.py", "", "fp32"),
    ("training/test_gpt2.py", f"gpt2_train and {_TRAINING}", "bf16"),
    ("training/test_vit.py", f"vit_train and {_TRAINING}", "bf16"),
    ("training/test_bert.py", f"bert_train and {_TRAINING}", "bf16"),
    ("training/test_unet.py", f"unet_cond and not channels_last and {_TRAINING}", "bf16"),
    ("training/test_moe.py", f"mixtral and not eager and {_TRAINING}", "bf16"),
)
"""File below ``benchmarks``, expression of ``-k``, and precisions."""

_FINE: Final = ("measured", "unsupported", "skipped")

_LEAST_S: Final = 30.0
"""Of the stage, to begin a selection: torch and the device start in some ten; not measured."""


def breadth(run: StageRun) -> None:
    """Measure each selection while there is time; each benchmark is measured or unsupported."""
    run.file_of_suite("benchmarks")
    for number, (file, keyword, precisions) in enumerate(SELECTIONS):
        title = f"{file} -k '{keyword}' in {precisions}"
        if run.remaining_s < _LEAST_S:
            run.unproven(f"{title} (no time was left)")
            continue
        session = run.pytest(
            f"breadth-{number}",
            *(f"benchmarks/{file}", "-k", keyword, f"--precision={precisions}"),
            *(f"--preset={run.preset}", "--gpubench-set=measure.profile=quick"),
            cwd=run.repository,
            limit_s=run.remaining_s,
        )
        for benchmark in session.benchmarks:
            run.row(row_of(benchmark))
        if session.code is None:
            run.unproven(f"{title} (no time was left to end it)")
            continue
        counts = Counter(session.outcomes)
        run.fact(**{title: dict(counts)})
        failed = sum(counts.values()) - sum(counts[outcome] for outcome in _FINE)
        run.check(f"{title}: exit code", session.code, "equal", 0)
        run.check(f"{title}: failed", failed, "equal", 0)
        run.check(f"{title}: measured", counts["measured"], "at_least", 1)

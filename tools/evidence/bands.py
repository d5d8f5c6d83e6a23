"""How far the tiny presets are from plain fp32, step by step, in each precision.

    python tools/evidence/bands.py

Every workload trains five steps of its tiny preset on one batch beside the fp32 reference, in
several seeds, with bands so wide that nothing fails. The tables of ``docs/evidence/bands.md`` hold
the largest relative errors; the bands of ``gpubench_plugin/training/bands.py`` rest on them. The
exit code is 1 if an error is beyond its band.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.bands import BANDS, BATCH_NORMALISED, has_batch_norm
from gpubench_plugin.training.reference import Fp32Reference
from tests.support.presets import CONFIGURED, CPU, preset_of, trainer_of, workload_of
from tools.evidence.pages import markdown, save

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: Final = 5
SEEDS: Final = 4
PRECISIONS: Final = ("amp", "bf16", "fp16-true", "bf16-true")
FP16: Final = ("amp", "fp16-true")
QUICK_IN_FP16: Final = ("cnn", "mlp", "moe", "regression", "resnet18", "resnet50", "vit")
"""A CPU computes fp16 a hundred times slower than fp32: of the others it would take hours."""
UNBOUNDED: Final = MeasureSection(check_loss_band=1e9, check_gradient_band=1e9)
LATER: Final = f"steps 2 to {STEPS}"
ERRORS: Final = (
    *("workload", "precision", "loss, step 1", "norm", "nearest the loss"),
    *(f"loss, {LATER}", "norm"),
)
SHARES: Final = (
    *("precision", "batch norm", "loss, step 1", "nearest the loss", "norm", "loss, later", "norm"),
)
CONCLUSION: Final = """\
The bands before were the same for all steps, 0.5 and 0.75 for models with batch normalisation in
16 bits: gradients half as large, or 1.6 times as large, passed in both ResNets in amp and bf16. At
step 1 they now have to be within 5% (amp) and 20% (bf16) nearest the loss, and within 1% and 5
% in all other models. The error that such a scale makes, 0.5 and 0.6, is 2.5 times the widest of
these bands.
"""
BELOW: Final = "The largest error as a share of its band:\n"
INTRODUCTION: Final = """# How far the tiny presets are from plain fp32

The bands of the [fp32 reference](../guide/correctness.md) rest on these figures: the largest
relative errors of five training steps on one batch, over seeds 0 to 3, on a CPU with one thread.
Written by `python tools/evidence/bands.py`.

*Norm* is the global norm of the gradients before clipping, *nearest the loss* that of the
parameters behind the last batch normalisation (all of them where there is none). At step 1 the
weights are equal, so its errors are rounding alone; later ones have gone through the updates. A CPU
computes fp16 a hundred times slower than fp32: `amp` and `fp16-true` are missing where it would
take hours, and `fp16-true` where the optimizer does not offer it.
"""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The largest errors of a workload in a precision, of the first step and of later ones."""

    workload: str
    precision: str
    normalised: bool
    first: tuple[float, float, float]
    """Of the loss, the global norm, and the norm of the gradients nearest the loss."""
    later: tuple[float, float]

    @property
    def shares(self) -> tuple[float, ...]:
        """Each judged error as a share of its band."""
        bands = (BATCH_NORMALISED if self.normalised else BANDS)[self.precision]
        return (
            self.first[0] / bands.first.loss,
            self.first[2] / bands.first.gradient_norm,
            self.first[1] / (bands.later if self.normalised else bands.first).gradient_norm,
            self.later[0] / bands.later.loss,
            self.later[1] / bands.later.gradient_norm,
        )

    @property
    def cells(self) -> tuple[str, ...]:
        """Those of its row."""
        errors = (f"{error:.1e}" for error in (*self.first, *self.later))
        return (self.workload, self.precision, *errors)


def errors_of(name: str, precision: str, seeds: Sequence[int]) -> Errors:
    """The largest over the `seeds`."""
    found = [_compared(name, precision, seed) for seed in seeds]
    reports = [report for report, _ in found]
    return Errors(
        workload=name,
        precision=precision,
        normalised=found[0][1],
        first=(
            max(r["loss_errors"][0] for r in reports),
            max(r["gradient_norm_errors"][0] for r in reports),
            max(r["nearest_error"] or 0.0 for r in reports),
        ),
        later=(
            max(max(r["loss_errors"][1:]) for r in reports),
            max(max(r["gradient_norm_errors"][1:]) for r in reports),
        ),
    )


def _compared(name: str, precision: str, seed: int) -> tuple[dict[str, Any], bool]:
    """The report of the check, and whether the model normalises batches."""
    configuration = preset_of(name, "tiny", f"training.steps={STEPS}", precision__name=precision)
    workload = workload_of(configuration)
    chosen = catalog.load("precision", precision)()
    reference = Fp32Reference(
        workload=workload,
        training=configuration.training,
        measure=UNBOUNDED,
        precision=precision,
        compute_dtypes=[chosen.compute_dtype],
        seed=seed,
        device=CPU,
        agreement=RankAgreement(),
        averaging=False,
        steps=STEPS,
    )
    trainer = trainer_of(configuration, seed=seed, reference=reference)
    torch.manual_seed(seed)
    with chosen.switches():
        check = trainer.prepare(lambda _: None)
    return check.correctness["reference"], has_batch_norm(workload.build())


def report(found: Sequence[Errors]) -> str:
    """Both tables, the worst shares of the bands below them."""
    shares = []
    for precision in PRECISIONS:
        for normalised in (False, True):
            rows = [
                errors.shares
                for errors in found
                if (errors.precision, errors.normalised) == (precision, normalised)
            ]
            if rows:
                worst = (f"{max(column):.2f}" for column in zip(*rows, strict=True))
                shares.append((precision, "yes" if normalised else "no", *worst))
    errors_table = markdown(ERRORS, (errors.cells for errors in found))
    return f"{errors_table}\n{BELOW}\n{markdown(SHARES, shares)}"


def main() -> int:
    """Measure, write the tables; 1 where an error is beyond its band."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="*", help="workloads; the page stays as it is")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = []
    for name in asked.only or [n for n in CONFIGURED if n != "diffusion"]:
        for precision in PRECISIONS:
            if precision in FP16 and name not in QUICK_IN_FP16:
                continue
            with suppress(Unsupported):  # an optimizer may refuse fp16
                found.append(errors_of(name, precision, range(asked.seeds)))
                print(*found[-1].cells, flush=True)
    text = report(found)
    if asked.only:
        print(text)
    else:
        save("bands.md", INTRODUCTION, text, CONCLUSION)
    return int(any(share > 1 for errors in found for share in errors.shares))


if __name__ == "__main__":
    sys.exit(main())

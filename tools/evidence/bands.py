"""How far the tiny presets are from plain fp32, step by step, in each precision.

    python tools/evidence/bands.py docs/evidence/bands.md

Every workload trains five steps of its tiny preset on one batch beside the fp32 reference, in
several seeds, with bands so wide that nothing fails. The tables, written between the marks of the
file, hold the largest relative errors; the bands of ``gpubench_plugin/training/bands.py`` rest on
them. The exit code is 1 if an error is beyond its band.
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

from gpubench_plugin import catalog
from gpubench_plugin.config import MeasureSection, resolve
from gpubench_plugin.errors import Unsupported
from gpubench_plugin.training import BANDS, BATCH_NORMALISED, Alone, Reference, Trainer, build_model
from gpubench_plugin.training.conditioning import normalises_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config import Configuration

ROOT: Final = Path(__file__).parents[2]
CPU: Final = torch.device("cpu")
STEPS: Final = 5
SEEDS: Final = 4
PRECISIONS: Final = ("amp", "bf16", "fp16-true", "bf16-true")
FP16: Final = ("amp", "fp16-true")
QUICK_IN_FP16: Final = ("cnn", "mlp", "moe", "regression", "resnet18", "resnet50", "vit")
"""A CPU computes fp16 a hundred times slower than fp32: of the others it would take hours."""
UNBOUNDED: Final = MeasureSection(check_loss_band=1e9, check_gradient_band=1e9)
MARKS: Final = ("<!-- errors -->\n", "<!-- /errors -->")


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
    def row(self) -> str:
        """A line of the table."""
        cells = (f"{error:.1e}" for error in (*self.first, *self.later))
        return f"| {self.workload} | {self.precision} | {' | '.join(cells)} |"


def configured(name: str, precision: str) -> Configuration[Any]:
    """The tiny preset of that name, trained for a few steps."""
    return resolve(
        name=name,
        preset="tiny",
        overlays=[],
        overrides=(f"training.steps={STEPS}",),
        chosen={"precision.name": precision},
        rootdir=ROOT,
        model_section=lambda workload: getattr(catalog.load("workloads", workload), "Section"),  # noqa: B009
    )


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
    configuration = configured(name, precision)
    training = configuration.training
    workload = catalog.load("workloads", configuration.model.name)(configuration.model)
    made = catalog.load("precision", precision)()
    module = build_model(
        workload, section=configuration.model, seed=seed, device=CPU, precision=made
    )
    data = catalog.load("data", configuration.data.source)(
        workload, batch_size=training.batch_size, device=CPU, convert=made.convert_batch, seed=seed
    )
    reference = Reference(
        workload=workload,
        training=training,
        measure=UNBOUNDED,
        precision=precision,
        compute_dtypes=[made.compute_dtype],
        seed=seed,
        device=CPU,
        agreement=Alone(),
        averaging=False,
        steps=STEPS,
    )
    trainer = Trainer(
        module=module,
        workload=workload,
        data=data,
        precision=made,
        training=training,
        precision_section=configuration.precision,
        device=CPU,
        reference=reference,
    )
    torch.manual_seed(seed)
    with made.switches():
        check = trainer.prepare(lambda _: None)
    return check.correctness["reference"], normalises_batches(module)


def report(found: Sequence[Errors]) -> str:
    """Both tables, the worst shares of the bands below them."""
    later = f"steps 2 to {STEPS}"
    lines = [
        f"| workload | precision | loss, step 1 | norm | nearest the loss | loss, {later} | norm |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(errors.row for errors in found),
        "",
        "The largest error as a share of its band:",
        "",
        "| precision | batch norm | loss, step 1 | nearest the loss | norm | loss, later | norm |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for precision in PRECISIONS:
        for normalised in (False, True):
            rows = [
                errors.shares
                for errors in found
                if (errors.precision, errors.normalised) == (precision, normalised)
            ]
            if rows:
                cells = " | ".join(f"{max(column):.2f}" for column in zip(*rows, strict=True))
                lines.append(f"| {precision} | {'yes' if normalised else 'no'} | {cells} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Measure, write the tables; 1 where an error is beyond its band."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="the document whose tables to replace")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="*", help="workloads")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = []
    for name in asked.only or [n for n in catalog.choices("workloads") if n != "diffusion"]:
        for precision in PRECISIONS:
            if precision in FP16 and name not in QUICK_IN_FP16:
                continue
            with suppress(Unsupported):  # an optimizer may refuse fp16
                found.append(errors_of(name, precision, range(asked.seeds)))
                print(found[-1].row, flush=True)
    text = report(found)
    if asked.file is None:
        print(text)
    else:
        head, mark, rest = asked.file.read_text(encoding="utf-8").partition(MARKS[0])
        tail = rest.partition(MARKS[1])[2]
        asked.file.write_text(f"{head}{mark}{text}{MARKS[1]}{tail}", encoding="utf-8")
    return int(any(share > 1 for errors in found for share in errors.shares))


if __name__ == "__main__":
    sys.exit(main())

"""Configurations of this repository as they are shipped, and the trainers they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core import catalog
from gpubench_plugin.training.inference import Inference
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.marks import Preset
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.training.reference import Fp32Reference
    from gpubench_plugin.workloads.base import Workload

ROOT: Final = Path(__file__).resolve().parents[2]
CPU: Final = torch.device("cpu")
SOURCES: Final = frozenset({"hf", "timm", "torchvision", "python"})
"""Workloads that name a model of a library or of the project, and have no presets."""
CONFIGURED: Final = tuple(n for n in catalog.choices("workloads") if n not in SOURCES)


def preset_of(
    name: str, preset: Preset, *overrides: str, overlays: Sequence[str] = (), **chosen: str
) -> Configuration[Any]:
    """A preset of the configuration called `name`.

    `overlays` are names of files in ``configs/``; `chosen` holds keys with ``__`` for the dot.
    """
    return resolve(
        name=name,
        preset=preset,
        overlays=[ROOT / "configs" / f"{file}.yaml" for file in overlays],
        overrides=overrides,
        fixed_values={key.replace("__", "."): value for key, value in chosen.items()},
        rootdir=ROOT,
        model_section=_model_section,
    )


def _model_section(workload: str) -> type[ModelSection]:
    section: type[ModelSection] = catalog.load("workloads", workload).Section
    return section


def workload_of(configuration: Configuration[Any]) -> Workload[Any]:
    """What `configuration` trains."""
    workload: Workload[Any] = catalog.load("workloads", configuration.model.name)(
        configuration.model
    )
    return workload


def trainer_of(
    configuration: Configuration[Any], *, seed: int = 0, reference: Fp32Reference | None = None
) -> Trainer:
    """The trainer that `configuration` describes, on the CPU in this process."""
    return Trainer(
        **_parts_of(configuration, seed),
        training=configuration.training,
        precision_section=configuration.precision,
        reference=reference,
    )


def inference_of(configuration: Configuration[Any]) -> Inference:
    """The inference that `configuration` describes, on the CPU in this process."""
    return Inference(**_parts_of(configuration, 0))


def _parts_of(configuration: Configuration[Any], seed: int) -> dict[str, Any]:
    workload = workload_of(configuration)
    precision = catalog.load("precision", configuration.precision.name)()
    module = build_model(workload, seed=seed, device=CPU, precision=precision)
    data = catalog.load("data", configuration.data.source)(
        workload,
        batch_size=configuration.training.samples,
        device=CPU,
        convert=precision.convert_batch,
        seed=seed,
    )
    return {
        "module": module,
        "workload": workload,
        "data": data,
        "precision": precision,
        "device": CPU,
    }

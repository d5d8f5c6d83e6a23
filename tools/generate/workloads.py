"""Print the table of the full presets: their parameters, operations and memory.

Everything is counted on tensors without data, in no memory to speak of. Run it in the checkout.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.measure.probes.operations import count_flops
from tests.support.presets import ROOT, preset_of, workload_of

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import Configuration

GIB: Final = 2**30
STATES: Final = {"sgd": 1, "adamw": 2}
"""Numbers that an optimizer keeps for each parameter: momentum, or both moments."""

PRESETS: Final = {
    "mlp": (),
    "cnn": (),
    "regression": (),
    "moe": (),
    "resnet18": (),
    "resnet50": (),
    "vit": (),
    "vit-l16": ("vit", "vit-l16"),
    "gpt2": (),
    "gpt2-xl": ("gpt2", "gpt2-xl"),
    "bert": (),
    "llama": (),
    "llama-3b": ("llama", "llama-3b"),
    "llama-8b": ("llama", "llama-8b"),
    "llama-parallel": (),
    "mixtral": (),
    "qwen-moe": (),
    "unet2d": (),
    "unet-cond": (),
}
"""Full presets by name; where a file is laid over a configuration, both."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What training in fp32 takes: counts, of one sample where not said otherwise."""

    batch_size: int
    parameters: int
    forward_flops: float
    saved_bytes: float
    states: int
    needs_memory_gib: float
    recomputed: bool

    @property
    def weights_gib(self) -> float:
        """Weights, gradients and optimizer state, in GiB."""
        return 4 * self.parameters * (2 + self.states) / GIB

    @property
    def step_gib(self) -> float:
        """Those and the saved activations of a batch, none of them computed again, in GiB."""
        return self.weights_gib + self.batch_size * self.saved_bytes / GIB


def configured(name: str) -> Configuration[Any]:
    """The full preset called `name`."""
    base, *over = PRESETS.get(name) or (name,)
    return preset_of(base, "full", overlays=over)


def figures(name: str) -> Figures:
    """The figures of the full preset called `name`, from one forward pass of one sample."""
    from gpubench_plugin.config.resolution import needs_memory_gib

    base, *over = PRESETS.get(name) or (name,)
    overlays = [ROOT / "configs" / f"{file}.yaml" for file in over]
    configuration = configured(name)
    counted = workload_of(configuration).for_fake_tensors()
    found: dict[str, float] = {}

    def forward() -> None:
        module = counted.build().train()
        batch = counted.synthetic_batch(1, device=torch.device("cpu"))
        own = {p.untyped_storage()._cdata for p in (*module.parameters(), *module.buffers())}
        kept: dict[int, torch.Tensor] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage()._cdata] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = counted.loss(module, batch)
        found["saved"] = sum(t.untyped_storage().nbytes() for k, t in kept.items() if k not in own)
        found["parameters"] = sum(p.numel() for p in module.parameters())
        del loss

    flops = count_flops(forward).per_call or 0.0
    return Figures(
        batch_size=configuration.training.samples,
        parameters=int(found["parameters"]),
        forward_flops=flops,
        saved_bytes=found["saved"],
        states=STATES[configuration.training.optimizer],
        needs_memory_gib=needs_memory_gib(base, overlays=overlays, rootdir=ROOT),
        recomputed=configuration.model.activation_checkpointing,
    )


def _flops(count: float) -> str:
    return f"{count / 1e12:.4g} T" if count >= 1e12 else f"{count / 1e9:.4g} G"


def row(name: str, found: Figures) -> str:
    """A line of the table."""
    cells = (
        f"`{name}`",
        f"{found.parameters / 1e6:.1f} M",
        str(found.batch_size),
        _flops(found.forward_flops),
        _flops(found.forward_flops * found.batch_size),
        f"{found.step_gib:.1f} GiB",
        f"{found.needs_memory_gib:g} GiB{', recomputed' if found.recomputed else ''}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for preset in PRESETS:
        print(row(preset, figures(preset)), flush=True)

"""Whether the ResNets of this project are those of other libraries, and what they cost beside them.

    python tools/evidence/resnet.py [resnet18 resnet50]

With torchvision: parameters and buffers by name, shape and number; logits and gradients of one
training step with the same weights, bit for bit. With transformers: the time of a training step
over that of its network, alternating in one run, median over the turns. A library that is not
installed is left out. The exit code is 1 if a comparison fails; times decide nothing.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.support.presets import preset_of, workload_of

if TYPE_CHECKING:
    from types import ModuleType

SIZES = {"resnet18": ("basic", [2, 2, 2, 2]), "resnet50": ("bottleneck", [3, 4, 6, 3])}
BATCH, PIXELS, TURNS = 8, 128, 7


def step(module: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and gradients by name, of a step in training mode."""
    module.zero_grad()
    output = module(images)
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    cross_entropy(logits, labels).backward()
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return logits.detach(), gradients


def in_channels_last(module: nn.Module) -> nn.Module:
    """The `module` with its weights in that layout."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # a gap in its stub
    return module


def is_torchvisions(own: nn.Module, library: ModuleType, name: str, batch: Any) -> bool:
    """Compare `own` with the network of torchvision that has its weights."""
    other = getattr(library.models, name)()
    mine, theirs = (
        {key: tuple(value.shape) for key, value in module.state_dict().items()}
        for module in (own, other)
    )
    other.load_state_dict(own.state_dict())
    in_channels_last(other)
    (logits, gradients), (their_logits, their_gradients) = (step(m, *batch) for m in (own, other))
    same = {
        "parameters and buffers": mine == theirs,
        "logits": bool(logits.equal(their_logits)),
        "gradients": gradients.keys() == their_gradients.keys()
        and all(gradients[key].equal(their_gradients[key]) for key in gradients),
    }
    for what, is_same in same.items():
        print(f"{name}: {what} {'equal' if is_same else 'DIFFER FROM'} torchvision's")
    return all(same.values())


def time_ratio(own: nn.Module, library: Any, name: str, batch: Any) -> float:
    """Time of a step of `own` over that of transformers' network."""
    layer_type, depths = SIZES[name]
    sizes = {"hidden_sizes": [64, 128, 256, 512]} if layer_type == "basic" else {}
    config = library.ResNetConfig(layer_type=layer_type, depths=depths, num_labels=1000, **sizes)
    other = in_channels_last(library.ResNetForImageClassification(config))
    times: dict[nn.Module, list[float]] = {own: [], other: []}
    for _ in range(TURNS):
        for module, seconds in times.items():
            start = perf_counter()
            step(module.train(), *batch)
            seconds.append(perf_counter() - start)
    return median(times[own][1:]) / median(times[other][1:])


def optional(name: str) -> Any:
    """The library `name`; None, which is printed, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: left out: {error}")
        return None


def main(names: list[str]) -> int:
    """Compare each network; 1 if one differs."""
    torch.manual_seed(0)
    torchvision, transformers = optional("torchvision"), optional("transformers")
    images = torch.randn(BATCH, 3, PIXELS, PIXELS).to(memory_format=torch.channels_last)
    batch = images, torch.arange(BATCH)
    are_same = True
    for name in names:
        own = in_channels_last(workload_of(preset_of(name, "full")).build())
        print(f"{name}: {sum(p.numel() for p in own.parameters()):,} parameters")
        if torchvision is not None:
            are_same &= is_torchvisions(own, torchvision, name, batch)
        if transformers is not None:
            ratio = time_ratio(own, transformers, name, batch)
            print(f"{name}: {ratio:.2f} of the time of transformers' network, {PIXELS} pixels")
    return int(not are_same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [*SIZES]))

"""Lazy imports from libraries of models."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from torch._guards import detect_fake_mode

from gpubench_plugin.core.errors import MissingPackage

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from gpubench_plugin.config.sections import ModelSection

NEEDS_TRANSFORMERS: Final = "with transformers (extra suite)"
NEEDS_DIFFUSERS: Final = "with diffusers (extra suite)"
_OF_NO_EXTRA: Final = frozenset({"timm", "torchvision"})
INSTALL_SUITE: Final = "pip install 'pytest-gpubench[suite]'"


def from_library(section_name: str | None, library: str, *names: str) -> tuple[Any, ...]:
    """Import the attributes `names` of `library` (seconds the first time) for a workload.

    Raises:
        MissingPackage: the library is missing or broken, or too old to have one of `names`.
    """
    try:
        # Lazy imports inside the library raise here, too.
        return tuple(getattr(import_module(library), name) for name in names)
    except (ImportError, RuntimeError, AttributeError) as error:
        package = library.partition(".")[0]
        raise MissingPackage(
            f"{section_name} requires {library}, from which {', '.join(names)} cannot be "
            f"imported ({error})",
            package=package,
            install=f"pip install {package}" if package in _OF_NO_EXTRA else INSTALL_SUITE,
        ) from error


def drawn(
    build: Callable[[Any], nn.Module], config: Any, section: ModelSection, section_name: str | None
) -> nn.Module:
    """A model of transformers, :func:`recomputing`, that `build` makes of its `config`.

    Its weights are random, but for fake ones, which have no values for transformers to inspect.
    """
    (undrawn,) = from_library(section_name, "transformers.initialization", "no_init_weights")
    with undrawn() if detect_fake_mode() else nullcontext():
        return recomputing(build(config), section)


def recomputing(module: nn.Module, section: ModelSection) -> nn.Module:
    """A library's `module`, which recomputes activations per block if the `section` says so.

    Without reentrant autograd. Source: https://docs.pytorch.org/docs/stable/checkpoint.html
    """
    if not section.activation_checkpointing:
        return module
    names = (
        "activation_checkpointing_enable",  # transformers from 5.23, where the old name warns
        "gradient_checkpointing_enable",  # transformers before
        "enable_gradient_checkpointing",  # diffusers
    )
    next(enable for name in names if (enable := getattr(module, name, None)))()
    return module

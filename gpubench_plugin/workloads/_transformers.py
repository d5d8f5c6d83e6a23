"""Lazy imports from transformers and diffusers."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from gpubench_plugin.core.errors import MissingPackage

NEEDS_TRANSFORMERS: Final = "with transformers (extra suite)"
NEEDS_DIFFUSERS: Final = "with diffusers (extra suite)"
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
        raise MissingPackage(
            f"{section_name} requires {library}, from which {', '.join(names)} cannot be "
            f"imported ({error})",
            package=library.partition(".")[0],
            install=INSTALL_SUITE,
        ) from error


def recompute_activations(module: Any) -> None:
    """Enable activation recomputation per block in a library model, without reentrant autograd.

    Source: https://docs.pytorch.org/docs/stable/checkpoint.html
    """
    names = (
        "activation_checkpointing_enable",  # transformers from 5.23, where the old name warns
        "gradient_checkpointing_enable",  # transformers before
        "enable_gradient_checkpointing",  # diffusers
    )
    next(enable for name in names if (enable := getattr(module, name, None)))()

"""Lazy imports from transformers and diffusers."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from gpubench_plugin.errors import Unsupported

NEEDS_TRANSFORMERS: Final = "with transformers (extra suite)"
NEEDS_DIFFUSERS: Final = "with diffusers (extra suite)"


def from_library(section_name: str | None, library: str, *names: str) -> tuple[Any, ...]:
    """Import the attributes `names` of `library`, which takes seconds the first time.

    `section_name` is the workload's, for the message.

    Raises:
        Unsupported: the library is missing or broken, or too old to have one of `names`.
    """
    try:
        # A library that imports its parts when they are asked for raises here, too.
        return tuple(getattr(import_module(library), name) for name in names)
    except (ImportError, RuntimeError, AttributeError) as error:
        raise Unsupported(
            f"{section_name} requires {library}, from which {', '.join(names)} cannot be "
            f"imported ({error}): pip install 'pytest-gpubench[suite]'"
        ) from error


def recompute_activations(module: Any) -> None:
    """Enable activation recomputation per block in a library model.

    Both do it by torch's way that is not reentrant:
    https://docs.pytorch.org/docs/stable/checkpoint.html
    """
    names = (
        "activation_checkpointing_enable",  # transformers from 5.23 on, which warns of its old name
        "gradient_checkpointing_enable",  # transformers before
        "enable_gradient_checkpointing",  # diffusers
    )
    next(enable for name in names if (enable := getattr(module, name, None)))()

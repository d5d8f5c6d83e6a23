"""What the tests on a GPU select from the suite, so that it is checked without one, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Arguments of pytest, and the names of the benchmarks that they select."""

    arguments: tuple[str, ...]
    names: tuple[str, ...]


# Neither compiled nor accumulated: a compilation takes about a minute.
_PLAIN: Final = "channels_last and not compiled and not accumulated"

TINY_TRAINING: Final = Selection(
    arguments=(
        *("-k", f"resnet18_train and {_PLAIN}"),
        "--preset=tiny",
        "--precision=fp32,tf32,amp,bf16",
    ),
    names=tuple(
        f"test_resnet18_train[channels_last-{precision}-ws1]"
        for precision in ("fp32", "tf32", "amp", "bf16")
    ),
)

FULL_TRAINING: Final = Selection(
    arguments=("-k", f"resnet50_train and {_PLAIN}", "--preset=full", "--precision=amp"),
    names=("test_resnet50_train[channels_last-amp-ws1]",),
)

SELECTIONS: Final = {"tiny training": TINY_TRAINING, "full training": FULL_TRAINING}

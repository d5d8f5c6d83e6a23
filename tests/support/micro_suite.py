"""The modules of the suite's single operations."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path(__file__).parents[2] / "benchmarks" / "micro"


def operations(name: str) -> Any:
    """A file of the suite as a module, for example ``test_gemm``."""
    return import_module(f"benchmarks.micro.{name}")


def benchmarks() -> Iterator[tuple[str, Any]]:
    """All benchmark functions with their names."""
    for path in sorted(FOLDER.glob("test_*.py")):
        functions = vars(operations(path.stem)).items()
        yield from ((name, function) for name, function in functions if name.startswith("test_"))

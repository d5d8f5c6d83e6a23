"""The modules of the suite's single operations, which lie outside of any package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path(__file__).parents[2] / "benchmarks" / "micro"


def operations(name: str) -> Any:
    """A file of the suite as a module, for example ``test_gemm``."""
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def benchmarks() -> Iterator[tuple[str, Any]]:
    """All benchmark functions with their names."""
    for path in sorted(FOLDER.glob("test_*.py")):
        functions = vars(operations(path.stem)).items()
        yield from ((name, function) for name, function in functions if name.startswith("test_"))

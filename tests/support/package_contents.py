"""What must be in the wheel and the sdist, and what must not."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

PAGES = "gpubench_plugin/reports/html/templates"
WHEEL = (
    "gpubench_plugin/py.typed",
    "gpubench_plugin/plugin.py",
    "gpubench_plugin/configs/mlp.yaml",
    "gpubench_plugin/configs/resnet50.yaml",
    "gpubench_plugin/datasets/digits.csv.gz",
    "gpubench_plugin/datasets/diabetes_data_raw.csv.gz",
    "gpubench_plugin/datasets/diabetes_target.csv.gz",
    "gpubench_plugin/datasets/asyoulik.txt.gz",
    "gpubench_plugin/datasets/README.md",
    "gpubench_plugin/reports/html/templates/picture.svg.j2",
    *(f"{PAGES}/{name}" for name in ("page.html.j2", "parts.html.j2", "page.css", "page.js")),
    *(f"{PAGES}/vendor/{name}" for name in ("uPlot.iife.min.js", "uPlot.min.css", "vendored.yaml")),
)
LICENCES = ("LICENSE", "gpubench_plugin/datasets/LICENSES.md", f"{PAGES}/vendor/LICENSE")
ENTRIES = (
    "[pytest11]\ngpubench = gpubench_plugin.plugin",
    "gpubench = gpubench_plugin.__main__:main",
)
SDIST = (
    *("README.md", "CHANGELOG.md", "CITATION.cff", "PKG-INFO", "constraints.txt", *LICENCES),
    *("benchmarks/training/test_resnet.py", "tests/conftest.py"),
)
UNWANTED = ("results/2", "__pycache__", ".tox")


def problems_of_wheel(wheel: Path) -> list[str]:
    """What is missing in the wheel, or should not be there."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entries,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        declared = archive.read(entries).decode()
    licences = (f"{entries.partition('/')[0]}/licenses/{name}" for name in LICENCES)
    lacking = [f"wheel lacks {name}" for name in (*WHEEL, *licences) if name not in names]
    lacking += [f"entry points lack {entry!r}" for entry in ENTRIES if entry not in declared]
    return lacking + _unwanted(names)


def problems_of_sdist(sdist: Path) -> list[str]:
    """What is missing in the sdist, or should not be there."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    return [f"sdist lacks {name}" for name in SDIST if name not in names] + _unwanted(names)


def _unwanted(names: list[str]) -> list[str]:
    return [f"{n} should not be packed" for n in names if any(word in n for word in UNWANTED)]

"""Checks what is in the wheel and the sdist; run by ``tox -e package`` with their folder."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

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
    "gpubench_plugin/datasets/LICENSES.md",
)
ENTRIES = (
    "[pytest11]\ngpubench = gpubench_plugin.plugin",
    "gpubench = gpubench_plugin.__main__:main",
)
SDIST = ("README.md", "LICENSE", "constraints.txt", "benchmarks/training/test_resnet.py")
UNWANTED = ("results/2", "__pycache__", ".tox")


def main(folder: Path) -> list[str]:
    """What is missing or should not be there."""
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.namelist()
        (entries,) = (name for name in in_wheel if name.endswith("entry_points.txt"))
        declared = archive.read(entries).decode()
    with tarfile.open(sdist) as archive:
        in_sdist = [name.partition("/")[2] for name in archive.getnames()]
    problems = [f"wheel lacks {name}" for name in WHEEL if name not in in_wheel]
    problems += [f"entry points lack {entry!r}" for entry in ENTRIES if entry not in declared]
    problems += [f"sdist lacks {name}" for name in SDIST if name not in in_sdist]
    return problems + [
        f"{name} should not be packed"
        for name in (*in_wheel, *in_sdist)
        if any(word in name for word in UNWANTED)
    ]


if __name__ == "__main__":
    found = main(Path(sys.argv[1]))
    sys.stderr.writelines(f"{problem}\n" for problem in found)
    sys.exit(bool(found))

"""The tutorial in an empty environment, from the files of a release."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import workflows
from tests.support.documents import GUIDE, ROOT, UNREACHABLE, blocks

if TYPE_CHECKING:
    from pathlib import Path

MAY_FIND_A_DIFFERENCE = ("gpubench compare", "gpubench ab")
"""Commands that end with 1 where a busy machine makes equal code look slower."""


def script() -> str:
    """Files and commands of the page in its order, for a shell that ends at the first failure."""
    lines = []
    for block in blocks(GUIDE / "tutorial.md"):
        if block.file:
            lines += [f'mkdir -p "$(dirname {block.file})"', f"cat > {block.file} <<'END'"]
            lines += [f"{block.text}END"]
        elif block.language == "bash":
            for line in block.text.splitlines():
                must_fail = UNREACHABLE in line.replace('"', "")
                may_fail = must_fail or line.startswith(MAY_FIND_A_DIFFERENCE)
                lines.append(line + " && exit 9" * must_fail + " || test $? = 1" * may_fail)
    return "\n".join(lines)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_tutorial_ends_with_a_gate(kind: str, tmp_path: Path) -> None:
    """Word for word, with nothing installed but what it says, from either file of a release."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", tmp_path / "dist"]
    subprocess.run(build, cwd=ROOT, check=True)
    folder = tmp_path / "empty"
    folder.mkdir()
    environ = {
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "XDG_"))},
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PIP_FIND_LINKS": f"{tmp_path / 'dist'} {os.environ.get('PIP_FIND_LINKS', '')}",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    }
    done = workflows.run(script(), folder, environ)
    assert done.returncode == 0, done.stdout
    assert "gpubench ab: judged" in done.stdout
    assert "gate: cannot judge yet" in done.stdout  # by one pinned run, as the page says
    assert "gate: failed" in done.stdout

"""git, by whoever runs the tests under a name of their own."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "tag.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    """What the command prints in `folder`, where it must succeed."""
    done = subprocess.run(
        ["git", *_IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()

"""Git facts: the measured commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpubench_plugin.environment.redaction import redact
from gpubench_plugin.records import Json

_TIMEOUT_S: Final = 10.0
"""A repository on a slow network disk must not hold up a run for longer."""


OF_HOOKS: Final = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
    )
)
"""Variables by which git tells a hook its repository; they would lead every git there."""

_BRANCH_VARIABLES: Final = ("GITHUB_REF_NAME", "CI_COMMIT_BRANCH")
"""What GitHub and GitLab call the branch; of a change from elsewhere, a fork say, never its own."""


def commit_facts(folder: Path, *, environ: Mapping[str, str] = os.environ) -> Json | None:
    """Commit, branch, uncommitted changes and remote of the repository of `folder`.

    None without git or a repository; a single fact git cannot give is None. `changes` tells one
    set of uncommitted changes from another: the beginning of the SHA-256 of their diff. The remote
    carries no credentials. Where no branch is checked out, as in CI, `environ` may name it.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    remote = _git(folder, "config", "--get", "remote.origin.url")
    return {
        "commit": commit,
        "branch": _git(folder, "branch", "--show-current") or _branch_in_ci(environ),
        "dirty": None if changes is None else bool(changes),
        "changes": _digest(folder) if changes else None,
        "remote": remote and redact(remote),
    }


def _branch_in_ci(environ: Mapping[str, str]) -> str | None:
    if environ.get("GITHUB_REF_TYPE") == "tag":
        return None
    return next((environ[name] for name in _BRANCH_VARIABLES if environ.get(name)), None)


def _digest(folder: Path) -> str | None:
    diff = _git(folder, "diff", "--binary", "--no-ext-diff", "--no-textconv", "HEAD")
    return None if diff is None else sha256(diff.encode()).hexdigest()[:12]


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        output = run_git(folder, *arguments, timeout_s=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return output.decode("utf-8", "backslashreplace").strip()


def run_git(folder: Path, *arguments: str, timeout_s: float) -> bytes:
    """The standard output of git in `folder`, which is asked nothing and takes no optional lock.

    All that the user or a CI tells git by variables holds, ``GIT_CONFIG_COUNT`` with a
    ``safe.directory`` say, but for :data:`OF_HOOKS`.

    Raises:
        OSError, subprocess.SubprocessError: there is no git, it failed, or took too long.
    """
    environ = {name: value for name, value in os.environ.items() if name not in OF_HOOKS}
    done = subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],
        env={**environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=True,
        start_new_session=True,  # a Ctrl-C must not tear it; the caller cleans up
    )
    return done.stdout

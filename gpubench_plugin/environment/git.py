"""Git facts: the measured commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.environment.redaction import redact

_TIMEOUT_S: Final = 10.0
"""Limit for a repository on a slow network disk, which must not hold up a run; not measured."""

HOOK_VARIABLES: Final = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
    )
)
"""Variables by which git points a hook to its repository; they would redirect every git call."""

_BRANCH_VARIABLES: Final = ("GITHUB_REF_NAME", "CI_COMMIT_BRANCH")
"""Branch variables of GitHub and GitLab; for a fork's change they never name the fork's branch."""


def commit_facts(folder: Path, *, environ: Mapping[str, str] = os.environ) -> Json | None:
    """Commit, branch, whether it has uncommitted changes, and remote of the repository of `folder`.

    None without git or a repository; single unknown facts are None. The remote has no credentials.
    In CI, where no branch may be checked out, `environ` names it.
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
        "remote": remote and redact(remote),
    }


def _branch_in_ci(environ: Mapping[str, str]) -> str | None:
    if environ.get("GITHUB_REF_TYPE") == "tag":
        return None
    return next((environ[name] for name in _BRANCH_VARIABLES if environ.get(name)), None)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        output = run_git(folder, *arguments, timeout_s=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return output.decode("utf-8", "backslashreplace").strip()


def run_git(folder: Path, *arguments: str, timeout_s: float) -> bytes:
    """Standard output of git in `folder`, run without prompts and optional locks.

    git sees the user's or CI's variables, such as ``GIT_CONFIG_COUNT`` with a ``safe.directory``,
    except :data:`HOOK_VARIABLES`.

    Raises:
        OSError, subprocess.SubprocessError: git is missing, failed, or timed out.
    """
    environ = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    completed = subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],
        env={**environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=True,
        start_new_session=True,  # Ctrl-C must not interrupt it; the caller cleans up
    )
    return completed.stdout

"""What keeps ``tox -e release`` from calling something a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.git import git
from tools import release

if TYPE_CHECKING:
    from pathlib import Path

CHANGELOG = """# Changelog

## [Unreleased]

- Not yet.

## [0.3.0] - 2027-01-02

- Faster.

### Fixed

- A defect.

## [0.2.0]

- The first.

## [0.1.0] - 2026-01-02
"""


def test_topmost_section_is_rehearsed() -> None:
    """Whatever it is called."""
    assert release.section(CHANGELOG, None) == ("Unreleased", "- Not yet.")


def test_notes_are_those_of_the_version() -> None:
    """With their headings, up to the next version."""
    notes = "- Faster.\n\n### Fixed\n\n- A defect."
    assert release.section(CHANGELOG, "0.3.0") == ("0.3.0", notes)


@pytest.mark.parametrize(
    ("version", "reason"),
    [("0.2.0", "has no date"), ("0.1.0", "is empty"), ("0.4.0", r"has no section \[0\.4\.0\]")],
)
def test_section_must_be_complete(version: str, reason: str) -> None:
    """A version needs one, with a date and notes."""
    with pytest.raises(release.ReleaseError, match=reason):
        release.section(CHANGELOG, version)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose HEAD can be 0.2.0."""
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 0.2.0\n")
    (tmp_path / "pyproject.toml").write_text('[]\nfallback-version = "0.2.0.dev0"\n')
    for command in ("init --quiet", "add .", "commit --quiet --message=one", "tag v0.2.0"):
        git(tmp_path, *command.split())
    return tmp_path


def test_tagged_commit_can_be_released(checkout: Path) -> None:
    """Its tag is HEAD."""
    release.check_tree(checkout, "0.2.0")


def test_everything_must_be_committed(checkout: Path) -> None:
    """Wheel and sdist are built from HEAD, so that anything else would be missing."""
    (checkout / "new.py").touch()
    with pytest.raises(release.ReleaseError, match=r"not committed:\n\?\? new\.py"):
        release.check_tree(checkout, "0.2.0")


def test_version_is_given_once(checkout: Path) -> None:
    """A tag stays where it is."""
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=two")
    with pytest.raises(release.ReleaseError, match=r"v0\.2\.0 is \w{40}, not HEAD"):
        release.check_tree(checkout, "0.2.0")


def test_citation_names_the_version(checkout: Path) -> None:
    """What is cited is what was released."""
    with pytest.raises(release.ReleaseError, match=r"'version: 0\.3\.0'"):
        release.check_tree(checkout, "0.3.0")


def test_builds_must_be_equal(tmp_path: Path) -> None:
    """Whoever builds a tag again gets the same bytes."""
    builds = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = [folder / f"pytest_gpubench-0.2.0{end}" for end in ("-py3-none-any.whl", ".tar.gz")]
        for file in files:
            file.write_text(f"{file.name} of build {number}")
        builds.append(files)
    with pytest.raises(release.ReleaseError, match=r"is not .* of a second build"):
        release.check_files("0.2.0", *builds)
    with pytest.raises(release.ReleaseError, match=r"instead of pytest_gpubench-0\.3\.0-py3"):
        release.check_files("0.3.0", *builds)

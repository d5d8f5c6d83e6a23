"""The version of the package comes from git's tags, and stays in what is built from them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support import package_contents
from tests.support.git import git

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "README.md", "LICENSE", ".gitattributes", ".git_archival.txt")

pytestmark = pytest.mark.slow


def _hatchling(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def _built(wheel: Path) -> str:
    """The version that the wheel's metadata state."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        (version,) = re.findall(r"^Version: (.+)$", archive.read(name).decode(), re.MULTILINE)
    return str(version)


def _copy(folder: Path) -> Path:
    """The package's sources without git."""
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    for name in ("gpubench_plugin", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two commits, the second of which is tagged."""
    folder = _copy(tmp_path_factory.mktemp("version") / "origin")
    git(folder, "init", "--initial-branch=main")
    git(folder, "add", "pyproject.toml")
    git(folder, "commit", "--message=first")
    git(folder, "add", ".")
    git(folder, "commit", "--message=second")
    git(folder, "tag", "--annotate", "v0.2.0", "--message=0.2.0")
    return folder


def test_tagged_commit_has_the_version_of_its_tag(origin: Path) -> None:
    """Exactly that, without a local part."""
    assert _hatchling(origin, "version") == "0.2.0"


def test_later_commit_comes_before_the_next_version(origin: Path, tmp_path: Path) -> None:
    """With the number of commits since the tag, and the commit's hash."""
    git(tmp_path, "clone", str(origin), "later")
    git(tmp_path / "later", "commit", "--allow-empty", "--message=third")
    assert re.fullmatch(r"0\.2\.1\.dev1\+g[0-9a-f]+", _hatchling(tmp_path / "later", "version"))


def test_shallow_clone_without_tags_has_the_fallback(origin: Path, tmp_path: Path) -> None:
    """It knows its commit, but no tag: a development version that comes before the first."""
    git(tmp_path, "clone", "--depth=1", "--no-tags", origin.as_uri(), "shallow")
    found = _hatchling(tmp_path / "shallow", "version")
    assert re.fullmatch(r"0\.2\.0\.dev1\+g[0-9a-f]+", found)


def test_copy_without_git_has_the_fallback(tmp_path: Path) -> None:
    """In another project's repository as well, whose tags say nothing about it."""
    assert _hatchling(_copy(tmp_path / "copy"), "version") == "0.2.0.dev0"
    git(tmp_path, "init", "--initial-branch=main")
    git(tmp_path, "commit", "--allow-empty", "--message=theirs")
    git(tmp_path, "tag", "v9.0")
    assert _hatchling(tmp_path / "copy", "version") == "0.2.0.dev0"


def test_archive_of_a_tag_has_its_version(origin: Path, tmp_path: Path) -> None:
    """As the archives that forges offer for download."""
    git(origin, "archive", f"--output={tmp_path / 'archive.tar'}", "--prefix=archive/", "v0.2.0")
    with tarfile.open(tmp_path / "archive.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    assert _hatchling(tmp_path / "archive", "version") == "0.2.0"


def test_wheel_from_the_sdist_has_its_version(origin: Path, tmp_path: Path) -> None:
    """The sdist carries it; no tag around it changes it, and nothing is missing in the wheel."""
    _hatchling(origin, "build", "--target=sdist", f"--directory={tmp_path / 'dist'}")
    with tarfile.open(tmp_path / "dist" / "pytest_gpubench-0.2.0.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / "pytest_gpubench-0.2.0"
    git(unpacked, "init", "--initial-branch=main")
    git(unpacked, "add", ".")
    git(unpacked, "commit", "--message=vendored")
    git(unpacked, "tag", "v9.0")
    _hatchling(unpacked, "build", "--target=wheel", f"--directory={tmp_path / 'dist'}")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert (wheel.name, _built(wheel)) == ("pytest_gpubench-0.2.0-py3-none-any.whl", "0.2.0")
    assert package_contents.problems_of_wheel(wheel) == []


@pytest.mark.exhaustive  # installs what builds the package
def test_editable_install_of_a_clone_without_tags(origin: Path, tmp_path: Path) -> None:
    """The version that `pip install -e .` in a fresh clone records is the clone's."""
    git(tmp_path, "clone", "--depth=1", "--no-tags", origin.as_uri(), "clone")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", "."],
        cwd=tmp_path / "clone",
        check=True,
    )
    query = "from importlib.metadata import version; print(version('pytest-gpubench'))"
    done = subprocess.run([python, "-c", query], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("0.2.0.dev1+g")

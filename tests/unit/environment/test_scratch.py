"""Of temporary folders, only what a process of ours made that is gone is ever removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.environment import json_files
from gpubench_plugin.environment.process_identity import ProcessIdentity
from gpubench_plugin.environment.scratch import TOKEN, ScratchFolder, leftovers

PREFIX = "gpubench-x-"
ABANDON = """
import os, signal, sys
from pathlib import Path
from gpubench_plugin.environment.scratch import ScratchFolder
folder = ScratchFolder.make(Path(sys.argv[1]), "gpubench-x-", {"colour": "red"})
(folder.path / "sub").mkdir()
(folder.path / "sub/file").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose maker was killed."""
    parent = tmp_path_factory.mktemp("killed")
    subprocess.run([sys.executable, "-c", ABANDON, str(parent)], check=False)
    (path,) = parent.iterdir()
    return path


@pytest.fixture
def left(killed: Path, parent: Path) -> Path:
    """The same in a folder of this test alone, with a token for where it lies."""
    path = parent / killed.name
    shutil.copytree(killed, path)
    rewrite(path, folder=str(path))
    return path


def rewrite(path: Path, **changes: Any) -> None:
    """Change what the token at `path` says."""
    token = json.loads((path / TOKEN).read_text())
    (path / TOKEN).write_text(json.dumps({**token, **changes}))


def test_a_folder_is_its_owners_alone_and_has_a_token(parent: Path) -> None:
    """Mode 0700, directly in the parent; the token says where and whose it is."""
    folder = ScratchFolder.make(parent, PREFIX, {"colour": "red"})
    assert (folder.path.parent, folder.path.stat().st_mode & 0o777) == (parent, 0o700)
    token = json.loads((folder.path / TOKEN).read_text())
    assert token["folder"] == str(folder.path)
    assert ProcessIdentity.from_json(token["owner"]) == ProcessIdentity.current()
    assert token["facts"] == {"colour": "red"}


@pytest.mark.slow
def test_what_a_killed_process_left_is_abandoned(left: Path) -> None:
    """It is found with what its maker wrote down, and removed with all that is in it."""
    (folder,) = leftovers(left.parent, PREFIX)
    assert (folder.path, folder.facts) == (left, {"colour": "red"})
    assert folder.remove()
    assert not left.exists()
    assert folder.remove()


def test_what_a_living_process_has_is_not_abandoned(parent: Path) -> None:
    """However old it is."""
    folder = ScratchFolder.make(parent, PREFIX)
    os.utime(folder.path, (0, 0))
    assert leftovers(parent, PREFIX) == []


def without_token(path: Path) -> None:
    (path / TOKEN).unlink()


def with_a_lock_file_only(path: Path) -> None:
    (path / TOKEN).rename(path / "lock")


def open_to_others(path: Path) -> None:
    path.chmod(0o755)


def copied(path: Path) -> None:
    shutil.copytree(path, path.with_name(f"{PREFIX}copy"))
    shutil.rmtree(path)


def moved(path: Path) -> None:
    path.rename(path.with_name(f"{PREFIX}mine"))


def linked(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to(path.with_name("kept"))


def with_a_linked_token(path: Path) -> None:
    (path / TOKEN).rename(path / "elsewhere")
    (path / TOKEN).symlink_to("elsewhere")


def with_a_pipe_for_a_token(path: Path) -> None:
    (path / TOKEN).unlink()
    os.mkfifo(path / TOKEN)


def with_half_a_token(path: Path) -> None:
    os.truncate(path / TOKEN, 40)


def with_an_endless_token(path: Path) -> None:
    os.truncate(path / TOKEN, 1 << 40)


def with_a_list_for_a_token(path: Path) -> None:
    (path / TOKEN).write_text("[]")


def of_a_later_version(path: Path) -> None:
    rewrite(path, schema_version=2)


def of_nobody(path: Path) -> None:
    rewrite(path, owner=None)


def of(**changes: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        owner = json.loads((path / TOKEN).read_text())["owner"]
        rewrite(path, owner={**owner, **changes})

    spoil.__name__ = f"of_another_{'_'.join(changes)}"
    return spoil


def of_a_living_process(path: Path) -> None:
    """Its number and start; the parent of all tests."""
    me = ProcessIdentity.current()
    assert me is not None
    of(pid=me.pid, started=me.started)(path)


def a_file_of_that_name(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("notes")


@pytest.mark.parametrize(
    "spoil",
    [
        without_token,
        with_a_lock_file_only,
        open_to_others,
        copied,
        moved,
        linked,
        with_a_linked_token,
        with_a_pipe_for_a_token,
        with_half_a_token,
        with_an_endless_token,
        with_a_list_for_a_token,
        of_a_later_version,
        of_nobody,
        of(host="another"),
        of(place="another boot"),
        of(uid=os.geteuid() + 1),
        of_a_living_process,
        a_file_of_that_name,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_all_else_is_left_alone(left: Path, spoil: Callable[[Path], None]) -> None:
    """One thing that is not as ours has it, and nobody takes the folder for abandoned."""
    spoil(left)
    assert leftovers(left.parent, PREFIX) == []


def test_a_number_that_was_given_again_does_not_keep_a_folder(left: Path) -> None:
    """A process with its maker's number and another start is not its maker."""
    of(pid=os.getpid(), started=1)(left)
    assert [folder.path for folder in leftovers(left.parent, PREFIX)] == [left]


def test_a_folder_of_another_user_is_left_alone(left: Path) -> None:
    """Whatever its token says."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(left, 12345, -1)
    assert leftovers(left.parent, PREFIX) == []


def test_a_folder_below_another_one_is_left_alone(left: Path) -> None:
    """Only what lies directly in the folder for temporary files was made there."""
    deeper = left.parent / f"{PREFIX}of-the-user"
    deeper.mkdir(mode=0o700)
    left.rename(deeper / left.name)
    rewrite(deeper / left.name, folder=str(deeper / left.name))
    assert leftovers(left.parent, PREFIX) == []


@pytest.mark.slow
def test_a_folder_in_which_a_process_works_is_left_alone(left: Path) -> None:
    """Somebody who looks at what is left, or a launch that has not ended yet."""
    with subprocess.Popen(["sleep", "60"], cwd=left / "sub") as process:
        assert leftovers(left.parent, PREFIX) == []
        process.kill()
    assert leftovers(left.parent, PREFIX) != []


def test_a_temporary_folder_that_is_a_link_is_its_target(left: Path, tmp_path: Path) -> None:
    """The token has the real path."""
    link = tmp_path / "link"
    link.symlink_to(left.parent)
    assert [folder.path for folder in leftovers(link, PREFIX)] == [left]
    made = ScratchFolder.make(link, PREFIX)
    assert made.path.parent == left.parent


def test_links_in_it_are_not_followed(left: Path, tmp_path: Path) -> None:
    """What they point to is somebody else's."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("mine")
    (left / "link").symlink_to(outside)
    (left / "sub/link").symlink_to(outside / "data")
    (folder,) = leftovers(left.parent, PREFIX)
    assert folder.remove()
    assert (outside / "data").read_text() == "mine"


def test_a_removal_that_is_cut_off_goes_on_later(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token goes last, so what is left is still known to be ours."""
    (folder,) = leftovers(left.parent, PREFIX)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert not folder.remove()
    assert (left / "sub").exists()
    (again,) = leftovers(left.parent, PREFIX)
    assert again.remove()


def test_a_folder_without_its_token_is_not_made(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves nothing that nobody could remove later."""

    def full(path: Path, value: object) -> None:
        raise ResultsError("no space")

    monkeypatch.setattr(json_files, "write_json", full)
    with pytest.raises(ResultsError):
        ScratchFolder.make(parent, PREFIX)
    assert list(parent.iterdir()) == []

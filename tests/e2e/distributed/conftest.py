"""Starting real ranks."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gpubench_plugin
from tests.support import sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., list[Any]]

SCRIPTS = Path(__file__).parent / "ranks"
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")


def environment_of_ranks() -> dict[str, str]:
    """An environment for ranks: of this checkout, one thread each, in no other world."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*OF_LAUNCHERS, "GLOO_"))}
    checkout = str(Path(gpubench_plugin.__file__).parents[1])
    path = os.pathsep.join(filter(None, (checkout, kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def torchrun(tmp_path: Path) -> Run:
    """Run a script of the folder ``ranks`` on some ranks; what each wrote, in their order."""

    def run(script: str, ranks: int = 2) -> list[Any]:
        return found_by(script, tmp_path, ranks)

    return run


def found_by(script: str, folder: Path, ranks: int = 2) -> list[Any]:
    """What each rank of torchrun that ran a script of the folder ``ranks`` wrote into a folder."""
    arguments = (f"--nproc-per-node={ranks}", "--standalone", str(SCRIPTS / script), str(folder))
    with sessions.surroundings(folder, environment_of_ranks()):
        code, out, err = sessions.torchrun(*arguments, within_s=400)
    assert code == 0, out + err
    return read_ranks(folder, ranks)


def found_once(script: str, factory: pytest.TempPathFactory) -> list[Any]:
    """What each of two ranks found, which the first process of these tests that asks starts."""
    own = factory.getbasetemp()
    folder = (own.parent if own.name.startswith("popen-") else own) / Path(script).stem
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            found_by(script, folder)
            (folder / "done").touch()
    return read_ranks(folder)


@pytest.fixture(scope="session")
def equivalence(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of two ranks found in the script ``equivalence.py``, which runs once."""
    return found_once("equivalence.py", tmp_path_factory)


def read_ranks(folder: Path, ranks: int = 2) -> list[Any]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]

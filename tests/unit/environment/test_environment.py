"""Tests of ``system.json``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gpubench_plugin.core import records
from gpubench_plugin.environment.system_facts import collect

pytestmark = pytest.mark.slow


ROOT = Path(records.__file__).parents[2]


def in_new_process(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_facts_are_json(tmp_path: Path) -> None:
    """All facts survive a round trip through JSON."""
    facts = collect(tmp_path)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    assert facts["memory_bytes"] == int(meminfo.split()[1]) * 1024


def test_versions_are_the_installed_ones(tmp_path: Path) -> None:
    """Python and the packages are recorded with their versions; a missing package is left out."""
    facts = collect(tmp_path)
    assert facts["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["packages"]["torch"] == version("torch")
    assert None not in facts["packages"].values()


def test_secrets_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret of the environment is anywhere in the facts, harmless settings are."""
    environ = {"HF_TOKEN": "hunter2", "TORCH_PASSWORD": "hunter2", "OMP_NUM_THREADS": "2"}
    monkeypatch.setattr(os, "environ", environ)
    facts = collect(tmp_path)
    assert facts["environment_variables"] == {"OMP_NUM_THREADS": "2"}
    assert "hunter2" not in json.dumps(facts)


def test_other_plugins_add_facts(tmp_path: Path) -> None:
    """Facts of others are added, as JSON values."""
    facts = collect(tmp_path, extra_facts={"rack": (1, "b"), "hostname": "anonymous"})
    assert (facts["rack"], facts["hostname"]) == ([1, "b"], "anonymous")


def test_torch_is_not_imported() -> None:
    """Collecting the facts imports no torch, and says that torch was not there to be asked."""
    output = in_new_process(
        "import pathlib, sys\n"
        "from gpubench_plugin.environment.system_facts import collect\n"
        "facts = collect(pathlib.Path('.'))\n"
        "print(facts['torch'], 'torch' in sys.modules)\n"
    )
    assert output == "None False"


def test_imported_torch_is_asked_without_cuda() -> None:
    """Torch that is imported tells versions and threads, and CUDA stays uninitialised."""
    output = in_new_process(
        "import pathlib, torch\n"
        "from gpubench_plugin.environment.system_facts import collect\n"
        "facts = collect(pathlib.Path('.'))['torch']\n"
        "same = facts['version'] == torch.__version__ and facts['cuda'] == torch.version.cuda\n"
        "print(same, facts['threads'], torch.cuda.is_initialized())\n"
    )
    assert output == "True 1 False"


@pytest.mark.parametrize("room", ["results", "reports"])
def test_room_is_cheap_to_import(room: str) -> None:
    """The room imports none of the heavy libraries; only the records of two files need pydantic."""
    output = in_new_process(
        "import importlib, pkgutil, sys\n"
        f"import gpubench_plugin.{room} as room\n"
        "for found in pkgutil.iter_modules(room.__path__):\n"
        "    if found.name not in {'summary', 'journal_schema'}:\n"
        "        importlib.import_module(f'{room.__name__}.{found.name}')\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'yaml', 'sqlalchemy'} & set(sys.modules)))\n"
    )
    assert output == "[]"

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config import files
from gpubench_plugin.core.errors import UsageProblem

if TYPE_CHECKING:
    from pathlib import Path


def folder(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).touch()
    return path


def test_the_first_directory_with_the_name_wins(tmp_path: Path) -> None:
    """A directory given as ``--config`` precedes the root's, and ours come last."""
    first = folder(tmp_path / "a", "vit.yaml")
    second = folder(tmp_path / "b", "mlp.yaml", "vit.yaml")
    found = [files.find(name, [first, second]) for name in ("vit", "mlp")]
    assert found == [first / "vit.yaml", second / "mlp.yaml"]
    given = folder(tmp_path / "given", "mlp.yaml")
    order = files.search_path([given, given / "mlp.yaml"], tmp_path)
    assert order == (given, tmp_path / "configs", files.bundled_configs())
    assert sorted(files.bundled_configs().glob("*.yaml")) != []


def test_a_missing_name_lists_what_is_there(tmp_path: Path) -> None:
    """The directories, the nearest match and all names there are; a path is no name."""
    among = [folder(tmp_path / "a", "mlp.yaml"), folder(tmp_path / "b", "vit.yaml", "x.txt")]
    with pytest.raises(UsageProblem) as caught:
        files.find("mpl", [*among, tmp_path / "none"])
    for said in (
        "'mpl': no file mpl.yaml (did you mean 'mlp'?)",
        f"{tmp_path}/none; available: mlp",
    ):
        assert said in str(caught.value)
    with pytest.raises(UsageProblem, match="it contains no configurations"):
        files.find("../a/mlp", [folder(tmp_path / "c")])

"""The registry of components: modules of this package, and entry points of others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin import catalog
from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from pathlib import Path

MINE = """
from gpubench_plugin.precision.base import Precision
class Mine(Precision):
    name = "mine"
    compute_dtype = "fp32"
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The entry points of another distribution, to be filled."""
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (tmp_path / "other_precision.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_precision", raising=False)
    return info / "entry_points.txt"


@pytest.mark.parametrize("kind", catalog.kinds())
def test_every_component_loads_and_is_of_its_kind(kind: str) -> None:
    """Every name offered can be loaded, and names one class."""
    for name in catalog.choices(kind):
        assert isinstance(catalog.load(kind, name), type)


def test_unknown_name_is_refused_with_the_nearest() -> None:
    """The message lists what there is."""
    with pytest.raises(UsageProblem, match=r"unknown 'bf61' \(did you mean 'bf16'\?\)"):
        catalog.load("precision", "bf61")


def test_entry_point_adds_a_component(distribution: Path) -> None:
    """Another distribution's component is offered and loaded like ours."""
    distribution.write_text("[gpubench.precision]\nmine = other_precision:Mine\n")
    assert "mine" in catalog.choices("precision")
    assert catalog.load("precision", "mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("mine = nowhere:Mine", "No module named 'nowhere'"),
        ("mine = other_precision:Yours", "Yours"),
        ("mine = os:getcwd", "must name a subclass of Precision"),
    ],
)
def test_broken_entry_point_is_refused(distribution: Path, target: str, said: str) -> None:
    """What cannot be loaded, or is no component, is named with the reason."""
    distribution.write_text(f"[gpubench.precision]\n{target}\n")
    with pytest.raises(UsageProblem, match=f"gpubench.precision:mine.*{said}"):
        catalog.load("precision", "mine")


def test_entry_point_cannot_take_a_built_in_name(distribution: Path) -> None:
    """A name means the same on every machine, else results of it could not be compared."""
    distribution.write_text("[gpubench.precision]\nfp32 = other_precision:Mine\n")
    with pytest.raises(UsageProblem, match="fp32 takes a built-in name"):
        catalog.load("precision", "fp32")

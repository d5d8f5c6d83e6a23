"""The registry of components: modules of this package, and entry points of others."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.training.schedulers.base import LearningRateSchedule

if TYPE_CHECKING:
    from pathlib import Path


MINE = """
from gpubench_plugin.measure.metrics import MetricSource, metrics
from gpubench_plugin.precision.base import Precision
class Mine(Precision):
    name = "mine"
    compute_dtype = "fp32"
class Old(MetricSource):
    name = "old"
@metrics("somewhere", calls="Timed calls")
def my_calls(observation):
    'Calls.'
    return []
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
    """Every name offered can be loaded, and names one class or one function."""
    for name in catalog.choices(kind):
        assert isinstance(catalog.load(kind, name), type | catalog.Function)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bf61", " (did you mean 'bf16'?)"),
        ("AMP", " (did you mean 'amp'?)"),
        ("fp16", " (did you mean 'amp' or 'fp16-true'?)"),
        ("Float16", " (did you mean 'amp' or 'fp16-true'?)"),
        ("half", " (did you mean 'amp' or 'fp16-true'?)"),
        ("bfloat16", " (did you mean 'bf16' or 'bf16-true'?)"),
        ("mixed", " (did you mean 'amp' or 'bf16'?)"),
        ("fp8", ""),
        ("double", " (did you mean 'fp64'?)"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    """In meaning before spelling: fp16 is not near fp32, and nothing is near fp8."""
    message = f"unknown precision {name!r}{hint}; allowed: amp, bf16"
    with pytest.raises(UsageProblem, match=re.escape(message)):
        catalog.load("precision", name)


def test_entry_point_adds_a_function(distribution: Path) -> None:
    """A decorated function is a component: its name, docstring, place and metrics are kept."""
    distribution.write_text("[gpubench.metrics]\nmy-calls = other_precision:my_calls\n")
    source = catalog.load("metrics", "my-calls")
    assert (source.name, source.__doc__, source.where) == ("my-calls", "Calls.", "somewhere")
    assert (source.produces, source(None)) == ({"calls": "Timed calls"}, [])


@pytest.mark.parametrize("target", ["os:getcwd", "other_precision:Old", "other_precision:Mine"])
def test_entry_point_without_the_decorator_is_refused(distribution: Path, target: str) -> None:
    """A plain function, or a class of its own, is no source of metrics."""
    distribution.write_text(f"[gpubench.metrics]\nmine = {target}\n")
    with pytest.raises(UsageProblem, match=r"metrics:mine .* decorated with .*metrics"):
        catalog.load("metrics", "mine")


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("mine", "nowhere:Mine", "gpubench.precision:mine.*No module named 'nowhere'"),
        ("mine", "other_precision:Yours", "gpubench.precision:mine.*Yours"),
        ("mine", "os:getcwd", "gpubench.precision:mine.*must name a subclass of Precision"),
        ("fp32", "other_precision:Mine", "fp32 uses the name of a built-in component"),
    ],
)
def test_broken_entry_point_is_refused(
    distribution: Path, name: str, target: str, said: str
) -> None:
    """What cannot be loaded, is no component, or takes a built-in name, with the reason."""
    distribution.write_text(f"[gpubench.precision]\n{name} = {target}\n")
    with pytest.raises(UsageProblem, match=said):
        catalog.load("precision", name)


@pytest.mark.parametrize("base", [LearningRateSchedule, Format, MetricSource])
def test_a_decorator_is_imported_by_the_name_in_messages(base: type[catalog.Function]) -> None:
    """The message about a function that lacks it tells authors of plugins what to import."""
    module, name = base.decorator.rsplit(".", 1)
    assert callable(getattr(import_module(module), name))

from __future__ import annotations

from typing import Literal

import pytest

from gpubench_plugin.config.resolution import override_layer
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.core.errors import UsageProblem


class Widths(ModelSection):
    widths: tuple[int, ...] = ()
    size: int | Literal["auto"] = "auto"
    sizes: dict[str, int] = {}  # noqa: RUF012 # pydantic copies defaults


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training.batch_size=64", {"training": {"batch_size": 64}}),
        ("training.learning_rate=1e-3", {"training": {"learning_rate": 0.001}}),
        ("training.steps=null", {"training": {"steps": None}}),
        ("training.steps=", {"training": {"steps": None}}),
        ("measure.gc=true", {"measure": {"gc": True}}),
        ("measure.gc=yes", {"measure": {"gc": "yes"}}),
        ("model.widths=[64, 128]", {"model": {"widths": [64, 128]}}),
        ("model.size=4", {"model": {"size": 4}}),
        ("model.size=auto", {"model": {"size": "auto"}}),
        ("model.sizes.a=4", {"model": {"sizes": {"a": 4}}}),
        ("model.name=null", {"model": {"name": None}}),
        ("model.name=1", {"model": {"name": "1"}}),
        ("experiment.notes=a: [b = 1", {"experiment": {"notes": "a: [b = 1"}}),
        ("experiment.notes=null", {"experiment": {"notes": "null"}}),
        ("experiment.notes=", {"experiment": {"notes": ""}}),
        ("measure.by=ci", {"measure": {"by": "ci"}}),
        ("training.batch_size=[1", {"training": {"batch_size": "[1"}}),
        ("training.no=1", {"training": {"no": "1"}}),
        (" training.batch_size = 64", {"training": {"batch_size": 64}}),
    ],
)
def test_the_schema_types_the_text(text: str, expected: dict[str, object]) -> None:
    """A key of text takes the text as it is, any other key takes it as YAML."""
    layer = override_layer(text, Configuration[Widths])
    assert layer.values == expected


@pytest.mark.parametrize(
    "text", ["training.steps", "training=3", "=3", "training..steps=3", ".a=1", "a-b.c=1", ""]
)
def test_what_is_no_override_is_refused(text: str) -> None:
    """Without a dotted key and ``=`` the message shows the form and an example."""
    with pytest.raises(UsageProblem, match=rf"^--set={text}: .*section.key=value, for example"):
        override_layer(text, Configuration)


def test_bytes_that_are_no_characters_are_refused() -> None:
    """The message can be printed, and says what is allowed."""
    with pytest.raises(UsageProblem) as caught:
        override_layer("experiment.notes=\udcff", Configuration)
    assert str(caught.value).startswith(
        r"--set=experiment.notes=\udcff: not allowed; allowed: text"
    )

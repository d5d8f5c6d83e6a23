from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpubench_plugin.config import resolved_file, yaml_reader
from gpubench_plugin.config.sections import (
    Configuration,
    ExperimentSection,
    ModelSection,
    TrainingSection,
)

TEXTS = ["1e-3", "0o17", "yes", "on", "1_000", "2024-01-01", "null", "~", "", "a: b\n- c", "é", "="]


def configuration(notes: str) -> Configuration[ModelSection]:
    return Configuration[ModelSection](
        experiment=ExperimentSection(notes=notes),
        model=ModelSection(name="mlp"),
        training=TrainingSection(learning_rate=1e-5, gradient_clipping=1e22),
    )


def test_what_is_written_is_read_back_equal() -> None:
    """Every resolved configuration survives YAML, also texts that look like other things."""
    written = {f"benchmarks/test_{n}.py::test[{n}]": configuration(t) for n, t in enumerate(TEXTS)}
    read = yaml_reader.parse(resolved_file.to_yaml(written), "config_resolved.yaml")
    restored = {
        node_id: Configuration[ModelSection].model_validate(values, strict=False)
        for node_id, values in read.items()
    }
    assert restored == written


def test_any_yaml_reader_reads_the_same_texts() -> None:
    """A reader of YAML 1.1, where ``on`` is a boolean, reads the same texts."""
    written = {text: configuration(text) for text in TEXTS}
    read = yaml.safe_load(resolved_file.to_yaml(written))
    assert [values["experiment"]["notes"] for values in read.values()] == TEXTS


def test_the_order_is_kept() -> None:
    """Node ids keep the order of the run and keys the order of the schema."""
    read = yaml_reader.parse(
        resolved_file.to_yaml({"b": configuration(""), "a": configuration("")}), "x"
    )
    assert (list(read), list(read["a"])) == (["b", "a"], list(Configuration.model_fields))


def test_equal_configurations_are_written_out_each() -> None:
    """No anchors: each benchmark's configuration can be read where it stands."""
    same = configuration("x")
    assert "&" not in resolved_file.to_yaml({"a": same, "b": same})


LONG = "benchmarks/test_it.py::test_it[" + "a b-" * 400 + "ws1]"
IDS = [
    "test_it.py::test[yes-1e-3]",
    "é: #",
    LONG,
    "-",
    "? x",
    "\x1b[0m",
    "\U0001f600\n",
    "a:",
    "",
    "1",
]


def plain(configurations: dict[str, Configuration[ModelSection]]) -> dict[str, Any]:
    return {node_id: each.model_dump(mode="json") for node_id, each in configurations.items()}


class Loads:
    """Loads YAML, and counts how often."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> Any:
        self.texts.append(text)
        return yaml.load(text, Loader=yaml.CSafeLoader)


def test_a_configuration_of_many_benchmarks_is_turned_into_text_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100 benchmarks with two configurations two are dumped: 5,000 took 18 s each for itself."""
    dumped: list[Any] = []
    whole = yaml.dump

    def counting(values: dict[str, Any], **keys: Any) -> Any:
        dumped.extend(value for value in values.values() if value is not None)
        return whole(values, **keys)

    monkeypatch.setattr(yaml, "dump", counting)
    written = {f"test_{n}": configuration(str(n % 2)) for n in range(100)}
    text = resolved_file.to_yaml(written)
    assert len(dumped) == 2
    assert plain(written) == resolved_file.from_yaml(text, Loads())


def test_the_text_is_what_one_dump_of_all_would_be() -> None:
    """Whatever reads such files has nothing new to learn."""
    written = {f"test_{n}[ws1]": configuration(text) for n, text in enumerate(TEXTS)}
    assert resolved_file._text(plain(written)) == resolved_file.to_yaml(written)


@pytest.mark.parametrize("node_id", IDS)
def test_any_node_id_is_read_back(node_id: str) -> None:
    """Also one that is too long for a simple key, and by any reader."""
    written = {"first": configuration("1"), node_id: configuration("2"), "last": configuration("3")}
    text = resolved_file.to_yaml(written)
    assert plain(written) == yaml.safe_load(text) == resolved_file.from_yaml(text, Loads())


def test_an_id_that_is_no_unicode_is_written_as_in_the_journal() -> None:
    """Of a file whose name is not UTF-8."""
    text = resolved_file.to_yaml({"test_\udcff.py::test": configuration("")})
    assert list(yaml.safe_load(text)) == ["test_\\udcff.py::test"]


def test_equal_configurations_are_loaded_once() -> None:
    """Of many benchmarks of one configuration the text of that is parsed once, and shared."""
    loads = Loads()
    text = resolved_file.to_yaml({f"test_{n}": configuration(str(n % 2)) for n in range(100)})
    read = resolved_file.from_yaml(text, loads)
    assert len(loads.texts) == 100 + 2
    assert read["test_0"] is read["test_98"]
    assert (read["test_0"]["experiment"]["notes"], read["test_1"]["experiment"]["notes"]) == (
        "0",
        "1",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}\n",
        "# by hand\na:\n  x: 1\n",
        "a: &one\n  x: 1\nb: *one\n",
        "a:\n  x: &one 1\nb:\n  x: *one\n",
        "a:\n  x: 1\na:\n  x: 2\n",
        "a: {x: 1}\nb:\n  x: 1\n",
        "? a\n: x: 1\n",
        "a:\n- 1\n",
        "a:\n  x: 1",
        "a: |\n  x:\nb:\n  y: 1\n",
        "'a:\n  x:'\n",
        "a:\n  'x\n\n  y'\n",
    ],
)
def test_what_is_written_otherwise_is_read_as_a_whole(text: str) -> None:
    """By hand, by another version: what any reader of YAML makes of it."""
    assert yaml.safe_load(text) == resolved_file.from_yaml(text, Loads())


@pytest.mark.parametrize("text", ["a: [", "a:\n  x: *gone\n", "a:\n\tx: 1\n", "a:\n  b\n c: d\n"])
def test_what_is_wrong_is_said_of_the_whole(text: str) -> None:
    """The line that an error names is the file's."""
    with pytest.raises(yaml.YAMLError) as whole:
        yaml.load(text, Loader=yaml.CSafeLoader)
    with pytest.raises(yaml.YAMLError) as error:
        resolved_file.from_yaml(text, Loads())
    assert str(whole.value) == str(error.value)

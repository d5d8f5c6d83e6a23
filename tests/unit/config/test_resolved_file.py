"""``config_resolved.yaml``: written once per run, and read by any reader of YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from gpubench_plugin.config import yaml_reader
from gpubench_plugin.config.sections import (
    Configuration,
    ExperimentSection,
    ModelSection,
    TrainingSection,
)
from gpubench_plugin.core.errors import BrokenFile

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["1e-3", "0o17", "yes", "on", "1_000", "2024-01-01", "null", "~", "", "a: b\n- c", "é", "="]
IDS = [
    *("test_it.py::test[yes-1e-3]", "é: #", "-", "? x", "\x1b[0m", "\U0001f600\n", "a:", "", "1"),
    "benchmarks/test_it.py::test_it[" + "a b-" * 400 + "fp32]",
]


def configuration(notes: str) -> Configuration[ModelSection]:
    """A configuration with these notes."""
    return Configuration[ModelSection](
        experiment=ExperimentSection(notes=notes),
        model=ModelSection(name="mlp"),
        training=TrainingSection(learning_rate=1e-5, gradient_clipping=1e22),
    )


@pytest.mark.parametrize("values", [dict(zip(TEXTS, TEXTS, strict=True)), dict.fromkeys(IDS, "")])
def test_what_is_written_is_read_back_equal(tmp_path: Path, values: dict[str, str]) -> None:
    """By us and by any reader, in order, also ids and texts that look like something else."""
    written = {node_id: configuration(notes) for node_id, notes in values.items()}
    path = tmp_path / "config_resolved.yaml"
    path.write_text(yaml_reader.to_yaml(written), encoding="utf-8")
    plain = {node_id: each.model_dump(mode="json") for node_id, each in written.items()}
    read = yaml_reader.read_resolved(path)
    assert read == yaml.safe_load(path.read_text(encoding="utf-8")) == plain
    assert (list(read), list(read[next(iter(read))])) == (
        list(written),
        [name for name in Configuration.model_fields if name != "engine"],
    )


def test_equal_configurations_are_written_and_read_once(tmp_path: Path) -> None:
    """5,000 benchmarks of few configurations make a small file, and share what is read."""
    same = {f"test_{n}": configuration(str(n % 2)) for n in range(5000)}
    path = tmp_path / "config_resolved.yaml"
    path.write_text(yaml_reader.to_yaml(same), encoding="utf-8")
    assert path.stat().st_size < 200_000
    read = yaml_reader.read_resolved(path)
    assert read["test_0"] is read["test_4998"]
    assert read["test_1"]["experiment"]["notes"] == "1"
    text = yaml_reader.to_yaml({"test_\udcff.py::test": configuration("")})
    assert list(yaml.safe_load(text)) == ["test_\\udcff.py::test"]


@pytest.mark.parametrize("text", ["- a", "", "a: *b", "a: !!binary aGk=", "a: [1"])
def test_a_damaged_file_is_one_error(tmp_path: Path, text: str) -> None:
    """With the path."""
    path = tmp_path / "config_resolved.yaml"
    path.write_text(text)
    with pytest.raises(BrokenFile, match=str(path)):
        yaml_reader.read_resolved(path)
    with pytest.raises(BrokenFile, match="gone"):
        yaml_reader.read_resolved(tmp_path / "gone")

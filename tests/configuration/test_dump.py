from __future__ import annotations

import yaml

from gpubench_plugin.configuration import dump, reading
from gpubench_plugin.configuration.schema import (
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
    read = reading.parse(dump.to_yaml(written), "config_resolved.yaml")
    restored = {
        node_id: Configuration[ModelSection].model_validate(values, strict=False)
        for node_id, values in read.items()
    }
    assert restored == written


def test_any_yaml_reader_reads_the_same_texts() -> None:
    """A reader of YAML 1.1, where ``on`` is a boolean, reads the same texts."""
    written = {text: configuration(text) for text in TEXTS}
    read = yaml.safe_load(dump.to_yaml(written))
    assert [values["experiment"]["notes"] for values in read.values()] == TEXTS


def test_the_order_is_kept() -> None:
    """Node ids keep the order of the run and keys the order of the schema."""
    read = reading.parse(dump.to_yaml({"b": configuration(""), "a": configuration("")}), "x")
    assert (list(read), list(read["a"])) == (["b", "a"], list(Configuration.model_fields))


def test_equal_configurations_are_written_out_each() -> None:
    """No anchors: each benchmark's configuration can be read where it stands."""
    same = configuration("x")
    assert "&" not in dump.to_yaml({"a": same, "b": same})

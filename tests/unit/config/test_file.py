"""Configuration files: what is in one, and how it is found by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config import files
from gpubench_plugin.config.files import ConfigurationFile
from gpubench_plugin.config.layers import Layer
from gpubench_plugin.core.errors import UsageProblem

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, text: str) -> ConfigurationFile:
    path = folder / "x.yaml"
    path.write_text(text)
    return ConfigurationFile.load(path, "configs/x.yaml")


def test_a_file_is_its_base_and_then_its_preset(tmp_path: Path) -> None:
    """A preset is a layer above the base, if it is there, without the memory that it needs."""
    file = load(tmp_path, "training: {steps: 1}\npresets: {full: {training: {steps: 2}}}")
    assert file.layers("full") == [
        Layer(source="configs/x.yaml", values={"training": {"steps": 1}}),
        Layer(source="configs/x.yaml preset full", values={"training": {"steps": 2}}),
    ]
    file = load(tmp_path, "training: {steps: 1}")
    assert [layer.source for layer in file.layers("tiny")] == ["configs/x.yaml"]
    file = load(tmp_path, "presets: {full: {needs_memory_gib: 24, model: {name: mlp}}}")
    assert (file.needs_memory_gib, file.presets) == (
        {"full": 24.0},
        {"full": {"model": {"name": "mlp"}}},
    )


@pytest.mark.parametrize(
    ("presets", "expected"),
    [("{}", ("tiny", "full")), ("{full: {}}", ("full",)), ("{tiny: {}}", ("tiny",))],
)
def test_a_file_without_presets_offers_all(
    tmp_path: Path, presets: str, expected: tuple[str, ...]
) -> None:
    """A file that names presets offers those; one that names none serves with any."""
    assert load(tmp_path, f"presets: {presets}").presets_offered() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presets: 3", "presets: 3 is not allowed; allowed: a mapping of presets by name"),
        ("presets: {ful: {}}", "unknown preset 'ful' (did you mean 'full'?); allowed: tiny, full"),
        (
            "presets: {full: [1]}",
            "presets.full: [1] is not allowed; allowed: a mapping",
        ),
        (
            "presets: {full: {needs_memory_gib: much}}",
            'presets.full.needs_memory_gib: "much" is not',
        ),
        ("presets: {full: {needs_memory_gib: true}}", "presets.full.needs_memory_gib: true is not"),
        (
            "presets: {full: {needs_memory_gib: 0}}",
            "presets.full.needs_memory_gib: 0 is not allowed",
        ),
    ],
)
def test_bad_presets_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The message has the file, the dotted key, the value and what is allowed."""
    with pytest.raises(UsageProblem, match=re.escape(f"configs/x.yaml: {message}")):
        load(tmp_path, text)


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

"""Configuration files: one YAML file's base and presets, and the lookup by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from gpubench_plugin.config.explain import shown
from gpubench_plugin.config.layers import Layer
from gpubench_plugin.config.sections import Preset
from gpubench_plugin.config.yaml_reader import read
from gpubench_plugin.errors import UsageProblem, nearest, not_one_of

PRESETS: tuple[Preset, ...] = get_args(Preset)

_NEEDS = "needs_memory_gib"


@dataclass(frozen=True, kw_only=True)
class ConfigurationFile:
    """What a file says; `needs_memory_gib` holds the device memory a preset names, in GiB."""

    label: str
    base: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs_memory_gib: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, label: str) -> ConfigurationFile:
        """The file at `path`, which messages call `label`.

        Raises:
            UsageProblem: it is not valid YAML, or its ``presets`` are not sections by preset.
        """
        base = read(path, label)
        presets = base.pop("presets", {})
        if not isinstance(presets, dict):
            raise _not_a_mapping(label, "presets", presets, "presets by name")
        needs = {}
        for name, preset in presets.items():
            if name not in PRESETS:
                raise not_one_of(f"{label}: presets", name, PRESETS)
            if not isinstance(preset, dict):
                raise _not_a_mapping(label, f"presets.{name}", preset, "sections")
            if _NEEDS in preset:
                needs[name] = _memory(label, name, preset.pop(_NEEDS))
        return cls(label=label, base=base, presets=presets, needs_memory_gib=needs)

    def offered(self) -> tuple[Preset, ...]:
        """The presets the file offers; one that names none does not care, and offers all."""
        return tuple(name for name in PRESETS if name in self.presets) or PRESETS

    def layers(self, preset: Preset) -> list[Layer]:
        """The base, and the `preset` if the file has it."""
        own = self.presets.get(preset)
        base = Layer(source=self.label, values=self.base)
        if own is None:
            return [base]
        return [base, Layer(source=f"{self.label} preset {preset}", values=own)]


def _memory(label: str, preset: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        key = f"presets.{preset}.{_NEEDS}"
        message = f"{label}: {key}: {shown(value)} is not allowed; allowed: a number above 0"
        raise UsageProblem(message)
    return float(value)


def _not_a_mapping(label: str, key: str, value: object, of: str) -> UsageProblem:
    return UsageProblem(
        f"{label}: {key}: {shown(value)} is not allowed; allowed: a mapping of {of}"
    )


def directories(given: Sequence[Path], rootdir: Path) -> tuple[Path, ...]:
    """The folders searched, first match first.

    They are the directories `given` as ``--config``, ``<rootdir>/configs``, and the
    configurations this project ships.
    """
    return (*(path for path in given if path.is_dir()), rootdir / "configs", shipped())


def shipped() -> Path:
    """The folder of our own configurations: in the installed package, else in the checkout."""
    package = Path(__file__).parent.parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def find(name: str, among: Sequence[Path]) -> Path:
    """The file ``<name>.yaml`` in the first of the directories `among` that has it.

    Raises:
        UsageProblem: none has it; the message names the directories and what they hold.
    """
    found = [{path.stem: path for path in folder.glob("*.yaml")} for folder in among]
    for files in found:
        if name in files:
            return files[name]
    there = sorted(set().union(*found))
    searched = ", ".join(dict.fromkeys(map(str, among)))
    held = f"there: {', '.join(there)}" if there else "no configuration is there"
    message = f"config {name!r}: no file {name}.yaml{nearest(name, there)} in {searched}; {held}"
    raise UsageProblem(message)


def overlay(path: Path) -> Path:
    """The file `path` given as ``--config``.

    Raises:
        UsageProblem: there is no such file; the message names the one like it beside it.
    """
    if path.is_file():
        return path
    hint = nearest(path.name, [file.name for file in path.parent.glob("*.y*ml")])
    message = f"--config={path}: no such file{hint}; allowed: a YAML file, or a directory of them"
    raise UsageProblem(message)

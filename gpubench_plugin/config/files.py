"""Configuration files: one YAML file's base and presets, and the lookup by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from gpubench_plugin.config.layers import Layer
from gpubench_plugin.config.marks import Preset
from gpubench_plugin.config.schema_errors import as_yaml
from gpubench_plugin.config.yaml_reader import read
from gpubench_plugin.core.errors import UsageProblem, invalid_choice, suggest

PRESETS: tuple[Preset, ...] = get_args(Preset)

_NEEDS = "needs_memory_gib"


@dataclass(frozen=True, kw_only=True)
class ConfigurationFile:
    """A configuration file; `needs_memory_gib` is the device memory each preset needs, in GiB."""

    label: str
    base: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs_memory_gib: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, label: str) -> ConfigurationFile:
        """Load the file at `path`, called `label` in messages.

        Raises:
            UsageProblem: it is not valid YAML, or its ``presets`` are not sections by preset.
        """
        base = read(path, label)
        presets = base.pop("presets", {})
        if not isinstance(presets, dict):
            raise _refused(label, "", presets, "a mapping of presets by name")
        memory_needs = {}
        for name, preset in presets.items():
            if name not in PRESETS:
                raise invalid_choice(label, name, PRESETS, noun="preset ")
            if not isinstance(preset, dict):
                raise _refused(label, name, preset, "a mapping of sections")
            if _NEEDS in preset:
                needs = preset.pop(_NEEDS)
                if isinstance(needs, bool) or not isinstance(needs, int | float) or needs <= 0:
                    raise _refused(label, f"{name}.{_NEEDS}", needs, "a number above 0")
                memory_needs[name] = float(needs)
        return cls(label=label, base=base, presets=presets, needs_memory_gib=memory_needs)

    def presets_offered(self) -> tuple[Preset, ...]:
        """Presets in the file; all of them if it defines none."""
        return tuple(name for name in PRESETS if name in self.presets) or PRESETS

    def layers(self, preset: Preset) -> list[Layer]:
        """The base layer, and that of the `preset` if defined."""
        layers = [Layer(source=self.label, values=self.base)]
        if preset in self.presets:
            source = f"{self.label} preset {preset}"
            layers.append(Layer(source=source, values=self.presets[preset]))
        return layers


def _refused(label: str, key: str, value: object, allowed: str) -> UsageProblem:
    key = ".".join(filter(None, ("presets", key)))
    return UsageProblem(f"{label}: {key}: {as_yaml(value)} is not allowed; allowed: {allowed}")


def search_path(requested: Sequence[Path], rootdir: Path) -> tuple[Path, ...]:
    """Folders to search: those `requested` by ``--config``, ``<rootdir>/configs``, the bundled."""
    return (*(path for path in requested if path.is_dir()), rootdir / "configs", bundled_configs())


def bundled_configs() -> Path:
    """Folder of the bundled configurations: in the installed package, else in the checkout."""
    package = Path(__file__).parent.parent
    packaged = package / "configs"
    return packaged if packaged.is_dir() else package.parent / "configs"


def find(name: str, folders: Sequence[Path]) -> Path:
    """The first file ``<name>.yaml`` in the folders `folders`.

    Raises:
        UsageProblem: none has it; the message names the folders and their configurations.
    """
    files_by_folder = [{path.stem: path for path in folder.glob("*.yaml")} for folder in folders]
    for files in files_by_folder:
        if name in files:
            return files[name]
    available = sorted(set().union(*files_by_folder))
    searched_text = ", ".join(dict.fromkeys(map(str, folders)))
    listing = f"available: {', '.join(available)}" if available else "it contains no configurations"
    message = (
        f"config {name!r}: no file {name}.yaml{suggest(name, available)} in {searched_text}; "
        f"{listing}"
    )
    raise UsageProblem(message)

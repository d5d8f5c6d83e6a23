"""Resolution of names, files and options into one validated configuration.

The layers, later ones win: the profile of measuring, the times of a sustained rate, the named file,
its chosen preset, each ``--config`` file in order with its preset, each dot-key override in order,
and what the flags choose.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gpubench_plugin.config import schema_errors, yaml_reader
from gpubench_plugin.config.files import PRESETS, ConfigurationFile, find, search_path
from gpubench_plugin.config.layers import Key, Layer, Merged, default_layers, merge, nested
from gpubench_plugin.config.marks import Preset
from gpubench_plugin.config.sections import (
    PARALLELISM_OF,
    Configuration,
    EngineSection,
    ModelSection,
)
from gpubench_plugin.config.settings import Settings
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem, suggest

_WHOLE: Final = ("data", "global_batch_size")
_PART: Final = ("training", "batch_size")
_LOSS_DROP: Final[Key] = ("training", "loss_drop")

_SCHEDULE_KEYS: Final[tuple[Key, ...]] = (
    *(("training", name) for name in ("steps", "epochs", "batch_size", "gradient_clipping")),
    *(("training", name) for name in ("optimizer", "learning_rate", "momentum", "weight_decay")),
    *(("training", name) for name in ("scheduler", "schedule_steps")),
    *(("data", name) for name in ("source", "path", "global_batch_size")),
)
"""Keys that change how far the loss falls; accumulation does not, it repeats the batch."""


_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_][\w-]*)+")
"""No key has a dash: validation answers one that is typed with the key that has ``_`` for it."""


def override_layer(text: str, schema: schema_errors.Schema) -> Layer:
    """The override ``key=value`` with a dot key as a layer, its value typed by `schema`.

    Raises:
        UsageProblem: there is no ``=``, or no dot key before it; or it is not Unicode.
    """
    printable = text.encode(errors="backslashreplace").decode()
    if printable != text:  # it has bytes that are no characters
        raise UsageProblem(f"--set={printable}: not allowed; allowed: text in UTF-8")
    name, separator, value = text.partition("=")
    if not separator or not _KEY.fullmatch(name.strip()):
        example = "for example training.batch_size=64"
        raise UsageProblem(f"--set={text}: not allowed; allowed: section.key=value, {example}")
    key = tuple(name.strip().split("."))
    source = f"--{'.'.join(key)}={value}"  # as the user could have written it
    annotation = schema_errors.annotation_at(schema, key)
    return Layer(source=source, values=nested(key, _typed(value, annotation, source)))


def _typed(text: str, annotation: Any, source: str) -> Any:
    """Value that `text` stands for: itself for a text key, YAML such as ``[1, 2]`` for any other.

    What is not YAML stays text, as does the value of an unknown key; validation refuses both.
    """
    if annotation is None:
        return text
    if schema_errors.takes_text(annotation):
        return None if text == "null" and schema_errors.takes_null(annotation) else text
    try:
        return yaml_reader.parse(text, source)
    except UsageProblem:
        return text


def cli_limits(overrides: Iterable[str]) -> dict[str, str]:
    """Limits by metric set by command line `overrides`, one by one or as a mapping."""
    layers = (override_layer(text, Configuration) for text in overrides)
    return dict(merge(layers).get(("gate", "limits")) or {})


def _with_share(
    configuration: Configuration[Any], stated_layers: Sequence[Layer], merged: Merged
) -> Configuration[Any]:
    """Apply each rank's share of the global batch, if there is one.

    Raises:
        UsageProblem: the global batch cannot be shared evenly, or the `stated_layers` give another
            batch size with or after it.
    """
    global_batch = configuration.data.global_batch_size
    if global_batch is None:
        return configuration
    share, stated_size = _share(global_batch, configuration, merged), merged.get(_PART)
    is_later = _last(_PART, stated_layers) >= _last(_WHOLE, stated_layers)
    if stated_size not in (None, share) and is_later:
        message = f"{stated_size} conflicts with data.global_batch_size {merged.get(_WHOLE)}"
        allowed = f"allowed: {share}, or null for data.global_batch_size"
        raise schema_errors.key_error(
            merged, _PART, f"{message} ({merged.source(_WHOLE)}); {allowed}"
        )
    return configuration.with_samples(share)


def _share(global_batch: int, configuration: Configuration[Any], merged: Merged) -> int:
    """Samples per batch and rank: a step takes one batch, or accumulates several."""
    ranks, batches = configuration.distributed.world_size, configuration.training.accumulation_steps
    share, remainder = divmod(global_batch, ranks * batches)
    if remainder:
        note = f" with {batches} accumulated batches each" if batches > 1 else ""
        message = f"{global_batch} is not divisible by {ranks} ranks{note}"
        allowed = f"allowed: a multiple of {ranks * batches}"
        raise schema_errors.key_error(merged, _WHOLE, f"{message}; {allowed}")
    return share


def _last(key: Key, layers: Sequence[Layer]) -> int:
    """Index of the last layer that sets `key`; -1 if none does."""
    indices = (n for n, layer in enumerate(layers) if merge([layer]).get(key) is not None)
    return max(indices, default=-1)


CHOSEN_BY = {
    "experiment.preset": "--preset",
    "experiment.device": "--device",
    "precision.name": "--precision",
    "distributed.world_size": "the number of ranks started (torchrun --nproc-per-node)",
    "distributed.scaling": "data.global_batch_size",
}
"""Keys chosen by a flag or another key; another value that is stated is refused."""


def resolve(
    *,
    name: str | None,
    preset: Preset,
    overlays: Sequence[Path],
    overrides: Sequence[str],
    fixed_values: Mapping[str, object],
    rootdir: Path,
    model_section: Callable[[str], type[ModelSection]],
    limits: Mapping[str, str] = {},
    sustained: bool = False,
) -> Configuration[Any]:
    """Resolve the configuration of one benchmark.

    Args:
        name: name of the configuration in the mark; None starts from the defaults.
        preset: preset of the files that applies.
        overlays: values of ``--config``: files that override, directories searched for `name`.
        overrides: dot-key overrides, ``training.batch_size=64``.
        fixed_values: values of the keys in :data:`CHOSEN_BY`, by dot key.
        rootdir: pytest's; its folder ``configs`` is searched.
        model_section: returns the class of section ``model`` for a workload's name.
        limits: those of the mark, by metric; they outrank the files'.
        sustained: measure long enough for a rate that lasts, if a file defines the preset.

    Raises:
        UsageProblem: anything in the layers is not allowed; the message has a line for each.
    """
    files = _files(name, overlays, rootdir)
    offered = _offered(name, files)
    if preset not in offered:
        label = files[0].label
        raise UsageProblem(f"{label}: no preset {preset!r}; available: {', '.join(offered)}")
    file_layers = [file.layers(preset) for file in files]
    of_mark = Layer(source="mark gpubench", values={"gate": {"limits": limits}} if limits else {})

    def layers(schema: schema_errors.Schema) -> list[Layer]:
        own = [override_layer(text, schema) for text in overrides]
        return [*chain.from_iterable(file_layers), of_mark, *own]

    # The workload, which may itself be an override, decides which keys the model section has.
    untyped = merge(layers(_schema(ModelSection)))
    schema = _schema(_section_of_workload(untyped, model_section))
    has_preset = any(preset in file.presets for file in files)
    defaults = default_layers(untyped, sustained=sustained and has_preset)
    stated_layers = [*defaults, *layers(schema)]
    stated = merge(stated_layers)
    # A rank's batch is given, or that of all ranks.
    scaling = "weak" if stated.get(_WHOLE) is None else "strong"
    flags = []
    chosen_values = {"experiment.preset": preset, **fixed_values, "distributed.scaling": scaling}
    for chosen, value in chosen_values.items():
        key = tuple(chosen.split("."))
        if stated.get(key) not in (None, value):
            both = " contradicts ".join(map(schema_errors.as_yaml, (stated.get(key), value)))
            raise schema_errors.key_error(stated, key, f"{both}, which {CHOSEN_BY[chosen]} chooses")
        flags.append(Layer(source=CHOSEN_BY[chosen], values=nested(key, value)))
    merged = merge([*stated_layers, *flags])
    configuration = _validated(merged, schema)
    _refuse_two_lengths(configuration, merged)
    _refuse_parallelism(configuration, merged)
    configuration = _without_stale_limit(configuration, file_layers, merged)
    sources = {".".join(key): source for key, source in merged.sources.items()}
    return _with_share(configuration, stated_layers, merged).with_sources(sources)


def needs_memory_gib(name: str, *, overlays: Sequence[Path], rootdir: Path) -> float:
    """Device memory in GiB that preset ``full`` of configuration `name` needs.

    It is 0 if the files state none, and infinite if they do not offer ``full``.

    Raises:
        UsageProblem: a file is missing or not valid.
    """
    files = _files(name, overlays, rootdir)
    if "full" not in _offered(name, files):
        return math.inf
    needs_gib = [f.needs_memory_gib["full"] for f in files if "full" in f.needs_memory_gib]
    return needs_gib[-1] if needs_gib else 0.0


def _files(
    name: str | None, overlay_paths: Sequence[Path], rootdir: Path
) -> list[ConfigurationFile]:
    overlays = [
        ConfigurationFile.load(path, f"--config={path}")
        for path in overlay_paths
        if not path.is_dir()
    ]
    if name is None:
        return overlays
    path = find(name, search_path(overlay_paths, rootdir))
    label = str(path.relative_to(rootdir) if path.is_relative_to(rootdir) else path)
    return [ConfigurationFile.load(path, label), *overlays]


def _offered(name: str | None, files: Sequence[ConfigurationFile]) -> tuple[Preset, ...]:
    """Presets of the named file; overlays only add to them."""
    return PRESETS if name is None else files[0].presets_offered()


def _schema(section: type[ModelSection]) -> type[Configuration[Any]]:
    # mypy cannot know the class that pydantic makes of a generic model at run time.
    return Configuration.__class_getitem__(section)  # type: ignore[return-value]


def _section_of_workload(
    merged: Merged, model_section: Callable[[str], type[ModelSection]]
) -> type[ModelSection]:
    key = ("model", "name")
    workload = merged.get(key)
    if not isinstance(workload, str):
        return ModelSection
    try:
        return model_section(workload)
    except UsageProblem as error:
        raise schema_errors.key_error(merged, key, str(error)) from error


def _validated(merged: Merged, schema: type[Configuration[Any]]) -> Configuration[Any]:
    # Through JSON: in strict mode pydantic accepts a JSON array as a tuple, but not a list.
    data = json.dumps({"model": {}, **merged.values})
    try:
        return schema.model_validate_json(data)
    except ValidationError as error:
        raise schema_errors.to_usage_error(error.errors(), merged, schema) from None


def check_stated(overlays: Sequence[Path], overrides: Sequence[str], *, rootdir: Path) -> None:
    """Check ``--config`` and dot keys as far as they are wrong whatever a benchmark's own file is.

    Only a workload's class knows the keys of section ``model``, and keys of a section are weighed
    against each other once all layers are known.

    Raises:
        UsageProblem: a file cannot be read, or a key or a value is not allowed.
    """
    schema = _schema(ModelSection)
    files = _files(None, overlays, rootdir)
    own = [override_layer(text, schema) for text in overrides]
    for preset in PRESETS:
        merged = merge([*chain.from_iterable(file.layers(preset) for file in files), *own])
        try:
            schema.model_validate_json(json.dumps({**merged.values, "model": {}}))
        except ValidationError as error:
            certain = [e for e in error.errors() if e["type"] not in schema_errors.OWN_WORDS]
            if certain:
                raise schema_errors.to_usage_error(certain, merged, schema) from None


def engine_section(settings: Settings, rootdir: Path) -> EngineSection:
    """Section ``engine`` of ``--config`` and dot keys.

    Raises:
        UsageProblem: a file cannot be read, or a key or a value is not allowed.
    """
    check_stated(settings.configs, settings.overrides, rootdir=rootdir)
    schema = _schema(ModelSection)
    files = [file.layers(PRESETS[0]) for file in _files(None, settings.configs, rootdir)]
    own = [override_layer(text, schema) for text in settings.overrides]
    stated = merge([*chain.from_iterable(files), *own]).values.get("engine", {})
    return EngineSection.model_validate_json(json.dumps(stated))


def _refuse_two_lengths(configuration: Configuration[Any], merged: Merged) -> None:
    training = configuration.training
    if training.steps is not None and training.epochs is not None:
        source = merged.source(("training", "steps"))
        message = f"{training.epochs} conflicts with training.steps {training.steps} ({source})"
        allowed = "allowed: one of the two, with null for the other"
        raise schema_errors.key_error(merged, ("training", "epochs"), f"{message}; {allowed}")


def _refuse_parallelism(configuration: Configuration[Any], merged: Merged) -> None:
    """Refuse an unknown parallelism, and keys of another one.

    ``auto`` accepts the keys of ddp also on one rank, since a file serves one rank and several.
    """
    selected = configuration.distributed.parallelism
    available = catalog.choices("parallelism")
    if selected not in ("auto", *available):
        message = f"unknown{suggest(selected, available)}; allowed: auto, {', '.join(available)}"
        raise schema_errors.key_error(merged, ("distributed", "parallelism"), message)
    effective = "ddp" if selected == "auto" else selected
    for name, parallelism in PARALLELISM_OF.items():
        key = ("distributed", name)
        if merged.get(key) is not None and parallelism != effective:
            text = f"{schema_errors.as_yaml(merged.get(key))} applies to distributed.parallelism"
            message = f"{text}={parallelism}, not to {selected}; remove it"
            raise schema_errors.key_error(merged, key, message)


def _without_stale_limit(
    configuration: Configuration[Any], files: Sequence[Sequence[Layer]], merged: Merged
) -> Configuration[Any]:
    """Drop a file's ``loss_drop`` if the schedule it was tuned for is overridden; keep the reason.

    That is the schedule of the layers of `files` up to that file. A ``loss_drop`` that an override
    states holds whatever the schedule.
    """
    source = merged.source(_LOSS_DROP)
    stating = [n for n, layers in enumerate(files) if source in (layer.source for layer in layers)]
    if not stating or merged.get(_LOSS_DROP) is None:
        return configuration
    tuned = merge(chain.from_iterable(files[: stating[-1] + 1]))
    overridden = [key for key in _SCHEDULE_KEYS if merged.get(key) != tuned.get(key)]
    if merged.get(("data", "source")) == "saved":  # the batch that the limit was judged with
        overridden = [key for key in overridden if key[0] != "data"]
    if not overridden:
        return configuration
    keys = " and ".join(f"{'.'.join(key)} ({merged.source(key)})" for key in overridden)
    reason = (
        f"training.loss_drop={merged.get(_LOSS_DROP)} from {source} is ignored: it was tuned for "
        f"another schedule than that of {keys}"
    )
    training = configuration.training.without_loss_drop(reason)
    return configuration.model_copy(update={"training": training})

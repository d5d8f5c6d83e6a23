"""Resolution of names, files and options into one validated configuration.

The layers, later ones win: the profile of measuring, the named file, its chosen preset, each
``--config`` file in order with its preset, each dot-key override in order, and what the flags
choose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from gpubench_plugin import catalog
from gpubench_plugin.config import explain
from gpubench_plugin.config import overrides as dot_keys
from gpubench_plugin.config.files import PRESETS, ConfigurationFile, find, overlay, search_path
from gpubench_plugin.config.layers import Key, Layer, Merged, merge, nested, profile_layers
from gpubench_plugin.config.sections import PARALLELISM_OF, Configuration, ModelSection, Preset
from gpubench_plugin.errors import UsageProblem, nearest

_WHOLE: Final = ("data", "global_batch_size")
_PART: Final = ("training", "batch_size")
_SCALING: Final = ("distributed", "scaling")
_LOSS_DROP: Final[Key] = ("training", "loss_drop")

_COURSE: Final[tuple[Key, ...]] = (
    ("training", "steps"),
    ("training", "epochs"),
    ("training", "batch_size"),
    ("training", "optimizer"),
    ("training", "learning_rate"),
    ("training", "momentum"),
    ("training", "weight_decay"),
    ("training", "scheduler"),
    ("training", "schedule_steps"),
    ("training", "gradient_clipping"),
    ("data", "source"),
    ("data", "path"),
    ("data", "global_batch_size"),
)
"""The keys on which it depends how far the loss falls. Accumulation repeats the one batch."""


def apply_scaling(
    configuration: Configuration[Any], stated_layers: Sequence[Layer], merged: Merged
) -> Configuration[Any]:
    """Apply the scaling kind and each rank's share of a global batch.

    Scaling is weak where a rank's batch is given, and strong where the batch of all ranks is.

    Raises:
        UsageProblem: the global batch cannot be shared evenly, or one of the layers `stated_layers`
            gives a batch size beside it, or a kind of scaling that it is not.
    """
    global_batch = configuration.data.global_batch_size
    kind: Literal["weak", "strong"] = "weak" if global_batch is None else "strong"
    _refuse_other_scaling(kind, merged)
    if global_batch is None:
        return configuration
    share = _share(global_batch, configuration, merged)
    _refuse_other_batch(share, stated_layers, merged)
    training = configuration.training.model_copy(update={"batch_size": share})
    distributed = configuration.distributed.model_copy(update={"scaling": kind})
    return configuration.model_copy(update={"training": training, "distributed": distributed})


def _share(global_batch: int, configuration: Configuration[Any], merged: Merged) -> int:
    """Samples per batch and rank: a step takes one batch, or accumulates several."""
    ranks, batches = configuration.distributed.world_size, configuration.training.accumulation_steps
    share, remainder = divmod(global_batch, ranks * batches)
    if remainder:
        note = f" with {batches} accumulated batches each" if batches > 1 else ""
        message = f"{global_batch} is not divisible by {ranks} ranks{note}"
        raise explain.key_error(
            merged, _WHOLE, f"{message}; allowed: a multiple of {ranks * batches}"
        )
    return share


def _refuse_other_scaling(kind: str, merged: Merged) -> None:
    stated_value = merged.get(_SCALING)
    if stated_value not in (None, kind):
        implied = f"{explain.as_yaml(kind)}, which data.global_batch_size implies"
        raise explain.key_error(
            merged, _SCALING, f"{explain.as_yaml(stated_value)} contradicts {implied}"
        )


def _refuse_other_batch(share: int, stated: Sequence[Layer], merged: Merged) -> None:
    """Refuse a batch size stated together with or after the global batch size."""
    stated_value = merged.get(_PART)
    if stated_value in (None, share) or _last(_PART, stated) < _last(_WHOLE, stated):
        return
    message = f"{stated_value} conflicts with data.global_batch_size {merged.get(_WHOLE)}"
    allowed = f"allowed: {share}, or null for data.global_batch_size"
    raise explain.key_error(merged, _PART, f"{message} ({merged.source(_WHOLE)}); {allowed}")


def _last(key: Key, layers: Sequence[Layer]) -> int:
    """Index of the last layer that sets `key`; -1 if none does."""
    indices = [n for n, layer in enumerate(layers) if merge([layer]).get(key) is not None]
    return indices[-1] if indices else -1


CHOSEN_BY = {
    "experiment.preset": "--preset",
    "experiment.device": "--device",
    "precision.name": "--precision",
    "distributed.world_size": "the number of ranks started (torchrun --nproc-per-node)",
}
"""The keys that a flag chooses, so that no file may say something else."""


def resolve(
    *,
    name: str | None,
    preset: Preset,
    overlays: Sequence[Path],
    overrides: Sequence[str],
    fixed_values: Mapping[str, object],
    rootdir: Path,
    model_section: Callable[[str], type[ModelSection]],
) -> Configuration[Any]:
    """Resolve the configuration of one benchmark.

    Args:
        name: the configuration the benchmark's marker names; None starts from the defaults.
        preset: which preset of the files applies.
        overlays: the values of ``--config``: files laid over, directories searched for `name`.
        overrides: dot-key overrides, ``training.batch_size=64``.
        chosen: values of the keys in :data:`CHOSEN_BY`, by dotted key.
        rootdir: pytest's; its folder ``configs`` is searched.
        model_section: the class of section ``model`` for the workload of that name.

    Raises:
        UsageProblem: anything in the layers is not allowed; the message has a line for each.
    """
    files = _files(name, overlays, rootdir)
    _require_preset(name, preset, files)
    file_layers = [file.layers(preset) for file in files]
    parsed = [dot_keys.parse(text) for text in overrides]

    def layers(schema: explain.Schema) -> list[Layer]:
        return [*chain.from_iterable(file_layers), *(override.layer(schema) for override in parsed)]

    # The workload, which may itself be an override, decides which keys the model section has.
    untyped = merge(layers(_schema(ModelSection)))
    schema = _schema(_model_section(untyped, model_section))
    stated_layers = [*profile_layers(untyped), *layers(schema)]
    fixed_values = {"experiment.preset": preset, **fixed_values}
    _refuse_contradiction(merge(stated_layers), fixed_values)
    merged = merge([*stated_layers, *_flags(fixed_values)])
    configuration = _validated(merged, schema)
    _refuse_two_lengths(configuration, merged)
    _refuse_parallelism(configuration, merged)
    _refuse_rank_error(merged)
    return apply_scaling(_lapsed(configuration, file_layers, merged), stated_layers, merged)


def needs_memory_gib(name: str, *, overlays: Sequence[Path], rootdir: Path) -> float:
    """Device memory in GiB that preset ``full`` of configuration `name` needs.

    It is 0 where the files name none, and infinite where they do not offer ``full``.

    Raises:
        UsageProblem: a file is missing or not valid.
    """
    files = _files(name, overlays, rootdir)
    if "full" not in _offered(name, files):
        return math.inf
    memory_needs = [
        file.needs_memory_gib["full"] for file in files if "full" in file.needs_memory_gib
    ]
    return memory_needs[-1] if memory_needs else 0.0


def _files(
    name: str | None, overlay_paths: Sequence[Path], rootdir: Path
) -> list[ConfigurationFile]:
    overlays = [
        ConfigurationFile.load(overlay(path), f"--config={path}")
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


def _require_preset(name: str | None, preset: Preset, files: Sequence[ConfigurationFile]) -> None:
    available = _offered(name, files)
    if preset not in available:
        message = f"{files[0].label}: no preset {preset!r}; available: {', '.join(available)}"
        raise UsageProblem(message)


def _schema(section: type[ModelSection]) -> type[Configuration[Any]]:
    # mypy cannot know the class that pydantic makes of a generic model at run time.
    return Configuration.__class_getitem__(section)  # type: ignore[return-value]


def _model_section(
    merged: Merged, model_section: Callable[[str], type[ModelSection]]
) -> type[ModelSection]:
    key = ("model", "name")
    workload = merged.get(key)
    if not isinstance(workload, str):
        return ModelSection
    try:
        return model_section(workload)
    except UsageProblem as error:
        raise explain.key_error(merged, key, str(error)) from error


def _flags(fixed_values: Mapping[str, object]) -> list[Layer]:
    return [
        Layer(source=CHOSEN_BY[key], values=nested(tuple(key.split(".")), value))
        for key, value in fixed_values.items()
    ]


def _refuse_contradiction(stated: Merged, fixed_values: Mapping[str, object]) -> None:
    for name, value in fixed_values.items():
        key = tuple(name.split("."))
        stated_value = stated.get(key)
        if stated_value is not None and stated_value != value:
            message = f"{explain.as_yaml(stated_value)} contradicts {explain.as_yaml(value)}"
            raise explain.key_error(stated, key, f"{message}, which {CHOSEN_BY[name]} chooses")


def _validated(merged: Merged, schema: type[Configuration[Any]]) -> Configuration[Any]:
    _refuse_invalid_text(merged)
    # Through JSON, since strict validation then still takes a list for a tuple.
    data = json.dumps({"model": {}, **merged.values})
    try:
        return schema.model_validate_json(data)
    except ValidationError as error:
        raise explain.to_usage_error(error, merged, schema) from None


def _refuse_invalid_text(merged: Merged) -> None:
    for key in merged.sources:
        try:
            json.dumps(merged.get(key), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise explain.key_error(
                merged, key, "contains text that is not valid Unicode"
            ) from None


def _refuse_two_lengths(configuration: Configuration[Any], merged: Merged) -> None:
    training = configuration.training
    if training.steps is not None and training.epochs is not None:
        steps = ("training", "steps")
        message = f"{training.epochs} conflicts with training.steps {training.steps}"
        allowed = "allowed: one of the two, with null for the other"
        source = merged.source(steps)
        raise explain.key_error(merged, ("training", "epochs"), f"{message} ({source}); {allowed}")


def _refuse_rank_error(merged: Merged) -> None:
    """Refuse an error of percentiles that nothing could keep to."""
    key = ("measure", "sketch_rank_error")
    if merged.get(key) is not None and find_spec("datasketches") is None:
        problem = f"{explain.as_yaml(merged.get(key))} takes datasketches, which is not installed"
        allowed = "allowed: to leave it out, or pip install 'pytest-gpubench[sketch]'"
        raise explain.key_error(merged, key, f"{problem}; {allowed}")


def _refuse_parallelism(configuration: Configuration[Any], merged: Merged) -> None:
    """Refuse an unknown parallelism, and keys of another one.

    By itself it is ddp here: one rank needs none, but a file is for one and for several.
    """
    parallelism_name = configuration.distributed.parallelism
    if parallelism_name != "auto" and parallelism_name not in (
        available := catalog.choices("parallelism")
    ):
        message = (
            f"unknown{nearest(parallelism_name, available)}; allowed: auto, {', '.join(available)}"
        )
        raise explain.key_error(merged, ("distributed", "parallelism"), message)
    effective = "ddp" if parallelism_name == "auto" else parallelism_name
    for name, parallelism in PARALLELISM_OF.items():
        key = ("distributed", name)
        if merged.get(key) is not None and parallelism != effective:
            value_text = explain.as_yaml(merged.get(key))
            message = (
                f"{value_text} applies to distributed.parallelism={parallelism}, not to "
                f"{parallelism_name}"
            )
            raise explain.key_error(merged, key, f"{message}; remove it")


def _lapsed(
    configuration: Configuration[Any], files: Sequence[Sequence[Layer]], merged: Merged
) -> Configuration[Any]:
    """Drop ``loss_drop`` if the schedule it was tuned for is overridden, with the reason.

    A ``training.loss_drop`` in a file is what its batch size, rate and data bring about. Where a
    later layer changes one of these the limit says nothing any more: it lapses, which goes on
    record. One that an override states is the user's word for the course that runs, and holds.

    `files` are the layers of each file, in their order; `merged` are those of all.
    """
    before = _tuned(files, merged)
    if before is None:
        return configuration
    changed = [key for key in _COURSE if merged.get(key) != before.get(key)]
    if not changed:
        return configuration
    which = " and ".join(f"{'.'.join(key)} ({merged.source(key)})" for key in changed)
    reason = (
        f"training.loss_drop={before.get(_LOSS_DROP)} from {before.source(_LOSS_DROP)} is "
        f"ignored: {which} overrides the schedule it was tuned for"
    )
    training = configuration.training.without_loss_drop(reason)
    return configuration.model_copy(update={"training": training})


def _tuned(files: Sequence[Sequence[Layer]], merged: Merged) -> Merged | None:
    """Layers up to the end of the file that states the limit; None if none does."""
    source = merged.source(_LOSS_DROP)
    if merged.get(_LOSS_DROP) is None:
        return None
    for number in range(len(files), 0, -1):
        if any(layer.source == source for layer in files[number - 1]):
            return merge([layer for file in files[:number] for layer in file])
    return None

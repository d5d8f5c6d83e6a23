"""Resolution: from names, files and flags to one validated configuration.

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
from gpubench_plugin.config.files import PRESETS, ConfigurationFile, directories, find, overlay
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


def scaled(
    configuration: Configuration[Any], stated: Sequence[Layer], merged: Merged
) -> Configuration[Any]:
    """The `configuration` with its kind of scaling, and with each rank's share of a global batch.

    Scaling is weak where a rank's batch is given, and strong where the batch of all ranks is.

    Raises:
        UsageProblem: the global batch cannot be shared evenly, or one of the layers `stated`
            gives a batch size beside it, or a kind of scaling that it is not.
    """
    whole = configuration.data.global_batch_size
    kind: Literal["weak", "strong"] = "weak" if whole is None else "strong"
    _refuse_other_scaling(kind, merged)
    if whole is None:
        return configuration
    share = _share(whole, configuration, merged)
    _refuse_other_batch(share, stated, merged)
    training = configuration.training.model_copy(update={"batch_size": share})
    distributed = configuration.distributed.model_copy(update={"scaling": kind})
    return configuration.model_copy(update={"training": training, "distributed": distributed})


def _share(whole: int, configuration: Configuration[Any], merged: Merged) -> int:
    """Samples per batch and rank: a step takes one batch, or accumulates several."""
    ranks, batches = configuration.distributed.world_size, configuration.training.accumulation_steps
    share, rest = divmod(whole, ranks * batches)
    if rest:
        each = f" with {batches} accumulated batches each" if batches > 1 else ""
        problem = f"{whole} does not divide among {ranks} ranks{each}"
        raise explain.at(merged, _WHOLE, f"{problem}; allowed: a multiple of {ranks * batches}")
    return share


def _refuse_other_scaling(kind: str, merged: Merged) -> None:
    said = merged.get(_SCALING)
    if said not in (None, kind):
        chosen = f"{explain.shown(kind)}, which data.global_batch_size chooses"
        raise explain.at(merged, _SCALING, f"{explain.shown(said)} contradicts {chosen}")


def _refuse_other_batch(share: int, stated: Sequence[Layer], merged: Merged) -> None:
    """A global batch replaces a batch size said before it, but not one said with or after it."""
    given = merged.get(_PART)
    if given in (None, share) or _last(_PART, stated) < _last(_WHOLE, stated):
        return
    problem = f"{given} beside data.global_batch_size {merged.get(_WHOLE)}"
    allowed = f"allowed: {share}, or null for data.global_batch_size"
    raise explain.at(merged, _PART, f"{problem} ({merged.source(_WHOLE)}); {allowed}")


def _last(key: Key, layers: Sequence[Layer]) -> int:
    """The number of the last layer that says `key`; -1 if none does."""
    says = [n for n, layer in enumerate(layers) if merge([layer]).get(key) is not None]
    return says[-1] if says else -1


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
    chosen: Mapping[str, object],
    rootdir: Path,
    model_section: Callable[[str], type[ModelSection]],
) -> Configuration[Any]:
    """The configuration of one benchmark.

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
    said = [file.layers(preset) for file in files]
    given = [dot_keys.parse(text) for text in overrides]

    def layers(schema: explain.Schema) -> list[Layer]:
        return [*chain.from_iterable(said), *(override.layer(schema) for override in given)]

    # The workload, which may itself be an override, decides which keys the model section has.
    untyped = merge(layers(_schema(ModelSection)))
    schema = _schema(_model_section(untyped, model_section))
    stated = [*profile_layers(untyped), *layers(schema)]
    chosen = {"experiment.preset": preset, **chosen}
    _refuse_contradiction(merge(stated), chosen)
    merged = merge([*stated, *_flags(chosen)])
    configuration = _validated(merged, schema)
    _refuse_two_lengths(configuration, merged)
    _refuse_parallelism(configuration, merged)
    _refuse_rank_error(merged)
    return scaled(_lapsed(configuration, said, merged), stated, merged)


def needs_memory_gib(name: str, *, overlays: Sequence[Path], rootdir: Path) -> float:
    """The device memory, in GiB, from which on preset ``full`` of configuration `name` is for.

    It is 0 where the files name none, and infinite where they do not offer ``full``.

    Raises:
        UsageProblem: a file is missing or not valid.
    """
    files = _files(name, overlays, rootdir)
    if "full" not in _offered(name, files):
        return math.inf
    said = [file.needs_memory_gib["full"] for file in files if "full" in file.needs_memory_gib]
    return said[-1] if said else 0.0


def _files(name: str | None, given: Sequence[Path], rootdir: Path) -> list[ConfigurationFile]:
    overlays = [
        ConfigurationFile.load(overlay(path), f"--config={path}")
        for path in given
        if not path.is_dir()
    ]
    if name is None:
        return overlays
    path = find(name, directories(given, rootdir))
    label = str(path.relative_to(rootdir) if path.is_relative_to(rootdir) else path)
    return [ConfigurationFile.load(path, label), *overlays]


def _offered(name: str | None, files: Sequence[ConfigurationFile]) -> tuple[Preset, ...]:
    """Only the named file decides; an overlay adds to a preset where it has something to add."""
    return PRESETS if name is None else files[0].offered()


def _require_preset(name: str | None, preset: Preset, files: Sequence[ConfigurationFile]) -> None:
    offered = _offered(name, files)
    if preset not in offered:
        message = f"{files[0].label}: has no preset {preset!r}; there: {', '.join(offered)}"
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
    except UsageProblem as problem:
        raise explain.at(merged, key, str(problem)) from problem


def _flags(chosen: Mapping[str, object]) -> list[Layer]:
    return [
        Layer(source=CHOSEN_BY[key], values=nested(tuple(key.split(".")), value))
        for key, value in chosen.items()
    ]


def _refuse_contradiction(stated: Merged, chosen: Mapping[str, object]) -> None:
    for name, value in chosen.items():
        key = tuple(name.split("."))
        said = stated.get(key)
        if said is not None and said != value:
            problem = f"{explain.shown(said)} contradicts {explain.shown(value)}"
            raise explain.at(stated, key, f"{problem}, which {CHOSEN_BY[name]} chooses")


def _validated(merged: Merged, schema: type[Configuration[Any]]) -> Configuration[Any]:
    _refuse_invalid_text(merged)
    # Through JSON, since strict validation then still takes a list for a tuple.
    data = json.dumps({"model": {}, **merged.values})
    try:
        return schema.model_validate_json(data)
    except ValidationError as error:
        raise explain.explain(error, merged, schema) from None


def _refuse_invalid_text(merged: Merged) -> None:
    for key in merged.sources:
        try:
            json.dumps(merged.get(key), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise explain.at(merged, key, "holds text that is not valid Unicode") from None


def _refuse_two_lengths(configuration: Configuration[Any], merged: Merged) -> None:
    training = configuration.training
    if training.steps is not None and training.epochs is not None:
        steps = ("training", "steps")
        problem = f"{training.epochs} beside training.steps {training.steps}"
        allowed = "allowed: one of the two, and null for the other"
        source = merged.source(steps)
        raise explain.at(merged, ("training", "epochs"), f"{problem} ({source}); {allowed}")


def _refuse_rank_error(merged: Merged) -> None:
    """Refuse an error of percentiles that nothing could keep to."""
    key = ("measure", "sketch_rank_error")
    if merged.get(key) is not None and find_spec("datasketches") is None:
        problem = f"{explain.shown(merged.get(key))} takes datasketches, which is not installed"
        allowed = "allowed: to leave it out, or pip install 'pytest-gpubench[sketch]'"
        raise explain.at(merged, key, f"{problem}; {allowed}")


def _refuse_parallelism(configuration: Configuration[Any], merged: Merged) -> None:
    """Refuse one that there is not, and a key of another one.

    By itself it is ddp here: one rank needs none, but a file is for one and for several.
    """
    chosen = configuration.distributed.parallelism
    if chosen != "auto" and chosen not in (there := catalog.choices("parallelism")):
        problem = f"unknown{nearest(chosen, there)}; allowed: auto, {', '.join(there)}"
        raise explain.at(merged, ("distributed", "parallelism"), problem)
    running = "ddp" if chosen == "auto" else chosen
    for name, parallelism in PARALLELISM_OF.items():
        key = ("distributed", name)
        if merged.get(key) is not None and parallelism != running:
            said = explain.shown(merged.get(key))
            problem = f"{said} is for distributed.parallelism={parallelism}, not for {chosen}"
            raise explain.at(merged, key, f"{problem}; allowed: to leave it out")


def _lapsed(
    configuration: Configuration[Any], files: Sequence[Sequence[Layer]], merged: Merged
) -> Configuration[Any]:
    """The `configuration` without a ``loss_drop`` that has lapsed, and with the reason for it.

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
        f"training.loss_drop={before.get(_LOSS_DROP)} of {before.source(_LOSS_DROP)} lapses: "
        f"{which} overrides what it was set for"
    )
    training = configuration.training.without_loss_drop(reason)
    return configuration.model_copy(update={"training": training})


def _tuned(files: Sequence[Sequence[Layer]], merged: Merged) -> Merged | None:
    """What is said up to the end of the file that states the limit; None if no file has."""
    stated = merged.source(_LOSS_DROP)
    if merged.get(_LOSS_DROP) is None:
        return None
    for number in range(len(files), 0, -1):
        if any(layer.source == stated for layer in files[number - 1]):
            return merge([layer for file in files[:number] for layer in file])
    return None

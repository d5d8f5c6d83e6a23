"""What ``--repro`` keeps of a benchmark whose check has failed.

Rank zero writes it, in the process that ran the benchmark: there are the batch and the failure.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.marks import assignments
from gpubench_plugin.config.resolution import CHOSEN_BY
from gpubench_plugin.config.settings import option_dest
from gpubench_plugin.config.yaml_reader import dump
from gpubench_plugin.environment.redaction import redact_facts, redacted_command
from gpubench_plugin.environment.system_facts import package_versions
from gpubench_plugin.results.outcomes import outcome_of
from gpubench_plugin.results.reproduction import FACTS, FOLDER
from gpubench_plugin.system import json_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.bench.measuring import Measuring
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.core.errors import CorrectnessError

_LOSS_DROP: Final = "training.loss_drop"


def keep(error: CorrectnessError, root: Path, measuring: Measuring) -> None:
    """Write the benchmark that `error` fails into a folder of `root`; a note on `error` names it.

    A folder that cannot be written is a note, too: the failure is what matters.
    """
    if not measuring.group.world.is_root:
        return
    place = measuring.item.config.invocation_params.dir
    folder = root / re.sub(r"[^A-Za-z0-9._-]+", "-", measuring.state.case.id).strip("-.")
    try:
        _write(folder, _files(error, measuring, place))
    except OSError as problem:
        error.add_note(f"--repro: cannot write {folder}: {problem.strerror}")
    else:
        shown = folder.relative_to(place) if folder.is_relative_to(place) else folder
        error.add_note(f"reproduce: gpubench measure --repro={shlex.quote(str(shown))}")


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write `folder` whole, in place of an earlier one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".gpubench-", dir=folder.parent) as temporary:
        new = Path(temporary, "new")
        new.mkdir()
        for name, content in contents.items():
            (new / name).write_bytes(content)
        with suppress(FileNotFoundError):
            folder.rename(Path(temporary, "old"))
        new.rename(folder)


def _files(error: CorrectnessError, measuring: Measuring, place: Path) -> dict[str, bytes]:
    """Facts, configuration and inputs; `place` is the working directory, of paths in arguments."""
    item, case, context = measuring.item, measuring.state.case, measuring.context
    assert context.cases is not None  # the session has started
    # As stated, without what was built: an own model's batch and optimizer would be stated twice.
    stated = context.cases.of(item, uses_torch=case.uses_torch).configuration
    if stated.training.batch_size == "auto":
        fitted = stated.training.with_samples(case.configuration.training.samples)
        stated = stated.model_copy(update={"training": fitted})
    own_keys = dict(text.split("=", 1) for text in assignments(item))
    inputs, devices = _inputs(measuring, own_keys), context.settings.devices
    options = {
        "config": f"{FOLDER}/configuration.yaml",
        "preset": stated.experiment.preset,
        "precision": case.precision,
        "device": case.device.type if devices == ("auto",) else ",".join(devices),
        "world-size": case.world_size,
    }
    file, colons, name = case.id.partition("::")
    selection = f"{os.path.relpath(item.config.rootpath / file, place)}{colons}{name}"
    if model := item.config.getoption(option_dest("measure"), None):  # its tests are in no file
        options["measure"], selection = model, f"-k{name}"
    keys = {}
    if isinstance(inputs, bytes):
        keys = {"data.source": "saved", "data.path": f"{FOLDER}/inputs.pt"}
        if (loss_drop := stated.training.loss_drop) is not None:  # a file's lapses with other data
            keys[_LOSS_DROP] = own_keys.get(_LOSS_DROP, str(loss_drop))
    arguments = [f"--gpubench-{option}={value}" for option, value in options.items()]
    arguments += [f"--gpubench-set={key}={value}" for key, value in keys.items()]
    facts = {
        "schema_version": 1,
        "test": case.id,
        "failure": outcome_of(error)[1],
        "no_inputs": inputs if isinstance(inputs, str) else None,
        "seed": stated.experiment.seed,
        **{name: options[name] for name in ("precision", "device")},
        "world_size": case.world_size,
        "versions": {"python": platform.python_version(), **package_versions()},
        "command": redacted_command(map(str, item.config.invocation_params.args)),
        "working_directory": os.path.relpath(place, item.config.rootpath),
        "arguments": redacted_command([selection, *arguments]),
    }
    text = json_files.text(redact_facts(json_files.jsonable(facts)), indent=2)
    files = {FACTS: f"{text}\n".encode(), "configuration.yaml": _stated_keys(stated)}
    return files | ({"inputs.pt": inputs} if isinstance(inputs, bytes) else {})


def _stated_keys(configuration: Configuration[Any]) -> bytes:
    """YAML of the keys that something states, a default included, as a file below may differ.

    Without those that flags choose, and without secrets.
    """
    sections = configuration.model_dump(mode="json", exclude_unset=True)
    stated = {
        name: {key: v for key, v in keys.items() if f"{name}.{key}" not in CHOSEN_BY}
        for name, keys in redact_facts(sections).items()
    }
    return dump(stated).encode()


def _inputs(measuring: Measuring, own_keys: Mapping[str, str]) -> bytes | str:
    """The batch of the check as a file has it, or why a replay draws or reads it again."""
    case = measuring.state.case
    data, training = case.configuration.data, case.configuration.training
    sources = {s.data for s in measuring.subjects.all if hasattr(s, "data")}
    if len(sources) != 1:
        return "the step is not that of one trainer or inference"
    if training.epochs or training.evaluate or "data.source" in own_keys:
        return f"data.source={data.source} has more than one batch, or is stated by the test"
    if case.world_size > 1 and data.source not in {"synthetic", "saved"}:
        return f"data.source={data.source} has a batch for each rank"
    from gpubench_plugin.training.data.saved import saved

    try:
        return saved(sources.pop())
    except Exception as error:  # of torch: a type of tensor, a lost device, or no memory
        return f"torch cannot save the batch: {error}".partition("\n")[0]

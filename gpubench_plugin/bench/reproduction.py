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
from typing import TYPE_CHECKING

from gpubench_plugin.config import yaml_reader
from gpubench_plugin.config.resolution import CHOSEN_BY
from gpubench_plugin.core.errors import CorrectnessError, ResultsError
from gpubench_plugin.environment.redaction import redact_facts, redacted_command
from gpubench_plugin.environment.system_facts import package_versions
from gpubench_plugin.results.reproduction import FACTS, FORMAT
from gpubench_plugin.system import json_files

if TYPE_CHECKING:
    from gpubench_plugin.bench.measuring import Measuring


def keep(error: CorrectnessError, measuring: Measuring) -> None:
    """With ``--repro`` write the benchmark that `error` fails; a note on `error` names the folder.

    It appears whole, in place of an earlier one. One that cannot be written is a note, too: the
    failure is what matters.
    """
    root, case = measuring.context.settings.repro, measuring.state.case
    if root is None or not measuring.group.world.is_root:
        return
    # The id, since functions of two files may have one name.
    folder = root / re.sub(r"[^A-Za-z0-9._-]+", "-", case.id).strip("-.")
    shown = os.path.relpath(folder, measuring.item.config.invocation_params.dir)
    note = f"reproduce: gpubench measure --repro={shlex.quote(shown)}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".gpubench-", dir=root) as temporary:
            new = Path(temporary, "new")
            new.mkdir()
            _fill(new, str(error), measuring)
            with suppress(FileNotFoundError):
                folder.rename(Path(temporary, "old"))
            new.rename(folder)
    except (OSError, ResultsError) as problem:
        note = f"--repro: cannot write {shown}: {problem}"
    error.add_note(note)


def _fill(folder: Path, failure: str, measuring: Measuring) -> None:
    """Write facts, configuration and inputs; raises ResultsError."""
    item, case, context = measuring.item, measuring.state.case, measuring.context
    config, settings = item.config, context.settings
    place, (file, colons, name) = config.invocation_params.dir, item.nodeid.partition("::")
    assert context.cases is not None  # the session has started
    # As stated, without what was built: an own model's batch and optimizer would be stated twice. A
    # default that is stated counts, since a file below may have another value.
    stated = context.cases.of(item, uses_torch=case.uses_torch).configuration
    keys = redact_facts(stated.model_dump(mode="json", exclude_unset=True))
    for section, _, key in (chosen.partition(".") for chosen in CHOSEN_BY):
        keys.get(section, {}).pop(key, None)
    if stated.training.batch_size == "auto":
        keys["training"]["batch_size"] = case.configuration.training.batch_size
    facts = {
        "schema_version": FORMAT.newest,
        "test": f"{os.path.relpath(config.rootpath / file, place)}{colons}{name}",
        "working_directory": os.path.relpath(place, config.rootpath),
        "failure": failure,
        "no_inputs": _save_inputs(folder / "inputs.pt", measuring),
        "seed": stated.experiment.seed,
        "options": {
            "preset": stated.experiment.preset,
            "precision": case.precision,
            "device": ",".join(settings.devices).replace("auto", case.device.type),
            "world-size": case.world_size,
            **({"measure": settings.measure} if settings.measure else {}),
        },
        "versions": {"python": platform.python_version(), **package_versions()},
        "command": [*redacted_command(map(str, config.invocation_params.args))],
    }
    json_files.write_json(folder / FACTS, redact_facts(facts))
    json_files.write_text(folder / "configuration.yaml", yaml_reader.dump(keys))


def _save_inputs(path: Path, measuring: Measuring) -> str:
    """Save the batch of the check, or say why there is none, or none that a replay needs."""
    name = measuring.state.case.configuration.data.source
    sources = {id(s.data): s.data for s in measuring.subjects.all if hasattr(s, "data")}
    if len(sources) != 1 or name not in {"synthetic", "saved"}:
        return f"not the step of one trainer or inference on one batch (data.source={name})"
    from gpubench_plugin.training.data.saved import save

    return save(path, *sources.values())

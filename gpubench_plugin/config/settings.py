"""Settings of a session, validated and frozen: each option is declared once, at its field.

A field's :class:`Option` gives flag and ini key, help, and the parser of the text. Every session of
pytest imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import pytest

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import BrokenFile, UsageProblem, invalid_choice

POLICIES: Final = ("pass", "fail")

MEASURING: Final = "measuring"
RECORDING: Final = "recording"
COMPARING: Final = "comparing with earlier runs"

BY_FILE: Final = "file"
BY_FUNCTION: Final = "function"
_NO_TABLE: Final = "none"


def option_dest(name: str) -> str:
    """Attribute name of the option, and name of the ini key."""
    return f"gpubench_{name.replace('-', '_')}"


class OptionValue(NamedTuple):
    """What the user stated: the `key`, and its value: True, a text or several.

    Relative paths start from the `folder`.
    """

    key: str
    value: Any
    folder: Path

    @property
    def is_flag(self) -> bool:
        """Whether it stands on the command line."""
        return self.key.startswith("--")


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option: ``--gpubench-<name>``, and with a default `ini` the ini key ``gpubench_<name>``.

    `alone` is the value of a flag that may be given without one. An option without `help` has no
    flag.
    """

    name: str
    help: str = ""
    parse: Callable[[OptionValue], Any] = attrgetter("value")
    metavar: str = ""
    action: str = "store"
    alone: str = ""
    group: str = MEASURING
    ini: str | None = None
    ini_help: str = ""

    def value_in(self, config: pytest.Config) -> OptionValue | None:
        """What the user stated: the flag, else the ini key, which has a default; else None."""
        value = config.getoption(option_dest(self.name)) if self.help else None
        if value not in (None, False):
            return OptionValue(f"--{self.name}", value, config.invocation_params.dir)
        if self.ini is None:
            return None
        dest = option_dest(self.name)
        return OptionValue(dest, config.getini(dest), config.rootpath)


def _option(usage: str, help: str = "", *, default: Any = "", **keys: Any) -> Any:
    """Declare a field with its `default` where nothing is given; see :class:`Option`.

    `usage` is the name, of a flag with a value as ``precision=NAMES``.
    """
    name, _, metavar = usage.partition("=")
    option = Option(name=name, metavar=metavar, help=help, **keys)
    return field(default=default, metadata={"option": option})


_switch = partial(_option, action="store_true", default=False)
_recording = partial(_option, group=RECORDING)
_comparing = partial(_option, group=COMPARING)


def _non_empty(allowed: str) -> Callable[[OptionValue], str]:
    """Parser of a text that is empty only where the ini file leaves it empty."""

    def parse(option: OptionValue) -> str:
        if option.is_flag and not option.value:
            raise UsageProblem(f"{option.key}=: empty; allowed: {allowed}")
        return str(option.value)

    return parse


def _choice(allowed: Iterable[str]) -> Callable[[OptionValue], str]:
    def parse(option: OptionValue) -> str:
        if option.value not in allowed:
            raise invalid_choice(option.key, option.value, allowed)
        return str(option.value)

    return parse


def _names(option: OptionValue) -> tuple[str, ...]:
    """Parse a comma-separated list of names; repeated ones count once."""
    names = [name.strip() for name in option.value.split(",")]
    if not all(names):
        raise UsageProblem(f"{option.key}={option.value}: an empty name in the list")
    return tuple(dict.fromkeys(names))


def _precisions(option: OptionValue) -> tuple[str, ...]:
    names, allowed = _names(option), catalog.choices("precision")
    for name in names:
        if name not in allowed:
            raise invalid_choice(option.key, name, allowed, aliases=catalog.aliases("precision"))
    return names


def whole_number(key: str, minimum: int, text: str) -> int:
    """Parse a whole number from 0 or from 1; raises UsageProblem."""
    if not (text.isascii() and text.isdecimal() and int(text) >= minimum):
        kind = "positive" if minimum else "non-negative"
        raise UsageProblem(f"{key}: {text!r} is not a {kind} integer")
    return int(text)


def _positive_seconds(option: OptionValue) -> float:
    try:
        seconds = float(option.value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageProblem(f"{option.key}={option.value}: not a positive number of seconds")
    return seconds


def _folder(option: OptionValue) -> Path:
    if not option.value:
        raise UsageProblem(f"{option.key}=: empty; allowed: a folder")
    return option.folder / str(option.value)


def _columns(option: OptionValue) -> tuple[str, ...]:
    """Columns of the result table; none for ``auto``, and ``none`` itself."""
    if option.value.strip() == "auto":
        return ()
    return _names(option)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Columns, order and groups of the result table.

    Empty `columns` are those that have a value and fit. `sort` is ``name``, a column or a metric,
    or empty for the order of the tests; `descending` puts the largest first. `group_by` is
    ``file``, ``function``, ``none`` or a parameter.
    """

    shown: bool = True
    columns: tuple[str, ...] = ()
    sort: str = ""
    descending: bool = False
    group_by: str = BY_FILE


AUTO_TABLE: Final = TableOptions()
"""All columns that have a value and fit, files apart."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a session.

    Empty `precisions` select those of the benchmark's ``precision`` mark, else
    `default_precisions`; empty `world_sizes` those of its ``ranks``. `results_dir` is absolute.
    `resume` and `baseline` name a run, or are empty. `registry` is the URL of a database, ``none``,
    or empty for the default one. `gate` is empty without ``--gate``.
    """

    precisions: tuple[str, ...] = _option(
        "precision=NAMES",
        "Precisions to measure, comma-separated: fp32, tf32, amp, bf16, fp16-true, …",
        parse=_precisions,
        default=(),
    )
    default_precisions: tuple[str, ...] = _option(
        "precision", ini="fp32", ini_help="Default of --precision", parse=_precisions
    )
    devices: tuple[str, ...] = _option(
        "device=NAMES",
        "Devices to measure, comma-separated: auto, cpu, cuda, cuda:1, mps, xpu",
        parse=_names,
        ini="auto",
    )
    world_sizes: tuple[int, ...] = _option(
        "world-size=SIZES",
        "World sizes to measure, comma-separated: 1,2,4. Several ranks run as processes started by "
        "pytest (default: the benchmark's `ranks`)",
        parse=lambda option: tuple(whole_number(option.key, 1, name) for name in _names(option)),
        default=(),
    )
    measure: str = _option(
        "measure=MODEL",
        "Measure a model by its name instead of tests: the words of gpubench measure, as in "
        "--measure='hf:bert --shrink --batch=1,8'",
        parse=_non_empty("a model's name, such as hf:bert"),
    )
    on: str = _option(
        "on=ENGINE",
        "Run the benchmarks in shards: local[:SLOTS] on the GPUs of this host, ray[:ADDRESS], or "
        "slurm[:PARTITION]; details are keys, such as --engine.slurm.time",
        ini="",
    )
    launches: int = _option(
        "launches=K",
        "Measure each benchmark in K fresh processes per rank (default: 1)",
        parse=lambda option: whole_number(option.key, 1, option.value),
        default=1,
    )
    isolate: bool = _switch("isolate", "Run each benchmark in a fresh process per rank")
    resume: str = _recording(
        "resume=RUN",
        "Resume an interrupted run, given its folder, id or id prefix",
        parse=_non_empty("a run's folder, id or id prefix"),
    )
    report: str | None = _recording(
        "report=FILE",
        "Write the run as one HTML file to look at; see also gpubench report",
        default=None,
    )
    repro: Path | None = _recording(  # noqa: RUF009 # a field
        "repro=DIR",
        "Write what reproduces a failed check into a folder of DIR; see gpubench measure --repro",
        parse=_folder,
        default=None,
    )
    timeout_s: float = _option(
        "timeout-s",
        ini="600",
        ini_help="Timeout of a benchmark in seconds",
        parse=_positive_seconds,
    )
    preset: str = _option(
        "preset=NAME",
        "Workload preset: auto, tiny, full",
        parse=_choice(("auto", "tiny", "full")),
        ini="auto",
    )
    configs: tuple[Path, ...] = _option(
        "config=FILE",
        "YAML file that overrides configurations, or a folder searched first; repeatable",
        action="append",
        parse=lambda option: tuple(option.folder / path for path in option.value),
        default=(),
    )
    overrides: tuple[str, ...] = _option(
        "set=KEY=VALUE",
        "Set one configuration key, e.g. training.batch_size=64; repeatable. Short form: "
        "--training.batch_size=64",
        action="append",
        parse=lambda option: tuple(option.value),
        default=(),
    )
    results_dir: Path = _recording(  # noqa: RUF009 # a field
        "results-dir=DIR",
        "Results directory (default: gpubench_results_dir, or results in the root of the project)",
        parse=_folder,
        ini="results",
        ini_help="Default of --results-dir, relative to the rootdir",
    )
    experiment: str = _recording(
        "experiment=NAME", "Experiment, a folder that groups runs (default: default)", ini="default"
    )
    tag: str = _recording("tag=NAME", "Label used in the run's name (default: run)")
    registry: str = _recording(
        "registry=URL",
        "Registry database URL, or none (default: GPUBENCH_REGISTRY, else registry.sqlite in the "
        "results directory)",
        parse=lambda option: option.value or os.environ.get("GPUBENCH_REGISTRY", ""),
        ini="",
    )
    adopt: bool = _switch(
        "adopt", "Also record, compare and gate tests written for pytest-benchmark", group=RECORDING
    )
    baseline: str = _comparing(
        "baseline=RUN",
        "Compare with a baseline, a run (name or folder), or a pytest-benchmark file; last: the "
        "last comparable run on this machine",
        parse=_non_empty("a baseline's name, last, a run (name or folder), or a file"),
        ini="",
        ini_help="Default of --baseline, for example: last",
    )
    gate: str = _comparing(
        "gate=KIND",
        "Fail if a benchmark regressed beyond its limit. --gate: by history if the baseline has "
        "one; --gate=history or --gate=threshold",
        parse=_choice(("auto", "history", "threshold")),
        alone="auto",
    )
    gate_missing: str = _comparing(
        "gate-missing=VERDICT",
        "Gate result for a benchmark that only one side measured, or that is incomparable: pass or "
        "fail (default: pass)",
        parse=_choice(POLICIES),
        default="pass",
    )
    gate_inconclusive: str = _comparing(
        "gate-inconclusive=VERDICT",
        "Gate result if the numbers are inconclusive: pass or fail (default: pass)",
        parse=_choice(POLICIES),
        default="pass",
    )
    allow_incomparable: bool = _switch(
        "allow-incomparable",
        "Compare with a baseline of another machine or configuration, with a warning",
        group=COMPARING,
    )
    allow_doubt: bool = _switch(
        "allow-doubt", "Judge numbers in doubt, or too wide", group=COMPARING
    )
    table_columns: tuple[str, ...] = _option(
        "table=COLUMNS",
        "Result table: auto, none, or its columns, comma-separated: outcome, step, relative, "
        "throughput, flops, mfu, memory, doubts, notes, or any metric (default: auto)",
        parse=_columns,
        ini="auto",
    )
    table_sort: str = _option(
        "table-sort=KEY",
        "Sort the result table by name, by a column or by a metric; -KEY: largest first (default: "
        "in the order of the tests)",
        ini="",
    )
    table_group_by: str = _option(
        "table-group-by=KEY",
        "Group the result table by file, function, none, or a parameter, such as precision; except "
        "by file, relative to the fastest of each group (default: file, or the test's own group)",
        parse=_non_empty("file, function, none, or a parameter"),
        ini=BY_FILE,
    )
    profile: bool = _switch(
        "profile", "Trace a few extra steps of each benchmark with torch.profiler", group=RECORDING
    )

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read and validate the settings of a session.

        Raises:
            UsageProblem: an option has an invalid value.
        """
        stated = ((name, option, option.value_in(config)) for name, option in OPTIONS.items())
        settings = cls(**{n: option.parse(value) for n, option, value in stated if value})
        if settings.gate and not settings.baseline:
            raise UsageProblem(
                "--gate: no baseline to compare with; set --baseline=<name, run or file>"
            )
        return settings

    @property
    def table(self) -> TableOptions:
        """What the result table shows."""
        return TableOptions(
            shown=self.table_columns != (_NO_TABLE,),
            columns=tuple(name for name in self.table_columns if name != _NO_TABLE),
            sort=self.table_sort.removeprefix("-").strip() or self.table_sort,
            descending=self.table_sort.startswith("-"),
            group_by=self.table_group_by,
        )


OPTIONS: Final[Mapping[str, Option]] = {f.name: f.metadata["option"] for f in fields(Settings)}
"""The option of each setting."""

FLAGS: Final[Mapping[str, Option]] = {o.name: o for o in OPTIONS.values() if o.help}
"""Options with a flag, by name."""


def results_dir_from(cwd: Path, stated: object = None) -> Path:
    """The results directory `stated` from `cwd`, None for that of the project which `cwd` is in.

    Without a configuration file that is the nearest one upwards with a run.

    Raises:
        UsageProblem: it is empty.
        BrokenFile: pytest's configuration file cannot be read.
    """
    from _pytest.config.findpaths import determine_setup  # the one place that knows the rules

    option = OPTIONS["results_dir"]
    if stated is not None:
        return cast("Path", option.parse(OptionValue("--results-dir", stated, cwd)))
    newer = {} if pytest.version_tuple < (9,) else {"override_ini": None}
    try:
        rootdir, file, values, *_ = determine_setup(
            inifile=None, args=[], rootdir_cmd_arg=None, invocation_dir=cwd, **newer
        )
    except (pytest.UsageError, OSError, ValueError) as error:
        raise BrokenFile(f"pytest's configuration is unreadable: {error}") from error
    configured = values.get(option_dest(option.name))
    name = str(getattr(configured, "value", configured) or option.ini)
    # Without a file the rootdir of a session is above all paths that it was given.
    folders = (rootdir,) if file else (rootdir, *rootdir.parents)
    found = (folder / name for folder in folders if any((folder / name).glob("*/*/metrics.jsonl")))
    return next(found, rootdir / name)

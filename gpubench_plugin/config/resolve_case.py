"""Resolution of a selected test into a case: device, configuration, fixed rounds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from gpubench_plugin.config.case import Case
from gpubench_plugin.config.marks import (
    BenchmarkMark,
    assignments,
    check_precisions,
    full_profile_only,
)
from gpubench_plugin.config.parametrization import (
    DEVICE,
    FIXTURE,
    PRECISION,
    fixture_names,
    id_of,
    is_adopted,
    namespaces,
    overriding_fixture,
    supports,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import MissingPackage, UsageProblem
from gpubench_plugin.environment import devices
from gpubench_plugin.environment.redaction import redact
from gpubench_plugin.environment.torch_use import reaches_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pytest

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.sections import Configuration, ModelSection
    from gpubench_plugin.config.settings import Settings

_LONGEST_PARAM: Final = 200
"""Characters kept of a parameter: enough to tell cases apart, and bounded in every record."""
_PLAIN: Final = "fp32"
_NONE: Final = "null"


def check_marks(items: Iterable[pytest.Item]) -> None:
    """Validate the marks of benchmarks.

    Raises:
        UsageProblem: naming the test, the mark and the argument.
    """
    precisions = catalog.choices("precision")
    for item in items:
        BenchmarkMark.of(item)
        if not is_adopted(item, fixture_names(item)):  # whose other marks are not ours
            assignments(item)
            check_precisions(item, precisions)


class CaseFactory:
    """Builds a session's cases, caching what they share.

    With `checks_free_memory` a case lacks memory whose preset ``auto`` chose by the device's total,
    if other processes have too much of it. Only the process that the user started checks: later
    the ranks themselves use memory, and they must agree.
    """

    def __init__(
        self, settings: Settings, rootdir: Any, *, local_rank: int, checks_free_memory: bool = False
    ):
        self._checks_free_memory = checks_free_memory and settings.preset == "auto"
        self._settings = settings
        self._rootdir = rootdir
        self._local_rank = local_rank
        self._device = cache(_elsewhere if settings.on else devices.find)
        self._fixed_rounds = cache(self._read_rounds)
        self._configurations: dict[tuple[object, ...], Configuration[Any]] = {}

    def of(self, item: pytest.Item, *, uses_torch: bool = False) -> Case:
        """Build the case of `item`, on the host's CPU if it uses no torch that is known by now.

        Raises:
            UsageProblem: its configuration is invalid or its device is missing.
        """
        if is_adopted(item, fixture_names(item)):
            return self._adopted_case(item)
        _check_workload(item, self._settings.overrides)
        params = {name: redact(str(value)) for name, value in _params(item).items()}
        mark = BenchmarkMark.of(item)
        name = params.get(DEVICE, self._settings.devices[0])
        world_size = int(params.get("world_size", "1"))
        uses_torch = uses_torch or world_size > 1 or self._uses_torch(item, name)
        measures = FIXTURE in fixture_names(item)
        case = partial(
            Case, id=id_of(item), params=params, mark=mark, world_size=world_size, measures=measures
        )
        try:  # its type, and what fits into its memory
            device = self._device(name, local_rank=0) if uses_torch else devices.host()
        except MissingPackage as missing:
            device = devices.host()
            return case(device=device, configuration=_defaults(), uses_torch=False, lacks=missing)
        uses = PRECISION in fixture_names(item)
        default = self._settings.default_precisions[0] if uses else _PLAIN
        precision = params.get("precision", default)
        # Benchmarks without precision run if none is selected, or fp32, which stands for them.
        selected = self._settings.precisions or (_PLAIN,)
        is_offered = supports(item, precision) and (uses or _PLAIN in selected)
        configuration = self._configuration(
            item,
            mark,
            device=device,
            # A benchmark that is not offered contradicts no precision in its files.
            precision=precision if uses or is_offered else None,
            world_size=world_size,
        )
        if uses_torch and not (world_size > 1 and configuration.distributed.share_device):
            device = self._device(name, local_rank=self._local_rank)
        return case(
            device=device,
            configuration=configuration,
            fixed_rounds=self._fixed_rounds(configuration.measure.rounds_file).get(id_of(item)),
            full_profile_only=full_profile_only(item, precision),
            uses_precision=uses,
            is_offered=is_offered,
            uses_torch=uses_torch,
            memory_shortage=_too_small(mark, device, precision)
            or self._memory_shortage(mark.config, configuration, name, world_size),
        )

    def _uses_torch(self, item: pytest.Item, device: str) -> bool:
        """Whether `item` asks for torch, or comes to it by what its modules import."""
        kind, _ = devices.check_name(device)
        if kind not in {"auto", "cpu"} or self._settings.profile or DEVICE in fixture_names(item):
            return True
        return reaches_torch(namespaces(item))

    def _memory_shortage(
        self, config_name: str | None, configuration: Configuration[Any], device: str, ranks: int
    ) -> str:
        """Why the devices of `ranks` ranks are too full for the preset chosen for them, if so."""
        is_chosen = configuration.experiment.preset == "full" and self._checks_free_memory
        if config_name is None or not is_chosen:
            return ""
        count = self._device(device, local_rank=0).device_count or 1
        used = 1 if configuration.distributed.share_device else min(ranks, count)
        reasons = (
            devices.too_full_reason(
                self._device(device, local_rank=rank),
                self._needed_gib(config_name),
                preset=f"full of {config_name}",
            )
            for rank in range(used)
        )
        return next(filter(None, reasons), "")

    def _adopted_case(self, item: pytest.Item) -> Case:
        """Case of a pytest-benchmark test, to which only the limits and the timeout apply."""
        mark, device = BenchmarkMark.of(item), devices.host()
        resolved = self._configuration(
            item, replace(mark, config=None), device=device, precision=_PLAIN, world_size=1
        )
        default = _defaults()
        measure = default.measure.model_copy(update={"timeout_s": resolved.measure.timeout_s})
        return Case(
            id=id_of(item),
            params={name: _param_text(value) for name, value in _params(item).items()},
            mark=mark,
            world_size=1,
            device=device,
            configuration=default.model_copy(update={"gate": resolved.gate, "measure": measure}),
            adopted=True,
        )

    def _read_rounds(self, name: str | None) -> Mapping[str, FixedRounds]:
        """Fixed rounds in the file `name`, relative to the rootdir."""
        if name is None:
            return {}
        from gpubench_plugin.config import rounds_file

        return rounds_file.read(self._rootdir / name, "measure.rounds_file")

    def _configuration(
        self,
        item: pytest.Item,
        mark: BenchmarkMark,
        *,
        device: devices.Device,
        precision: str | None,
        world_size: int,
    ) -> Configuration[Any]:
        """Configuration of `item`; with `precision` None that key is left as stated."""
        from gpubench_plugin.config.resolution import resolve

        settings, name = self._settings, mark.config
        preset = self._preset(name, device)
        profiling = ("profiling.enabled=true",) if settings.profile else ()
        own_assignments = assignments(item)
        _refuse_contradiction(item, own_assignments, settings.overrides)
        try:
            resolved = resolve(
                name=name,
                preset=preset,
                overlays=settings.configs,
                overrides=(*settings.overrides, *profiling, *own_assignments),
                fixed_values={
                    "experiment.preset": preset,
                    "experiment.device": device.type,
                    **({} if precision is None else {"precision.name": precision}),
                    "distributed.world_size": world_size,
                },
                rootdir=self._rootdir,
                model_section=partial(_model_section, item),
                limits={metric: str(text) for metric, text in mark.limits.items()},
                # The rate of a long run; single kernels are timed at their best.
                sustained=preset == "full" and device.type != "cpu" and mark.timing != "kernel",
            )
        except UsageProblem as error:
            raise UsageProblem(f"{item.nodeid}: {error}") from error
        # What is no key is not in the dump.
        beside = resolved.training.loss_drop_ignored, *resolved.sources.items()
        content = type(resolved), resolved.model_dump_json(), beside
        return self._configurations.setdefault(content, resolved)  # benchmarks share few

    def _preset(self, name: str | None, device: devices.Device) -> Any:
        if self._settings.preset != "auto":
            return self._settings.preset
        if device.memory_gib is None or name is None:
            return "tiny"
        return "full" if device.memory_gib >= self._needed_gib(name) else "tiny"

    def _needed_gib(self, name: str) -> float:
        from gpubench_plugin.config.resolution import needs_memory_gib

        return needs_memory_gib(name, overlays=self._settings.configs, rootdir=self._rootdir)


def _elsewhere(name: str, *, local_rank: int = 0) -> devices.Device:
    """With ``--on``, this host's CPU, which stands for the devices of a shard."""
    return devices.host()


def _too_small(mark: BenchmarkMark, device: devices.Device, precision: str) -> str:
    """Why `device` cannot hold what the mark says that it needs in `precision`, if so."""
    if mark.needs_memory_gib is None or device.memory_gib is None:
        return ""
    compute_dtype = catalog.load("precision", precision).compute_dtype
    needed_gib = mark.needs_memory_gib * {"fp16": 0.5, "bf16": 0.5, "fp64": 2}.get(compute_dtype, 1)
    if device.memory_gib >= needed_gib:
        return ""
    return (
        f"needs {needed_gib:g} GiB of device memory in {precision}, but {device.torch_name} "
        f"({device.model}) has {device.memory_gib:.1f}"
    )


def _defaults() -> Configuration[ModelSection]:
    from gpubench_plugin.config.sections import Configuration, ModelSection

    return Configuration[ModelSection](model=ModelSection())


def _params(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def _param_text(value: object) -> str:
    """A parameter of an arbitrary test; a value that is not plain is named by its type."""
    is_plain = isinstance(value, str | int | float | None)
    return redact(str(value))[:_LONGEST_PARAM] if is_plain else f"<{type(value).__name__}>"


def _model_section(item: pytest.Item, workload: str) -> type[ModelSection]:
    """Class of section ``model`` of the `workload`, which may be the project's own fixture.

    Such a fixture tells the class by its annotation: that of the workload it returns.
    """
    from gpubench_plugin.config.sections import ModelSection

    fixture = overriding_fixture(item, "workload")
    own_section = getattr(_returned_class(fixture), "Section", None)
    if isinstance(own_section, type) and issubclass(own_section, ModelSection):
        return own_section
    if fixture is not None and workload not in catalog.choices("workloads"):
        return ModelSection
    section: type[ModelSection] = catalog.load("workloads", workload).Section
    return section


def _check_workload(item: pytest.Item, overrides: Iterable[str]) -> None:
    """Refuse an unknown name before looking for a device, which imports torch."""
    name = dict(text.split("=", 1) for text in overrides if "=" in text).get("model.name", _NONE)
    known = (_NONE, *catalog.choices("workloads"))
    if name not in known and overriding_fixture(item, "workload") is None:
        catalog.load("workloads", name, key=f"--model.name={name}")


def _returned_class(function: Callable[..., object] | None) -> object:
    """Annotation of what `function` returns; None if there is none that can be read."""
    try:
        return None if function is None else get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):  # names imported for type checkers only
        return None


def _refuse_contradiction(
    item: pytest.Item, own_assignments: Iterable[str], overrides: Iterable[str]
) -> None:
    """Refuse command line overrides that contradict what a case sets (and its id says)."""
    own_values = dict(text.split("=", 1) for text in own_assignments)
    for text in overrides:
        key, _, value = text.partition("=")
        if key in own_values and own_values[key] != value:
            raise UsageProblem(
                f"--{key}={value}: conflicts with the case {item.nodeid}, which sets "
                f"{key}={own_values[key]}; select cases with -k instead"
            )

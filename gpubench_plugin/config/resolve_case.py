"""From a selected test to its case: which device, which configuration, which rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin import catalog
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.limits import limits_of
from gpubench_plugin.config.marks import (
    BenchmarkMark,
    assignments,
    check_precisions,
    full_profile_only,
)
from gpubench_plugin.config.parametrization import fixture_names, is_adopted, offers, uses_precision
from gpubench_plugin.environment import devices
from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

    from gpubench_plugin.config.rounds_file import FrozenRounds
    from gpubench_plugin.config.sections import Configuration, ModelSection
    from gpubench_plugin.config.settings import Settings

_LONGEST_PARAM: Final = 200
_PLAIN: Final = "fp32"


def check_marks(items: Iterable[pytest.Item]) -> None:
    """Refuse bad marks of benchmarks.

    Raises:
        UsageProblem: naming the test, the mark and the argument.
    """
    precisions = catalog.choices("precision")
    for item in items:
        BenchmarkMark.of(item)
        if not is_adopted(item, fixture_names(item)):  # whose other marks are not ours
            assignments(item)
            check_precisions(item, precisions)


class Cases:
    """Makes the cases of a session; what they share is looked up once."""

    def __init__(self, settings: Settings, rootdir: Any, *, local_rank: int):
        self._settings = settings
        self._rootdir = rootdir
        self._local_rank = local_rank
        self._devices: dict[tuple[str, int], devices.Device] = {}
        self._rounds: dict[str, dict[str, FrozenRounds]] = {}
        self._configurations: dict[tuple[type, str, str | None], Configuration[Any]] = {}

    def of(self, item: pytest.Item) -> Case:
        """The case of `item`.

        Raises:
            UsageProblem: its configuration is wrong or its device is not there.
        """
        if is_adopted(item, fixture_names(item)):
            return self._adopted(item)
        params = _params(item)
        mark = BenchmarkMark.of(item)
        name = params.get("torch_device", self._settings.devices[0])
        device = self._device(name, local_rank=0)  # its type, and what fits into its memory
        world_size = int(params.get("world_size", "1"))
        uses = uses_precision(item)
        default = self._settings.default_precisions[0] if uses else _PLAIN
        precision = params.get("precision", default)
        offered = offers(item, precision) and (uses or self._measures_without_precision)
        configuration = self._configuration(
            item,
            mark.config,
            device=device,
            # What runs in none, where another one is wanted, contradicts nothing that it says.
            precision=precision if uses or offered else None,
            world_size=world_size,
        )
        if not (world_size > 1 and configuration.distributed.share_device):
            device = self._device(name, local_rank=self._local_rank)
        return Case(
            id=item.nodeid,
            params=params,
            mark=mark,
            world_size=world_size,
            device=device,
            configuration=configuration,
            rounds=self._frozen(configuration.measure.rounds_file).get(item.nodeid),
            full_profile_only=full_profile_only(item, precision),
            uses_precision=uses,
            offered=offered,
        )

    @property
    def _measures_without_precision(self) -> bool:
        """Whether a benchmark that uses no precision is wanted: fp32 may stand for it."""
        return not self._settings.precisions or _PLAIN in self._settings.precisions

    def _adopted(self, item: pytest.Item) -> Case:
        """The case of a test that pytest-benchmark measures: no key but the gate's bears on it."""
        from gpubench_plugin.config.sections import Configuration, ModelSection

        mark, device = BenchmarkMark.of(item), devices.host()
        stated = self._configuration(item, None, device=device, precision="fp32", world_size=1)
        plain = Configuration[ModelSection](model=ModelSection())
        limited = plain.measure.model_copy(update={"timeout_s": stated.measure.timeout_s})
        return Case(
            id=item.nodeid,
            params=_foreign_params(item),
            mark=mark,
            world_size=1,
            device=device,
            configuration=plain.model_copy(update={"gate": stated.gate, "measure": limited}),
            adopted=True,
        )

    def _frozen(self, name: str | None) -> Mapping[str, FrozenRounds]:
        """The rounds in the file of that `name`, which is relative to pytest's root directory."""
        if name is None:
            return {}
        from gpubench_plugin.config import rounds_file

        if name not in self._rounds:
            self._rounds[name] = rounds_file.read(self._rootdir / name, "measure.rounds_file")
        return self._rounds[name]

    def _device(self, name: str, *, local_rank: int) -> devices.Device:
        key = name, local_rank
        if key not in self._devices:
            self._devices[key] = devices.find(name, local_rank=local_rank)
        return self._devices[key]

    def _configuration(
        self,
        item: pytest.Item,
        name: str | None,
        *,
        device: devices.Device,
        precision: str | None,
        world_size: int,
    ) -> Configuration[Any]:
        """The configuration of `item`; `precision` None leaves that key to what is stated."""
        from gpubench_plugin.config.resolution import resolve
        from gpubench_plugin.environment import redacted

        settings = self._settings
        preset = self._preset(name, device)
        profiling = ("profiling.enabled=true",) if settings.profile else ()
        own = assignments(item)
        _refuse_contradiction(item, own, settings.overrides)
        try:
            resolved = resolve(
                name=name,
                preset=preset,
                overlays=settings.configs,
                overrides=(*settings.overrides, *profiling, *own),
                chosen={
                    "experiment.preset": preset,
                    "experiment.device": device.type,
                    **({} if precision is None else {"precision.name": precision}),
                    "distributed.world_size": world_size,
                },
                rootdir=self._rootdir,
                model_section=_model_section,
            )
        except UsageProblem as error:
            raise UsageProblem(f"{item.nodeid}: {error}") from error
        experiment = resolved.experiment
        notes = {"notes": redacted(experiment.notes)}  # recorded in every file
        limits = limits_of(item, resolved.gate.limits, settings.overrides)
        return self._shared(
            resolved.model_copy(
                update={
                    "experiment": experiment.model_copy(update=notes),
                    "gate": resolved.gate.model_copy(update={"limits": limits}),
                }
            )
        )

    def _shared(self, configuration: Configuration[Any]) -> Configuration[Any]:
        """The first one that is equal: thousands of benchmarks have few between them."""
        lapsed = configuration.training.loss_drop_lapsed  # no key, and so in no dump
        content = type(configuration), configuration.model_dump_json(), lapsed
        return self._configurations.setdefault(content, configuration)

    def _preset(self, name: str | None, device: devices.Device) -> Any:
        if self._settings.preset != "auto":
            return self._settings.preset
        if device.memory_gib is None or name is None:
            return "tiny"
        from gpubench_plugin.config.resolution import needs_memory_gib

        needed = needs_memory_gib(name, overlays=self._settings.configs, rootdir=self._rootdir)
        return "full" if device.memory_gib >= needed else "tiny"


def _params(item: pytest.Item) -> dict[str, str]:
    callspec = getattr(item, "callspec", None)
    return {k: str(v) for k, v in callspec.params.items()} if callspec else {}


def _foreign_params(item: pytest.Item) -> dict[str, str]:
    """The parameters of a test that may have any: what is no plain value is named by its type."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}
    return {
        name: str(value)[:_LONGEST_PARAM]
        if isinstance(value, str | int | float | None)
        else f"<{type(value).__name__}>"
        for name, value in params.items()
    }


def _model_section(workload: str) -> type[ModelSection]:
    section: type[ModelSection] = catalog.load("workloads", workload).Section
    return section


def _refuse_contradiction(item: pytest.Item, own: Iterable[str], overrides: Iterable[str]) -> None:
    """A case whose id says ``channels_last`` must not be measured without it."""
    fixed = dict(text.split("=", 1) for text in own)
    for text in overrides:
        key, _, value = text.partition("=")
        if key in fixed and fixed[key] != value:
            raise UsageProblem(
                f"--{key}={value}: the case {item.nodeid} sets {key}={fixed[key]}; "
                "choose cases with -k instead"
            )

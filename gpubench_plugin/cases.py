"""A case: everything that is known of a selected benchmark before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin import catalog, devices, stated_limits
from gpubench_plugin.errors import Unsupported, UsageProblem
from gpubench_plugin.marks import (
    BenchmarkMark,
    assignments,
    check_precisions,
    full_profile_only,
)
from gpubench_plugin.records import Measurement, Outcome
from gpubench_plugin.selection import fixture_names, is_adopted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubench_plugin.configuration.schema import Configuration, ModelSection
    from gpubench_plugin.measure.frozen import FrozenRounds
    from gpubench_plugin.settings import Settings


_LONGEST_PARAM: Final = 200


@dataclass(frozen=True, kw_only=True)
class Case:
    """One benchmark with its parameters, device and resolved configuration.

    `rounds` are those it is to run, where ``measure.rounds_file`` names it. An `adopted` one was
    written for pytest-benchmark: it runs where and as an ordinary test does, and is measured there.
    One with `full_profile_only` is too slow on a CPU for a run of the whole suite.
    """

    id: str
    params: dict[str, str]
    mark: BenchmarkMark
    world_size: int
    device: devices.Device
    configuration: Configuration[Any]
    rounds: FrozenRounds | None = None
    adopted: bool = False
    full_profile_only: bool = False

    @property
    def name(self) -> str:
        """The test function's name with its parameters: the id's last part."""
        return self.id.rpartition("::")[2]

    @property
    def precision(self) -> str:
        """The name of the precision."""
        return self.configuration.precision.name

    def timeout_s(self, default_s: float) -> float:
        """Seconds after which it is a hang: by its configuration, else its mark, or the default."""
        return self.configuration.measure.timeout_s or self.mark.timeout_s or default_s

    def refusal(self, started: int | None = None) -> BaseException | None:
        """Why it does not run: on the ranks that are `started`, or on any that could be."""
        if self.adopted:
            return None
        if not self.mark.fits(self.world_size):
            return pytest.skip.Exception(
                f"runs on ranks={self.mark.ranks!r}, not on {self.world_size}"
            )
        if self.full_profile_only and self._is_quick:
            return pytest.skip.Exception("measured on a CPU with --measure.profile=full only")
        most = self.device.most_ranks
        if most is not None and self.world_size > most and started in {None, 1}:
            return Unsupported(
                f"{self.world_size} ranks need a {self.device.type} device each, here: {most}"
            )
        if started is not None and started != self.world_size:
            return pytest.skip.Exception(f"runs on {self.world_size} ranks, not on {started}")
        return None

    @property
    def _is_quick(self) -> bool:
        return self.device.type == "cpu" and self.configuration.measure.profile != "full"

    def record(self, outcome: Outcome, reason: str = "") -> Measurement:
        """A measurement without numbers: the benchmark's record unless it is measured."""
        from gpubench_plugin.configuration.comparability import comparable

        return Measurement(
            id=self.id,
            name=self.name,
            params=self.params,
            world_size=self.world_size,
            outcome=outcome,
            reason=reason,
            configuration=self.configuration.model_dump(mode="json"),
            settings=comparable(self.configuration),
            limits=self.configuration.gate.limits,
        )


CASE = pytest.StashKey[Case]()


def case_on_ranks(item: pytest.Item) -> Case | None:
    """The case of a benchmark that ranks run together; none of an adopted or an ordinary test."""
    case = item.stash.get(CASE, None)
    return None if case is None or case.adopted else case


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


def device_models(cases: Iterable[Case]) -> dict[str, str]:
    """The models of the devices that `cases` run on, by torch's names."""
    return {case.device.torch_name: case.device.model for case in cases}


def devices_of(cases: Iterable[Case], asked: Iterable[str]) -> str:
    """The devices that `cases` run on, as the header shows them; `asked` are those of --device."""
    models = device_models(cases)
    named = ", ".join(f"{name} ({model})" for name, model in models.items())
    return f"{named}; auto: no accelerator found" if "auto" in asked and "cpu" in models else named


class Cases:
    """Makes the cases of a session; what they share is looked up once."""

    def __init__(self, settings: Settings, rootdir: Any, *, local_rank: int):
        self._settings = settings
        self._rootdir = rootdir
        self._local_rank = local_rank
        self._devices: dict[str, devices.Device] = {}
        self._rounds: dict[str, dict[str, FrozenRounds]] = {}

    def of(self, item: pytest.Item) -> Case:
        """The case of `item`.

        Raises:
            UsageProblem: its configuration is wrong or its device is not there.
        """
        if is_adopted(item, fixture_names(item)):
            return self._adopted(item)
        params = _params(item)
        mark = BenchmarkMark.of(item)
        device = self._device(params.get("torch_device", self._settings.devices[0]))
        world_size = int(params.get("world_size", "1"))
        precision = params.get("precision", self._settings.default_precisions[0])
        configuration = self._configuration(
            item, mark.config, device=device, precision=precision, world_size=world_size
        )
        return Case(
            id=item.nodeid,
            params=params,
            mark=mark,
            world_size=world_size,
            device=device,
            configuration=configuration,
            rounds=self._frozen(configuration.measure.rounds_file).get(item.nodeid),
            full_profile_only=full_profile_only(item, precision),
        )

    def _adopted(self, item: pytest.Item) -> Case:
        """The case of a test that pytest-benchmark measures: no key but the gate's bears on it."""
        from gpubench_plugin.configuration.schema import Configuration, ModelSection

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
        from gpubench_plugin.measure import frozen

        if name not in self._rounds:
            self._rounds[name] = frozen.read(self._rootdir / name, "measure.rounds_file")
        return self._rounds[name]

    def _device(self, name: str) -> devices.Device:
        if name not in self._devices:
            self._devices[name] = devices.find(name, local_rank=self._local_rank)
        return self._devices[name]

    def _configuration(
        self,
        item: pytest.Item,
        name: str | None,
        *,
        device: devices.Device,
        precision: str,
        world_size: int,
    ) -> Configuration[Any]:
        from gpubench_plugin.configuration.resolve import resolve
        from gpubench_plugin.results.redaction import redacted

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
                    "precision.name": precision,
                    "distributed.world_size": world_size,
                },
                rootdir=self._rootdir,
                model_section=_model_section,
            )
        except UsageProblem as error:
            raise UsageProblem(f"{item.nodeid}: {error}") from error
        experiment = resolved.experiment
        notes = {"notes": redacted(experiment.notes)}  # recorded in every file
        limits = stated_limits.limits_of(item, resolved.gate.limits, settings.overrides)
        return resolved.model_copy(
            update={
                "experiment": experiment.model_copy(update=notes),
                "gate": resolved.gate.model_copy(update={"limits": limits}),
            }
        )

    def _preset(self, name: str | None, device: devices.Device) -> Any:
        if self._settings.preset != "auto":
            return self._settings.preset
        if device.memory_gib is None or name is None:
            return "tiny"
        from gpubench_plugin.configuration.resolve import needs_memory_gib

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
    section: type[ModelSection] = catalog.load("workloads", workload).Section  # type: ignore[attr-defined] # of Workload
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

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import model_validator

from gpubench_plugin.config.resolution import needs_memory_gib, resolve
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.core.errors import UsageProblem, invalid_choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.config.marks import Preset

MLP = """
experiment: {notes: from the file}
model: {name: mlp, widths: [64, 128]}
training: {batch_size: 16, optimizer: adamw, steps: 5}
presets:
  tiny: {training: {batch_size: 4}}
  full: {training: {batch_size: 512}, needs_memory_gib: 24}
"""


class Mlp(ModelSection):
    widths: tuple[int, ...]
    classes: int = 10

    @model_validator(mode="after")
    def _deep_enough(self) -> Mlp:
        if not self.widths:
            raise ValueError("at least one width is needed")
        return self


def model_section(workload: str) -> type[ModelSection]:
    if workload != "mlp":
        raise invalid_choice("workload", workload, ["mlp", "resnet18"])
    return Mlp


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mlp.yaml").write_text(MLP)
    return tmp_path


class Resolver:
    """Resolves with this folder as root; each call says only what differs from the usual."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(
        self,
        *overrides: str,
        name: str | None = "mlp",
        preset: Preset = "tiny",
        overlays: Sequence[Path] = (),
        chosen: Mapping[str, object] | None = None,
    ) -> Configuration[Any]:
        return resolve(
            name=name,
            preset=preset,
            overlays=overlays,
            overrides=overrides,
            fixed_values=chosen or {},
            rootdir=self.root,
            model_section=model_section,
        )

    def refusal(self, *overrides: str, **given: Any) -> list[str]:
        with pytest.raises(UsageProblem) as caught:
            self(*overrides, **given)
        return str(caught.value).splitlines()

    def overlay(self, text: str, name: str = "x.yaml") -> Path:
        path = self.root / name
        path.write_text(text)
        return path


@pytest.fixture
def resolver(root: Path) -> Resolver:
    return Resolver(root)


SIX = "training: {batch_size: 6, momentum: 0.5}"
SEVEN = "{training: {batch_size: 7}}"


class TestLayers:
    @pytest.mark.parametrize(
        ("overrides", "overlays", "preset", "expected"),
        [
            ([], [], "tiny", {"batch_size": 4, "optimizer": "adamw", "momentum": 0.9}),
            ([], [], "full", {"batch_size": 512}),
            ([], [SIX], "tiny", {"batch_size": 6}),
            ([], [f"{SIX}\npresets: {{tiny: {SEVEN}}}"], "tiny", {"batch_size": 7}),
            ([], [f"presets: {{full: {SEVEN}}}"], "tiny", {"batch_size": 4}),
            ([], [SIX, SEVEN[1:-1]], "tiny", {"batch_size": 7, "momentum": 0.5}),
            (["training.batch_size=8", "training.batch_size=9"], [SIX], "tiny", {"batch_size": 9}),
            (
                ["training.epochs=2", "training.steps=null"],
                [],
                "tiny",
                {"steps": None, "epochs": 2},
            ),
        ],
    )
    def test_later_layers_win_key_by_key(
        self,
        resolver: Resolver,
        overrides: list[str],
        overlays: list[str],
        preset: Preset,
        expected: dict[str, object],
    ) -> None:
        """Defaults, file, its preset, overlays each with its preset, overrides; null takes back."""
        paths = [resolver.overlay(text, f"{n}.yaml") for n, text in enumerate(overlays)]
        resolved = resolver(*overrides, preset=preset, overlays=paths)
        assert resolved.experiment.preset == preset
        assert {key: getattr(resolved.training, key) for key in expected} == expected

    @pytest.mark.parametrize(
        ("name", "overrides", "widths"),
        [
            ("mlp", [], (64, 128)),
            ("mlp", ["model.widths=[3]"], (3,)),
            (None, ["model.name=mlp", "model.widths=[3]"], (3,)),
        ],
    )
    def test_the_workload_has_keys_of_its_own(
        self, resolver: Resolver, name: str | None, overrides: list[str], widths: tuple[int, ...]
    ) -> None:
        """The model section is the workload's class, wherever the name was stated."""
        assert resolver(*overrides, name=name).model == Mlp(name="mlp", widths=widths)

    def test_every_key_that_is_no_default_has_a_source(self, resolver: Resolver) -> None:
        """The file, the option that overrides it, and what a flag chooses."""
        sources = resolver("training.steps=7").sources
        assert sources["training.steps"] == "--training.steps=7"
        assert sources["model.name"] == "configs/mlp.yaml"
        assert sources["distributed.scaling"] == "data.global_batch_size"
        assert "training.momentum" not in sources

    def test_what_flags_choose_is_in_the_result(self, resolver: Resolver) -> None:
        """A file may say the same; without a name defaults remain; directories come first."""
        chosen = {"experiment.device": "cuda", "precision.name": "amp", "distributed.world_size": 2}
        resolved = resolver("precision.name=amp", chosen=chosen)
        assert (
            resolved.experiment.device,
            resolved.precision.name,
            resolved.distributed.world_size,
        ) == ("cuda", "amp", 2)
        defaults = Configuration[ModelSection](model=ModelSection())
        assert resolver(name=None).model_dump() == defaults.model_dump()
        (resolver.root / "mine").mkdir()
        given = resolver.overlay("training: {batch_size: 3}", "mine/mlp.yaml").parent
        training = resolver(overlays=[given]).training
        assert (training.batch_size, training.optimizer) == (3, "sgd")


class TestPresets:
    def test_a_preset_that_is_not_there_is_refused(self, resolver: Resolver) -> None:
        """The message lists those there; a file without any serves; an overlay may need less."""
        resolver.overlay("presets: {full: {}}", "configs/big.yaml")
        assert resolver.refusal(name="big") == [
            "configs/big.yaml: no preset 'tiny'; available: full"
        ]
        resolver.overlay("training: {steps: 3}", "configs/plain.yaml")
        assert resolver(name="plain", preset="full").experiment.preset == "full"
        overlay = resolver.overlay("presets: {full: {needs_memory_gib: 8}}")
        assert needs_memory_gib("mlp", overlays=[overlay], rootdir=resolver.root) == 8.0

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("presets: {full: {needs_memory_gib: 24}}", 24.0),
            ("presets: {full: {}}", 0.0),
            ("training: {steps: 3}", 0.0),
            ("presets: {tiny: {}}", math.inf),
        ],
    )
    def test_the_memory_that_full_needs(
        self, resolver: Resolver, text: str, expected: float
    ) -> None:
        """What the file says; nothing if it says nothing; beyond reach if it has no ``full``."""
        resolver.overlay(text, "configs/x.yaml")
        assert needs_memory_gib("x", overlays=[], rootdir=resolver.root) == expected


CHOSEN = {"experiment.device": "cpu", "precision.name": "amp", "distributed.world_size": 4}


class TestRulesBetweenKeys:
    @pytest.mark.parametrize(
        ("overrides", "words"),
        [
            (["experiment.preset=full"], ['"full"', '"tiny"', "--preset"]),
            (["experiment.device=mps"], ['"mps"', '"cpu"', "--device"]),
            (["precision.name=bf16"], ['"bf16"', '"amp"', "--precision"]),
            (["distributed.world_size=2"], ["2", "4", "torchrun --nproc-per-node"]),
            (["data.global_batch_size=10"], ["10", "4 ranks", "a multiple of 4"]),
            (["training.epochs=2"], ["training.steps 5 (configs/mlp.yaml)", "null"]),
            (["distributed.parallelism=fsdpp"], ["did you mean 'fsdp2'", "auto, ddp, fsdp2"]),
            (
                ["distributed.static_graph=true", "distributed.parallelism=fsdp2"],
                ["true applies to distributed.parallelism=ddp", "not to fsdp2", "remove it"],
            ),
        ],
    )
    def test_a_contradiction_names_both_sides(
        self, resolver: Resolver, overrides: list[str], words: list[str]
    ) -> None:
        """One line with the override, its value, the other one, and what is allowed."""
        (line,) = resolver.refusal(*overrides, chosen=CHOSEN)
        assert line.startswith(f"--{overrides[0]}: ")
        assert [word for word in words if word not in line] == []

    def test_a_global_batch_is_shared_among_the_ranks(self, resolver: Resolver) -> None:
        """Each rank's share becomes its batch; a file that contradicts a flag is named."""
        resolved = resolver("data.global_batch_size=12", chosen={"distributed.world_size": 3})
        assert (resolved.data.global_batch_size, resolved.training.batch_size) == (12, 4)
        overlay = resolver.overlay("precision: {name: fp16}")
        (line,) = resolver.refusal(overlays=[overlay], chosen=CHOSEN)
        assert line.startswith(f'--config={overlay}: precision.name: "fp16" contradicts "amp"')

    @pytest.mark.parametrize("ranks", [1, 2])
    def test_keys_of_the_chosen_parallelism_are_taken(self, resolver: Resolver, ranks: int) -> None:
        """What is chosen has its keys; by itself that is ddp, whose keys one rank may be given."""
        world = {"distributed.world_size": ranks}
        bucket = resolver("distributed.bucket_cap_mb=50", chosen=world).distributed.bucket_cap_mb
        sharded = resolver(
            "distributed.parallelism=fsdp2", "distributed.reshard_after_forward=false", chosen=world
        )
        assert (bucket, sharded.distributed.reshard_after_forward) == (50, False)


class TestRefusals:
    @pytest.mark.parametrize(
        ("override", "message"),
        [
            (
                "training.batch_sise=3",
                "did you mean 'training.batch_size'?); allowed: batch_size",
            ),
            ("data.batch_size=3", "did you mean 'training.batch_size' or 'inference.batch_size'?)"),
            ("model.steps=3", "did you mean 'training.steps' or 'measure.steps' or 'profiling.ste"),
            ("data.zzz=3", "unknown key; allowed: source, path, workers, pin_memory"),
            ("train.steps=3", "unknown section (did you mean 'training'?); allowed: experiment"),
            ("training.batch_size=many", '"many" is not allowed: input should be a valid integer'),
            ("training.batch_size=0", "0 is not allowed: input should be greater than 0, or input"),
            ("training.batch_size=1.5", "1.5 is not allowed: input should be a valid integer"),
            ("training.batch_size=true", "true is not allowed: input should be a valid integer"),
            ("training.batch_size=null", "null is not allowed: input should be a valid integer"),
            (
                "training.batch_size=!!int 3 4",
                '"!!int 3 4" is not allowed: input should be',
            ),
            ("training.batch_size.x=1", '{"x": "1"} is not allowed: input should be a valid int'),
            ("training.learning_rate=.inf", "Infinity is not allowed: input should be a finite"),
            ("training.loss_drop=2", "2 is not allowed: input should be less than or equal to 1"),
            (
                "measure.by=cl",
                "\"cl\" is not allowed (did you mean 'ci'?): input should be 'ci',",
            ),
            ("model.widths=[1, a]", '[1, "a"] is not allowed: input should be a valid integer'),
            ("model.widths=[]", "at least one width is needed"),
            ("model.name=mpl", "unknown 'mpl' (did you mean 'mlp'?); allowed: mlp, resnet18"),
            ("experiment.notes=\udcff", "text in UTF-8"),
        ],
    )
    def test_an_override_is_refused_in_plain_words(
        self, resolver: Resolver, override: str, message: str
    ) -> None:
        """Each wrong key or value is answered with what was said, what is allowed, what is near."""
        (line,) = resolver.refusal(override)
        assert message in line

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "presets: {tiny: {training: {batch_size: a}}}",
                ' preset tiny: training.batch_size: "a" is',
            ),
            (
                "batch_size: 3",
                ": batch_size: unknown section (did you mean 'training.batch_size'",
            ),
            ("data:", ": data: null is not allowed: input should be an object"),
            ("model: {name: mlp}", ": model.widths: is missing"),
            ("model: [mlp]", ': model: ["mlp"] is not allowed: input should be an object'),
        ],
    )
    def test_a_value_in_a_file_is_named_by_file_and_key(
        self, resolver: Resolver, text: str, message: str
    ) -> None:
        """The message has the source with its preset, the dotted key, the value and the type."""
        resolver.overlay(text, "configs/x.yaml")
        (line,) = resolver.refusal(name="x")
        assert line.startswith(f"configs/x.yaml{message}")

    def test_several_errors_come_together(self, resolver: Resolver) -> None:
        """All that is wrong is said at once, one error per line, and long values are cut."""
        lines = resolver.refusal("training.steps=a", "data.source=3", "measure.by=x", "x.y=1")
        assert [line.partition(":")[0] for line in lines] == [
            "--training.steps=a",
            "--measure.by=x",
            "--x.y=1",
        ]
        (line,) = resolver.refusal(f"training.steps={'a' * 500}", name=None)
        assert f'"{"a" * 79}… is not allowed' in line

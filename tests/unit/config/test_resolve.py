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


class TestLayers:
    def test_a_file_is_laid_over_the_defaults(self, resolver: Resolver) -> None:
        """Keys of the named file replace defaults; the others keep theirs."""
        training = resolver().training
        assert (training.optimizer, training.momentum) == ("adamw", 0.9)

    def test_the_workload_has_keys_of_its_own(self, resolver: Resolver) -> None:
        """The model section is the workload's class, and a list of YAML is a tuple in it."""
        assert resolver().model == Mlp(name="mlp", widths=(64, 128))

    @pytest.mark.parametrize(("preset", "batch_size"), [("tiny", 4), ("full", 512)])
    def test_the_preset_wins_over_the_base(
        self, resolver: Resolver, preset: Preset, batch_size: int
    ) -> None:
        """The chosen preset replaces keys of the base, and stands in the result."""
        resolved = resolver(preset=preset)
        assert (resolved.experiment.preset, resolved.training.batch_size) == (preset, batch_size)

    def test_an_overlay_wins_over_the_preset(self, resolver: Resolver) -> None:
        """A file given as ``--config`` is laid over the named file with its preset."""
        overlay = resolver.overlay("training: {batch_size: 6}")
        assert resolver(overlays=[overlay]).training.batch_size == 6

    def test_the_preset_of_an_overlay_wins_over_its_base(self, resolver: Resolver) -> None:
        """An overlay may have presets; the chosen one follows the overlay's own base."""
        overlay = resolver.overlay(
            "training: {batch_size: 6}\npresets: {tiny: {training: {batch_size: 7}}}"
        )
        assert resolver(overlays=[overlay]).training.batch_size == 7

    def test_an_overlay_need_not_have_the_preset(self, resolver: Resolver) -> None:
        """An overlay that only says something about ``full`` changes nothing for ``tiny``."""
        overlay = resolver.overlay("presets: {full: {training: {batch_size: 7}}}")
        assert resolver(overlays=[overlay]).training.batch_size == 4

    def test_later_overlays_win(self, resolver: Resolver) -> None:
        """Of two files given as ``--config`` the later one has the last word."""
        first = resolver.overlay("training: {batch_size: 6, momentum: 0.5}", "a.yaml")
        second = resolver.overlay("training: {batch_size: 7}", "b.yaml")
        training = resolver(overlays=[first, second]).training
        assert (training.batch_size, training.momentum) == (7, 0.5)

    def test_overrides_win_over_files(self, resolver: Resolver) -> None:
        """Dot-key overrides come after all files, and the last of them counts."""
        overlay = resolver.overlay("training: {batch_size: 6}")
        resolved = resolver("training.batch_size=8", "training.batch_size=9", overlays=[overlay])
        assert resolved.training.batch_size == 9

    def test_an_override_reaches_the_keys_of_the_workload(self, resolver: Resolver) -> None:
        """Overrides of the model section are typed by the workload's class."""
        assert resolver("model.widths=[3]").model.widths == (3,)

    def test_an_override_may_choose_the_workload(self, resolver: Resolver) -> None:
        """The name in an override decides whose keys the model section has."""
        resolved = resolver("model.name=mlp", "model.widths=[3]", name=None)
        assert resolved.model == Mlp(name="mlp", widths=(3,))

    def test_what_flags_choose_is_in_the_result(self, resolver: Resolver) -> None:
        """Device, precision and number of ranks are recorded where the schema has them."""
        resolved = resolver(
            chosen={
                "experiment.device": "cuda",
                "precision.name": "amp",
                "distributed.world_size": 2,
            }
        )
        assert (
            resolved.experiment.device,
            resolved.precision.name,
            resolved.distributed.world_size,
        ) == ("cuda", "amp", 2)

    def test_without_a_name_the_defaults_remain(self, resolver: Resolver) -> None:
        """A benchmark without a configuration of its own runs with the defaults."""
        assert resolver(name=None) == Configuration[ModelSection](model=ModelSection())

    def test_a_directory_given_is_searched_first(self, resolver: Resolver) -> None:
        """A directory given as ``--config`` replaces the named file instead of being laid over."""
        (resolver.root / "mine").mkdir()
        given = resolver.overlay("training: {batch_size: 3}", "mine/mlp.yaml").parent
        training = resolver(overlays=[given]).training
        assert (training.batch_size, training.optimizer) == (3, "sgd")


class TestPresets:
    def test_a_preset_that_is_not_there_is_refused(self, resolver: Resolver) -> None:
        """A file with presets must have the one asked for; the message lists those there."""
        resolver.overlay("presets: {full: {}}", "configs/big.yaml")
        assert resolver.refusal(name="big") == [
            "configs/big.yaml: no preset 'tiny'; available: full"
        ]

    def test_a_file_without_presets_serves_with_any(self, resolver: Resolver) -> None:
        """A file that does not care about presets can be run with each."""
        resolver.overlay("training: {steps: 3}", "configs/plain.yaml")
        assert resolver(name="plain", preset="full").experiment.preset == "full"

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

    def test_an_overlay_may_change_the_memory_needed(self, resolver: Resolver) -> None:
        """A smaller ``full`` in an overlay can say that it needs less."""
        overlay = resolver.overlay("presets: {full: {needs_memory_gib: 8}}")
        assert needs_memory_gib("mlp", overlays=[overlay], rootdir=resolver.root) == 8.0


class TestFlagsChoose:
    @pytest.mark.parametrize(
        ("override", "flag"),
        [
            ("experiment.preset=full", '"full" contradicts "tiny", which --preset'),
            ("experiment.device=mps", '"mps" contradicts "cpu", which --device'),
            ("precision.name=bf16", '"bf16" contradicts "amp", which --precision'),
            (
                "distributed.world_size=4",
                "4 contradicts 1, which the number of ranks started (torchrun --nproc-per-node)",
            ),
        ],
    )
    def test_a_contradiction_names_the_flag(
        self, resolver: Resolver, override: str, flag: str
    ) -> None:
        """What a flag chooses cannot be set by an override to something else."""
        chosen = {
            "experiment.device": "cpu",
            "precision.name": "amp",
            "distributed.world_size": 1,
        }
        assert resolver.refusal(override, chosen=chosen) == [f"--{override}: {flag} chooses"]

    def test_a_file_that_contradicts_is_named(self, resolver: Resolver) -> None:
        """The message about a file has the file and the dotted key."""
        overlay = resolver.overlay("precision: {name: fp16}")
        assert resolver.refusal(overlays=[overlay], chosen={"precision.name": "amp"}) == [
            (
                f'--config={overlay}: precision.name: "fp16" contradicts "amp", '
                "which --precision chooses"
            )
        ]

    def test_saying_the_same_is_fine(self, resolver: Resolver) -> None:
        """A file may say what the flag chooses anyway."""
        resolved = resolver("precision.name=amp", chosen={"precision.name": "amp"})
        assert resolved.precision.name == "amp"


class TestRulesBetweenKeys:
    def test_a_global_batch_is_shared_among_the_ranks(self, resolver: Resolver) -> None:
        """Each rank's share of the global batch becomes its batch size."""
        resolved = resolver("data.global_batch_size=12", chosen={"distributed.world_size": 3})
        assert (resolved.data.global_batch_size, resolved.training.batch_size) == (12, 4)

    def test_a_global_batch_must_divide(self, resolver: Resolver) -> None:
        """A global batch that leaves a remainder is refused, naming what would do."""
        assert resolver.refusal(
            "data.global_batch_size=10", chosen={"distributed.world_size": 4}
        ) == [
            (
                "--data.global_batch_size=10: 10 is not divisible by 4 ranks; "
                "allowed: a multiple of 4"
            )
        ]

    def test_steps_and_epochs_exclude_each_other(self, resolver: Resolver) -> None:
        """Two lengths of one training are refused, naming who said each."""
        assert resolver.refusal("training.epochs=2") == [
            (
                "--training.epochs=2: 2 conflicts with training.steps 5 (configs/mlp.yaml); "
                "allowed: one of the two, with null for the other"
            )
        ]

    def test_an_unknown_parallelism_is_refused(self, resolver: Resolver) -> None:
        """A parallelism that is not there is found before anything runs."""
        assert resolver.refusal("distributed.parallelism=fsdpp") == [
            (
                "--distributed.parallelism=fsdpp: unknown (did you mean 'fsdp2'?); "
                "allowed: auto, ddp, fsdp2, none, pipeline, tensor"
            )
        ]

    @pytest.mark.parametrize("chosen", ["none", "fsdp2"])
    def test_a_key_of_another_parallelism_is_refused(self, resolver: Resolver, chosen: str) -> None:
        """A key that the chosen parallelism would not read is an error, naming whose it is."""
        assert resolver.refusal(
            f"distributed.parallelism={chosen}", "distributed.static_graph=true"
        ) == [
            (
                "--distributed.static_graph=true: true applies to distributed.parallelism=ddp, "
                f"not to {chosen}; remove it"
            )
        ]

    @pytest.mark.parametrize("ranks", [1, 2])
    def test_keys_of_the_chosen_parallelism_are_taken(self, resolver: Resolver, ranks: int) -> None:
        """What is chosen has its keys; by itself that is ddp, whose keys one rank may be given."""
        world = {"distributed.world_size": ranks}
        bucket = resolver("distributed.bucket_cap_mb=50", chosen=world).distributed.bucket_cap_mb
        sharded = resolver(
            "distributed.parallelism=fsdp2",
            "distributed.reshard_after_forward=false",
            chosen=world,
        )
        assert (bucket, sharded.distributed.reshard_after_forward) == (50, False)

    def test_epochs_replace_steps_that_are_taken_back(self, resolver: Resolver) -> None:
        """Null takes back what a file said."""
        training = resolver("training.epochs=2", "training.steps=null").training
        assert (training.steps, training.epochs) == (None, 2)


class TestRefusals:
    @pytest.mark.parametrize(
        ("override", "message"),
        [
            (
                "training.batch_sise=3",
                "unknown key (did you mean 'training.batch_size'?); allowed: batch_size, optimizer",
            ),
            (
                "data.batch_size=3",
                (
                    "unknown key (did you mean 'training.batch_size' or 'inference.batch_size'?); "
                    "allowed: source, path, workers, pin_memory, prefetch_factor, "
                    "persistent_workers, global_batch_size"
                ),
            ),
            (
                "model.steps=3",
                (
                    "unknown key (did you mean 'training.steps' or 'measure.steps' or "
                    "'profiling.steps'?); allowed: name"
                ),
            ),
            ("data.warmup_seconds=3", "unknown key (did you mean 'measure.warmup_s'?); allowed: "),
            ("data.zzz=3", "unknown key; allowed: source, path, workers, pin_memory"),
            ("train.steps=3", "unknown section (did you mean 'training'?); allowed: experiment"),
            ("training.batch_size=many", '"many" is not allowed: input should be a valid integer'),
            ("training.batch_size=0", "0 is not allowed: input should be greater than 0, or input"),
            ("training.batch_size=1.5", "1.5 is not allowed: input should be a valid integer"),
            ("training.batch_size=true", "true is not allowed: input should be a valid integer"),
            ("training.batch_size=null", "null is not allowed: input should be a valid integer"),
            (
                "training.batch_size=!!int 3 4",
                '"!!int 3 4" is not allowed: input should be a valid',
            ),
            ("training.batch_size.x=1", '{"x": "1"} is not allowed: input should be a valid int'),
            ("training.learning_rate=.inf", "Infinity is not allowed: input should be a finite"),
            ("training.loss_drop=2", "2 is not allowed: input should be less than or equal to 1"),
            (
                "measure.by=cl",
                "\"cl\" is not allowed (did you mean 'ci'?): input should be 'ci', 'steps' or",
            ),
            ("model.widths=[1, a]", '[1, "a"] is not allowed: input should be a valid integer'),
            ("model.widths=[]", "at least one width is needed"),
            ("model.name=mpl", "unknown 'mpl' (did you mean 'mlp'?); allowed: mlp, resnet18"),
            ("experiment.notes=\udcff", "contains text that is not valid Unicode"),
        ],
    )
    def test_an_override_is_refused_in_plain_words(
        self, resolver: Resolver, override: str, message: str
    ) -> None:
        """Each wrong key or value is answered with what was said, what is allowed, what is near."""
        (line,) = resolver.refusal(override)
        assert message in line

    def test_a_value_in_a_file_is_named_by_file_and_key(self, resolver: Resolver) -> None:
        """The message has the source with its preset, the dotted key, the value and the type."""
        resolver.overlay("presets: {tiny: {training: {batch_size: a}}}", "configs/x.yaml")
        assert resolver.refusal(name="x") == [
            (
                'configs/x.yaml preset tiny: training.batch_size: "a" is not allowed: '
                "input should be a valid integer, or input should be 'auto'"
            )
        ]

    def test_a_key_on_the_wrong_level_is_found(self, resolver: Resolver) -> None:
        """A key written beside the sections is answered with its full name."""
        resolver.overlay("batch_size: 3", "configs/x.yaml")
        (line,) = resolver.refusal(name="x")
        assert line.startswith(
            "configs/x.yaml: batch_size: unknown section "
            "(did you mean 'training.batch_size' or 'inference.batch_size'?)"
        )

    def test_a_section_must_be_a_mapping(self, resolver: Resolver) -> None:
        """A section without keys under it is refused."""
        resolver.overlay("data:", "configs/x.yaml")
        assert resolver.refusal(name="x") == [
            ("configs/x.yaml: data: null is not allowed: input should be an object")
        ]

    def test_a_missing_key_is_named(self, resolver: Resolver) -> None:
        """A key that the workload requires and nobody gave is named."""
        resolver.overlay("model: {name: mlp}", "configs/x.yaml")
        assert resolver.refusal(name="x") == ["configs/x.yaml: model.widths: is missing"]

    def test_several_errors_come_together(self, resolver: Resolver) -> None:
        """All that is wrong is said at once, one error per line."""
        lines = resolver.refusal("training.steps=a", "data.source=3", "measure.by=x", "x.y=1")
        assert [line.partition(":")[0] for line in lines] == [
            "--training.steps=a",
            "--measure.by=x",
            "--x.y=1",
        ]

    def test_a_long_value_is_cut(self, resolver: Resolver) -> None:
        """A value too long for a message is shown by its beginning."""
        (line,) = resolver.refusal(f"training.steps={'a' * 500}", name=None)
        assert f'"{"a" * 79}… is not allowed' in line

    def test_a_model_that_is_no_mapping_is_refused(self, resolver: Resolver) -> None:
        """Without a mapping there is no workload; the message says what the section holds."""
        overlay = resolver.overlay("model: [mlp]")
        (line,) = resolver.refusal(name=None, overlays=[overlay])
        assert line.endswith('model: ["mlp"] is not allowed: input should be an object')

"""The first training steps beside plain fp32."""

from __future__ import annotations

import sys
from weakref import ref

import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import MeasureSection, TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, UsageProblem
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training import reference as reference_module
from gpubench_plugin.training.bands import BANDS, BATCH_NORMALISED, bands_of
from gpubench_plugin.training.data.digits import Digits
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.optimization import Optimization
from gpubench_plugin.training.reference import Fp32Reference
from tests.support.shipped import shipped
from tests.unit.training.conftest import silent

CPU = torch.device("cpu")
GIB = 2**30
PRECISIONS = [
    name
    for name in catalog.choices("precision")
    if catalog.load("precision", name)().unsupported(CPU) is None
]


@pytest.fixture
def compared(slope, make_trainer):
    """Trains the small workload with a reference beside it; its record of the comparison."""
    slope.build = lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def compare(
        precision="fp32",
        *,
        measure=None,
        seed=0,
        steps=5,
        host_bytes=None,
        shares_batch=False,
        **training,
    ):
        section = {"learning_rate": 0.05, **training}
        init_scale, module = section.pop("init_scale", 128.0), section.pop("module", None)
        made = catalog.load("precision", precision)()
        reference = Fp32Reference(
            workload=slope,
            training=TrainingSection(**section),
            measure=MeasureSection(**(measure or {})),
            precision=precision,
            compute_dtypes=[made.compute_dtype],
            seed=seed,
            device=CPU,
            agreement=RankAgreement(),
            averaging=True,
            steps=steps,
            shares_batch=shares_batch,
            host_bytes=host_bytes,
        )
        trainer = make_trainer(
            precision=precision,
            init_scale=init_scale,
            data=Digits(slope, batch_size=8, device=CPU, convert=made.convert_batch),
            reference=reference,
            module=module,
            **section,
        )
        torch.manual_seed(seed)
        return trainer, trainer.prepare(silent)

    return compare


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_stays_within_its_band(precision, compared):
    """The largest errors stand in the record and among the metrics, and are within the band."""
    trainer, check = compared(precision, accumulation_steps=2, gradient_clipping=0.1)
    found = check.correctness["reference"]
    dtypes = [catalog.load("precision", precision)().compute_dtype]
    section = MeasureSection()
    bands = bands_of(trainer.module, precision=precision, compute_dtypes=dtypes, measure=section)
    band = bands.later
    assert found["steps"] == len(found["losses"]) == len(found["gradient_norms"]) == 5
    assert check.facts["loss_error"] == found["loss_error"] <= band.loss
    assert check.facts["gradient_norm_error"] == found["gradient_norm_error"]
    assert found["gradient_norm_error"] <= band.gradient_norm
    assert (found["gradient_norm_error"] == 0) == (precision == "fp32")


def scaled_in_bf16(loss, _module):
    return loss * 1.25 if torch.is_autocast_enabled("cpu") else loss


def gradient_scaled_in_bf16(loss, _module):
    if torch.is_autocast_enabled("cpu"):
        loss.register_hook(lambda gradient: gradient * 1.25)
    return loss


def partly_detached_in_bf16(loss, module):
    if torch.is_autocast_enabled("cpu"):
        module[2].weight.register_hook(lambda gradient: gradient * 0)
    return loss


@pytest.mark.parametrize(
    ("distort", "what", "error", "band"),
    [
        (scaled_in_bf16, "loss", r"0\.25", r"0\.005 \(measure\.check_loss_band\)"),
        (
            gradient_scaled_in_bf16,
            "gradient norm",
            r"0\.25",
            r"0\.05 \(measure\.check_gradient_band\)",
        ),
        (partly_detached_in_bf16, "gradient norm", r"0\.\d+", r"0\.05 .*"),
    ],
)
def test_model_that_is_wrong_in_bf16_fails(distort, what, error, band, slope, compared):
    """A wrong scale, or a layer that gets no gradient, fails with step, values, band and key."""
    slope.distort = distort
    values = rf"step 1: the {what} is \d\S*, but \d\S* in .*fp32: .* {error}"
    with pytest.raises(CorrectnessError, match=rf"{values}.* relative to \d\S* exceeds {band}"):
        compared("bf16")


@pytest.mark.parametrize(("precision", "error"), [("bf16-true", 0.02), ("fp16-true", 0.002)])
def test_loss_in_16_bits_has_the_error_of_its_rounding(precision, error, slope, compared):
    """A first loss that a few roundings in its type explain is right; a larger error is none."""
    dtype = catalog.load("precision", precision)().dtype
    keys = {"learning_rate": 1e-3, "measure": {"check_gradient_band": 1.0}}
    slope.distort = lambda loss, module: (
        (loss.float() * scale).to(kept) if module[0].weight.dtype == dtype else loss
    )
    scale, kept = 1 + error, dtype
    found = compared(precision, **keys)[1].correctness["reference"]
    assert BANDS[precision].first.loss < found["loss_errors"][0] < found["loss_bands"][0]
    scale = 1 + 3 * error
    with pytest.raises(CorrectnessError, match="step 1: the loss"):
        compared(precision, **keys)
    scale, kept = 1 + error, torch.float32
    with pytest.raises(CorrectnessError, match="step 1: the loss"):
        compared(precision, **keys)


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_wrong_update_is_found_at_the_next_step(precision, compared, monkeypatch):
    """A trainer that updates otherwise than torch shows in the loss after the first update."""
    update = Optimization.update

    def tripled(self):
        for parameter in self._parameters:
            parameter.grad *= 3
        update(self)

    monkeypatch.setattr(Optimization, "update", tripled)
    with pytest.raises(CorrectnessError, match="step 2: the loss"):
        compared(precision)


def test_wrong_norm_is_found(compared, monkeypatch):
    """The reference has a norm of its own: one that leaves a parameter out is found."""
    monkeypatch.setattr(
        Optimization, "gradient_norm", lambda self, of=None: self._parameters[0].grad.norm().item()
    )
    with pytest.raises(CorrectnessError, match="step 1: the gradient norm"):
        compared()


def test_schedule_and_clipping_are_followed(compared):
    """In fp32 the reference clips and changes the rate exactly as the training does."""
    check = compared(gradient_clipping=0.05, scheduler="linear", schedule_steps=6)[1]
    assert check.facts["loss_error"] == 0


def test_bands_can_be_chosen(slope, compared):
    """The keys replace the bands of the precision."""
    slope.distort = scaled_in_bf16
    measure = {"check_loss_band": 2.0, "check_gradient_band": 3.0}
    found = compared("bf16", measure=measure, steps=2)[1].correctness["reference"]
    assert (found["loss_bands"], found["gradient_bands"]) == ((2.0, 2.0), (3.0, 3.0))
    assert (found["steps"], found["nearest_band"]) == (2, 3.0)
    assert found["loss_error"] > 0.2


def test_skipped_steps_are_skipped_by_the_reference_too(compared):
    """A step whose gradients overflow has no norm to compare; the steps after it are compared."""
    _, check = compared("amp", init_scale=2.0**14)
    assert 0 < check.correctness["skipped_steps"] < 5
    assert check.correctness["reference"]["loss_error"] <= BANDS["amp"].later.loss


def test_nothing_is_checked_where_every_compared_step_is_skipped(compared):
    """No gradient was compared: the record does not say that the error was nought."""
    _, check = compared("amp", init_scale=2.0**20, steps=1)
    assert check.flags == ("unchecked",)
    assert check.correctness["reference"]["gradient_norm_error"] is None
    assert "gradient_norm_error" not in check.facts


@pytest.mark.parametrize("fused", [False, True])
def test_schedule_moves_with_skipped_steps_as_the_training_does(fused, compared):
    """A fused optimizer is called for them, too, and its schedule moves; another one waits."""
    keys = {"scheduler": "linear", "schedule_steps": 6}
    _, check = compared("amp", init_scale=2.0**14, fused=fused, **keys)
    assert check.correctness["skipped_steps"]
    assert check.correctness["reference"]["loss_error"] <= 1e-3


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_norm_that_is_not_finite_is_wrong(poison, compared, monkeypatch):
    """Without a scaler that skips it, a gradient that overflows at a later step fails there."""
    norms = iter([1.0, poison])
    real = Optimization.gradient_norm

    def norm(self, of=None):
        return real(self, of) * (next(norms, 1.0) if of is None else 1.0)

    monkeypatch.setattr(Optimization, "gradient_norm", norm)
    with pytest.raises(CorrectnessError, match=r"step 2: the gradient norm is (nan|inf)"):
        compared()


def test_comparison_changes_nothing_of_the_training(slope, compared, make_trainer):
    """Weights and random numbers after the check are those of a training without reference."""
    slope.build = lambda: nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    with_reference, check = compared(learning_rate=0.005)
    drawn = torch.rand(3)
    alone = make_trainer(learning_rate=0.005, data=Digits(slope, batch_size=8, device=CPU))
    torch.manual_seed(0)
    alone.prepare(silent)
    assert torch.rand(3).equal(drawn)
    state, other = (t.state_dict()["model"] for t in (with_reference, alone))
    assert all(state[name].equal(other[name]) for name in state)
    # The reference drew the same masks.
    assert check.correctness["reference"]["gradient_norm_error"] == 0


def test_reference_searches_no_fastest_algorithm(slope, compared, monkeypatch):
    """In fp32 cuDNN's search takes minutes; the training searches as before."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    searches = []

    def distort(loss, _module):
        searches.append(torch.backends.cudnn.benchmark)
        return loss

    slope.distort = distort
    compared()
    assert searches[-5:] == [False] * 5  # of the reference
    assert all(searches[:-5])
    assert torch.backends.cudnn.benchmark


def test_reference_leaves_nothing_in_memory(compared, monkeypatch):
    """Before anything is timed its model is gone."""
    built = []

    def build(*args, **kwargs):
        module = build_model(*args, **kwargs)
        built.append(ref(module))
        return module

    monkeypatch.setattr(reference_module, "build_model", build)
    _kept = compared()
    assert [module() for module in built] == [None]


class Noise(nn.Module):
    """Dropout without a module of torch."""

    def forward(self, inputs):
        return nn.functional.dropout(inputs, 0.5, self.training)


@pytest.mark.parametrize(
    ("layer", "compile", "reason"),
    [
        (nn.Dropout(0.5), "default", "a compiled model, as by dropout, draws"),
        (Noise(), "default", "a compiled model, as by dropout, draws"),
        # Ranks that divide a model draw and normalise in parts, which is no error of theirs.
        (nn.Dropout(0.5), "none", "draw dropout separately"),
        (nn.BatchNorm1d(16), "none", "normalize partial batches"),
    ],
)
def test_model_that_differs_by_design_is_not_compared(layer, compile, reason, slope, compared):
    """What draws other random numbers has no reference, and the record says so."""
    slope.build = lambda: nn.Sequential(nn.Linear(2, 16), layer, nn.Linear(16, 1))
    slope.section = slope.section.model_copy(update={"compile": compile})
    _, check = compared(learning_rate=0.005, module=slope.build(), shares_batch=compile == "none")
    assert reason in check.correctness["reference"]["not_compared"]
    assert "loss_error" not in check.facts


def test_errors_are_relative_to_the_largest_value_so_far(slope, compared):
    """A loss that training brings to zero has no error without bounds."""
    slope.build = lambda: nn.Linear(2, 1)
    check = compared("bf16", learning_rate=0.4, momentum=0.0)[1]
    losses = check.correctness["reference"]["losses"]
    assert check.facts["loss_error"] <= max(
        abs(own - plain) / losses[0]
        for own, plain in zip(check.correctness["losses"], losses, strict=False)
    ) * (1 + 1e-9)


def test_every_precision_has_bands():
    """No shipped precision is without a band, and normalised models have none that is narrower."""
    names = shipped("precision")
    assert names == set(BANDS) == set(BATCH_NORMALISED)
    for name in names:
        assert BATCH_NORMALISED[name] == BATCH_NORMALISED[name].union(BANDS[name])
        dtypes = [catalog.load("precision", name)().compute_dtype]
        bands = bands_of(
            nn.Linear(1, 1), precision=name, compute_dtypes=dtypes, measure=MeasureSection()
        )
        assert bands == BANDS[name], "what it computes in does not widen its own band"


def test_band_follows_model_precision_and_reduction():
    """Batch normalisation widens the bands, and so does a coarser type to reduce gradients in."""

    def bands(module, precision, *dtypes, **measure):
        section = MeasureSection(**measure)
        return bands_of(module, precision=precision, compute_dtypes=dtypes, measure=section)

    assert bands(nn.Linear(1, 1), "fp32", "fp32") == BANDS["fp32"]
    assert bands(nn.BatchNorm1d(2), "bf16", "bf16") == BATCH_NORMALISED["bf16"]
    assert bands(nn.Linear(1, 1), "fp32", "fp32", "bf16") == BANDS["bf16"]
    assert bands(nn.Linear(1, 1), "mine", "fp16") == BANDS["amp"]
    with pytest.raises(UsageProblem, match="no tolerance is known for mine, which computes in fp8"):
        bands(nn.Linear(1, 1), "mine", "fp8")
    own = bands(nn.Linear(1, 1), "mine", "fp8", check_loss_band=1.0, check_gradient_band=2.0)
    assert (own.first.loss, own.later.gradient_norm) == (1.0, 2.0)


@pytest.mark.parametrize("table", [BANDS, BATCH_NORMALISED])
def test_first_step_is_judged_more_tightly_than_a_wrong_scale(table):
    """No band of a first step lets gradients through that are half or 1.6 times as large."""
    for bands in table.values():
        assert bands.first.gradient_norm < 0.25
        assert bands.later == tuple(map(max, bands.first, bands.later))


# One step, before the measured training takes its memory.


def test_single_step_is_compared_before_the_training_begins(compared, monkeypatch):
    """The reference is gone before the first update of the model that is measured."""
    seen = []
    train = reference_module.Fp32Reference._run_if_it_fits
    update = Optimization.update
    monkeypatch.setattr(
        reference_module.Fp32Reference,
        "_run_if_it_fits",
        lambda *a: seen.append("reference") or train(*a),
    )
    monkeypatch.setattr(Optimization, "update", lambda self: seen.append("update") or update(self))
    found = compared("bf16", steps=1, accumulation_steps=2)[1].correctness["reference"]
    assert seen[:2] == ["reference", "update"]
    assert seen.count("reference") == 1
    assert (found["steps"], len(found["losses"])) == (1, 1)
    assert 0 < found["gradient_norm_error"] <= BANDS["bf16"].first.gradient_norm


@pytest.mark.parametrize("epochs", [None, 1])
def test_single_step_takes_no_batch_from_the_training(epochs, compared):
    """What the reference trained on, the training sees as well: in fp32 both are equal."""
    _, check = compared(steps=1, epochs=epochs)
    assert check.facts["loss_error"] == check.facts["gradient_norm_error"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore the limit")
def test_reference_beyond_the_free_memory_of_the_host_is_left_out(compared, monkeypatch):
    """Its allocation fails, where Linux would promise the memory and end the process later."""
    build = reference_module.build_model

    def build_more(*args, **kwargs):
        torch.empty(8 * GIB, dtype=torch.uint8)
        return build(*args, **kwargs)

    monkeypatch.setattr(reference_module, "build_model", build_more)
    _, check = compared("bf16", steps=1, host_bytes=lambda: 4 * GIB)
    assert check.flags == ("unchecked",)
    assert "can't allocate memory" in check.correctness["reference"]["unchecked"]


@pytest.mark.parametrize("steps", [1, 5])
def test_reference_that_runs_out_of_memory_is_left_out(steps, compared, monkeypatch):
    """An allocation that fails is no failure of what is measured: a flag, and its error."""

    def build(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(reference_module, "build_model", build)
    _, check = compared("bf16", steps=steps)
    assert check.flags == ("unchecked",)
    assert "CUDA out of memory" in check.correctness["reference"]["unchecked"]
    assert len(check.correctness["losses"]) == 20
    assert "loss_error" not in check.facts


def test_other_errors_of_the_reference_are_errors(compared, monkeypatch):
    """Only memory excuses it."""

    def build(*args, **kwargs):
        raise RuntimeError("something else")

    monkeypatch.setattr(reference_module, "build_model", build)
    with pytest.raises(RuntimeError, match="something else"):
        compared("bf16", steps=1)

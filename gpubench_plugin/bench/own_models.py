"""``gpubench.train`` and ``gpubench.infer``: trainer and inference of what a test states itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from gpubench_plugin.bench.batch_fitting import fitted_samples
from gpubench_plugin.bench.step import required_argument
from gpubench_plugin.bench.subjects import case_of, reconfigure, require_kinds, subjects_of
from gpubench_plugin.bench.training_setup import TrainingSetup, checked_trainer
from gpubench_plugin.bench.workload_fixtures import drawn_section
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Misuse, UsageProblem, invalid_choice
from gpubench_plugin.training import seeding
from gpubench_plugin.training.check import recording
from gpubench_plugin.workloads._own.batch import StatedBatch
from gpubench_plugin.workloads._own.model import StatedModel
from gpubench_plugin.workloads._own.workload import OwnWorkload, StatedLoss
from gpubench_plugin.workloads._source import SourceWorkload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from gpubench_plugin.config.sections import Configuration, TrainingSection
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.trainer import Trainer

_OPTIMIZER_KEYS: Final = ("optimizer", "learning_rate", "momentum", "weight_decay", "fused")
_LOSS_DROP: Final = 1.0
"""Largest ratio of the last losses to the first where the configuration has none: any fall."""


@dataclass(frozen=True)
class OwnModels:
    """Builds trainer and inference of a test's own model, as the fixtures do of a workload's.

    The benchmark is recorded with the batch size and the optimizer that the test states.
    """

    request: pytest.FixtureRequest
    group: ProcessGroup

    @property
    def precision(self) -> Precision:
        """The benchmark's precision; fp32 if the test does not request the fixture."""
        precision: Precision = self.request.getfixturevalue("precision")
        require_kinds(precision=precision)
        return precision

    def trainer(
        self,
        model: nn.Module | Callable[[], nn.Module],
        batch: object,
        loss: Callable[..., torch.Tensor] | None,
        *,
        optimizer: object,
        samples: object,
    ) -> Trainer:
        """Trainer of `model`, with all untimed checks.

        Raises:
            UsageProblem: the parts do not fit together, or contradict the configuration.
        """
        if isinstance(model, SourceWorkload) and batch is None:
            batch, loss = model.batch, loss or model.loss_of
        training = _with_optimizer(self._configuration.training, optimizer)
        _refuse_data_keys(training)
        stated_loss = StatedLoss(loss, device=self.group.device, weights=self._weights)
        own_optimizer = optimizer if callable(optimizer) else None

        def batch_of(training: TrainingSection) -> StatedBatch:
            drawn = self._batch_of_rank(batch, training)
            return StatedBatch.of(drawn, samples=samples, has_targets=stated_loss.has_targets)

        setup_of = partial(self._setup_of, model, stated_loss, own_optimizer)

        def trial(configuration: Configuration[Any]) -> TrainingSetup:
            return setup_of(configuration, batch_of(configuration.training))

        if training.batch_size == "auto":
            if not (callable(batch) and required_argument(batch, follow_wrapped=True)):
                raise UsageProblem(
                    "training.batch_size=auto: the batch has a fixed size; leave the key out, or "
                    "pass as batch a function of the number of samples"
                )
            configuration = self._configuration.model_copy(update={"training": training})
            training = training.with_samples(fitted_samples(self.request, configuration, trial))
        stated_batch = batch_of(training)
        self._require_equal_batches(stated_batch.samples)
        training = _with_samples(training, stated_batch.samples)
        if "loss_drop" not in training.model_fields_set:
            training = training.model_copy(update={"loss_drop": _LOSS_DROP})
        setup = setup_of(self._reconfigure(training), stated_batch)
        module = self._built(setup, stated_loss, model)
        trainer = checked_trainer(self.request, setup, module, setup.source())
        if own_optimizer is not None:
            self._reconfigure(_as_built(training, trainer.optimizer))
        return trainer

    def inference(
        self, model: nn.Module | Callable[[], nn.Module], batch: object, *, samples: object
    ) -> Inference:
        """Forward pass of `model`.

        Raises:
            UsageProblem: the parts do not fit together, or contradict the configuration.
        """
        if isinstance(model, SourceWorkload) and batch is None:
            batch = partial(model.batch, labelled=False)
        configuration = self._configuration
        size = configuration.inference.samples(configuration.training)
        drawn = self._batch_of_rank(batch, configuration.training.with_samples(size))
        stated_batch = StatedBatch.of(drawn, samples=samples, has_targets=False)
        stated_size = configuration.inference.batch_size
        if stated_size not in {None, stated_batch.samples}:
            raise _size_contradiction("inference.batch_size", stated_size, stated_batch.samples)
        training = configuration.training
        if stated_size is None:
            training = _with_samples(training, stated_batch.samples)
        training = training.with_samples(stated_batch.samples)
        loss = StatedLoss(None, device=self.group.device, weights=self._weights)
        setup = self._setup_of(model, loss, None, self._reconfigure(training), stated_batch)
        inference = setup.inference(self._built(setup, loss, model), setup.source())
        return subjects_of(self.request).add(inference)

    def _built(self, setup: TrainingSetup, loss: StatedLoss, model: object) -> nn.Module:
        """The model, whose number of parameters is recorded: others are not comparable."""
        facts = recording(own_model={"model": setup.workload.section.name, "loss": loss.name})
        subjects_of(self.request).add_check(facts)
        module = setup.module()
        parameters = sum(parameter.numel() for parameter in module.parameters())
        self._reconfigure(setup.configuration.training, {"model.parameters": parameters})
        if isinstance(model, SourceWorkload):
            subjects_of(self.request).add_check(recording(model=model.description(module)))
        return module

    @property
    def _weights(self) -> torch.dtype:
        """Type of the weights that the precision converts to."""
        module = self.precision.convert_module(nn.Linear(1, 1, device="meta"))
        return next(module.parameters()).dtype

    @property
    def _configuration(self) -> Configuration[Any]:
        return case_of(self.request).configuration

    def _batch_of_rank(self, batch: object, training: TrainingSection) -> object:
        """The batch, which a function makes of other random numbers on each rank.

        A function with a parameter gets the number of samples.
        """
        if not callable(batch):
            return batch
        world, seed = self.group.world, self._configuration.experiment.seed
        arguments = (training.samples,) if required_argument(batch, follow_wrapped=True) else ()
        seed = seeding.synthetic_seed(seed, world.size, world.rank)
        with seeding.seeded(seed, self.group.device):
            drawn: object = batch(*arguments)
        return drawn

    def _require_equal_batches(self, samples: int) -> None:
        """Refuse batches of different sizes on the ranks, whose mean gradient is no batch's.

        Every rank must call it.
        """
        mean, mean_square = self.group.agreement.mean([float(samples), float(samples) ** 2])
        if mean_square > mean**2:
            raise Misuse(
                f"batch: this rank has {samples} samples and a rank {mean:g} on average; allowed: "
                "equally many on all ranks, whose gradients are averaged"
            )

    def _setup_of(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: StatedLoss,
        own_optimizer: Callable[..., Any] | None,
        configuration: Configuration[Any],
        batch: StatedBatch,
    ) -> TrainingSetup:
        """Set-up of the stated parts in a `configuration`."""
        if configuration.data.source not in {"synthetic", "saved"}:
            raise UsageProblem(
                f"data.source={configuration.data.source}: gpubench.train and gpubench.infer take "
                "the batch that they are given; leave the key out"
            )
        workload = OwnWorkload(
            drawn_section(configuration),
            model=StatedModel(model, weights=self._weights),
            batch=batch,
            loss=loss,
            own_optimizer=own_optimizer,
        )
        return TrainingSetup.of(
            configuration, workload=workload, precision=self.precision, group=self.group
        )

    def _reconfigure(
        self, training: TrainingSection, facts: Mapping[str, object] | None = None
    ) -> Configuration[Any]:
        configuration = self._configuration.model_copy(update={"training": training})
        return reconfigure(self.request, configuration, facts)


def _with_optimizer(training: TrainingSection, optimizer: object) -> TrainingSection:
    """The section with the optimizer that the test states; an own one is called by its name.

    Raises:
        UsageProblem: the configuration states another one, or keys that an own one does not read.
    """
    if optimizer is None:
        return training
    names = catalog.choices("optimizers")
    if isinstance(optimizer, str):
        if optimizer not in names:
            raise Misuse(str(invalid_choice("optimizer", optimizer, names)))
        if "optimizer" in training.model_fields_set and training.optimizer != optimizer:
            raise UsageProblem(
                f"training.optimizer={training.optimizer} contradicts {optimizer}, which the test "
                "states; leave one of them out"
            )
        return training.model_copy(update={"optimizer": optimizer})
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        raise Misuse(
            f"optimizer is of type {type(optimizer).__name__}; allowed: {', '.join(names)}, or a "
            "function that builds one of the parameters of the copy that is trained: "
            "lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"
        )
    for key in _OPTIMIZER_KEYS:
        if key in training.model_fields_set:
            raise UsageProblem(
                f"training.{key}={getattr(training, key)}: not read, since the test states an "
                "optimizer of its own (optimizer=); leave one of them out"
            )
    name = getattr(optimizer, "__name__", type(optimizer).__name__)
    return training.model_copy(update={"optimizer": name})


def _refuse_data_keys(training: TrainingSection) -> None:
    """Refuse keys that need data with an end.

    Raises:
        UsageProblem: the configuration has ``training.epochs`` or ``training.evaluate``.
    """
    for key in ("epochs", "evaluate"):
        if value := getattr(training, key):
            raise UsageProblem(
                f"training.{key}={str(value).lower()}: gpubench.train repeats the batch that it is "
                "given, which has no epochs and holds nothing out; leave the key out; "
                "training.steps sets the number of steps"
            )


def _as_built(training: TrainingSection, optimizer: torch.optim.Optimizer) -> TrainingSection:
    """The section with class and settings of the test's own `optimizer`, as they go on record."""
    group = optimizer.param_groups[0]
    settings = {
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(group["lr"]),
        "weight_decay": float(group.get("weight_decay", 0.0)),
        "momentum": float(group.get("momentum", 0.0)),
        "fused": bool(group.get("fused")),
    }
    return training.model_copy(update=settings)


def _with_samples(training: TrainingSection, samples: int) -> TrainingSection:
    """The section with the batch's number of `samples`.

    Raises:
        UsageProblem: the configuration states another one.
    """
    if "batch_size" in training.model_fields_set and training.batch_size != samples:
        raise _size_contradiction("training.batch_size", training.batch_size, samples)
    return training.with_samples(samples)


def _size_contradiction(key: str, stated: object, samples: int) -> UsageProblem:
    return UsageProblem(
        f"{key}={stated}, but the batch has {samples} samples; leave the key out, or pass as batch "
        "a function of the number of samples"
    )

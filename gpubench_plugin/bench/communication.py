"""What the exchange between the ranks costs a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.bench.running import subjects_of

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.distributed.parallelism.base import Parallelism
    from gpubench_plugin.distributed.process_group import ProcessGroup
    from gpubench_plugin.training.communication import ExposedCommunication
    from gpubench_plugin.training.trainer import Trainer


@pytest.fixture
def exposed_communication(
    request: pytest.FixtureRequest,
    trainer: Trainer,
    torch_device: torch.device,
    process_group: ProcessGroup,
    _gpubench_parallelism: Parallelism,
) -> ExposedCommunication:
    """Adds ``exposed_communication_s`` to a benchmark of the `trainer`: ask for it, no more."""
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.training.communication import ExposedCommunication

    name = _gpubench_parallelism.name
    if name != "ddp":
        raise Unsupported(
            f"exposed_communication: under {name} a step cannot be run without its exchange; "
            "use distributed.parallelism=ddp"
        )
    made = ExposedCommunication(
        exchanging=trainer.step,
        alone=trainer.step_alone,
        meet=process_group.agreement.barrier,
        device=torch_device,
    )
    subjects_of(request).append(made)
    return made

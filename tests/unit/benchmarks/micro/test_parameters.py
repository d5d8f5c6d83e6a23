from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core.errors import CorrectnessError, Unsupported
from tests.support.micro_suite import operations

room = operations("test_optimizers")
_CPU = torch.device("cpu")


@pytest.mark.parametrize("implementation", room.IMPLEMENTATIONS)
@pytest.mark.parametrize("name", room.OPTIMIZERS)
def test_every_implementation_takes_the_same_steps(name: str, implementation: str) -> None:
    """Within 1e-6 of the loop in double precision; the parameters given are left alone."""
    torch.manual_seed(0)
    over = room.parameters(3, 10, _CPU)
    before = [parameter.clone() for parameter in over]
    assert room.check(name, implementation, over) <= 1e-6
    assert all(map(torch.equal, over, before))


def test_another_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An implementation with another learning rate does not pass."""
    torch.manual_seed(0)
    monkeypatch.setitem(room.IMPLEMENTATIONS, "fused", {"lr": 0.1})
    monkeypatch.setitem(room.OPTIMIZERS, "sgd", ("SGD", {}))
    monkeypatch.setitem(room.IMPLEMENTATIONS, "loop", {"lr": 0.2})
    with pytest.raises(CorrectnessError, match="sgd, fused"):
        room.check("sgd", "fused", room.parameters(2, 10, _CPU))


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_parameters_without_fused_kernels_are_unsupported() -> None:
    """With what torch says of it; the fused kernels take no complex numbers, for one."""
    over = [torch.ones(2, dtype=torch.complex64)]
    over[0].grad = torch.ones_like(over[0])
    with pytest.raises(Unsupported, match="sgd, fused: "):
        room.check("sgd", "fused", over)


@pytest.mark.parametrize("name", room.OPTIMIZERS)
def test_a_step_moves_every_state_it_keeps(name: str) -> None:
    """Parameters and each state as large as they are read and written, gradients are read."""
    (parameter,) = over = room.parameters(1, 10, _CPU)
    made = room.optimizer(name, "loop", over)
    made.step()
    states = [state for state in made.state[parameter].values() if state.numel() == 10]
    assert room.TENSORS_MOVED[name] == 2 * (1 + len(states)) + 1

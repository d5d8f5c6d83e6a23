"""What generates text: the prompt and the tokens after it, each a thing to measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.fixtures import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from gpubench_plugin.config import Configuration
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.training import Decode, Prefill
    from gpubench_plugin.workloads import Workload


@pytest.fixture
def prefill(_gpubench_generation: Callable[[type[Any]], Any]) -> Prefill:
    """Taking in a prompt, up to the first token: ``gpubench(prefill)``.

    Before it is measured, its logits are compared with those of a forward pass without a cache.
    """
    from gpubench_plugin.training import Prefill

    made: Prefill = _gpubench_generation(Prefill)
    return made


@pytest.fixture
def decode(_gpubench_generation: Callable[[type[Any]], Any]) -> Decode:
    """Generating token by token from a static cache: ``gpubench(decode)``.

    Before it is measured, its logits are compared with those of a forward pass without a cache.
    """
    from gpubench_plugin.training import Decode

    made: Decode = _gpubench_generation(Decode)
    return made


@pytest.fixture
def _gpubench_generation(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
) -> Callable[[type[Any]], Any]:
    """Makes a kind of generation by the model, as one rank holds it, with prompts and a cache.

    Raises:
        Unsupported: the workload generates no text, or ranks are to share it.
    """
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.training import EAGER, build_model, compiler
    from gpubench_plugin.workloads import CausalLanguageModel

    section, inference = gpubench_config.model, gpubench_config.inference
    if not isinstance(workload, CausalLanguageModel):
        raise Unsupported(f"{section.name} generates no text; allowed: causal language models")
    parallelism = gpubench_config.distributed.parallelism
    if parallelism not in {"auto", "none"}:
        raise Unsupported(
            f"distributed.parallelism={parallelism}: one rank generates; allowed: auto, none"
        )
    # What is compiled is a call, with its choice of a token, not the module.
    compile: Any = compiler(mode=section.compile, backend=section.compile_backend)
    seed = gpubench_config.experiment.seed

    def bound(kind: type[Any]) -> Any:
        made = kind(
            module=build_model(
                workload,
                section=section.model_copy(update=EAGER),
                seed=seed,
                device=torch_device,
                precision=precision,
            ),
            workload=workload,
            sequences=inference.samples(gpubench_config.training.batch_size),
            prompt_tokens=inference.prompt_tokens,
            new_tokens=inference.new_tokens,
            precision=precision,
            device=torch_device,
            seed=seed,
            compile=None if section.compile == "none" else compile,
        )
        parts_of(request).add(made)
        return made

    return bound

"""What generates text: the prompt and the tokens after it, each a thing to measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from gpubench_plugin.bench.fixtures import parts_of

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.config import Configuration
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.training import Decode, Generation, Prefill
    from gpubench_plugin.workloads import Workload

G = TypeVar("G", bound="Generation")


@pytest.fixture
def prefill(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
) -> Prefill:
    """Taking in a prompt, up to the first token: ``gpubench(prefill)``.

    Before it is measured, its logits are compared with those of a forward pass without a cache.
    """
    from gpubench_plugin.training import Prefill

    made = _generation(Prefill, gpubench_config, workload, torch_device, precision)
    parts_of(request).add(made)
    return made


@pytest.fixture
def decode(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
) -> Decode:
    """Generating token by token from a static cache: ``gpubench(decode)``.

    Before it is measured, its logits are compared with those of a forward pass without a cache.
    """
    from gpubench_plugin.training import Decode

    made = _generation(Decode, gpubench_config, workload, torch_device, precision)
    parts_of(request).add(made)
    return made


def _generation(
    kind: type[G],
    configuration: Configuration[Any],
    workload: Workload[Any],
    device: torch.device,
    precision: Precision,
) -> G:
    """The model, as one rank holds it, with its prompts and its cache.

    Raises:
        Unsupported: the workload generates no text, or ranks are to share it.
    """
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.training import EAGER, build_model, compiler
    from gpubench_plugin.workloads import CausalLanguageModel

    section, inference = configuration.model, configuration.inference
    if not isinstance(workload, CausalLanguageModel):
        raise Unsupported(f"{section.name} generates no text; allowed: causal language models")
    parallelism = configuration.distributed.parallelism
    if parallelism not in {"auto", "none"}:
        raise Unsupported(
            f"distributed.parallelism={parallelism}: one rank generates; allowed: auto, none"
        )
    # What is compiled is a call, with its choice of a token, not the module.
    compile: Any = compiler(mode=section.compile, backend=section.compile_backend)
    module = build_model(
        workload,
        section=section.model_copy(update=EAGER),
        seed=configuration.experiment.seed,
        device=device,
        precision=precision,
    )
    return kind(
        module=module,
        workload=workload,
        sequences=inference.samples(configuration.training.batch_size),
        prompt_tokens=inference.prompt_tokens,
        new_tokens=inference.new_tokens,
        precision=precision,
        device=device,
        seed=configuration.experiment.seed,
        compile=None if section.compile == "none" else compile,
    )

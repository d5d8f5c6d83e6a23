"""torch.compile backends by name, including one that runs graphs unchanged.

They are registered by an entry point of the group ``torch_dynamo_backends``, or by
``torch._dynamo.register_backend``.
Source: https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_custom_backends.html
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from gpubench_plugin.config.sections import CompileScope, ModelSection
from gpubench_plugin.core.errors import Unsupported, UsageProblem, invalid_choice
from gpubench_plugin.workloads.base import Batch, Workload, blocks_of

Compile = Callable[[nn.Module], nn.Module]
LossFunction = Callable[[nn.Module, Batch], Tensor]

NAME: Final = "gpubench-counting"
"""Name for ``model.compile_backend`` and ``torch.compile(backend=…)``."""

INDUCTOR: Final = "inductor"
"""torch's default backend, the only one with modes."""

EAGER: Final = {"compile": "none", "compile_backend": INDUCTOR, "compile_scope": None}
"""Keys of the section ``model`` without compilation, which refuses any other backend or scope."""


def backend_names() -> tuple[str, ...]:
    """Sorted names of all backends."""
    import torch._dynamo as dynamo

    if NAME not in dynamo.list_backends(exclude_tags=()):
        # Graphs run as they are: what is left is the cost of capture.
        dynamo.register_backend(lambda graph, _: graph.forward, name=NAME)
    return tuple(dynamo.list_backends(exclude_tags=()))


def compilation_refusal(section: ModelSection) -> str:
    """Reason why nothing can be compiled as configured in section ``model``; empty if it can."""
    mode, backend, scope = section.compile, section.compile_backend, section.compile_scope
    if mode == "none" and scope is not None:
        return (
            f"model.compile_scope={scope}: nothing is compiled with model.compile=none; add "
            "--model.compile=default, or set null"
        )
    if backend == INDUCTOR:
        return ""
    if mode == "none":
        return f"model.compile_backend={backend}: compilation is off; add --model.compile=default"
    if backend not in (available := backend_names()):
        return str(invalid_choice("model.compile_backend", backend, available))
    if mode != "default":
        return (
            f"model.compile={mode}: modes exist only for inductor, not for "
            f"model.compile_backend={backend}; allowed: none, default"
        )
    return ""


def make_compiler(section: ModelSection, **options: Any) -> Callable[[Any], Any]:
    """Function that compiles a module or function as in `section`, or returns it as it is.

    `options` are further arguments of ``torch.compile``.

    Raises:
        UsageProblem: a scope or backend without compilation, an unknown backend, or one without
            modes.
    """
    if reason := compilation_refusal(section):
        raise UsageProblem(reason)
    if section.compile == "none":
        return lambda module: module
    # Not module.compile(), which silently leaves a bare nn.Sequential uncompiled.
    return partial(torch.compile, mode=section.compile, backend=section.compile_backend, **options)


_BLOCK_VARIANTS: Final = 8
"""Compilations of one block: for training and evaluation, and for the batch sizes that occur. It is
torch's default for all calls of one function, but blocks of equal class share their function."""


class ModelWithLoss(nn.Module):
    """A model that is one compiled region with the workload's loss.

    Called with a batch it returns the loss; with the model's own arguments the model's output,
    compiled without a loss. Parameters have the names of a compiled module.
    """

    def __init__(self, module: nn.Module, workload: Workload[Any], section: ModelSection):
        super().__init__()
        compile = make_compiler(section)
        self._orig_mod = module
        # Kept in a tuple, or the module's parameters would be registered once more.
        self._compiled = (compile(module),)
        self._loss: LossFunction = compile(workload.loss)
        self._captures_graphs = section.compile in {"reduce-overhead", "max-autotune"}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Loss of a :class:`Batch`, or the output of the model for other arguments."""
        if not (len(args) == 1 and isinstance(args[0], Batch)):
            return self._compiled[0](*args, **kwargs)
        loss = self._loss(self._orig_mod, args[0])
        # A captured graph overwrites its loss in the next call; trainers keep losses for longer.
        return loss.clone() if self._captures_graphs else loss


def loss_function(module: nn.Module, workload: Workload[Any]) -> LossFunction:
    """Loss of a batch by `module`, perhaps wrapped by DDP: within the region where there is one."""
    if any(isinstance(part, ModelWithLoss) for part in (module, getattr(module, "module", None))):
        return lambda module, batch: cast("Tensor", module(batch))
    return workload.loss


def model_compiler(
    workload: Workload[Any], section: ModelSection, *, default_scope: CompileScope
) -> Compile:
    """Function that compiles a model in the scope of `section`, by default `default_scope`.

    Without compilation it returns the model. Models without blocks are compiled as a whole unless
    `section` asks for blocks.

    Raises:
        UsageProblem: a scope or backend without compilation, an unknown backend, or one without
            modes.
    """
    compile_whole = make_compiler(section)
    scope = section.compile_scope or default_scope
    if section.compile == "none":
        return compile_whole
    if scope == "blocks":
        return partial(
            compile_blocks,
            section=section,
            compile_whole=None if section.compile_scope else compile_whole,
        )
    if scope == "step":
        return partial(ModelWithLoss, workload=workload, section=section)
    return compile_whole


def call_compiler(section: ModelSection) -> Callable[[Any], Any] | None:
    """Function that compiles a call of a model which generates text; None without compilation.

    The call is one region with its choice of a token, whether the scope is the model or the step.

    Raises:
        Unsupported: the scope is the blocks.
        UsageProblem: a scope or backend without compilation, an unknown backend, or one without
            modes.
    """
    compile = make_compiler(section)
    if section.compile == "none":
        return None
    if section.compile_scope == "blocks":
        raise Unsupported(
            "model.compile_scope=blocks: generation compiles each call as one region, since every "
            "block has a cache of its own; allowed: model, step, null"
        )
    return compile


def compile_blocks(
    module: nn.Module, *, section: ModelSection, compile_whole: Compile | None = None
) -> nn.Module:
    """Compile each block of `module` by itself, in place; equal blocks share their code.

    Each shape has code of its own: torch would make the second one's dynamic, since blocks of one
    class are one function to it, and kernels of dynamic shapes are slower. `compile_whole` compiles
    a model that has no blocks.

    Raises:
        Unsupported: there are no blocks and no `compile_whole`.
    """
    blocks = tuple(blocks_of(module))
    if not blocks and compile_whole is not None:
        return compile_whole(module)
    if not blocks:
        raise Unsupported(
            f"model.compile_scope=blocks: {section.name} has no blocks, which are the layers in "
            "its lists; allowed: model, step, null"
        )
    # Without a limit torch runs further variants of a class eagerly. Torch 2.11, which has no such
    # argument, keeps its limit of 8 and warns.
    has_limit = "recompile_limit" in inspect.signature(torch.compile).parameters
    limit = {"recompile_limit": _BLOCK_VARIANTS * len(blocks)} if has_limit else {}
    compile_block = make_compiler(section, dynamic=False, **limit)
    for parent, name, block in blocks:
        parent.register_module(name, compile_block(block))
    return module

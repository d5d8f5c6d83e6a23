"""The dispatcher over fused kernels, DeepEP's or HybridEP's: refused, with the reason."""

from __future__ import annotations

from importlib.util import find_spec

from gpubench_plugin.errors import Unsupported


def require_flex() -> None:
    """Refuse it: without its library, and with it too, since its kernels were never run here.

    Raises:
        Unsupported: what to install, or what was found.
    """
    if find_spec("deep_ep") is None:
        raise Unsupported(
            "moe.dispatcher=flex needs DeepEP or HybridEP, and neither is installed: install "
            "deep_ep from https://github.com/deepseek-ai/DeepEP (HybridEP is its branch "
            "hybrid-ep) beside a torch for CUDA, or choose all-to-all"
        )
    raise Unsupported(
        "moe.dispatcher=flex: deep_ep is installed, but this version of gpubench does not drive "
        "it; choose all-to-all"
    )

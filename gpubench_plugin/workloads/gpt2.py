"""GPT-2 of Radford et al. 2019, from transformers."""

from __future__ import annotations

from typing import Any

from gpubench_plugin.workloads._language import CausalLanguageModel, LanguageSection


class GPT2(CausalLanguageModel[LanguageSection]):
    """GPT-2 language model: learned positions, pre-norm, tied embeddings.

    Source: https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
    """

    Section = LanguageSection
    configuration = "GPT2Config"
    architecture = "GPT2LMHeadModel"

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of a language model, its feed-forward width under GPT-2's name, no dropout."""
        return {
            **super().hyperparameters(),
            "n_inner": self.section.intermediate_size,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }

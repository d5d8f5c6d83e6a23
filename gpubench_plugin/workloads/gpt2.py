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
        """The sizes under GPT-2's names."""
        return {
            "n_layer": self.section.layers,
            "n_embd": self.section.width,
            "n_head": self.section.heads,
            "n_inner": self.section.intermediate_size,
            "vocab_size": self.section.vocabulary,
            "n_positions": self.section.sequence_length,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "use_cache": False,
            "bos_token_id": None,
            "eos_token_id": None,
        }

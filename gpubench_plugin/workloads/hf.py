"""Models of transformers from their configuration alone: ``hf:bert``, ``hf:FOLDER``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import UsageProblem, suggest
from gpubench_plugin.environment.fingerprints import flat
from gpubench_plugin.workloads._source import (
    LAYERS,
    SHRUNK_SIDE,
    TOKENS,
    Input,
    Inputs,
    SourceSection,
    SourceWorkload,
    reason_of,
)
from gpubench_plugin.workloads._transformers import NEEDS_TRANSFORMERS, drawn, from_library

if TYPE_CHECKING:
    from torch import nn

Sizes = Sequence[tuple[str, int]]

_HEADS: Final = (
    *("MaskedLM", "CausalLM", "ImageClassification", "AudioClassification", "CTC"),
    *("VideoClassification", "ImageTextToText", "ObjectDetection", "DepthEstimation", ""),
)
"""Tasks for which a model is built, the first that it has, where its configuration names no class.

What encodes and decodes is built to translate first.
"""

# Keys of configurations by pattern, with the largest size of a shrunken model.
_DEPTHS: Sizes = (
    (r"(num|n)_(hidden_|encoder_|decoder_)?(layers?|blocks)|(en|de)coder_layers|n_layer", LAYERS),
    (r"depths?|(num|n)_block_repeats|layers_block_type|layer_types", LAYERS),
    (r"(num|n)_(local_|routed_)?experts", 4),
    (r"num_experts_per_tok|moe_(top)?k", 2),
    (r"(mamba_)?n_groups?|topk_group", 1),
    (r"(image|input)_size", SHRUNK_SIDE),
)
_VOCABULARY: Sizes = ((r"(\w+_)?vocab_size(_\w+)?|max_source_positions", 256),)
_WIDTHS: Sizes = (
    (r"(\w+_)?hidden_sizes?|d_model|n_embd|embed_dims?|dim|emb_dim|embedding_size|d_embed", 64),
    (r"(\w+_)?(projection|proj)_dim", 64),
    (r"(\w+_)?intermediate_size|(\w+_)?ffn_(hidden_)?dim|d_ff|n_inner|d_inner|hidden_dim", 128),
    (r"((num|n)_|(en|de)coder_|mamba_n_)?(attention_)?(heads|head)", 4),
    (r"(num_key_value|n_head|num_kv)_(heads|kv)|num_kv_heads", 2),
    (r"(attention_)?head_(dim|size)|d_kv|(mamba_)?d_head|(v|qk_rope|qk_nope)_head_dim", 16),
    (r"(q|kv)_lora_rank", 32),
    (r"rotary_dim", 8),
    (r"(mamba_)?expand", 1),  # heads times their size, as is demanded
)
_WIDER: Sizes = [(key, {4: 2, 16: 128, 64: 256}.get(size, size)) for key, size in _WIDTHS]
"""With the usual size of a head, which some models demand."""
_DERIVED: Final = r"stage_names|out_(features|indices)|per_layer_config|image_embedding_size"
"""Keys that follow from others which are cut."""
_NO_CONFIGURATION: Final = (
    "no type of model of transformers and no folder with a configuration that it can read; that of "
    "a name which is not on this machine is fetched with --download (model.download=true)"
)
_OFF: Final = frozenset({"use_cache", "apply_spec_augment"})
_POSITIONS: Final = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions"),
)
"""Keys with the largest number of tokens."""
_IMAGE_SIDE: Final = 224
_AUDIO_SAMPLES: Final = 16_000
"""A second at the usual 16 kHz."""


class HfSection(SourceSection):
    """A model of transformers."""

    download: bool = False
    """Fetch the configuration of a name that is not on this machine"""


class Hf(SourceWorkload):
    """Any model of transformers with random weights, by its type, a folder, or its name."""

    Section = HfSection
    section: HfSection
    kind = "hf:"
    where = NEEDS_TRANSFORMERS
    checkpoints_activations = True
    _stated: Any = None

    recipes = tuple((*_DEPTHS, *_VOCABULARY, *widths) for widths in (_WIDTHS, _WIDER, ()))

    def construct(self, recipe: Sizes | None) -> tuple[nn.Module, Mapping[str, object]]:
        """The model of its configuration, which is read once."""
        if self._stated is None:
            self._stated = self._read()
        stated = self._stated.to_dict()
        values = {**_adapted(stated, recipe or ()), **self.section.init}
        self._config = type(self._stated).from_dict(values)
        build = _architecture(self.__name__, self._config)
        module = drawn(build, deepcopy(self._config), self.section, self.__name__)
        full = flat(_adapted(stated, ()))
        changed = {k: v for k, v in flat(values).items() if v != full.get(k)}
        return module, {k: v for k, v in changed.items() if not k.endswith("_id")}

    def infer_inputs(self, module: nn.Module, *, is_small: bool) -> Inputs:
        """Inputs by the names of the model's parameters and the sizes of its configuration."""
        return _inputs(module, self._config, self.section, is_small=is_small)

    def _read(self) -> Any:
        """The configuration as it is stated.

        Raises:
            UsageProblem: there is none, or it has no such key as ``model.init``.
        """
        section = self.section
        auto, types = from_library(self.__name__, "transformers", "AutoConfig", "CONFIG_MAPPING")
        name = section.source
        if name in types and not Path(name, "config.json").is_file():
            config = types[name]()
        else:
            try:
                config = auto.from_pretrained(name, local_files_only=not section.download)
            except Exception as error:  # whatever the library raises on what it finds there
                hint = "" if "/" in name else suggest(name, types)
                text = _NO_CONFIGURATION
                if section.download or Path(name).is_dir():
                    text = f"its configuration cannot be read: {reason_of(error)}"
                raise UsageProblem(f"hf:{name}{hint}: {text}") from error
        for key in section.init.keys() - (known := config.to_dict()):
            text = f"model.init.{key}: no key of the configuration of hf:{name}"
            raise UsageProblem(f"{text}{suggest(key, known)}")
        return config


def _adapted(values: Mapping[Any, Any], sizes: Sizes) -> dict[str, Any]:
    """A configuration's values without dropout and cache, and with the `sizes` cut."""
    depths = {value for key, value in values.items() if sizes and _limit(key, _DEPTHS[:1])}

    def adapted(key: str, value: Any) -> Any:
        if key == "num_key_value_heads" and value == values.get("num_attention_heads"):
            key = "num_attention_heads"
        limit = _limit(key, sizes)
        if isinstance(value, dict):
            return _adapted(value, sizes)
        if key in _OFF or ("drop" in key and isinstance(value, float)):
            return type(value)(0)
        if isinstance(value, list) and len(value) in depths:
            value = value[:LAYERS]
        if limit and isinstance(value, list) and all(type(size) is int for size in value):
            return [1 if limit == LAYERS else limit for _ in value]  # of stages, all alike
        if isinstance(value, int) and re.fullmatch(r"\w+_(id|index)", key) and ids:
            return min(value, ids - 1)
        return min(value, limit) if limit and type(value) is int else value

    ids = _limit("vocab_size", sizes)
    keys = [key for key in values if not (sizes and re.fullmatch(_DERIVED, str(key)))]
    return {key: adapted(str(key), values[key]) for key in keys}


def _limit(key: str, sizes: Sizes) -> int | None:
    return next((limit for pattern, limit in sizes if re.fullmatch(pattern, str(key))), None)


def _architecture(name: str, config: Any) -> Any:
    """Class of the model: that of the configuration, else of the first task that it has."""
    library = import_module("transformers")
    for architecture in config.architectures or ():
        if model := getattr(library, architecture, None):
            return model
    first = ("Seq2SeqLM", "SpeechSeq2Seq") if getattr(config, "is_encoder_decoder", False) else ()
    for head in (*first, *_HEADS):
        auto = getattr(library, f"AutoModelFor{head}" if head else "AutoModel", None)
        mapping = getattr(auto, "_model_mapping", {})
        if type(config) in mapping:
            models = mapping[type(config)]
            return models[0] if isinstance(models, tuple) else models
    raise UsageProblem(f"{name}: transformers has no model of {type(config).__name__}")


def _inputs(module: nn.Module, config: Any, section: SourceSection, *, is_small: bool) -> Inputs:
    names = inspect.signature(module.forward).parameters
    text, vision = config.get_text_config(), getattr(config, "vision_config", config)
    positions = [n for name in _POSITIONS if isinstance(n := getattr(text, name, None), int) and n]
    length = section.sequence_length or min(TOKENS, TOKENS, *positions)
    ids = Input((length,), getattr(text, "vocab_size", 0))
    has_both = "pixel_values" in names and "input_ids" in names
    generates = re.search(r"For(Causal|Conditional|Masked)|LMHead|MTModel", type(module).__name__)
    arguments: dict[str, Input] = {}
    if "input_ids" in names:
        arguments["input_ids"] = ids
    optional = has_both and generates and names["pixel_values"].default is None
    if "pixel_values" in names and not optional:
        arguments["pixel_values"] = Input(section.input_shape or _image_shape(vision, is_small))
    for name in ("input_values", "input_features"):
        if name in names and not (arguments and generates):
            arguments[name] = Input(section.input_shape or _audio_shape(config, name))
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        arguments["decoder_input_ids"] = ids
    if not arguments:
        raise UsageProblem(
            f"hf:{section.source}: inputs of {type(module).__name__} cannot be inferred; pass a "
            f"batch: gpubench.infer(load('hf:{section.source}'), batch)"
        )
    labels: dict[str, Input] = {}
    if "labels" in names and generates and ids.below:
        labels["labels"] = ids
    elif "labels" in names and re.search(r"Classification$", type(module).__name__):
        labels["labels"] = Input((), config.num_labels)
    return Inputs(arguments, labels)


def _image_shape(config: Any, is_small: bool) -> tuple[int, ...]:
    side = getattr(config, "image_size", None)
    if side is None:
        side = SHRUNK_SIDE if is_small else _IMAGE_SIDE
    height, width = side if isinstance(side, list | tuple) else (side, side)
    frames = (config.num_frames,) if hasattr(config, "num_frames") else ()
    return (*frames, getattr(config, "num_channels", 3), height, width)


def _audio_shape(config: Any, name: str) -> tuple[int, ...]:
    """Samples of a second, or frames of a spectrogram: by time, but bands first for Whisper."""
    names = ("num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel")
    bands = next((value for key in names if (value := getattr(config, key, None))), None)
    if bands is None:
        channels = (config.audio_channels,) if hasattr(config, "audio_channels") else ()
        return (*channels, _AUDIO_SAMPLES)
    if name == "input_features" and {"num_mel_bins", "max_source_positions"} <= vars(config).keys():
        return (bands, 2 * config.max_source_positions)
    return (getattr(config, "max_length", None) or 1024, bands)

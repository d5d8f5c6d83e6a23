"""What ``gpubench measure`` asks for: a model by its name, and the test module that measures it.

Its words are the value of ``--gpubench-measure``, too, by which ranks, engines and ``ab`` get the
same module.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, NoReturn, Self

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem, did_you_mean, invalid_choice

OWN_CODE: Final = "python"
"""The workload of a class or function of the project."""
_MODES: Final = ("none", "default", "reduce-overhead", "max-autotune")
_NUMBER: Final = r"0*[1-9]\d*"
_NAMES: Final = "hf:NAME, timm:NAME, torchvision:NAME, or package.module:Class"


def split_name(model: str) -> tuple[str, str]:
    """Workload and source of a model's name; raises UsageProblem."""
    kind, _, source = model.partition(":")
    if source and kind in catalog.choices("workloads"):
        return kind, source
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", model):
        meant = did_you_mean([f"hf:{model}"] if Path(model, "config.json").is_file() else [])
        raise UsageProblem(f"{model!r} is not a model's name{meant}; allowed: {_NAMES}")
    return OWN_CODE, model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a :class:`ModelRequest`, beside the model."""
    add = parser.add_argument
    add("--init", metavar="KEY=VALUE", action="append", default=[], help="argument; repeatable")
    add("--shrink", action="store_true", help="make it tiny: two layers, narrow, few tokens")
    add("--input", metavar="NxCxHxW", help="shape of the input, the batch first")
    add("--tokens", metavar="NxL", help="sequences in a batch, and their tokens")
    add("--train", action="store_true", help="measure a training step")
    add("--infer", action="store_true", help="measure a forward pass (default)")
    add("--batch", metavar="SIZES", help="samples per batch, comma-separated: 1,8,32; auto")
    add("--compile", metavar="MODES", help="modes of torch.compile: none,default")
    add("--download", action="store_true", help="allow to fetch the config.json of hf:NAME")


class _Words(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageProblem(f"--measure: {message}")


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """A model with its `keys` of the configuration, and the ways to measure it."""

    model: str
    keys: Sequence[str]
    tests: Sequence[str]
    batches: Sequence[str]
    modes: Sequence[str]
    words: str

    @classmethod
    def parse(cls, words: str) -> Self:
        """The request in the words of a command line.

        Raises:
            UsageProblem: one of them is wrong.
        """
        parser = _Words(add_help=False, allow_abbrev=False)
        parser.add_argument("model", nargs="?")
        add_arguments(parser)
        try:
            options = parser.parse_args(shlex.split(words))
        except ValueError as error:  # a quotation without an end
            raise UsageProblem(f"--measure={words}: {error}") from None
        if options.model is None:
            raise UsageProblem(f"MODEL is required: {_NAMES}")
        name, source = split_name(options.model)
        keys = [f"model.name={name}", f"model.source={source}"]
        for text in options.init:
            if not re.match(r"[^\W\d]\w*=", text):
                raise UsageProblem(f"--init={text}: not allowed; allowed: key=value")
            keys.append(f"model.init.{text}")
        keys += [f"model.{key}=true" for key in ("shrink", "download") if getattr(options, key)]
        batches = _listed("--batch", options.batch)
        if options.input:
            samples, *sizes = _dimensions("--input", options.input)
            keys.append(f"model.input_shape=[{', '.join(sizes)}]")
            batches = batches or [samples]
        if options.tokens:
            samples, length = _dimensions("--tokens", options.tokens, most=2)
            keys.append(f"model.sequence_length={length}")
            batches = batches or [samples]
        for batch in batches:
            if not re.fullmatch(rf"auto|{_NUMBER}", batch, re.ASCII):
                raise UsageProblem(f"--batch={options.batch}: allowed: numbers above 0, or auto")
        modes = _listed("--compile", options.compile)
        for mode in modes:
            if mode not in _MODES:
                raise invalid_choice("--compile", mode, _MODES)
        return cls(
            model=options.model,
            keys=keys,
            tests=["train"] * options.train + ["infer"] * (options.infer or not options.train),
            batches=batches,
            modes=modes,
            words=words,
        )

    @property
    def name(self) -> str:
        """Name of the model in those of the module and its tests."""
        last = re.split(r"[/:]", self.model.rstrip("/"))[-1]
        return re.sub(r"\W+", "_", last).strip("_").lower()

    @property
    def module(self) -> str:
        """Source of the test module."""
        words = self.words.replace("\\", "\\\\").replace('"', '\\"')
        lines = [f'"""What `gpubench measure {words}` measures."""', "", "import pytest"]
        if self.batches or self.modes:
            lines += ["", "from gpubench_plugin.config.marks import Variant, param_variants"]
        for test in self.tests:
            lines += ["", "", *self._test(test)]
        return "\n".join([*lines, ""])

    def _test(self, test: str) -> Iterable[str]:
        section, subject, what = _TESTS[test]
        argument = ""
        if self.batches or self.modes:
            argument = ", variant"
            yield "@param_variants("
            for batch, mode in product(self.batches or [""], self.modes or ["none"]):
                yield f"    {_variant(section, batch, mode)},"
            yield ")"
        yield f"@pytest.mark.gpubench_set({_texts(self.keys)})"
        yield '@pytest.mark.gpubench(ranks="any")'
        yield f"def test_{self.name}_{test}(gpubench, {subject}{argument}):"
        yield f'    """{what} of {self.model}."""'
        yield f"    gpubench({subject})"


_TESTS: Final = {
    "train": ("training", "trainer", "Training step"),
    "infer": ("inference", "inference", "Forward pass"),
}
"""Section of the batch size, fixture, and words by test."""


def _variant(section: str, batch: str, mode: str) -> str:
    """Code of the variant of that batch size, or the default one, in that mode."""
    keys, names = [], []
    if batch:
        section = "training" if batch == "auto" else section  # where the largest is fitted
        keys, names = [f"{section}.batch_size={batch}"], [f"b{batch}"]
    if mode != "none":
        keys.append(f"model.compile={mode}")
        names.append("compiled" if mode == "default" else mode)
    assignments = f", assignments=({_texts(keys)},)" if keys else ""
    return f"Variant(name={_texts(['-'.join(names)])}{assignments})"


def _texts(texts: Iterable[str]) -> str:
    return ", ".join(map(json.dumps, texts))


def _listed(option: str, text: str | None) -> list[str]:
    values = [] if text is None else [value.strip() for value in text.split(",")]
    if not all(values):
        raise UsageProblem(f"{option}={text}: an empty value in the list")
    return [*dict.fromkeys(values)]


def _dimensions(option: str, text: str, most: int = 9) -> list[str]:
    numbers = text.lower()
    if not re.fullmatch(rf"{_NUMBER}(x{_NUMBER}){{1,{most - 1}}}", numbers, re.ASCII):
        example = "4x512" if most == 2 else "8x3x224x224"
        raise UsageProblem(f"{option}={text}: not a shape; allowed: for example {example}")
    return numbers.split("x")

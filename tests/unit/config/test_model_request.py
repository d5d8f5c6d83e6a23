"""The words of ``gpubench measure``, and the test module that they stand for."""

from __future__ import annotations

import ast

import pytest

from gpubench_plugin.config.model_request import ModelRequest, split_name
from gpubench_plugin.core.errors import UsageProblem


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("hf:Qwen/Qwen3-0.6B", ("hf", "Qwen/Qwen3-0.6B")),
        ("timm:resnet18.a1_in1k", ("timm", "resnet18.a1_in1k")),
        ("torchvision:vit_b_16", ("torchvision", "vit_b_16")),
        ("my.models:Net.small", ("python", "my.models:Net.small")),
        ("hf:./folder", ("hf", "./folder")),
    ],
)
def test_a_name_is_of_a_library_or_of_own_code(model: str, parts: tuple[str, str]) -> None:
    """The library stands before the colon; any other name is a module's."""
    assert split_name(model) == parts


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", ["MODEL", "hf:NAME"]),
        ("bert", ["bert", "hf:NAME"]),
        ("hf:", ["'hf:'", "package.module:Class"]),
        ("hf:bert --init depth", ["--init=depth", "key=value"]),
        ("hf:bert --input=3", ["--input=3", "8x3x224x224"]),
        ("hf:bert --input=8xax2", ["--input=8xax2"]),
        ("hf:bert --tokens=4x5x6", ["--tokens=4x5x6", "4x512"]),
        ("hf:bert --batch=1,,2", ["--batch=1,,2", "empty"]),
        ("hf:bert --batch=0", ["--batch=0", "above 0"]),
        ("hf:bert --compile=maxautotune", ["--compile", "maxautotune", "max-autotune"]),
        ("hf:bert --shrnk", ["--measure", "--shrnk"]),
        ("hf:bert 'x", ["--measure", "quotation"]),
    ],
)
def test_wrong_words_are_refused_by_name(words: str, named: list[str]) -> None:
    """One line has the option, its value and what is allowed."""
    with pytest.raises(UsageProblem) as refused:
        ModelRequest.parse(words)
    text = str(refused.value)
    assert [part for part in named if part not in text] == []
    assert "\n" not in text


def marks(request: ModelRequest) -> list[tuple[str, list[str]]]:
    """Each test of the module with the assignments of its marks and variants."""
    tree = ast.parse(request.module)
    return [
        (
            test.name,
            [
                node.value
                for mark in test.decorator_list
                for node in ast.walk(mark)
                if isinstance(node, ast.Constant) and "=" in str(node.value)
            ],
        )
        for test in tree.body
        if isinstance(test, ast.FunctionDef)
    ]


def test_the_module_has_a_forward_pass_unless_a_training_step_is_asked_for() -> None:
    """With both, both; the keys are those of the section model."""
    keys = ["model.name=hf", "model.source=bert"]
    assert marks(ModelRequest.parse("hf:bert")) == [("test_bert_infer", keys)]
    assert marks(ModelRequest.parse("hf:bert --train")) == [("test_bert_train", keys)]
    both = ModelRequest.parse("hf:bert --train --infer --shrink --init num_labels=3")
    more = [*keys, "model.init.num_labels=3", "model.shrink=true"]
    assert marks(both) == [("test_bert_train", more), ("test_bert_infer", more)]


def test_every_batch_size_is_measured_in_every_mode() -> None:
    """A variant for each, of the section that the test reads."""
    ((_, texts),) = marks(ModelRequest.parse("timm:vit --batch=1,8 --compile=none,default"))
    keys = ["inference.batch_size=1", "model.compile=default", "inference.batch_size=8"]
    assert {*texts} == {*keys, "model.name=timm", "model.source=vit"}
    module = ModelRequest.parse("timm:vit --batch=1,8 --compile=none,default").module
    assert [n for n in ("b1", "b1-compiled", "b8", "b8-compiled") if f'"{n}"' not in module] == []
    for words in ("timm:vit --train --batch=auto", "timm:vit --batch=auto"):
        ((_, texts),) = marks(ModelRequest.parse(words))
        assert "training.batch_size=auto" in texts


def test_a_shape_has_the_batch_first_unless_sizes_are_stated() -> None:
    """``--batch`` outranks the first dimension of an input."""
    ((_, texts),) = marks(ModelRequest.parse("m:Net --input=8x3x32x32"))
    assert {"model.input_shape=[3, 32, 32]", "inference.batch_size=8"} <= {*texts}
    ((_, texts),) = marks(ModelRequest.parse("m:Net --tokens=4x512 --batch=2"))
    assert {"model.sequence_length=512", "inference.batch_size=2"} <= {*texts}
    assert "inference.batch_size=4" not in texts


@pytest.mark.parametrize("model", ['hf:a"b', "hf:a\\b", "hf:é/ü", "hf:a b"])
def test_any_name_gives_a_module_that_can_be_read(model: str) -> None:
    """Quotes and backslashes included."""
    import shlex

    request = ModelRequest.parse(shlex.quote(model))
    ((name, texts),) = marks(request)
    assert name.isidentifier()
    assert f"model.source={model[3:]}" in texts

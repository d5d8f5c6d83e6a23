"""The variants of a benchmark, as a suite of somebody else uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from gpubench_plugin.config.marks import (
    CHANNELS_LAST,
    COMPILED,
    FSDP2,
    FULL,
    PLAIN,
    BenchmarkMark,
    Variant,
)
from gpubench_plugin.core.errors import UsageProblem

SUITE = """
import pytest

from gpubench_plugin.config.marks import (
    FSDP2,
    Variant,
    convolutional_training_variants,
    param_variants,
    training_variants,
)


@training_variants
@pytest.mark.gpubench(config="own", ranks="any")
def test_own_train(gpubench, trainer, variant):
    gpubench(trainer.step)


@convolutional_training_variants
@pytest.mark.gpubench(config="own", ranks="any")
def test_image_train(gpubench, trainer, variant):
    gpubench(trainer.step)


@pytest.mark.gpubench(config="own", ranks=1)
class TestMarked:
    @param_variants(Variant(name="large", assignments=("training.batch_size=64",)), FSDP2)
    @pytest.mark.gpubench_set("training.batch_size=4")
    def test_marked_train(self, gpubench, trainer, variant):
        gpubench(trainer.step)
"""

CONFTEST = """
import json

from gpubench_plugin.config.marks import BenchmarkMark, assignments, full_profile_only


def pytest_collection_finish(session):
    found = {
        item.name: [
            list(assignments(item)),
            full_profile_only(item, "fp32"),
            BenchmarkMark.of(item).ranks,
            BenchmarkMark.of(item).config,
        ]
        for item in session.items
    }
    session.config.rootpath.joinpath("found.json").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What a suite outside of this project collects with ``--strict-markers``, by name."""
    folder: Path = tmp_path_factory.mktemp("own")
    (folder / "test_own.py").write_text(SUITE)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    found: dict[str, list[Any]] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.slow
def test_every_way_to_train_is_a_case(collected: dict[str, list[Any]]) -> None:
    """Each variant has an id of its own, its keys, profile and ranks; the plain one a bare id."""
    own = {name: said for name, said in collected.items() if "own" in name}
    assert own == {
        "test_own_train[fp32]": [[], False, "any", "own"],
        "test_own_train[compiled-fp32]": [["model.compile=default"], True, "any", "own"],
        **{
            f"test_own_train[{name}-fp32]": [[key], True, "any", "own"]
            for name, key in (
                ("accumulated", "training.accumulation_steps=2"),
                ("checkpointed", "model.activation_checkpointing=true"),
            )
        },
        "test_own_train[fsdp2-fp32]": [["distributed.parallelism=fsdp2"], True, ">=2", "own"],
    }


def test_sharded_convolutions_are_contiguous(collected: dict[str, list[Any]]) -> None:
    """Networks of convolutions come in both formats, and sharded in the one that torch shards."""
    images = {name: said[0] for name, said in collected.items() if "image" in name}
    assert list(images) == [
        "test_image_train[channels_last-fp32]",
        "test_image_train[contiguous-fp32]",
        "test_image_train[channels_last-compiled-fp32]",
        "test_image_train[channels_last-accumulated-fp32]",
        "test_image_train[fsdp2-fp32]",
    ]
    assert images["test_image_train[fsdp2-fp32]"] == [
        "model.channels_last=false",
        "distributed.parallelism=fsdp2",
    ]


def test_what_a_variant_says_stands_above_function_and_class(
    collected: dict[str, list[Any]],
) -> None:
    """Its keys come after those of its function; of its class' mark it keeps what it is silent on.

    Otherwise a case would be called large and be measured small, or lose its configuration.
    """
    marked = {
        name: (keys, ranks, config)
        for name, (keys, _, ranks, config) in collected.items()
        if "marked" in name
    }
    small = "training.batch_size=4"
    assert marked == {
        "test_marked_train[large-fp32]": ([small, "training.batch_size=64"], 1, "own"),
        "test_marked_train[fsdp2-fp32]": (
            [small, "distributed.parallelism=fsdp2"],
            ">=2",
            "own",
        ),
    }


def test_two_variants_make_one() -> None:
    """Keys and names of both, and what the later one states; full in some precisions adds up."""
    assert (
        Variant(
            name="channels_last-compiled",
            assignments=("model.channels_last=true", "model.compile=default"),
            full=True,
        )
        == CHANNELS_LAST & COMPILED
    )
    assert (PLAIN & FSDP2, (PLAIN & FULL).full) == (FSDP2, True)
    half, double = Variant(name="", full=("amp",)), Variant(name="", full=("bf16",))
    assert [(half & other).full for other in (PLAIN, double, FULL)] == [
        ("amp",),
        ("amp", "bf16"),
        True,
    ]
    large = Variant(name="large", preset="full", needs_memory_gib=128)
    (mark,) = (FSDP2 & large & Variant(name="", needs_memory_gib=64)).marks[-1:]
    assert mark.kwargs == {"ranks": ">=2", "preset": "full", "needs_memory_gib": 64}
    assert PLAIN.marks == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"preset": "large"}, "preset='large'; allowed: tiny, full"),
        ({"needs_memory_gib": 0}, "needs_memory_gib=0; allowed: GiB above 0"),
        ({"timeout_s": True}, "timeout_s=True; allowed: seconds above 0"),
        ({"rank": 2}, "did you mean 'ranks'"),
        (
            {"timing": "kernels"},
            "test_x.* timing 'kernels' .did you mean 'kernel'.*: step, k",
        ),
        ({"timeout_s": float("inf")}, "timeout_s=inf; allowed: seconds above 0"),
    ],
)
def test_arguments_of_a_mark_are_checked(arguments: dict[str, Any], said: str) -> None:
    """On a parameter as on a function: what is not allowed is named with what is."""

    class Node:
        nodeid = "test_x.py::test_x[a]"
        marks: ClassVar = [pytest.mark.gpubench(**arguments).mark]
        callspec = SimpleNamespace(marks=marks)

        def iter_markers(self, name: str) -> list[pytest.Mark]:
            return [pytest.mark.gpubench(config="mlp").mark, *self.marks]

    with pytest.raises(UsageProblem, match=said):
        BenchmarkMark.of(Node())

"""Checkpoints: going on bit by bit, whole files only, and refusing what does not fit."""

from __future__ import annotations

import json
import os
import random
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gpubench_plugin.core.errors import ResultsError, Unsupported, UsageProblem
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.system import files
from gpubench_plugin.training.checkpoint import (
    BEST,
    LATEST,
    Checkpoints,
    Manifest,
    layouts_of,
    refuse_mismatch,
)
from gpubench_plugin.training.data.digits import Digits
from gpubench_plugin.training.model import load_model_state, model_state
from tests.support.kill_points import Scenario, survive
from tests.support.strikes import Struck
from tests.unit.training.conftest import Together

CPU = torch.device("cpu")
INF = float("inf")
SETTINGS = {"training.optimizer": "adamw"}
HARD = {
    "precision": "amp",
    "init_scale": 2.0**16,  # overflows at first, so that the scale is a part of the state
    "optimizer": "adamw",
    "scheduler": "cosine",
    "schedule_steps": 12,
    "learning_rate": 0.01,
    "gradient_clipping": 1.0,
}


def ranks(rank=0, *, gather=lambda _, record: [record], agreement=None):
    """As much of a process group as checkpoints use."""
    return SimpleNamespace(
        device=CPU,
        world=SimpleNamespace(rank=rank),
        control=SimpleNamespace(gather=gather),
        agreement=agreement or RankAgreement(),
    )


@pytest.fixture
def started(slope, make_trainer):
    """Builds a trainer with dropout and everything else that has a state."""
    slope.build = lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def start(seed=0, **training):
        trainer = make_trainer(**{**HARD, **training})
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        return trainer

    return start


@pytest.fixture
def kept(tmp_path):
    """The checkpoints in an empty folder."""
    return Checkpoints(tmp_path / "kept", settings=SETTINGS, group=ranks())


def trained(trainer, steps):
    for _ in range(steps):
        trainer.step()
    return trainer


def everything(trainer):
    """The whole state as text: equal only if every bit is, random numbers included."""
    drawn = (torch.rand(2).tolist(), random.random(), np.random.rand())
    state = trainer.state_dict()
    torch.set_printoptions(precision=17)
    return json.dumps([state, drawn], default=lambda tensor: tensor.tolist(), sort_keys=True)


def test_resumed_training_equals_the_uninterrupted_one_bit_by_bit(kept, started, slope):
    """N + M steps are N steps, a checkpoint, new objects, other random states, and M steps."""

    def begun(seed=0):
        return started(seed, data=Digits(slope, batch_size=8, device=CPU))

    whole = trained(begun(), 9)
    skipped = whole._optimization.skipped_steps()
    expected = everything(whole)

    path = kept.save(trained(begun(), 5), {"loss": 1.0})
    resumed = begun(seed=7)  # other weights, too: every tensor must come from the file
    with torch.no_grad():
        for parameter in resumed.module.parameters():
            parameter.add_(1.0)
    loaded = kept.load(path, resumed)
    assert (loaded.step, resumed.calls, 0 < skipped < 5) == (5, 5, True)
    assert everything(trained(resumed, 4)) == expected
    assert everything(trained(begun(), 8)) != expected


def test_count_of_steps_goes_on_over_resets(kept, started):
    """Steps are counted from the very start, not since the timed ones began."""
    trainer = trained(started(), 2)
    trainer.begin()
    path = kept.save(trained(trainer, 3), {"loss": 1.0})
    resumed = started()
    kept.load(path, resumed)
    resumed.begin()
    assert (Manifest.read(path).step, trained(resumed, 1).calls) == (5, 6)


def test_best_and_latest_are_kept_and_nothing_else(kept, started, tmp_path):
    """The latest is the last one, the best the one with the lowest loss; others are removed."""
    trainer = started()
    for loss in (3.0, 1.0, 2.0, 2.5):
        kept.save(trained(trainer, 1), {"loss": loss})
    folder = tmp_path / "kept"
    steps = [Manifest.read(folder / name).step for name in (LATEST, BEST)]
    assert steps == [4, 2]
    assert len(list(folder.iterdir())) == 4
    kept.save(trainer, {"accuracy": 0.5}, is_best=True)
    assert Manifest.read(folder / BEST).metrics == {"accuracy": 0.5}
    # Where both are one, there is one file.
    assert len(list(folder.iterdir())) == 3
    assert kept.load(folder, started()).metrics == {"accuracy": 0.5}


def test_files_that_are_not_its_own_are_left_alone(kept, started, tmp_path):
    """Files of other names, and what a copied manifest names, stay."""
    trainer, folder = trained(started(), 1), tmp_path / "kept"
    path = kept.save(trainer, {"loss": 1.0})
    first = Manifest.read(path).file
    (folder / "mine.json").write_bytes(path.read_bytes())
    others = {"step-final.pt", f"{first}.bak.pt", "notes.json"}
    for name in others:
        (folder / name).write_text("mine")
    for loss in (0.9, 0.8):
        kept.save(trained(trainer, 1), {"loss": loss})
    latest = Manifest.read(folder / LATEST).file
    left = {found.name for found in folder.iterdir()}
    assert left == {*others, "mine.json", first, LATEST, BEST, latest}


@pytest.mark.parametrize("fails_at", [".pt", ".json"])
def test_write_that_fails_leaves_the_earlier_checkpoint(fails_at, kept, started, monkeypatch):
    """A full disk in the middle is an error, and what was written before can be resumed."""
    trainer = trained(started(), 1)
    path = kept.save(trainer, {"loss": 1.0})
    write = files.write

    def full(target, fill):
        def torn(file):
            file.write(b"half")
            raise OSError(28, "No space left on device")

        write(target, torn if target.suffix == fails_at else fill)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        kept.save(trained(trainer, 1), {"loss": 0.5})
    monkeypatch.undo()
    assert kept.load(path, started()).step == 1
    assert not list(path.parent.glob(".*"))


class Saving(Scenario):
    """A checkpoint is saved where there are a latest and a best one already."""

    def __init__(self, started):
        self._loading = started()
        self._trainers = [trained(started(), steps) for steps in (1, 2, 3)]

    def _save(self, folder, step, **more):
        kept = Checkpoints(folder, settings=SETTINGS, group=ranks())
        kept.save(self._trainers[step - 1], {"loss": float(step)}, **more)

    def prepare(self, folder):
        self._save(folder, 1)
        self._save(folder, 2)

    def act(self, folder, ended):
        self._save(folder, 3, is_best=True)
        ended("saved")

    def again(self, folder):
        self._save(folder, 3, is_best=True)

    def look(self, folder, ended):
        kept = Checkpoints(folder, settings=SETTINGS, group=ranks())
        for name, before in ((LATEST, 2), (BEST, 1)):
            step = kept.load(folder / name, self._loading).step
            assert step in ([3] if ended else [before, 3])

    def verify(self, folder, ended):
        steps = [Manifest.read(folder / name).step for name in (LATEST, BEST)]
        assert steps == [3, 3]
        assert len(list(folder.glob("step-*"))) == 1


@pytest.mark.slow
def test_a_kill_at_any_point_leaves_whole_checkpoints(started, in_memory):
    """The latest and the best are the earlier or the new ones, and the next one can be saved."""
    survive(Saving(started), in_memory)


@pytest.mark.exhaustive
def test_a_strike_at_any_write_leaves_whole_checkpoints(started, in_memory):
    """Of an error or a signal, as of a kill."""
    saving = Struck([Saving(started)], in_memory)
    for seed in range(60):
        saving.survive(seed)


def edited(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rewritten(path, data, content):
    """Write other content into the file of tensors, and its hash into the manifest."""
    torch.save(content, data)
    edited(path, sha256=sha256(data.read_bytes()).hexdigest())


def cut_off(_path, data):
    data.write_bytes(data.read_bytes()[:-100])


def changed(_path, data):
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)


def pipe(_path, data):
    """To open it would block."""
    data.unlink()
    os.mkfifo(data)


class Code:
    def __reduce__(self):
        return (print, ("executed",))


def garbled(path, data):
    data.write_bytes(b"no archive")
    edited(path, sha256=sha256(b"no archive").hexdigest())


def other_states(path, data):
    rewritten(path, data, {**torch.load(data, weights_only=True), "random": [{"python": ""}]})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda path, data: edited(path, schema_version=2),
            "schema_version 2; this gpubench reads 1 only",
        ),
        (lambda path, data: path.write_text("{}"), "is not a checkpoint manifest"),
        (lambda path, data: edited(path, sha256=None), "at sha256"),
        (lambda path, data: edited(path, step=INF), "at step"),
        (lambda path, data: edited(path, step=10**30), "at step: .* less than 9007199254740992"),
        (lambda path, data: edited(path, step=-1), "at step"),
        (lambda path, data: edited(path, file=f"../kept/{data.name}"), "at file"),
        (lambda path, data: edited(path, file="a\0b"), "at file"),
        (cut_off, "truncated or modified: its sha256 is"),
        (changed, "truncated or modified: its sha256 is"),
        (lambda path, data: data.unlink(), "no such file"),
        (pipe, "is not a regular file"),
        (lambda path, data: rewritten(path, data, {"model": Code()}), "UnpicklingError"),
        (lambda path, data: rewritten(path, data, {"model": {}}), "KeyError: 'random'"),
        (other_states, "is not a checkpoint: TypeError"),
        (garbled, "is not a checkpoint: "),
    ],
)
def test_file_that_is_not_whole_is_refused(spoil, said, kept, started, capsys):
    """What is of another version, torn, changed or hostile is refused, and nothing is loaded."""
    path = kept.save(trained(started(), 3), {"loss": 1.0})
    spoil(path, path.with_name(Manifest.read(path).file))
    other = started(seed=3)
    before = everything(other)
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    with pytest.raises(UsageProblem, match=said):
        kept.load(path, other)
    assert everything(other) == before
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["CUDA error: out of memory", "CUDA error: device-side assert triggered"]
)
def test_device_that_fails_while_reading_is_not_the_files_fault(text, kept, started, monkeypatch):
    """A lack of memory, or a lost context, keeps its own kind."""
    path = kept.save(trained(started(), 3), {"loss": 1.0})

    def fail(*_, **__):
        raise torch.AcceleratorError(text)

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(torch.AcceleratorError, match=text):
        kept.load(path, started())


def model(**changes):
    """A small model with one thing changed."""
    module = nn.Sequential(nn.Linear(2, 8), nn.Conv2d(2, 3, 3, bias=changes.get("bias", False)))
    if "width" in changes:
        module[0] = nn.Linear(2, changes["width"])
    return module.to(
        dtype=changes.get("dtype", torch.float32),
        memory_format=changes.get("memory_format", torch.contiguous_format),
    )


@pytest.mark.parametrize(
    ("saved", "here", "said"),
    [
        ({}, {"dtype": torch.bfloat16}, r"0\.bias is float32 .* but bfloat16 \[8\]"),
        ({}, {"width": 9}, r"model\.0\.bias is float32 \[8\] .* but float32 \[9\]"),
        ({}, {"memory_format": torch.channels_last}, r"1\.weight .* \[18, 9.* \[18, 1, 6, 2\]"),
        ({}, {"bias": True}, r"model\.1\.bias is missing in the checkpoint"),
        ({"bias": True}, {}, r"model\.1\.bias is float32 .*, but missing here"),
    ],
)
def test_model_that_is_not_alike_is_refused(saved, here, said, kept, make_trainer):
    """A tensor of another dtype, shape or layout, one too few or too many, is named."""
    path = kept.save(make_trainer(module=model(**saved)), {"loss": 1.0})
    with pytest.raises(UsageProblem, match=said):
        kept.load(path, make_trainer(module=model(**here)))


def test_other_settings_and_too_many_ranks_are_refused(kept, started, tmp_path):
    """Another optimizer, or a rank that the checkpoint has no random state of, is refused."""
    path = kept.save(started(), {"loss": 1.0})
    other = Checkpoints(None, settings={"training.optimizer": "sgd"}, group=ranks())
    with pytest.raises(UsageProblem, match=r"training\.optimizer is adamw .*, but sgd here"):
        other.load(path, started())
    with pytest.raises(UsageProblem, match="contains random states of only 1 ranks"):
        Checkpoints(None, settings=SETTINGS, group=ranks(1)).load(path, started())
    with pytest.raises(UsageProblem, match="no such file"):
        kept.load(tmp_path, started())


def test_only_rank_zero_writes_and_every_rank_has_its_random_state(started, tmp_path):
    """The others give their random states to rank zero, and resume with their own."""
    told = []

    def gather(tag, record):
        told.append(record)
        return told if len(told) == 2 else None

    def checkpoints(folder, rank=0):
        return Checkpoints(folder, settings=SETTINGS, group=ranks(rank, gather=gather))

    trainer = started(seed=1)
    assert checkpoints(None).save(trainer, {"loss": 1.0}) is None
    torch.manual_seed(0)
    told.reverse()
    path = checkpoints(tmp_path).save(trainer, {"loss": 1.0})
    for rank, seed in enumerate((1, 0)):
        checkpoints(None, rank).load(path, started(seed=9))
        drawn = torch.rand(3)
        torch.manual_seed(seed)
        assert drawn.equal(torch.rand(3))


def test_layouts_are_found_in_any_nesting():
    """Tensors in dictionaries, lists and tuples are described by their dotted path."""
    tree = {"a": [torch.zeros(2, 3), {"b": (1, torch.ones(4).bfloat16())}], "c": "text"}
    assert layouts_of(tree) == {
        "a.0": "float32 [2, 3] of strides [3, 1]",
        "a.1.b.1": "bfloat16 [4] of strides [1]",
    }


def test_a_message_names_the_first_differences_and_counts_the_rest():
    """A model of another kind does not fill the screen."""
    with pytest.raises(UsageProblem, match=r"^x\.json does not fit: 0; 1; 2; 3; 4; and 3 more$"):
        refuse_mismatch(Path("x.json"), [str(i) for i in range(8)])
    refuse_mismatch(Path("x.json"), [])


def test_all_ranks_fail_where_rank_zero_cannot_write(started):
    """A rank that has nothing to write does not go on as if there were a checkpoint."""
    group = ranks(gather=lambda *_: None, agreement=Together([0.0]))
    other = Checkpoints(None, settings={}, group=group)
    with pytest.raises(ResultsError, match="rank zero could not write its checkpoint"):
        other.save(started(), {"loss": 1.0})


def test_wrappers_leave_no_trace_in_names():
    """A model that was compiled goes on uncompiled, and the other way round."""
    plain, inner = model(), model()
    inner[1] = torch.compile(inner[1], backend="eager")
    other = torch.compile(inner, backend="eager")
    assert list(model_state(plain)) == list(model_state(other))
    load_model_state(other, model_state(plain))
    states = zip(model_state(plain).values(), model_state(other).values(), strict=True)
    assert all(one.equal(two) for one, two in states)


def test_sparse_tensors_are_unsupported(kept, make_trainer):
    """What has no strides cannot be described, and that is said."""
    module = model()
    module.register_buffer("sparse", torch.eye(2).to_sparse())
    with pytest.raises(Unsupported, match="checkpoints support only strided tensors, not"):
        kept.save(make_trainer(module=module), {"loss": 1.0})

"""Damaged files given to the public commands, thousands of them, in one process.

    python -m tools.fuzz --count=10000 --seed=1 [--kind=journal …]

Every case damages one file of a results folder, or puts something else in its place, runs a command
that reads it and restores it. What is allowed is an exit code of the command's table and one line.
What is not is an *escape*: an exception, a traceback, an error nobody has foreseen, exit code 1
where nothing can have got slower, or a call that does not end. An escape is printed with what
makes the case again, ``--seed=S --only=N``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.cli import main as cli
from gpubench_plugin.core.errors import GpubenchError
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run
from tests.support.sessions import ringing

TIMEOUT_S: Final = 20.0
"""Four times the longest of 10,000 calls: 4.8 s, beside three busy processes on two cores."""

HUGE_BYTES: Final = 20 << 30
"""Of a sparse file: more than the memory of most machines, and nothing on the disk."""


class HangError(BaseException):
    """A call did not end; no ``except Exception`` of the code under test may swallow this."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A results folder with everything in it that commands read, and files beside it."""

    root: Path

    @property
    def results(self) -> Path:
        """The folder of all runs."""
        return self.root / "results"

    @property
    def places(self) -> dict[str, Path]:
        """Folders: of an ended run, a killed one without a summary, one that nothing damages."""
        runs = {name: run_id(number) for number, name in enumerate(("ended", "killed", "other"), 1)}
        folders = {name: self.results / "default" / run for name, run in runs.items()}
        return {"root": self.root, **folders}

    @classmethod
    def build(cls, root: Path) -> Scene:
        """Make one in the empty folder `root`."""
        scene = cls(root=root)
        both = [measurement(MLP, 0.010), measurement(RESNET, 0.020, settings={"a.b": [1, "x"]})]
        write_run(scene.results, 1, both, regressed=[MLP])
        write_run(scene.results, 2, both, status=None)
        write_run(scene.results, 3, both)
        configuration = {"distributed": {"world_size": 1}, "training": {"steps": 3, "data": None}}
        for folder in (scene.places["ended"], scene.places["killed"]):
            text = "".join(f"{json.dumps(i)}: {json.dumps(configuration)}\n" for i in (MLP, RESNET))
            (folder / "config_resolved.yaml").write_text(text, encoding="utf-8")
        where = [f"--results-dir={scene.results}"]
        _quietly(["runs", "tag", run_id(1), "nightly", *where, "--registry=none"])
        _quietly(["db", "ingest", *where])
        _quietly(["baseline", "set", "main", run_id(1), run_id(3), "--force", "--reason=x", *where])
        _quietly(["accept", run_id(3), MLP, "--reason=meant", *where])
        for name, document in _DOCUMENTS.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        (root / "configuration.yaml").write_text(_CONFIGURATION, encoding="utf-8")
        return scene


_STATS: Final = {"median": 0.01, "min": 0.009, "mean": 0.01, "max": 0.02, "rounds": 5, "data": [1]}
_DOCUMENTS: Final[Mapping[str, Any]] = {
    "foreign.json": {
        "machine_info": {"node": "n", "cpu": {"brand_raw": "A processor", "count": 2}},
        "commit_info": {"id": "c0ffee", "branch": "main", "dirty": False},
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": "5.3.1",
        "benchmarks": [
            {
                "fullname": name,
                "name": "b",
                "params": {"a": 1},
                "options": {"disable_gc": False, "min_rounds": 5, "timer": "perf_counter"},
                "stats": _STATS,
            }
            for name in (MLP, RESNET)
        ],
    },
    "rounds.json": {
        "schema_version": 1,
        "benchmarks": {MLP: {"rounds": 4, "durations_per_round": 1, "calls_per_duration": 2}},
    },
    "ab/state.json": {
        "schema_version": 1,
        "asked": {"here": "/tmp", "base": "main", "arguments": ["-q"], "limits": {"x": "2%"}},
        "identity": {"base": {"commit": "c0ffee"}},
        "seed": 7,
        "launches": [{"pair": 0, "attempt": 1, "side": "base", "folder": "0", "seconds": 1.5}],
    },
    "latest.json": {
        "format": "gpubench-checkpoint",
        "version": 1,
        "file": "step-1.pt",
        "bytes": 3,
        "sha256": "00",
        "step": 1,
        "metrics": {"loss": 0.5},
        "settings": {"a": "b"},
        "tensors": {"model.w": {"dtype": "float32", "shape": [2, 3], "stride": [3, 1]}},
        "torch": "2.13",
    },
}
_CONFIGURATION: Final = """\
experiment: {seed: 1, notes: text}
training: &training
  batch_size: 8
  lr: 1e-3
measure:
  timeout_s: 60
presets:
  full: {needs_memory_gib: 8, training: {batch_size: 64}}
"""


# What is read, and by what


Reader = tuple[str, ...] | Callable[["Scene"], object]
"""Arguments of the command `gpubench`, in which ``{ended}`` for example names a folder; or a public
entry that is no command.
"""


def call(reader: Reader, scene: Scene) -> int:
    """Read what was damaged: the exit code, or an error of ours."""
    if not isinstance(reader, tuple):
        reader(scene)
        return 0
    own = [argument.format(**scene.places) for argument in reader]
    registry = () if any("--registry" in argument for argument in own) else ("--registry=none",)
    return cli.main([*own, f"--results-dir={scene.results}", *registry])


def load_run(scene: Scene) -> None:
    """The run that was killed, by the API."""
    from gpubench_plugin.session import api

    api.load_run(scene.places["killed"])


def resume(scene: Scene) -> None:
    """What ``pytest --resume`` reads of a run before anything is measured."""
    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.session.run import open_to_resume
    from tests.support.runs_builder import environment

    run = open_to_resume(
        RunDirectory.open(scene.places["killed"]),
        environment=environment(),
        configurations={MLP: {"distributed": {"world_size": 1}}},
        rootdir=scene.root,
    )
    run.journal.close()


def configure(scene: Scene) -> None:
    """What ``pytest --config=FILE`` reads."""
    from gpubench_plugin.config.resolution import resolve
    from gpubench_plugin.config.sections import ModelSection

    resolve(
        name=None,
        preset="full",
        overlays=[scene.root / "configuration.yaml"],
        overrides=[],
        fixed_values={},
        rootdir=scene.root,
        model_section=lambda _: ModelSection,
    )


def fix_rounds(scene: Scene) -> None:
    """Read the file that ``--measure.rounds_file`` names."""
    from gpubench_plugin.config import rounds_file

    rounds_file.read(scene.root / "rounds.json", "measure.rounds_file")


def resume_ab(scene: Scene) -> None:
    """What ``gpubench ab --resume`` reads before it measures."""
    from gpubench_plugin.cli.ab.saved_state import SavedState

    SavedState.read(scene.root / "ab")


def read_manifest(scene: Scene) -> None:
    """What a training reads of a checkpoint first."""
    from gpubench_plugin.training.checkpoint import Manifest

    Manifest.read(scene.root / "latest.json")


_WITH_REGISTRY: Final = "--registry="
_LISTED: Final[tuple[Reader, ...]] = (
    ("runs", "list"),
    ("runs", "list", "--format=json"),
    ("runs", "show", "{ended}"),
    ("runs", "show", "{killed}", "--format=json"),
    ("compare", "{ended}", "{other}"),
    ("compare", "{other}", "{killed}", "--format=json"),
    ("compare", "main", "{other}"),
    ("history", "mlp"),
    ("history", "mlp", "--format=json", "--branch="),
    ("runs", "prune", "--keep-last=1", "--runs", "--dry-run"),
    ("runs", "artifacts", "{ended}"),
    ("baseline", "set", "new", "{ended}", "--if-missing"),
    *(("db", action, _WITH_REGISTRY) for action in ("ingest", "rebuild")),
)
_STORED: Final[tuple[Reader, ...]] = (
    ("runs", "list", _WITH_REGISTRY),
    ("runs", "show", "{ended}", _WITH_REGISTRY),
    ("history", "mlp", _WITH_REGISTRY),
    ("baseline", "list", _WITH_REGISTRY),
    ("baseline", "show", "main", _WITH_REGISTRY),
    ("compare", "main", "{other}", _WITH_REGISTRY),
    *(("db", action, _WITH_REGISTRY) for action in ("ingest", "rebuild")),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of file: its path below the scene, what reads it, and how it is damaged."""

    path: str
    readers: Sequence[Reader]
    structure: Callable[[random.Random, bytes], bytes]


# How it is damaged

_RAW: Final = (
    *("1e999", "-1e999", "NaN", "Infinity", "9" * 400, "-" + "9" * 400, "9" * 5000, "1E400"),
    *("[" * 150 + "]" * 150, "[" * 100_000, '{"a":' * 120 + "1" + "}" * 120),
    *('"\\ud800"', '"\\u0000"', '"\\u001b[31m\\u202e"', '"a', "{", "]", "nul", "01"),
    *('{"a": 1, "a": 2}', "\x00", "'", "1_000"),
)
"""JSON, and what is none, to stand in the place of a value."""

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**63, 2**64, 10**300, 1e308, 0.1, "", "x", "1", "../..", "\0"),
    *("9999-99-99T99:99:99Z", "0001-01-01T00:00:00Z", "0001-01-01", "9999-12-31T23:59:59Z"),
    *([], {}, [[]], [1], [None], {"a": 1}, {"": None}, [{"a": 1}], "y" * 100_000, "\x1b]0;x\x07"),
    *("\u2028", "=1+1", "measured", "complete", "nan", [0] * 1000, {str(n): n for n in range(200)}),
)

_WHOLE: Final = (
    *(b"", b" ", b"\n", b"null", b"[]", b"{}", b"0", b'"x"', b"\x89PNG\r\n\x1a\n"),
    *(b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}", b"\0" * 5000, b"[" * 200_000, b"{" * 5000),
    *(b'{"a":' * 200_000, b"\xff" * 99),
    *(b"- " * 100_000, b"? " * 50_000, b"a: &a [*a]", b"a: *b", b"!!python/object:os.system {}"),
    b"\n".join(b" " * n + b"a:" for n in range(400)),
)
"""To stand in the place of a whole file."""

_YAML: Final = (
    *("!!binary aGk=", "!!timestamp 2026-01-01", "&a [*a]", "*b", "<<", "010", "0o7", ".inf"),
    *(".nan", "1:30", "no", "|", "- - -", "? a"),
)
"""To stand in the place of a word of YAML."""

_COLUMNS: Final[tuple[Any, ...]] = (
    *(b"\xff\xfe", b"", "", "x", "{", "[]", "{}", "null", "[" * 300, '{"a": "b"}', 2**62, -1),
    *(1e308, "1e999", "\x1b[31m", '{"step_time_s": "x"}', '{"step_time_s": ["s"]}'),
    *('{"step_time_s": 1e999}', "[[1]]", "0001-01-01", "9" * 400),
)
"""To stand in a column of the registry."""


def json_structure(chance: random.Random, data: bytes) -> bytes:
    """The document in `data` with a key or a value deleted, doubled or replaced."""
    return _damaged_json(chance, json.loads(data))


def lines_structure(chance: random.Random, data: bytes) -> bytes:
    """The same of one line; or lines doubled, deleted, joined or in another order."""
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            lines.pop(at)
        case 1:
            lines.insert(chance.randrange(len(lines)), lines[at])
        case 2:
            chance.shuffle(lines)
        case 3:
            lines[at] = lines[at].rstrip(b"\n")
        case _:
            lines[at] = _damaged_json(chance, json.loads(lines[at])) + b"\n"
    return b"".join(lines)


def text_structure(chance: random.Random, data: bytes) -> bytes:
    """YAML with a word of it replaced."""
    words = data.split(b" ")
    value = chance.choice((*_RAW, *_YAML))
    words[chance.randrange(len(words))] = value.encode("utf-8", "surrogatepass")
    return b" ".join(words)


def database_structure(chance: random.Random, data: bytes) -> bytes:
    """A database with a value of another type or form in one column, or without a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "registry.sqlite")
        path.write_bytes(data)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            named = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT NULL"
            tables = [row[0] for row in connection.execute(named)]
            table = chance.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            value: Any = chance.choice(_COLUMNS)
            with suppress(sqlite3.Error):
                if chance.random() < 0.1:
                    connection.execute(f'DROP TABLE "{table}"')
                else:
                    column = chance.choice(columns)
                    connection.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ?', (value,))
        return path.read_bytes()


def _damaged_json(chance: random.Random, document: Any) -> bytes:
    places = list(_places(document))
    holder, key = chance.choice(places) if places else ([document], 0)
    marker = "@@raw@@"
    raw = chance.choice(_RAW)
    match chance.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[key] = marker
        case 2 if isinstance(holder, dict):
            renamed = chance.choice((str(key).upper(), "", "x" * 5000, "\0", f"{key}\u202e"))
            holder[renamed] = holder.pop(key)
        case 3:
            other, its_key = chance.choice(places) if places else (holder, key)
            holder[key] = json.loads(json.dumps(other[its_key]))
        case _:
            holder[key] = chance.choice(_VALUES)
    text = json.dumps(document).replace(json.dumps(marker), raw)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys: Iterable[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _bytes_damaged(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    at = chance.randrange(len(out) + 1)
    length = chance.choice((1, 2, 7, 100, 5000))
    match chance.randrange(6):
        case 0:
            del out[at:]
        case 1:
            del out[at : at + length]
        case 2:
            out[at:at] = chance.randbytes(length)
        case 3:
            out[at:at] = out[:at][-length:] * 3
        case 4:
            out[at : at + length] = chance.choice(_RAW).encode("utf-8", "surrogatepass")
        case _:
            for _ in range(chance.choice((1, 3, 30))):
                if out:
                    out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def _replace_file(chance: random.Random, path: Path, others: Sequence[Path]) -> None:
    """Put something in the place of the file that is none, or another one."""
    if path.exists():
        path.unlink()
    match chance.randrange(7):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(chance.choice(("/dev/zero", "/dev/tty", path.name, "nobody")))
        case 3:
            with path.open("wb") as file:
                file.truncate(HUGE_BYTES)
        case 4:
            path.symlink_to(chance.choice(others))
        case 5:
            path.write_bytes(chance.choice(others).read_bytes())
        case _:
            pass  # it is gone


def damage_of(scene: Scene, kind: str, *, seed: int, number: int) -> Reader:
    """Damage the file of that `kind` as case `number` of `seed` does; what is to read it."""
    chance, files = random.Random(f"{seed}:{number}"), KINDS[kind]
    path = scene.root / files.path
    turn = chance.random()
    if turn < 0.12:
        others = [other for other in sorted(scene.root.rglob("*.*")) if other.is_file()]
        _replace_file(chance, path, [other for other in others if other != path])
    elif turn < 0.22:
        path.write_bytes(chance.choice(_WHOLE))
    elif turn < 0.7:
        data = path.read_bytes()
        with suppress(ValueError, RecursionError):  # what was damaged before is no JSON any more
            for _ in range(chance.choice((1, 1, 1, 2, 4))):
                data = files.structure(chance, data)
        path.write_bytes(data)
    else:
        path.write_bytes(_bytes_damaged(chance, path.read_bytes()))
    return chance.choice(files.readers)


_RUN: Final = "results/default"
KINDS: Final[dict[str, Kind]] = {
    "summary": Kind(
        path=f"{_RUN}/{run_id(1)}/summary.json", readers=_LISTED, structure=json_structure
    ),
    "journal": Kind(
        path=f"{_RUN}/{run_id(2)}/metrics.jsonl",
        readers=(*_LISTED, load_run, resume, resume),
        structure=lines_structure,
    ),
    "verdicts": Kind(
        path=f"{_RUN}/{run_id(1)}/verdicts.json", readers=_LISTED, structure=json_structure
    ),
    "tags": Kind(path=f"{_RUN}/{run_id(1)}/tags.json", readers=_LISTED, structure=json_structure),
    "system": Kind(
        path=f"{_RUN}/{run_id(2)}/system.json",
        readers=(*_LISTED, load_run, resume),
        structure=json_structure,
    ),
    "config_resolved": Kind(
        path=f"{_RUN}/{run_id(2)}/config_resolved.yaml",
        readers=(load_run, resume),
        structure=text_structure,
    ),
    "baseline": Kind(
        path="results/baselines/main.json",
        readers=(
            ("baseline", "list"),
            ("baseline", "show", "main"),
            ("baseline", "list", _WITH_REGISTRY),
            ("accept", "{other}", "resnet", "--reason=x", "--baseline=main"),
            ("compare", "main", "{other}"),
            ("runs", "show", "{ended}"),
            ("runs", "prune", "--keep-last=1", "--runs", "--dry-run"),
            ("db", "rebuild", _WITH_REGISTRY),
        ),
        structure=json_structure,
    ),
    "registry": Kind(path="results/registry.sqlite", readers=_STORED, structure=database_structure),
    "foreign": Kind(
        path="foreign.json",
        readers=(
            ("compare", "{root}/foreign.json", "{other}", "--allow-incomparable"),
            ("compare", "{other}", "{root}/foreign.json", "--format=json"),
            ("compare", "{root}/foreign.json", "{root}/foreign.json", "--format=csv"),
        ),
        structure=json_structure,
    ),
    "configuration": Kind(
        path="configuration.yaml", readers=(configure,), structure=text_structure
    ),
    "rounds": Kind(path="rounds.json", readers=(fix_rounds,), structure=json_structure),
    "state": Kind(path="ab/state.json", readers=(resume_ab,), structure=json_structure),
    "manifest": Kind(path="latest.json", readers=(read_manifest,), structure=json_structure),
}


# One case after the other


@dataclass(kw_only=True)
class Outcome:
    """What came of the cases: how often which exit code, what escaped, all and the longest call."""

    codes: Counter[int] = field(default_factory=Counter)
    escapes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    longest_s: float = 0.0


def fuzz(
    scene: Scene,
    *,
    seed: int,
    numbers: Iterable[int],
    kinds: Sequence[str],
) -> Outcome:
    """Run the cases with these `numbers`; each depends on `seed` and its number alone."""
    outcome = Outcome()
    pristine = {path: path.read_bytes() for path in sorted(scene.root.rglob("*")) if path.is_file()}
    began = time.monotonic()
    for number in numbers:
        name = kinds[number % len(kinds)]
        path = scene.root / KINDS[name].path
        reader = damage_of(scene, name, seed=seed, number=number)
        called = time.monotonic()
        code, escape = _called(reader, scene)
        outcome.longest_s = max(outcome.longest_s, time.monotonic() - called)
        outcome.codes[code] += 1
        if escape:
            again = f"--seed={seed} --only={number} --kind={','.join(kinds)}"
            said = " ".join(("gpubench", *reader)) if isinstance(reader, tuple) else repr(reader)
            outcome.escapes.append(f"{said}, {path.name} of {again}: {escape}")
        _restore(scene, pristine)
    outcome.seconds = time.monotonic() - began
    return outcome


def _called(reader: Reader, scene: Scene) -> tuple[int, str]:
    """The exit code, -1 where there is none, and what escaped, in words."""
    out, err = io.StringIO(), io.StringIO()
    code, escape = -1, ""
    try:
        with ringing(TIMEOUT_S, _raise_hang), redirect_stdout(out), redirect_stderr(err):
            code = call(reader, scene)
    except GpubenchError as error:
        return 4, "" if str(error) else "an error without a word"
    except HangError:
        escape = f"did not end within {TIMEOUT_S:g} s"
    except (Exception, SystemExit):  # the very thing that is looked for
        escape = traceback.format_exc()
    else:
        escape = _escape(reader, code, out.getvalue(), err.getvalue())
    return code, escape


def _escape(reader: Reader, code: int, out: str, err: str) -> str:
    """What of an exit code and of what was said is not allowed, or nothing."""
    if "Traceback (most" in out + err or "gpubench: unexpected " in err:
        return err + _kept_traceback(err)
    compares = isinstance(reader, tuple) and reader[0] == "compare"
    if code not in ({0, 1, 2, 3, 4} if compares else {0, 2, 3, 4}):
        return f"exit code {code}: {err:.300}"
    if code in {2, 4} and not (out + err).strip():
        return f"exit code {code} without a word"
    return ""


def _kept_traceback(message: str) -> str:
    """What is in the file that the line names, which is removed."""
    with suppress(OSError):
        path = Path(message.rstrip().rpartition(" ")[2])
        text = path.read_text(encoding="utf-8")
        path.unlink()
        return text
    return ""


def _raise_hang(_: int, __: object) -> None:
    raise HangError


def _restore(scene: Scene, pristine: Mapping[Path, bytes]) -> None:
    """Put every file back, and remove what has come."""
    for path in sorted(scene.root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif path not in pristine or path.is_symlink() or not path.is_file():
            path.unlink()
    for path, data in pristine.items():
        size = path.stat().st_size if path.exists() else -1
        if size != len(data) or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _quietly(arguments: Sequence[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(arguments)
    if code:
        raise RuntimeError(f"gpubench {' '.join(arguments)}: {err.getvalue()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, and print how many cases took how long; 1 where something escaped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="cases (1000)")
    parser.add_argument("--seed", type=int, default=1, help="of all chance (1)")
    parser.add_argument("--only", type=int, action="append", help="only the case of that number")
    parser.add_argument(
        "--kind", default=",".join(KINDS), help=f"of these, with commas: {', '.join(KINDS)}"
    )
    options = parser.parse_args(arguments)
    kinds = options.kind.split(",")
    if unknown := sorted(set(kinds) - set(KINDS)):
        parser.error(f"--kind: unknown {unknown[0]!r}; allowed: {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory(prefix="gpubench-fuzz-") as folder:
        scene = Scene.build(Path(folder).resolve())
        numbers = options.only or range(options.count)
        outcome = fuzz(scene, seed=options.seed, numbers=numbers, kinds=kinds)
    for escape in outcome.escapes:
        print(f"ESCAPE {escape}")
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(outcome.codes.items()))
    print(
        f"{outcome.codes.total()} cases of {len(kinds)} kinds in {outcome.seconds:.1f} s, "
        f"the longest call {outcome.longest_s:.1f} s, seed {options.seed}; exit codes {codes}; "
        f"{len(outcome.escapes)} escapes"
    )
    return 1 if outcome.escapes else 0


if __name__ == "__main__":
    sys.exit(main())

"""What is asked of ``gpubench ab``, and what a comparison that goes on may be asked anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli import main
from gpubench_plugin.cli.ab.comparison import new_state, resolve_sides
from gpubench_plugin.cli.ab.request import Request, parse_arguments, parse_duration, parse_pairs
from gpubench_plugin.cli.ab.saved_state import STATE_FILE, SavedState
from gpubench_plugin.core.errors import UsageProblem

HERE = Path("/repo/sub")
ASKED = Request(
    here=HERE,
    base="main",
    head_python="py",
    pairs=5,
    limits={"mfu": "3%"},
    limits_from="head",
    arguments=("-x", "a b"),
)


def arguments(*texts: str) -> tuple[str, ...]:
    return parse_arguments(texts, cwd=HERE, repository=Path("/repo"))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("--resume=x --results-dir=x --gpubench-registry=none --launches=3", "in the launches"),
        ("--gate --gate-missing=fail", "in the launches"),
        ("-n -n4 -nauto -nlogical --numprocesses=2 --dist=load", "beside other work"),
        ("--junitxml=x --benchmark-json=x --log-file=x --basetemp=x", "into the tree"),
    ],
)
def test_options_that_would_defeat_the_comparison_are_refused(texts: str, said: str) -> None:
    """Those of ``ab`` itself, parallel tests, and files in the tree, with the reason."""
    for text in texts.split():
        with pytest.raises(UsageProblem, match=f"^{text}: .*{said}"):
            arguments("bench", text)
    with pytest.raises(UsageProblem, match=r"--registry=postgresql://\*\*\*@h/d: not allowed"):
        arguments("bench", "--registry=postgresql://u:hunter2@h/d")


def test_absolute_paths_in_the_repository_become_relative() -> None:
    """Else both sides would collect the working tree's tests; files elsewhere may be written."""
    given = ("/repo/sub/test_a.py::test[/repo/x]", "/elsewhere/test_b.py", "-k", "a or b", "-no")
    assert arguments(*given) == ("test_a.py::test[/repo/x]", *given[1:])
    assert arguments("/repo/test_c.py") == ("../test_c.py",)
    assert arguments("--junitxml=/elsewhere/x", "--junitxml", "/tmp/x")
    for given in (("--junitxml", "x.xml"), ("--junitxml=/repo/x.xml",), ("--junitxml",)):
        with pytest.raises(UsageProblem, match=r"--junitxml=.*into the tree"):
            arguments(*given)


@pytest.mark.parametrize("name", ["--rootdir", "--confcutdir", "-c", "--ignore"])
def test_options_that_name_a_place_in_the_tree_are_moved_too(name: str) -> None:
    """In either form; a place elsewhere, and the data of a benchmark, stay as they are."""
    assert arguments(f"{name}=/repo/sub") == (f"{name}=.",)
    assert arguments(name, "/repo") == (name, "..")
    assert arguments(f"{name}=/elsewhere", f"{name}=sub") == (f"{name}=/elsewhere", f"{name}=sub")
    assert arguments("--data.path=/repo/x.bin") == ("--data.path=/repo/x.bin",)


def test_pairs_end_at_a_look() -> None:
    """Stopping elsewhere would be a look that no error rate accounts for."""
    assert [parse_pairs(pairs) for pairs in ("10", "45")] == [10, 45]
    for text in ("7", "0", "-5", "five"):
        with pytest.raises(UsageProblem, match=rf"--pairs={text}: .*allowed: 5, 10, 15"):
            parse_pairs(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("2h", 7200), ("1h30m", 5400)]
)
def test_a_time_has_units(text: str, seconds: float) -> None:
    """Hours, minutes and seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["20", "", "m", "0s", "1.5h", "-5m", "30m1h", "9999999h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """The message has what is allowed."""
    with pytest.raises(UsageProblem, match=f"--time={text}: .*allowed: .*90s, 20m"):
        parse_duration(text)


def test_versions_are_exempt_only_where_pythons_are_compared() -> None:
    """Without a Python of its own on a side, another torch is incomparable."""
    assert Request(here=HERE, base="main").exempt_facts == ()
    assert "torch." in Request(here=HERE, base="main", base_python="py").exempt_facts


def test_a_comparison_goes_on_with_other_pairs_and_time(tmp_path: Path) -> None:
    """A time holds for one command; a secret is not written down, so the launches would lack it."""
    before = replace(ASKED, time_s=60.0)
    assert before.resumed(pairs=None, time_s=None) == ASKED
    assert before.resumed(pairs=10, time_s=9.0) == replace(ASKED, pairs=10, time_s=9.0)
    secret = replace(ASKED, arguments=("--api-key=hunter2",))
    SavedState(folder=tmp_path, request=secret, identity={}, seed=0).write()
    assert "hunter2" not in (tmp_path / STATE_FILE).read_text()
    with pytest.raises(UsageProblem, match="secret"):
        SavedState.read(tmp_path).request.resumed(pairs=None, time_s=None)


@pytest.mark.slow
def test_other_options_are_refused_before_anything_is_launched(
    repo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that is typed is silently ignored: one line with the option and what is allowed."""
    asked = Request(here=repo.path, base="main")
    state = new_state(tmp_path / "results", asked, resolve_sides(asked))
    for option in ("--limit=mfu=9%", "--head=main", "--allow-incomparable", "--results-dir=x", "b"):
        assert main.main(["ab", f"--resume={state.folder}", option]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        name = option.partition("=")[0] if "-" in option else "the arguments of pytest"
        assert f": {name} cannot be given again; allowed: --pairs, --time" in line

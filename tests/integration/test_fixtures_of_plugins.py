"""Fixtures of another plugin that have the names of gpubench's."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.fixture_choice import FIXTURE_MODULES
from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

NAMES = sorted(
    name
    for module in FIXTURE_MODULES
    for name, value in vars(import_module(module)).items()
    if isinstance(value, type(pytest.fixture(lambda: None)))
)
ORDERS = pytest.mark.parametrize("order", ["registered before", "registered after"])


@pytest.fixture(autouse=True)
def _toy_is_found(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin that a test writes as toy.py."""
    monkeypatch.syspath_prepend(project.path)


def run(project: Project, order: str, *options: str) -> Run:
    """Run a session with the toy registered before or after gpubench."""
    if order == "registered before":
        return project.run("-p", "toy", *options, quick="no:gpubench" not in options)
    return project.run(*options, env={"PYTEST_PLUGINS": "toy"}, quick="no:gpubench" not in options)


TOY = """
import pytest

@pytest.fixture(params=["theirs"])
def NAME(request):
    return request.param

@pytest.fixture
def reader(NAME):
    return NAME
"""
ORDINARY = """
def test_ordinary(NAME):
    assert NAME == "theirs"

def test_reader(reader):
    assert reader == "theirs"
"""
BENCHMARK = """
import pytest

@pytest.mark.gpubench(config="mlp")
@pytest.mark.gpubench_set("training.target_loss=100")
def test_benchmark(gpubench, NAME):
    assert NAME != "theirs"
    gpubench(lambda: None)
"""


@ORDERS
@pytest.mark.parametrize("name", shown("model", "torch_device", exhaustively=NAMES))
def test_outside_benchmarks_theirs_counts_and_in_them_ours(
    project: Project, name: str, order: str
) -> None:
    """Parameters, too; one line says so, where a benchmark would use the name."""
    project.write("toy.py", TOY.replace("NAME", name))
    project.write("test_benchmark.py", BENCHMARK.replace("NAME", name).replace(", gpubench)", ")"))
    if name != "gpubench":  # which makes a benchmark of a test
        project.write("test_ordinary.py", ORDINARY.replace("NAME", name))

    ended = run(project, order, "-v")

    assert ended.out.count("[theirs] PASSED") == (2 if name != "gpubench" else 0), ended.out
    (benchmark,) = ended.summary["benchmarks"]
    assert benchmark["outcome"] in {"measured", "unsupported"}, benchmark
    assert "theirs" not in f"{benchmark['name']} {benchmark['reason']}"
    assert ended.out.count(f"{name} (toy)") == 1


IN_MANY_WAYS = """
import pytest

@pytest.fixture(autouse=True)
def model():
    return "theirs"

@pytest.fixture
def model_of_toy(model):
    return model

@pytest.fixture(scope="session")
def world_size():
    return "theirs"

@pytest.fixture(scope="session")
def session_wide(world_size):
    return world_size

@pytest.fixture
def torch_device(request):
    return request.param

@pytest.fixture(name="precision")
def of_another_name():
    return "theirs"

def pytest_generate_tests(metafunc):
    if "torch_device" in metafunc.fixturenames:
        metafunc.parametrize("torch_device", ["one", "two"], indirect=True)
"""
USES = """
import unittest
import pytest

NAMES = ("model", "model_of_toy", "world_size", "session_wide", "precision")

@pytest.mark.parametrize("name", NAMES)
def test_dynamic(request, name):
    assert request.getfixturevalue(name) == "theirs"

def test_hook(torch_device, model_of_toy, request):
    assert torch_device in ("one", "two")
    assert "_gpubench_setup" not in request.fixturenames

@pytest.mark.parametrize("precision", ["own"])
def test_parameter(precision):
    assert precision == "own"

@pytest.mark.usefixtures("world_size")
class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _keep(self, request, session_wide):
        self.seen = [request.getfixturevalue(name) for name in NAMES]
    def test_case(self):
        assert set(self.seen) == {"theirs"}

class TestOverride:
    @pytest.fixture
    def model(self, model):
        return f"above {model}"
    def test_override(self, model):
        assert model == "above theirs"

def documented():
    '''
    >>> getfixture("model"), getfixture("session_wide")
    ('theirs', 'theirs')
    '''
"""


@pytest.mark.parametrize(
    "options", [("-v", "--doctest-modules"), ("--fixtures-per-test",), ("--setup-show",)]
)
@ORDERS
def test_tests_that_are_no_benchmarks_are_as_without_gpubench(
    project: Project, order: str, options: tuple[str, ...]
) -> None:
    """Whatever asks for the fixtures, and however they are defined."""
    project.write("toy.py", IN_MANY_WAYS)
    project.write("test_it.py", USES)

    def seen(*more: str) -> tuple[int, str]:
        ended = run(project, order, "-p", "no:cacheprovider", *options, *more)
        lines = [line for line in ended.out.splitlines() if not line.startswith("plugins:")]
        return ended.code, re.sub(r"in \d+\.\d+s", "in a while", "\n".join(lines))

    without = seen("-p", "no:gpubench")
    assert without[0] == 0, without[1]
    assert seen() == without


IN_BENCHMARKS = """
import pytest

def test_adopted(benchmark, model, precision):
    assert model == precision == "theirs"
    benchmark(lambda: None)

def test_none(gpubench, request, torch_device):
    assert "model" not in request.fixturenames
    assert torch_device.type == "cpu"
    assert request.getfixturevalue("process_group").device == torch_device
    gpubench(lambda: None)

@pytest.mark.gpubench(config="mlp")
@pytest.mark.parametrize("precision", ["bf16"], indirect=True)
def test_named(gpubench, precision, model_of_toy, trainer):
    assert precision.name == "bf16"
    assert model_of_toy is not trainer and hasattr(model_of_toy, "forward")
    gpubench(trainer)

@pytest.mark.gpubench(config="mlp")
@pytest.mark.usefixtures("model")
def test_marked(gpubench, request):
    assert hasattr(request.getfixturevalue("model"), "forward")
    gpubench(lambda: None)
"""


@ORDERS
def test_in_a_benchmark_all_that_use_the_name_get_ours(project: Project, order: str) -> None:
    """Not an adopted one, whose fixtures are not ours; autouse fixtures of theirs do not act."""
    project.write("toy.py", IN_MANY_WAYS)
    project.write("test_it.py", IN_BENCHMARKS)

    ended = run(project, order, "--adopt", "--benchmark-max-time=0.01")

    outcomes = {name.partition("[")[0]: value for name, value in ended.outcomes.items()}
    assert outcomes == dict.fromkeys(
        ("test_adopted", "test_none", "test_named", "test_marked"), "measured"
    ), ended.out
    assert not [name for name in ended.outcomes if "one" in name.partition("[")[2]]
    theirs = "model (toy), precision (toy), torch_device (toy), world_size (toy)"
    assert ended.out.count(f"these fixtures do not count: {theirs}\n") == 1


@ORDERS
@pytest.mark.parametrize("home", ["conftest.py", "of_project.py"])
def test_a_project_s_own_fixture_overrides_both(project: Project, order: str, home: str) -> None:
    """Of a conftest, or of a plugin that it names."""
    fixture = "import pytest\n@pytest.fixture\ndef data(): return 'mine'\n"
    project.write("toy.py", fixture.replace("mine", "theirs"))
    project.write(home, fixture)
    if home != "conftest.py":
        project.write("conftest.py", "pytest_plugins = ['of_project']\n")
    tests = "def test_it(GPUBENCHdata):\n    assert data == 'mine'\n    "
    project.write("test_ordinary.py", tests.replace("GPUBENCH", "") + "pass\n")
    project.write("test_own.py", tests.replace("GPUBENCH", "gpubench, ") + "gpubench(int)\n")

    ended = run(project, order)

    assert "2 passed" in ended.out, ended.out

"""The example for a cluster, which cannot be run here: at least it can be read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

DOCS = Path(__file__).parents[2] / "docs" / "examples" / "cluster"


def shell_of_the_pod() -> str:
    """The script that the container of the Kubernetes job runs."""
    _, job = yaml.safe_load_all((DOCS / "kubernetes.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/bash", "-c"]
    (script,) = container["args"]
    return str(script)


def test_script_is_valid_shell() -> None:
    """Bash can read it, and it starts torchrun for pytest."""
    script = shell_of_the_pod()

    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "-m pytest" in script


def test_manifest_is_a_service_and_a_job_that_find_each_other() -> None:
    """The job's pods have the service's subdomain and labels, and as many as torchrun expects."""
    service, job = yaml.safe_load_all((DOCS / "kubernetes.yaml").read_text())

    assert (service["kind"], job["kind"]) == ("Service", "Job")
    template = job["spec"]["template"]
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert template["metadata"]["labels"] == service["spec"]["selector"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert "--nnodes=2 " in shell_of_the_pod()

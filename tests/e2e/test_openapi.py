"""The description at /openapi.yaml, and requests that schemathesis makes of it: valid ones, wrong ones, and chains in which
one uses what another made. The same seed makes the same requests. What is checked of the answers: schemathesis.toml."""
import os
import pathlib
import re
import subprocess
import sys

import httpx
import pytest
import yaml
from conftest import Daemon

HERE = pathlib.Path(__file__).parent
# Hundreds of requests, one for each edge of each field.
LARGE = ("createChatCompletion", "createCompletion", "createResponse", "renderChat")


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    daemon = Daemon("--context", "256", "--state-dir", tmp_path_factory.mktemp("state"))
    try:
        yield daemon.wait_until_ready()
        daemon.stop()
    finally:
        daemon.kill()


def ask(npud, folder, *options):
    """Runs schemathesis; returns how many requests it made."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml", "run",
               npud.base_url + "/openapi.yaml", "--generation-database", "none", "--no-color", *options]
    result = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=1500,
                            env={**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": str(HERE)})
    assert result.returncode == 0, result.stdout + result.stderr
    assert npud.text("The capital of France is").startswith(" Paris")
    return int(re.search(r"(\d+) generated", result.stdout).group(1))


def test_description_is_served(npud):
    answer = httpx.get(npud.base_url + "/openapi.yaml")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(answer.text)["openapi"] == "3.1.0"


def test_examples_and_random_requests(described, tmp_path):
    assert ask(described, tmp_path, "--phases", "examples,fuzzing,stateful", "--max-examples", "6") > 100


def test_edges_of_fields(described, tmp_path):
    excluded = [part for name in LARGE for part in ("--exclude-operation-id", name)]
    assert ask(described, tmp_path, "--phases", "coverage", *excluded) > 300


@pytest.mark.long
def test_edges_of_all_fields(described, tmp_path):
    assert ask(described, tmp_path, "--phases", "coverage") > 1500


@pytest.mark.long
def test_many_random_requests(described, tmp_path):
    assert ask(described, tmp_path, "--phases", "fuzzing,stateful", "--max-examples", "100", "--seed", "2") > 1500

"""npuctl on the real model: the device's logits against the reference's."""
import json

import pytest
from conftest import MODEL, npuctl

PROMPTS = [
    "The capital of France is", "def fibonacci(n):\n    ", "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a small village by the sea, there lived", "1, 1, 2, 3, 5, 8, 13,",
]


def verify(*arguments):
    result = npuctl("verify", "--model", MODEL, "--json", *arguments)
    assert result.returncode in (0, 1) and not result.stderr, result.stderr
    return result.returncode, json.loads(result.stdout)


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_device_chooses_as_the_reference_does(prompt):
    status, report = verify("--prompt", prompt, "--steps", "64", "--same-token")
    steps = report["cases"][0]["steps"]
    assert len(steps) == 64
    assert sum(step["argmax_agrees"] for step in steps) >= 0.9 * 64
    assert all(step["argmax_agrees"] or step["near_tie"] for step in steps)
    assert status == 0


def test_every_op_computes_what_the_reference_does():
    result = npuctl("verify", "--model", MODEL, "--ops", "--steps", "2")
    assert result.returncode == 0, result.stdout + result.stderr


def test_limit_that_cannot_be_met_fails():
    status, report = verify("--prompt", PROMPTS[0], "--steps", "2", "--max-peir", "0.000001")
    assert status == 1


def test_tokenize_shows_ids_and_pieces():
    result = npuctl("tokenize", "--model", MODEL, PROMPTS[0])
    assert result.returncode == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["504", "The"], ["3575", " capital"], ["282", " of"], ["4649", " France"], ["314", " is"]]


def test_devices_lists_the_driver():
    result = npuctl("devices")
    assert result.returncode == 0 and "Portable Computing Language" in result.stdout


@pytest.mark.parametrize("arguments, status", [
    (["--help"], 0), (["--version"], 0), ([], 2), (["nonsense"], 2), (["verify"], 2), (["verify", "--nonsense"], 2),
    (["verify", "--model", "/does/not/exist"], 1), (["verify", "--model", MODEL, "--steps", "x"], 2),
    (["tokenize", "--model", "/dev/null", "x"], 1), (["devices", "--nonsense"], 2),
], ids=lambda value: str(value)[:50])
def test_exit_status(arguments, status):
    result = npuctl(*arguments)
    assert result.returncode == status, result.stderr
    assert (result.stderr.count("\n") == 1) if status == 1 else True

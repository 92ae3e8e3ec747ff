"""npuctl verify as a tool: its options, its report, its exit status. The reference executor is the tested side, so that no
device is needed."""
import json
import pathlib
import subprocess

import pytest

from conftest import NPUCTL

DATA = pathlib.Path(__file__).parent.parent / "data" / "reference"
MODEL = DATA / "llama.gguf"
LOGITS = DATA / "llama.json"


def verify(*options):
    command = [NPUCTL, "verify", *options]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)


def verify_reference(*options):
    return verify("--executor", "reference", "--model", MODEL, *options)


@pytest.mark.parametrize(
    "options, says",
    [
        ([], "--model is required"),
        (["--model", "x", "--executor", "gpu"], "--executor must be device or reference: gpu"),
        (["--model", "x", "--steps", "many"], "--steps must be a number from 0 to 100000: many"),
        (["--model", "x", "--steps", "-1"], "--steps must be a number"),
        (["--model", "x", "--max-peir", "-0.1"], "--max-peir must be a number that is not negative"),
        (["--model", "x", "--same-token=perhaps"], "--same-token must be yes or no"),
        (["--model", "x", "--kv-type", "q8"], "--kv-type must be f16 or f32"),
        (["--model", "x", "--prompt", "a", "--tokens", "1"], "exclude each other"),
        (["--model", "x", "--reference", "y", "--tokens", "1"], "has its own prompts"),
        (["--model", "x", "surplus"], "unexpected argument: surplus"),
        (["--unknown"], "unrecognized option"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(options, says):
    run = verify(*options)
    assert run.returncode == 2
    assert says in run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stdout == ""


@pytest.mark.parametrize(
    "options, says",
    [
        (["--tokens", "1,96"], '--tokens: "96" is not a token id from 0 to 95'),
        (["--tokens", "1,,2"], "is not a token id"),
        (["--tokens", ""], "is not a token id"),
        (["--prompt", "text"], "give --tokens instead"),  # the model has no tokenizer
        (["--reference", DATA / "missing.json"], "missing.json"),
        (["--reference", MODEL], "llama.gguf: line 1"),
    ],
)
def test_bad_input_is_one_line_and_status_1(options, says):
    run = verify_reference(*options)
    assert run.returncode == 1
    assert says in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "reference, says",
    [
        ([], '"cases" must be an array'),
        ({"cases": []}, '"cases" must be an array'),
        ({"cases": [{"prompt": [], "steps": []}]}, "cases[0].prompt must be an array"),
        ({"cases": [{"prompt": [1, "x"], "steps": []}]}, "each element of cases[0].prompt must be a token id from 0 to 95"),
        ({"cases": [{"prompt": [1]}]}, "cases[0].steps must be an array"),
        ({"cases": [{"prompt": [1], "prefill_logits": [], "steps": []}]}, "cases[0].prefill_logits must be null or"),
        ({"cases": [{"prompt": [1], "steps": [{"argmax": 1, "logits": [1.0]}]}]}, "cases[0].steps[0].logits must be an array of 96"),
        ({"cases": [{"prompt": [1], "steps": [{"argmax": 96, "logits": []}]}]}, "cases[0].steps[0].argmax must be a token id"),
        ({"cases": [{"prompt": [1], "steps": [{"argmax": 0, "logits": ["a"] * 96}]}]}, "cases[0].steps[0].logits[0] must be a number"),
    ],
)
def test_a_reference_file_with_a_mistake_is_refused_where_it_is(tmp_path, reference, says):
    path = tmp_path / "reference.json"
    path.write_text(json.dumps(reference))
    run = verify_reference("--reference", path)
    assert run.returncode == 1
    assert says in run.stderr and str(path) in run.stderr


def test_the_logits_of_transformers_pass():
    run = verify_reference("--reference", LOGITS, "--max-difference", "2e-3", "--json")
    report = json.loads(run.stdout)
    assert run.returncode == 0 and report["passed"]
    assert report["compared"] == report["argmax_agrees"] == 52
    assert report["max_difference"] <= 2e-3
    case = report["cases"][0]
    assert len(case["prefill"]) == 21 and len(case["steps"]) == 32
    assert case["first_divergence"] is None
    assert set(case["steps"][0]) == {
        "mean_difference", "max_difference", "peir", "argmax", "reference_argmax", "argmax_agrees", "near_tie"}


def test_a_wrong_reference_fails_and_the_first_divergence_is_shown(tmp_path):
    reference = json.loads(LOGITS.read_text())
    step = reference["cases"][0]["steps"][5]
    wrong = step["logits"].index(min(step["logits"]))
    step["logits"][wrong], step["argmax"] = max(step["logits"]) + 10.0, wrong
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(reference))

    forced = verify_reference("--reference", path, "--json")
    report = json.loads(forced.stdout)
    assert forced.returncode == 1 and not report["passed"]
    assert report["cases"][0]["first_divergence"] == 5
    assert len(report["cases"][0]["steps"]) == 32  # the reference's token is fed, so every step is compared

    free = verify_reference("--reference", path, "--same-token=no")
    assert free.returncode == 1
    assert "the choices differ first at step 5" in free.stdout
    assert "step 5 " in free.stdout and "step 6 " not in free.stdout


def test_half_precision_kv_is_close_but_not_equal():
    exact = verify_reference("--tokens", "1,2,3,4", "--steps", "8", "--json")
    half = verify_reference("--tokens", "1,2,3,4", "--steps", "8", "--same-token", "--kv-type", "f16", "--json")
    assert exact.returncode == half.returncode == 0
    assert json.loads(exact.stdout)["max_difference"] == 0.0
    assert 0.0 < json.loads(half.stdout)["max_peir"] < 0.02


def test_limits_decide_the_exit_status():
    options = ["--tokens", "1,2,3,4", "--steps", "8", "--same-token", "--kv-type", "f16"]
    assert verify_reference(*options, "--max-peir", "1e-9").returncode == 1
    assert verify_reference(*options, "--max-difference", "1e-9").returncode == 1


def test_help_goes_to_stdout():
    run = verify("--help")
    assert run.returncode == 0 and run.stderr == ""
    assert "--same-token" in run.stdout

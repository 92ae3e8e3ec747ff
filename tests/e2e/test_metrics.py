"""GET /metrics on the real daemon: its numbers are those of what happened."""
import concurrent.futures

import httpx
import pytest
from metrics_text import read_metrics


def grown(npud, before, name):
    return read_metrics(npud)[name] - before[name]


def outcome(name, endpoint="completions"):
    return f'npud_requests_total{{endpoint="{endpoint}",outcome="{name}"}}'


def test_info_names_device_driver_and_model(npud):
    line = next(name for name in read_metrics(npud) if name.startswith("npud_info{"))
    assert 'model="SmolLM2-135M-Instruct.Q4_1"' in line and 'version="' in line
    serving = npud.wait_for_line("serving .*").group()
    for label in ("device", "driver_version", "platform"):
        value = line.split(f'{label}="')[1].split('"')[0]
        assert value and value in serving


@pytest.mark.short
def test_a_request_counts_everywhere(npud):
    before = read_metrics(npud)
    answer = npud.complete("The first ten numbers are 1, 2,", max_tokens=12, ignore_eos=True)
    usage = answer["usage"]
    assert grown(npud, before, outcome("length")) == 1
    assert grown(npud, before, "npud_prompt_tokens_total") == usage["prompt_tokens"]
    assert grown(npud, before, "npud_generated_tokens_total") == usage["completion_tokens"] == 12
    for histogram, n in (("npud_queue_wait_seconds", 1), ("npud_time_to_first_token_seconds", 1),
                         ("npud_inter_token_seconds", 11)):
        assert grown(npud, before, histogram + "_count") == n
        assert grown(npud, before, histogram + "_sum") >= 0
    after = read_metrics(npud)
    steps = [name for name in after if name.startswith("npud_step_seconds_count")]
    assert sum(after[name] - before[name] for name in steps) >= 12
    assert after['npud_step_rows_total{kind="decode"}'] - before['npud_step_rows_total{kind="decode"}'] == 11
    assert after['npud_http_responses_total{code="200"}'] > before.get('npud_http_responses_total{code="200"}', 0)


def test_cached_tokens_and_shared_blocks_count(npud):
    prefix = "A prefix that two sessions share. " * 20
    first = npud.complete(prefix + "One", prompt_cache_key="one")
    before = read_metrics(npud)
    second = npud.complete(prefix + "Two", prompt_cache_key="two")
    assert grown(npud, before, "npud_cached_tokens_total") == second["timings"]["cached_n"] > 64
    assert grown(npud, before, "npud_kv_blocks_shared") >= first["usage"]["prompt_tokens"] // 32 - 1
    metrics = read_metrics(npud)
    assert metrics["npud_kv_blocks"] == sum(metrics[f"npud_kv_blocks_{state}"] for state in ("used", "cached", "free"))
    assert metrics["npud_kv_blocks_active"] == metrics["npud_kv_blocks_pinned"] == 0
    assert metrics["npud_generations_running"] == metrics["npud_generations_waiting"] == 0


def test_outcomes_are_told_apart(npud):
    before = read_metrics(npud)
    npud.complete("1 2 3", max_tokens=2, ignore_eos=True)
    npud.complete("Say a word.", max_tokens=400, stop=["a", "e", "i", "o"])
    assert npud.post(prompt=5).status_code == 400
    assert httpx.get(npud.base_url + "/nowhere").status_code == 404
    npud.post("/v1/prefill", prompt="1 2 3", prompt_cache_key="k")
    body = {"prompt": "A long story:", "stream": True, "max_tokens": 1000, "ignore_eos": True}
    mark = npud.mark()
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
    npud.wait_for_line("client gone", mark)
    for name in ("length", "stop", "refused", "client_gone"):
        assert grown(npud, before, outcome(name)) == 1, name
    assert grown(npud, before, outcome("prefilled", "prefill")) == 1
    after = read_metrics(npud)
    for code in ("400", "404"):
        name = f'npud_http_responses_total{{code="{code}"}}'
        assert after[name] - before.get(name, 0) == 1


def test_running_and_waiting_are_seen(start):
    npud = start("--parallel", "1")
    body = {"prompt": "A long story:", "stream": True, "max_tokens": 2000, "ignore_eos": True}
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(npud.post, prompt="x")
            metrics = read_metrics(npud)
            while metrics["npud_generations_waiting"] == 0:
                metrics = read_metrics(npud)
            assert metrics["npud_generations_running"] == metrics["npud_generations_waiting"] == 1
            assert metrics['npud_sessions{state="busy"}'] == 1
            assert metrics["npud_connections"] >= 2
            answer.close()
            assert waiting.result().status_code == 200

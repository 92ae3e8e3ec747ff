"""The queue: its bound, its order, and requests that will not wait."""
import concurrent.futures
import contextlib
import json
import time

import httpx
import pytest
from metrics_text import read_metrics

LONG = {"prompt": "Once upon a time", "max_tokens": 3000, "ignore_eos": True, "temperature": 0, "stream": True}
SHORT = {"prompt": "One, two, three,", "max_tokens": 4, "ignore_eos": True, "temperature": 0}


@pytest.fixture
def single(start):
    """One place, a queue for two."""
    return start("--parallel", "1", "--queue", "2")


@contextlib.contextmanager
def occupied(npud, **fields):
    """The only place is taken by a long stream; leaving ends it."""
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=LONG | fields, timeout=120) as answer:
        lines = answer.iter_lines()
        next(lines)
        yield lines


def wait_waiting(npud, n):
    deadline = time.monotonic() + 60
    while read_metrics(npud)["npud_generations_waiting"] != n:
        assert time.monotonic() < deadline, f"{n} generations should be waiting"
        time.sleep(0.02)


def outcome(npud, name):
    return read_metrics(npud)[f'npud_requests_total{{endpoint="completions",outcome="{name}"}}']


def error_of(answer, status, code):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    return error


@pytest.mark.short
def test_full_queue_is_a_429_with_a_time_to_come_back(single):
    expected = single.text(SHORT["prompt"], max_tokens=4, ignore_eos=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with occupied(single):
            waiting = [pool.submit(single.post, **SHORT) for _ in range(2)]
            wait_waiting(single, 2)
            for _ in range(3):
                answer = single.post(**SHORT)
                error = error_of(answer, 429, "queue_full")
                assert error["type"] == "rate_limit_error" and "2 requests wait" in error["message"]
                assert 1 <= int(answer.headers["retry-after"]) <= 600
            assert outcome(single, "queue_full") == 3
        # Those in the queue get what they came for.
        for answer in waiting:
            assert answer.result().json()["choices"][0]["text"] == expected
    assert single.text(SHORT["prompt"], max_tokens=4, ignore_eos=True) == expected


def test_request_of_many_choices_takes_one_place_in_the_queue(single):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with occupied(single):
            waiting = [pool.submit(single.post, **SHORT, n=5) for _ in range(2)]
            wait_waiting(single, 10)
            error_of(single.post(**SHORT), 429, "queue_full")
        assert [len(answer.result().json()["choices"]) for answer in waiting] == [5, 5]


def read_some(lines, n):
    for _ in range(n):
        next(lines)


def test_request_of_many_long_generations_keeps_nobody_out(start):
    npud = start("--parallel", "4", "--queue", "1")
    many = {**LONG, "prompt": ["Once", "Twice"], "n": 40}
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=many, timeout=120) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        read_some(lines, 20)
        wait_waiting(npud, 77)
        assert read_metrics(npud)["npud_requests_waiting"] == 1
        for priority in (0, 5, 9):  # one after the other
            assert npud.post(**SHORT, priority=priority, max_wait_ms=60000).status_code == 200
        assert npud.post(**SHORT, max_wait_ms=1).status_code == 200  # at once, and it is known that it is at once
        assert npud.post(**SHORT, n=2).status_code == 429  # would wait, as only one may
        assert read_metrics(npud)["npud_generations_waiting"] == 77


def test_wait_for_generations_of_known_length_is_known(single):
    single.complete("One, two,", max_tokens=20, ignore_eos=True)
    with occupied(single) as lines:
        read_some(lines, 40)
        answer = single.post(**SHORT, max_wait_ms=100)  # it has 3,000 tokens to go; the average is 20
        error = error_of(answer, 503, "wait_too_long")
        assert "would wait" in error["message"]


def test_larger_priority_leaves_the_queue_first(start):
    npud = start("--parallel", "1")
    order = []

    def ask(priority):
        npud.post(**{**SHORT, "max_tokens": 40}, priority=priority)
        order.append(priority)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        with occupied(npud):
            requests = []
            for n, priority in enumerate((1, 0, 9, 5)):
                requests.append(pool.submit(ask, priority))
                wait_waiting(npud, n + 1)
        for request in requests:
            request.result()
    assert order == [9, 5, 1, 0]
    for wrong in (-1, 10, "high"):
        assert npud.post(**SHORT, priority=wrong).status_code == 400


def test_max_wait_ends_a_wait_that_became_too_long(single):
    with occupied(single, stop="no such text"):  # nobody knows that it takes all its tokens
        began = time.monotonic()
        answer = single.post(**SHORT, max_wait_ms=300)
        assert time.monotonic() - began >= 0.3
        error_of(answer, 503, "wait_too_long")
        assert int(answer.headers["retry-after"]) >= 1
    assert outcome(single, "wait_too_long") == 1


def test_max_wait_refuses_at_once_what_would_wait_longer(single):
    for _ in range(8):  # it learns how long a generation takes
        single.complete("One, two,", max_tokens=100, ignore_eos=True)
    with occupied(single):
        answer = single.post(**SHORT, max_wait_ms=1)
        error = error_of(answer, 503, "wait_too_long")
        assert "would wait" in error["message"] and "max_wait_ms is 1" in error["message"]
        assert int(answer.headers["retry-after"]) >= 1
    single.wait_for_line("client gone")
    deadline = time.monotonic() + 60
    while read_metrics(single)["npud_generations_running"] > 0:
        assert time.monotonic() < deadline
    assert single.post(**SHORT, max_wait_ms=1).status_code == 200  # with a free place nobody waits


def test_timeout_ends_a_request_in_the_queue_and_in_its_stream(single):
    with occupied(single):
        error_of(single.post(**SHORT, timeout_ms=200), 504, "timed_out")
    with httpx.stream("POST", single.base_url + "/v1/completions", json={**LONG, "timeout_ms": 1000}, timeout=120) as answer:
        assert answer.status_code == 200
        events = [line for line in answer.iter_lines() if line]
    assert json.loads(events[-1][6:])["error"]["code"] == "timed_out"
    assert len(events) > 1 and "data: [DONE]" not in events
    assert outcome(single, "timed_out") == 2
    error_of(single.post(**{**LONG, "stream": False}, timeout_ms=500), 504, "timed_out")
    assert single.post(**SHORT, timeout_ms=60000).status_code == 200


def test_client_that_leaves_the_queue_makes_room(single):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with occupied(single):
            waiting = pool.submit(single.post, **SHORT)
            wait_waiting(single, 1)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(single.base_url + "/v1/completions", json=SHORT, timeout=httpx.Timeout(60, read=0.5))
            wait_waiting(single, 1)
            mark = single.mark()
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(single.base_url + "/v1/completions", json=SHORT, timeout=httpx.Timeout(60, read=0.5))
            single.wait_for_line("client gone", mark)
        assert waiting.result().status_code == 200


def test_prefill_waits_and_is_refused_like_others(single):
    prefill = {"prompt": "abc", "prompt_cache_key": "k"}
    with occupied(single):
        answer = single.post("/v1/prefill", **prefill, max_wait_ms=200)
        error_of(answer, 503, "wait_too_long")
        error_of(single.post("/v1/prefill", **prefill, timeout_ms=200), 504, "timed_out")
    assert single.post("/v1/prefill", **prefill).status_code == 200

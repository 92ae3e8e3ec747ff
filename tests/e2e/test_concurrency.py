"""Many clients at once: each gets, to the letter, what it would get alone."""
import concurrent.futures
import json
import random

import httpx
import pytest

PROMPTS = [
    "The capital of France is", "Once upon a time there was a", "def fibonacci(n):", "1, 2, 3, 4, 5,",
    "<|im_start|>user\nWhat is the sea?<|im_end|>\n<|im_start|>assistant\n", "Water boils at",
    "\u4f60\u597d\uff0c", "The three primary colours are red, green and" + " very" * 60,
]


def texts_at_once(npud, prompts, **fields):
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: npud.text(prompt, **fields), prompts))


@pytest.mark.short
def test_eight_clients_get_the_texts_of_one(npud):
    alone = [npud.text(prompt, max_tokens=48) for prompt in PROMPTS]
    assert texts_at_once(npud, PROMPTS, max_tokens=48) == alone


def test_more_clients_than_places_wait_their_turn(npud):
    prompts = [f"{i} {prompt}" for i in range(3) for prompt in PROMPTS]
    assert texts_at_once(npud, prompts, max_tokens=12) == [npud.text(prompt, max_tokens=12) for prompt in prompts]


def test_place_beside_others_does_not_change_logprobs(npud):
    fields = {"max_tokens": 24, "logprobs": 5, "temperature": 0.9, "seed": 11}
    alone = [npud.complete(prompt, **fields)["choices"] for prompt in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda prompt: npud.complete(prompt, **fields)["choices"], PROMPTS))
    assert together == alone


def disconnect_early(npud, prompt, frames):
    """Streams, and goes away after some frames."""
    body = {"prompt": prompt, "max_tokens": 500, "temperature": 0, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            frames -= line.startswith("data: ")
            if frames <= 0:
                return


@pytest.mark.short
def test_disconnects_disturb_nobody(npud):
    source = random.Random(5)
    expected = {prompt: npud.text(prompt, max_tokens=32) for prompt in PROMPTS}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        leavers = [pool.submit(disconnect_early, npud, source.choice(PROMPTS), source.randint(1, 12)) for _ in range(12)]
        stayers = {prompt: pool.submit(npud.text, prompt, max_tokens=32) for prompt in PROMPTS}
        assert {prompt: stayer.result() for prompt, stayer in stayers.items()} == expected
        for leaver in leavers:
            leaver.result()
    npud.wait_for_line(r"client gone")


def test_streams_and_whole_answers_at_once(npud):
    def stream(prompt):
        body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": True}
        with httpx.stream("POST", npud.base_url + "/v1/completions", json=body, timeout=120) as answer:
            events = [json.loads(line[6:]) for line in answer.iter_lines()
                      if line.startswith("data: ") and line != "data: [DONE]"]
        return "".join(event["choices"][0]["text"] for event in events)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        streamed = pool.map(stream, PROMPTS)
        whole = pool.map(lambda prompt: npud.text(prompt, max_tokens=24), PROMPTS)
        assert list(streamed) == list(whole)


def test_bad_requests_between_good_ones(npud):
    expected = npud.text(PROMPTS[0], max_tokens=24)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        bad = [pool.submit(npud.post, prompt=["a", 1]) for _ in range(40)]
        good = [pool.submit(npud.text, PROMPTS[0], max_tokens=24) for _ in range(10)]
        assert {answer.result().status_code for answer in bad} == {400}
        assert {answer.result() for answer in good} == {expected}


def test_short_kv_memory_makes_requests_wait(start):
    """A pool for a few sessions serves eight clients, one after the other if need be."""
    npud = start("--context", "128", "--kv-memory", "8M")
    alone = [npud.text(prompt, max_tokens=24) for prompt in PROMPTS]
    assert texts_at_once(npud, PROMPTS, max_tokens=24) == alone

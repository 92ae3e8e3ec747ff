"""Embeddings through the official client and as JSON."""
import base64
import math
import struct
import threading

import httpx
import openai
import pytest
from metrics_text import read_metrics

TEXTS = ["The cat sat on the mat.", "A kitten is sleeping on the rug.", "Interest rates rose by a quarter of a percent."]
DIMENSIONS = 576  # SmolLM2 135M
LONG = "Once upon a time there was a town by the sea. " * 14


def embed(npud, status=200, **body):
    answer = npud.post("/v1/embeddings", **body)
    assert answer.status_code == status, answer.text
    return answer.json()


def vector(npud, text, **fields):
    return embed(npud, input=text, **fields)["data"][0]["embedding"]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


@pytest.mark.short
def test_official_client_gets_unit_vectors(client):
    answer = client.embeddings.create(model="any", input=TEXTS)  # asks for base64 and decodes it
    assert answer.object == "list" and [item.index for item in answer.data] == [0, 1, 2]
    for item in answer.data:
        assert len(item.embedding) == DIMENSIONS
        assert abs(math.sqrt(dot(item.embedding, item.embedding)) - 1) < 1e-5
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20
    cat, kitten, rates = (item.embedding for item in answer.data)
    assert dot(cat, kitten) > dot(cat, rates)


def test_encodings_hold_the_same_floats(npud):
    numbers = vector(npud, TEXTS[0])
    raw = base64.b64decode(vector(npud, TEXTS[0], encoding_format="base64"), validate=True)
    assert list(struct.unpack(f"<{DIMENSIONS}f", raw)) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in numbers]


def test_every_form_of_input_gives_the_same_vector(npud):
    alone = vector(npud, TEXTS[0])
    tokens = [504, 2644, 3323]
    both = embed(npud, input=TEXTS)["data"]
    assert both[0]["embedding"] == alone
    assert vector(npud, [TEXTS[0]]) == alone
    by_tokens = vector(npud, tokens)
    assert [item["embedding"] for item in embed(npud, input=[[1], tokens])["data"]][1] == by_tokens
    assert by_tokens != alone and vector(npud, TEXTS[0], dimensions=DIMENSIONS) == alone


def test_vectors_have_the_same_bits_beside_other_work(npud):
    """Long texts go in many steps; others decode meanwhile, others embed."""
    alone = {pooling: vector(npud, LONG, pooling=pooling) for pooling in ("mean", "last")}
    assert alone["mean"] != alone["last"] and vector(npud, LONG) == alone["mean"]
    busy = [threading.Thread(target=npud.complete, args=(f"Number {i}:",), kwargs={"max_tokens": 60, "ignore_eos": True})
            for i in range(3)]
    for thread in busy:
        thread.start()
    for pooling in ("mean", "last"):
        vectors = embed(npud, input=[LONG, "short", LONG + "more", LONG], pooling=pooling)["data"]
        assert vectors[0]["embedding"] == vectors[3]["embedding"] == alone[pooling]
    for thread in busy:
        thread.join()


def test_mean_of_one_token_is_its_last(npud):
    assert vector(npud, [504], pooling="mean") == vector(npud, [504], pooling="last")


def test_nothing_is_left_behind_and_no_session_suffers(npud):
    prompt = LONG + "And then"
    first = npud.complete(prompt, prompt_cache_key="story")
    sessions = httpx.get(npud.base_url + "/v1/sessions").json()
    metrics = read_metrics(npud)
    embed(npud, input=[prompt, LONG, "Another text altogether. " * 100])
    assert httpx.get(npud.base_url + "/v1/sessions").json() == sessions
    again = read_metrics(npud)
    for name in ("npud_kv_blocks_used", "npud_kv_blocks_cached", "npud_kv_blocks_free"):
        assert again[name] == metrics[name], name
    second = npud.complete(prompt, prompt_cache_key="story")
    assert second["choices"][0]["text"] == first["choices"][0]["text"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == second["usage"]["prompt_tokens"] - 1


@pytest.mark.long
def test_2048_inputs(npud):
    data = embed(npud, input=[[i % 100 + 10] for i in range(2048)])["data"]
    assert [item["index"] for item in data] == list(range(2048))
    assert data[0]["embedding"] == data[100]["embedding"] != data[1]["embedding"]
    assert embed(npud, 400, input=["x"] * 2049)["error"]["param"] == "input"


@pytest.mark.parametrize("body, param, part", [
    ({}, "input", "required"), ({"input": ""}, "input", "empty"), ({"input": ["a", ""]}, "input[1]", "empty"),
    ({"input": []}, "input", "at least one"), ({"input": [[]]}, "input[0]", "at least one"),
    ({"input": 7}, "input", "string"), ({"input": ["a", 7]}, "input[1]", "string"),
    ({"input": [1, "a"]}, "input[1]", "token id"), ({"input": [10 ** 9]}, "input[0]", "token id"),
    ({"input": "a", "dimensions": 256}, "dimensions", "576"), ({"input": "a", "dimensions": 0}, "dimensions", "1"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", "base64"),
    ({"input": "a", "encoding_format": 1}, "encoding_format", "base64"),
    ({"input": "a", "pooling": "cls"}, "pooling", "mean"), ({"input": "a", "priority": 10}, "priority", "9"),
    ({"input": "a", "model": 1}, "model", "string"),
])
def test_wrong_fields_are_named(npud, body, param, part):
    error = embed(npud, 400, **body)["error"]
    assert error["param"] == param and part in error["message"], error


def test_text_longer_than_the_context_is_refused(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.embeddings.create(model="any", input=["short", "word " * 9000])
    assert raised.value.code == "context_length_exceeded" and raised.value.param == "input[1]"


def test_requests_are_counted_and_logged(npud):
    mark = npud.mark()
    embed(npud, input=TEXTS)
    npud.wait_for_line(r"embd-\w+: \d+ prompt tokens, 0 cached, 0 generated, no token, .* embedded$", mark)
    assert read_metrics(npud)['npud_requests_total{endpoint="embeddings",outcome="embedded"}'] >= 1

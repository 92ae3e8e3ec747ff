"""POST /v1/chat/completions through the official client: whole and streamed answers, every field, every limit."""
import json

import httpx
import openai
import pytest

HELLO = [{"role": "user", "content": "Name three colours."}]


def create(client, messages=HELLO, **fields):
    return client.chat.completions.create(
        model="any", messages=messages, **{"temperature": 0, "max_tokens": 24, **fields})


def stream_text(client, **fields):
    return "".join(chunk.choices[0].delta.content or "" for chunk in create(client, stream=True, **fields))


def frames(npud, **body):
    """The frames of a stream as they came."""
    body = {"messages": HELLO, "temperature": 0, "max_tokens": 8, "stream": True, **body}
    answer = httpx.post(npud.base_url + "/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    *events, done, end = answer.text.split("\n\n")
    assert done == "data: [DONE]" and end == ""
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event[6:]) for event in events]


# ---- answers ----


@pytest.mark.short
def test_whole_answer_has_every_part(client):
    answer = create(client)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert "SmolLM2" in answer.model and answer.created > 1.7e9
    assert choice.message.role == "assistant" and choice.message.content.strip()
    assert choice.message.tool_calls is None and choice.message.refusal is None
    assert choice.index == 0 and choice.logprobs is None and choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens <= 24
    assert answer.model_dump()["timings"]["predicted_n"] == answer.usage.completion_tokens


@pytest.mark.short
def test_stream_gives_the_whole_answers_text(client):
    assert stream_text(client) == create(client).choices[0].message.content


def test_frames_are_openais(npud):
    first, *middle, last, usage = frames(npud, stream_options={"include_usage": True})
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"] == [{
        "index": 0, "delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None,
        "finish_reason": None}]
    assert middle and all(list(frame["choices"][0]["delta"]) == ["content"] for frame in middle)
    assert all(frame["choices"][0]["finish_reason"] is None for frame in middle)
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 8
    assert all(frame["usage"] is None for frame in [first, *middle, last])
    assert len({(frame["id"], frame["created"], frame["model"]) for frame in [first, *middle, last, usage]}) == 1


def test_stream_without_include_usage_has_none(npud):
    assert all("usage" not in frame for frame in frames(npud))


def test_answer_ends_at_the_end_of_the_turn(client):
    answer = create(client, max_tokens=300)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_max_tokens_has_two_names(client):
    answers = [create(client, max_tokens=None, max_completion_tokens=5), create(client, max_tokens=5)]
    assert [answer.usage.completion_tokens for answer in answers] == [5, 5]
    assert [answer.choices[0].finish_reason for answer in answers] == ["length", "length"]


def test_without_max_tokens_an_answer_goes_on_to_its_end(client):
    answer = create(client, max_tokens=None)
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens > 24

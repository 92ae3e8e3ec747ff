"""Streams: frames to the byte, and characters that tokens cut in pieces."""
import json

import httpx
import pytest

PIECES = [  # what makes this model answer outside ASCII, or at random
    "Emoji: \U0001f600\U0001f601\U0001f602\U0001f923\U0001f603\U0001f604\U0001f605",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002",
    "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 ",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0645\u0631\u062d\u0628\u0627",
]


def stream_bytes(npud, **fields):
    with httpx.stream("POST", npud.base_url + "/v1/completions", json={"stream": True, "temperature": 0, **fields},
                      timeout=120) as answer:
        assert answer.status_code == 200
        return answer.headers, b"".join(answer.iter_raw())


def frames(data):
    """The events' data, after checking that there is nothing else in the stream."""
    parts = data.split(b"\n\n")
    assert parts.pop() == b""
    result = []
    for part in parts:
        if part == b":":  # a comment, which readers skip
            continue
        assert part.startswith(b"data: ") and b"\n" not in part and b"\r" not in part, part
        result.append(part[6:])
    assert result.pop() == b"[DONE]"
    return [json.loads(frame.decode("utf-8")) for frame in result]


@pytest.mark.short
def test_frames_are_exact(npud):
    headers, data = stream_bytes(npud, prompt="The capital of France is", max_tokens=8)
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache" and headers["transfer-encoding"] == "chunked"
    events = frames(data)
    for event in events:
        assert set(event) <= {"id", "object", "created", "model", "system_fingerprint", "choices", "timings"}
        assert event["object"] == "text_completion" and len(event["choices"]) == 1
        assert set(event["choices"][0]) == {"text", "index", "logprobs", "finish_reason"}
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["length"]


def test_stream_comes_token_by_token(npud):
    _, data = stream_bytes(npud, prompt="One two three four", max_tokens=24, ignore_eos=True)
    assert len(frames(data)) >= 20


@pytest.mark.short
@pytest.mark.parametrize("prompt", PIECES, ids=range(len(PIECES)))
def test_no_frame_splits_a_character(npud, prompt):
    fields = {"prompt": prompt, "max_tokens": 64, "ignore_eos": True}
    _, data = stream_bytes(npud, **fields)
    streamed = "".join(event["choices"][0]["text"] for event in frames(data))
    assert streamed == npud.text(**fields)


@pytest.mark.parametrize("seed", range(6))
def test_invalid_bytes_come_out_as_replacement_characters(npud, seed):
    """At this temperature nearly any token comes, pieces of characters too."""
    fields = {"prompt": PIECES[0], "max_tokens": 100, "temperature": 2, "seed": seed, "ignore_eos": True}
    _, data = stream_bytes(npud, **fields)
    streamed = "".join(event["choices"][0]["text"] for event in frames(data))
    assert streamed == npud.text(**fields)
    streamed.encode("utf-8")  # no lone surrogate


def test_forced_pieces_of_characters(npud):
    """Tokens that are a single byte of a character each, in all orders, as a prompt that is echoed."""
    single_bytes = list(range(17, 300))
    whole = npud.complete(single_bytes, echo=True, max_tokens=1, logprobs=0)["choices"][0]
    _, data = stream_bytes(npud, prompt=single_bytes, echo=True, max_tokens=1)
    assert "".join(event["choices"][0]["text"] for event in frames(data)) == whole["text"]
    assert "\ufffd" in whole["text"]
    assert len(whole["logprobs"]["tokens"]) == len(single_bytes) + 1
    assert any(token.startswith("bytes:\\x") for token in whole["logprobs"]["tokens"])


def test_stop_string_of_several_bytes_a_character(npud):
    text = npud.text(PIECES[1], max_tokens=64, ignore_eos=True)
    stop = text[10:12]
    fields = {"prompt": PIECES[1], "max_tokens": 64, "ignore_eos": True, "stop": stop}
    _, data = stream_bytes(npud, **fields)
    assert "".join(event["choices"][0]["text"] for event in frames(data)) == text[:text.index(stop)]

"""A session in one file: out of one daemon, into another, which goes on with the conversation."""
import random

import httpx
import pytest

SYSTEM = "<|im_start|>system\nYou are a helpful assistant that answers in short sentences and never lies.<|im_end|>\n"
FILE = {"Content-Type": "application/octet-stream"}


def user(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def export(npud, session, status=200):
    answer = httpx.get(f"{npud.base_url}/v1/sessions/{session}/export", timeout=120)
    assert answer.status_code == status, answer.text
    return answer


def take_in(npud, data, status=200, **params):
    answer = httpx.post(f"{npud.base_url}/v1/sessions/import", params=params, content=data, headers=FILE, timeout=120)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def exported(npud):
    """A conversation of one turn: its file, its prompt for the next turn, and the text that must follow."""
    prompt = SYSTEM + user("What do you know about lighthouses, and who keeps them?")
    first = npud.complete(prompt, max_tokens=24, prompt_cache_key="lighthouse")
    answer = export(npud, first["timings"]["cache"]["session"])
    assert answer.headers["content-type"] == "application/octet-stream"
    assert ".npud" in answer.headers["content-disposition"]
    follow_up = prompt + first["choices"][0]["text"] + "<|im_end|>\n" + user("And who pays for them?")
    return {"data": answer.content, "tokens": first["usage"]["total_tokens"] - 1, "follow_up": follow_up,
            "text": npud.text(follow_up, max_tokens=24)}


@pytest.mark.short
def test_another_daemon_goes_on_with_the_conversation(start, exported):
    other = start()
    session = take_in(other, exported["data"])
    assert session["key"] == "lighthouse" and session["state"] == "resident"
    assert session["tokens"] == session["resident_tokens"]
    answer = other.complete(exported["follow_up"], max_tokens=24, prompt_cache_key="lighthouse")
    assert answer["choices"][0]["text"] == exported["text"]
    assert answer["timings"]["cached_n"] >= exported["tokens"] - 2
    assert answer["timings"]["cache"]["session"] == session["id"]


def test_other_numerics_take_the_tokens_and_compute(start, exported):
    other = start("--kv-type", "f32")
    session = take_in(other, exported["data"], key="taken over")
    assert session["key"] == "taken over" and session["tokens"] >= exported["tokens"] - 1
    assert session["resident_tokens"] == 0 and session["state"] == "evicted"
    expected = other.text(exported["follow_up"], max_tokens=24)
    assert other.text(exported["follow_up"], max_tokens=24, prompt_cache_key="taken over") == expected
    # What is computed anew is exported with the new numerics, twice as large.
    answer = other.complete(exported["follow_up"], prompt_cache_key="taken over")
    assert len(export(other, answer["timings"]["cache"]["session"]).content) > len(exported["data"])


def test_imports_beside_each_other_are_sessions_of_their_own(npud, exported):
    names = [take_in(npud, exported["data"], key=f"copy {i}")["id"] for i in range(3)]
    assert len(set(names)) == 3
    for i in range(3):
        assert npud.text(exported["follow_up"], max_tokens=24, prompt_cache_key=f"copy {i}") == exported["text"]


def test_large_sessions_travel_too(npud, start):
    """More than other bodies may have."""
    prompt = SYSTEM + "It was a long day, and there was a lot to tell. " * 80
    answer = npud.complete(prompt, max_tokens=8, prompt_cache_key="large")
    data = export(npud, answer["timings"]["cache"]["session"]).content
    assert len(data) > 16 << 20
    other = start()
    session = take_in(other, data)
    assert session["resident_tokens"] == session["tokens"] > 900
    again = other.complete(prompt, max_tokens=8, prompt_cache_key="large")
    assert again["choices"] == answer["choices"]
    assert again["timings"]["cached_n"] >= again["usage"]["prompt_tokens"] - 33


@pytest.mark.short
def test_damaged_files_are_refused(npud, exported):
    source = random.Random(4)
    data = exported["data"]
    cases = [b"", b"x", b"not a session" * 1000, data[:-1], data + b"x", data[:100], bytes(len(data))]
    for _ in range(30):
        at = source.choice([source.randrange(200), source.randrange(len(data))])
        cases.append(data[:at] + bytes([data[at] ^ 1 << source.randrange(8)]) + data[at + 1:])
        cases.append(data[:source.randrange(len(data))])
    for case in cases:
        answer = httpx.post(npud.base_url + "/v1/sessions/import", content=case, headers=FILE, timeout=120)
        assert answer.status_code == 400 and answer.json()["error"]["message"], answer.text
    assert npud.text(exported["follow_up"], max_tokens=24) == exported["text"]


def test_export_that_nobody_reads_to_the_end_leaves_nothing(npud, exported):
    answer = npud.complete(exported["follow_up"], max_tokens=4, prompt_cache_key="broken off")
    session = answer["timings"]["cache"]["session"]
    for n_bytes in (0, 1000, 300000):
        connection = npud.connect()
        connection.sendall(f"GET /v1/sessions/{session}/export HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while n_bytes > 0:
            n_bytes -= len(connection.recv(min(n_bytes, 65536)))
        connection.close()
    assert httpx.delete(f"{npud.base_url}/v1/sessions/{session}", timeout=60).status_code == 200
    export(npud, session, 404)


def test_export_beside_a_generation_in_the_session(npud):
    body = {"prompt": SYSTEM + user("Tell me a very long story about trains."), "stream": True, "ignore_eos": True,
            "max_tokens": 1500, "temperature": 0, "prompt_cache_key": "busy export"}
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        next(lines)
        listed = httpx.get(npud.base_url + "/v1/sessions", timeout=60).json()["data"]
        (session,) = [session for session in listed if session["key"] == "busy export"]
        data = export(npud, session["id"]).content
        taken = take_in(npud, data, key="copy of a busy one")
        assert 0 < taken["tokens"] and taken["id"] != session["id"]

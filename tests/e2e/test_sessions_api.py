"""/v1/sessions and /v1/prefill on the real daemon: what they say, and that nothing they do changes a text."""
import concurrent.futures
import contextlib
import re
import time

import httpx
import pytest
from metrics_text import read_metrics

SYSTEM = "<|im_start|>system\nYou are a helpful assistant that answers in short sentences and never lies.<|im_end|>\n"
BLOCK = 32


def user(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def call(npud, method, path, status=200, **fields):
    answer = httpx.request(method, npud.base_url + "/v1/sessions" + path, timeout=120, **fields)
    assert answer.status_code == status, answer.text
    if status >= 400:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return answer.json()


def sessions(npud):
    return call(npud, "GET", "")["data"]


def session_of(answer):
    return answer["timings"]["cache"]["session"]


def by_key(npud, key):
    return [session for session in sessions(npud) if session["key"] == key]


@contextlib.contextmanager
def busy_session(npud, key):
    """A session in which a generation is at work."""
    body = {"prompt": SYSTEM + user(f"Tell me a very long story, {key}."), "stream": True, "ignore_eos": True,
            "max_tokens": 2000, "temperature": 0, "prompt_cache_key": key}
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=body, timeout=120) as answer:
        lines = answer.iter_lines()  # kept: the answer is closed with it
        next(lines)
        (session,) = by_key(npud, key)
        assert session["state"] == "busy"
        yield session


# ---- looking ----


@pytest.mark.short
def test_session_shows_what_a_chat_has_left(npud):
    began = int(time.time())
    answer = npud.complete(SYSTEM + user("What is a river?"), prompt_cache_key="river")
    (session,) = by_key(npud, "river")
    assert session["id"] == session_of(answer) and re.fullmatch("[0-9a-f]{16}", session["id"])
    assert session["object"] == "session" and session["state"] == "resident" and session["turns"] == 1
    usage = answer["usage"]
    # The last token was given out, but not fed back.
    assert session["tokens"] in (usage["total_tokens"], usage["total_tokens"] - 1)
    assert session["resident_tokens"] == session["tokens"]
    blocks = session["blocks"]["own"] + session["blocks"]["shared"]
    assert blocks == -(-session["tokens"] // BLOCK)
    assert session["bytes"] == blocks * read_metrics(npud)["npud_kv_block_bytes"]
    assert not session["pinned"] and not session["on_disk"]
    assert began - 1 <= session["created"] <= session["last_used"] <= time.time() + 1
    assert call(npud, "GET", "/" + session["id"]) == session
    head = httpx.head(npud.base_url + "/v1/sessions/" + session["id"])
    assert head.status_code == 200 and not head.content


def test_wrong_calls_are_told(npud):
    unknown = "/0123456789abcdef"
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/fork"), ("POST", "/pin"), ("POST", "/unpin"),
                         ("POST", "/save"), ("GET", "/export")):
        assert call(npud, method, unknown + path, 404)["error"]["code"] == "not_found"
    for name in ("/x", "/0123456789ABCDEF", "/0123456789abcde", "/0123456789abcdef0", "/%00"):
        call(npud, "GET", name, 404)
    call(npud, "POST", unknown + "/truncate", 404, json={"tokens": 1})
    call(npud, "POST", unknown + "/truncate", 400)  # the client sends an empty body
    call(npud, "PUT", unknown, 405)
    call(npud, "POST", "", 405)
    call(npud, "GET", unknown + "/fork", 405)
    answer = npud.complete("One two three", prompt_cache_key="wrong calls")
    path = "/" + session_of(answer)
    tokens = call(npud, "GET", path)["tokens"]
    for body in ({"tokens": 0}, {"tokens": -1}, {"tokens": "1"}, {"tokens": tokens + 1}, {"key": 1}, {"key": "x" * 513}, []):
        call(npud, "POST", path + "/fork", 400, json=body)
    for body in ({}, {"tokens": 0}, {"tokens": tokens + 1}, {"tokens": None}):
        call(npud, "POST", path + "/truncate", 400, json=body)
    call(npud, "POST", path + "/fork", 415, content=b"tokens=1", headers={"Content-Type": "text/plain"})
    assert call(npud, "GET", path)["tokens"] == tokens


# ---- forking, cutting, deleting ----


@pytest.mark.short
def test_fork_goes_on_beside_its_origin(npud):
    prompt = SYSTEM + user("Name a few birds of the forest, and say what each of them eats.")
    first = npud.complete(prompt, max_tokens=24, prompt_cache_key="birds")
    origin = call(npud, "GET", "/" + session_of(first))
    fork = call(npud, "POST", f"/{origin['id']}/fork", json={"key": "birds, too"})
    assert fork["id"] != origin["id"] and fork["key"] == "birds, too" and fork["tokens"] == origin["tokens"]
    # Full blocks are shared, the last one is a copy.
    assert fork["blocks"] == {"own": 1, "shared": origin["tokens"] // BLOCK}
    text = first["choices"][0]["text"]
    follow_ups = [text + "<|im_end|>\n" + user(question) for question in ("And fish?", "And frogs?")]
    answers = [npud.complete(prompt + follow_up, max_tokens=24, prompt_cache_key=key)
               for follow_up, key in zip(follow_ups, ("birds", "birds, too"))]
    keys = [call(npud, "GET", "/" + session_of(answer))["key"] for answer in answers]
    assert session_of(answers[0]) == origin["id"] and keys == ["birds", "birds, too"]
    for answer, follow_up in zip(answers, follow_ups):
        assert answer["timings"]["cached_n"] >= fork["tokens"] - 1
        assert answer["choices"][0]["text"] == npud.text(prompt + follow_up, max_tokens=24)


def test_fork_from_an_earlier_position_and_of_a_busy_session(npud):
    with busy_session(npud, "busy origin") as origin:
        fork = call(npud, "POST", f"/{origin['id']}/fork", json={"tokens": 20, "key": "early fork"})
        assert fork["tokens"] == 20 and fork["state"] in ("resident", "evicted")
    again = call(npud, "POST", f"/{fork['id']}/fork", json={"tokens": 5})
    assert again["tokens"] == 5 and again["key"] is None


def test_truncated_session_reads_the_rest_again(npud):
    prompt = SYSTEM + user("Count the days of the week, and say which one you like best of all.")
    first = npud.complete(prompt, max_tokens=24, prompt_cache_key="week")
    session = call(npud, "POST", f"/{session_of(first)}/truncate", json={"tokens": 40})
    assert session["tokens"] == 40 and session["state"] == "resident"
    again = npud.complete(prompt, max_tokens=24, prompt_cache_key="week")
    assert again["choices"] == first["choices"]


@pytest.mark.short
def test_deleted_session_is_gone_with_its_blocks(npud):
    prompt = "A text that nobody else begins like this: " + "tick tock " * 40
    before = read_metrics(npud)["npud_kv_blocks_used"]
    answer = npud.complete(prompt, prompt_cache_key="to be deleted")
    path = "/" + session_of(answer)
    used = read_metrics(npud)["npud_kv_blocks_used"]
    assert used > before
    assert call(npud, "DELETE", path) == {"id": path[1:], "object": "session.deleted", "deleted": True}
    call(npud, "GET", path, 404)
    call(npud, "DELETE", path, 404)
    assert read_metrics(npud)["npud_kv_blocks_used"] == before
    again = npud.complete(prompt)
    assert again["choices"] == answer["choices"]
    cache = again["timings"]["cache"]
    assert cache["cached"] == 0 and cache["source"] == "none" and cache["miss"] == "first_use"


def test_busy_session_cannot_be_cut_or_deleted(npud):
    with busy_session(npud, "busy") as session:
        path = "/" + session["id"]
        assert call(npud, "DELETE", path, 409)["error"]["code"] == "conflict"
        call(npud, "POST", path + "/truncate", 409, json={"tokens": 1})
        assert call(npud, "POST", path + "/pin")["pinned"]
        assert not call(npud, "POST", path + "/unpin")["pinned"]
    npud.wait_for_line("client gone")


# ---- keys ----


def test_one_key_for_all_chats_loses_nothing(npud):
    questions = [f"{topic}, please: what is it good for, and since when?" for topic in ("Iron", "Wood", "Clay", "Glass")]
    histories = [SYSTEM + user(question) for question in questions]
    alone = [npud.text(history, max_tokens=16) for history in histories]
    for _ in range(2):
        for history, text in zip(histories, alone):
            assert npud.text(history, max_tokens=16, prompt_cache_key="everything") == text
    assert len(by_key(npud, "everything")) >= 2


def test_two_requests_for_one_session_at_once_never_mix(npud):
    start = SYSTEM + user("Tell me about the weather on high mountains.")
    first = npud.complete(start, max_tokens=16, prompt_cache_key="mountains")
    history = start + first["choices"][0]["text"] + "<|im_end|>\n"
    prompts = [history + user(f"And what about {topic}?") for topic in ("snow", "wind", "rain", "sun")]
    alone = [npud.text(prompt, max_tokens=24) for prompt in prompts]
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            texts = pool.map(lambda prompt: npud.text(prompt, max_tokens=24, prompt_cache_key="mountains"), prompts)
            assert list(texts) == alone


# ---- prefill ----


@pytest.mark.short
def test_prefilled_prompt_is_resident_in_its_named_session(npud):
    prompt = SYSTEM + "<|im_start|>user\nHere is a long document. " + "It says that cats sleep a lot. " * 20
    answer = npud.post("/v1/prefill", prompt=prompt, prompt_cache_key="document").json()
    assert answer["object"] == "prefill" and answer["prompt_cache_key"] == "document"
    assert answer["usage"]["completion_tokens"] == 0
    session = call(npud, "GET", "/" + answer["session"])
    n_prompt = answer["usage"]["prompt_tokens"]
    assert session["key"] == "document" and session["state"] == "resident"
    assert session["resident_tokens"] == session["tokens"] == n_prompt
    question = prompt + "What do cats do?<|im_end|>\n<|im_start|>assistant\n"
    warm = npud.complete(question, prompt_cache_key="document")
    assert warm["timings"]["cached_n"] >= n_prompt - 1 and session_of(warm) == session["id"]
    assert warm["choices"][0]["text"] == npud.text(question)


def test_prefill_while_others_stream(npud):
    with busy_session(npud, "streaming beside a prefill"):
        answers = [npud.post("/v1/prefill", prompt=f"{i} " + "word " * 300, prompt_cache_key=f"prefill {i}")
                   for i in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3


def test_prefill_refuses_what_is_wrong(npud):
    for fields, param in (({"prompt": "a"}, "prompt_cache_key"), ({"prompt_cache_key": "k"}, "prompt"),
                          ({"prompt": "a", "prompt_cache_key": "k", "stream": True}, "stream"),
                          ({"prompt": "a b" * 9000, "prompt_cache_key": "k"}, "prompt"),
                          ({"prompt": [], "prompt_cache_key": "k"}, "prompt")):
        answer = npud.post("/v1/prefill", **fields)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


# ---- why it was not cached ----


def test_timings_name_the_first_position_that_differs(npud):
    """What a client does that puts the time of day at the front of its prompt."""
    prompts = [SYSTEM + f"<|im_start|>system\nIt is 12:{minute} now.<|im_end|>\n" + user("What did I ask before? " * 10)
               for minute in (41, 52)]
    first, second = (npud.complete(prompt, prompt_cache_key="clock") for prompt in prompts)
    cache = second["timings"]["cache"]
    assert cache["miss"] == "differs" and cache["source"] in ("resident", "shared")
    assert cache["cached"] <= cache["differs_at"] < second["usage"]["prompt_tokens"] // 2
    assert cache["from_session"] == session_of(first)
    third = npud.complete("Something entirely new, 7 8 9.")["timings"]["cache"]
    assert third["miss"] in ("first_use", "differs")


def test_timings_of_streams_and_of_several_choices(npud):
    prompt = SYSTEM + user("Do streams tell it, too?")
    body = {"prompt": [prompt, prompt + "1", "other"], "n": 2, "max_tokens": 4}
    timings = npud.complete(**body)["timings"]
    assert len(timings["caches"]) == 6 and timings["caches"][0] == timings["cache"]
    assert sum(cache["cached"] for cache in timings["caches"]) == timings["cached_n"]
    with httpx.stream("POST", npud.base_url + "/v1/completions", timeout=60,
                      json={"prompt": prompt, "max_tokens": 4, "stream": True}) as answer:
        last = [line for line in answer.iter_lines() if line.startswith("data: {")][-1]
    assert '"cache":{"cached":' in last and '"source":"' in last


def test_timings_say_that_a_history_was_evicted(start):
    npud = start("--context", "256", "--parallel", "1", "--kv-memory", "8M")
    chats = [f"Chat {i}: " + f"number {i} " * 50 for i in range(6)]
    first = [npud.complete(chat, max_tokens=4, prompt_cache_key=str(i)) for i, chat in enumerate(chats)]
    assert {session["state"] for session in sessions(npud)} == {"resident", "evicted"}
    again = npud.complete(chats[0], max_tokens=4, prompt_cache_key="0")
    assert again["choices"] == first[0]["choices"]
    cache = again["timings"]["cache"]
    assert cache["miss"] == "evicted" and cache["cached"] < again["usage"]["prompt_tokens"] - 1
    assert read_metrics(npud)["npud_session_evictions_total"] >= 1


# ---- pins ----


def test_pinned_session_stays_and_pins_are_bounded(start):
    npud = start("--context", "256", "--parallel", "1", "--kv-memory", "12M")
    pinned = npud.complete("Keep me. " * 30, max_tokens=4, prompt_cache_key="kept")
    assert call(npud, "POST", f"/{session_of(pinned)}/pin")["pinned"]
    others = [npud.complete(f"Pass by {i}. " * 25, max_tokens=4, prompt_cache_key=str(i)) for i in range(8)]
    assert call(npud, "GET", "/" + session_of(pinned))["state"] == "resident"
    again = npud.complete("Keep me. " * 30, max_tokens=4, prompt_cache_key="kept")
    assert again["timings"]["cache"]["source"] == "resident" and again["choices"] == pinned["choices"]
    refused = 0
    for answer in reversed(others):
        result = httpx.post(f"{npud.base_url}/v1/sessions/{session_of(answer)}/pin")
        refused += result.status_code == 409
        assert result.status_code in (200, 409), result.text
    metrics = read_metrics(npud)
    assert refused and metrics["npud_kv_blocks_pinned"] <= metrics["npud_kv_blocks"] / 2

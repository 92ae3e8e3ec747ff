"""Conversations side by side, each with a secret of its own, in a KV cache that is far too small for all of them: whatever
is cancelled, forked, cut, deleted and evicted meanwhile, each gets the texts that it gets alone, and no secret of another."""
import concurrent.futures
import random

import httpx
import pytest
from metrics_text import read_metrics

N_CHATS = 32
N_TURNS = 2
QUESTIONS = ["What is the secret word?", "Spell the secret word, please.", "Say the secret word again, twice."]


def secret_words():
    source = random.Random(2)
    return ["".join(source.choice("bcdfghjklmnpqrstvwxz") + source.choice("aeiou") for _ in range(4))
            for _ in range(N_CHATS)]


class Chat:
    def __init__(self, npud, secret):
        self.key = f"chat of {secret}"
        self.secret = secret
        # What a chat says first it says alone; nobody else is there yet.
        self.prompts, self.texts = [], []
        history = (f"<|im_start|>system\nThe secret word is {secret}. Everybody may know that it is {secret}.<|im_end|>\n")
        for question in QUESTIONS[:N_TURNS]:
            history += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            self.prompts.append(history)
            self.texts.append(npud.text(history, max_tokens=16))
            history += self.texts[-1] + "<|im_end|>\n"


def sessions_of(npud, key):
    data = httpx.get(npud.base_url + "/v1/sessions", timeout=60).json()["data"]
    return [session["id"] for session in data if session["key"] == key]


def cancel(npud, chat, turn, source):
    body = {"prompt": chat.prompts[turn], "stream": True, "temperature": 0, "max_tokens": 200, "ignore_eos": True,
            "prompt_cache_key": chat.key}
    frames, text = source.randint(0, 12), ""
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            text += line
            frames -= 1
            if frames <= 0:
                return text
    return text


def disturb(npud, chat, turn, source):
    """Something that changes a session of the chat. Returns what was seen of its text."""
    kind = source.choice(["cancel", "cancel", "fork", "delete", "truncate", "hot"])
    if kind == "cancel":
        return cancel(npud, chat, turn, source)
    if kind == "hot":
        return npud.text(chat.prompts[turn], max_tokens=16, temperature=1.5, prompt_cache_key=chat.key)
    for session in sessions_of(npud, chat.key)[:2]:
        path = f"{npud.base_url}/v1/sessions/{session}"
        if kind == "fork":
            answer = httpx.post(path + "/fork", json={"tokens": source.randint(1, 40), "key": chat.key}, timeout=60)
        elif kind == "delete":
            answer = httpx.delete(path, timeout=60)
        else:
            answer = httpx.post(path + "/truncate", json={"tokens": source.randint(1, 40)}, timeout=60)
        # It may be gone, busy, or shorter than that.
        assert answer.status_code in (200, 400, 404, 409), answer.text
    return ""


def live(npud, chat, seed, secrets):
    source = random.Random(seed)
    for _ in range(2):
        for turn in range(N_TURNS):
            seen = disturb(npud, chat, turn, source) if source.random() < 0.7 else ""
            text = npud.text(chat.prompts[turn], max_tokens=16, prompt_cache_key=chat.key)
            assert text == chat.texts[turn], f"{chat.key}, turn {turn}"
            for secret in secrets:
                assert secret == chat.secret or secret not in seen + text, f"{secret} shows in {chat.key}"


@pytest.fixture(scope="module")
def crowd():
    from conftest import Daemon

    alone = Daemon("--context", "1024")
    try:
        alone.wait_until_ready()
        chats = [Chat(alone, secret) for secret in secret_words()]
        alone.stop()
    finally:
        alone.kill()
    # The model does say its secrets: otherwise this test would show nothing.
    assert sum(chat.secret in "".join(chat.texts) for chat in chats) >= N_CHATS // 2
    return chats


def run_crowd(npud, chats):
    secrets = [chat.secret for chat in chats]
    with concurrent.futures.ThreadPoolExecutor(len(chats)) as pool:
        for result in [pool.submit(live, npud, chat, seed, secrets) for seed, chat in enumerate(chats)]:
            result.result()
    metrics = read_metrics(npud)
    assert metrics["npud_generations_running"] == metrics["npud_generations_waiting"] == 0
    assert metrics["npud_session_evictions_total"] > N_CHATS // 2
    assert metrics["npud_kv_blocks_active"] == 0


def delete_all(npud):
    for session in httpx.get(npud.base_url + "/v1/sessions", timeout=60).json()["data"]:
        assert httpx.delete(f"{npud.base_url}/v1/sessions/{session['id']}", timeout=60).status_code == 200
    metrics = read_metrics(npud)
    assert metrics["npud_kv_blocks_used"] == metrics["npud_kv_blocks_shared"] == 0
    return metrics


def test_no_secret_shows_in_another_chat(start, crowd):
    npud = start("--context", "512", "--kv-memory", "24M", "--queue", "256")
    run_crowd(npud, crowd)
    delete_all(npud)
    # Nothing of what was deleted is read through new sessions in the same blocks.
    for chat in crowd[:4]:
        answer = npud.complete(chat.prompts[-1], max_tokens=16)
        assert answer["choices"][0]["text"] == chat.texts[-1]
    stranger = npud.text("<|im_start|>user\nWhat is the secret word?<|im_end|>\n<|im_start|>assistant\n", max_tokens=64)
    assert not any(chat.secret in stranger for chat in crowd)

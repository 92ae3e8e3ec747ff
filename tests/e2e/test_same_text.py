"""One question, answered in every way in which its K/V can come about: the same tokens with the same logprobs, to the bit."""
import concurrent.futures
import signal

import httpx
import pytest

PROMPT = ("<|im_start|>system\nYou are a helpful assistant that answers in short sentences and never lies.<|im_end|>\n"
          "<|im_start|>user\nHere is a list of things that float: " +
          ", ".join(f"{thing} number {i}" for i in range(12) for thing in ("cork", "boat", "duck", "apple", "ice")) +
          ". Which of them would you take along on a journey, and why?<|im_end|>\n<|im_start|>assistant\n")
QUESTION = {"max_tokens": 32, "logprobs": 5, "ignore_eos": True}
FILE = {"Content-Type": "application/octet-stream"}


def ask(npud, **fields):
    """What must always be the same, and where the prompt's K/V came from."""
    answer = npud.complete(PROMPT, **QUESTION, **fields)
    return answer["choices"], answer["timings"]["cache"]


@pytest.fixture(scope="module")
def expected():
    from conftest import Daemon

    daemon = Daemon("--parallel", "1")
    try:
        daemon.wait_until_ready()
        choices, cache = ask(daemon)
        assert cache["cached"] == 0
        daemon.stop()
    finally:
        daemon.kill()
    return choices


@pytest.fixture
def fresh(npud):
    """A daemon that remembers nothing."""
    for session in httpx.get(npud.base_url + "/v1/sessions", timeout=60).json()["data"]:
        httpx.delete(f"{npud.base_url}/v1/sessions/{session['id']}", timeout=60).raise_for_status()
    return npud


def test_beside_fifteen_others_and_in_chunks(start, expected):
    """While others decode, a prompt is read in many small pieces."""
    npud = start("--parallel", "16", "--step-target-ms", "1")
    with concurrent.futures.ThreadPoolExecutor(15) as pool:
        others = [pool.submit(npud.complete, f"{i} is a number, and the next one is", max_tokens=60, ignore_eos=True)
                  for i in range(15)]
        choices, cache = ask(npud)
        for other in others:
            other.result()
    assert choices == expected and cache["cached"] == 0


def test_after_prefills_of_its_beginning(fresh, expected):
    for n in (1, 7, 40, 300, 301, len(PROMPT) // 2, len(PROMPT) - 20):
        answer = fresh.post("/v1/prefill", prompt=PROMPT[:n], prompt_cache_key="pieces")
        assert answer.status_code == 200, answer.text
    choices, cache = ask(fresh, prompt_cache_key="pieces")
    assert choices == expected and cache["cached"] > 300


def test_forked_at_any_position(fresh, expected):
    choices, cache = ask(fresh, prompt_cache_key="origin")
    assert choices == expected
    for n in (1, 31, 32, 33, 200, 333):
        answer = httpx.post(f"{fresh.base_url}/v1/sessions/{cache['session']}/fork", json={"tokens": n, "key": f"fork {n}"})
        assert answer.status_code == 200, answer.text
        assert ask(fresh, prompt_cache_key=f"fork {n}")[0] == expected


def test_cut_back_to_any_position(fresh, expected):
    for n in (390, 333, 64, 33, 32, 1):
        choices, cache = ask(fresh, prompt_cache_key="cut")
        assert choices == expected
        answer = httpx.post(f"{fresh.base_url}/v1/sessions/{cache['session']}/truncate", json={"tokens": n})
        assert answer.status_code == 200, answer.text


def evict(npud):
    for i in range(4):
        npud.complete(f"Passing by {i}: " + f"number {i} " * 100, max_tokens=1)


def test_evicted_and_read_from_disk(start, tmp_path, expected):
    npud = start("--context", "640", "--parallel", "1", "--state-dir", tmp_path)
    assert ask(npud, prompt_cache_key="k")[0] == expected
    evict(npud)
    choices, cache = ask(npud, prompt_cache_key="k")
    assert choices == expected and cache["source"] == "disk" and cache["restored"] > 100


def test_evicted_and_computed_again(start, expected):
    npud = start("--context", "640", "--parallel", "1")
    assert ask(npud, prompt_cache_key="k")[0] == expected
    evict(npud)
    choices, cache = ask(npud, prompt_cache_key="k")
    assert choices == expected and cache["miss"] == "evicted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_after_a_restart(start, tmp_path, expected, number):
    npud = start("--state-dir", tmp_path)
    choices, cache = ask(npud, prompt_cache_key="k")
    assert choices == expected
    if number == signal.SIGKILL:
        assert httpx.post(f"{npud.base_url}/v1/sessions/{cache['session']}/save", timeout=60).status_code == 200
        npud.kill()
    else:
        npud.stop()
    npud = start("--state-dir", tmp_path)
    choices, cache = ask(npud, prompt_cache_key="k")
    assert choices == expected and cache["source"] == "disk" and cache["restored"] > 300


def test_exported_and_imported(start, fresh, expected):
    choices, cache = ask(fresh)
    data = httpx.get(f"{fresh.base_url}/v1/sessions/{cache['session']}/export", timeout=60).content
    other = start()
    answer = httpx.post(f"{other.base_url}/v1/sessions/import", params={"key": "k"}, content=data, headers=FILE, timeout=60)
    assert answer.status_code == 200, answer.text
    again, cache = ask(other, prompt_cache_key="k")
    assert choices == again == expected and cache["cached"] > 300


def test_with_blocks_that_deleted_sessions_had(start, expected):
    """Memory that held other conversations, which are gone: neither found nor read."""
    npud = start("--context", "640", "--parallel", "1")
    for i in range(3):
        answer = npud.complete(f"Secret {i}: " + "it must not be seen, " * 60, max_tokens=40, ignore_eos=True)
        httpx.delete(f"{npud.base_url}/v1/sessions/{answer['timings']['cache']['session']}").raise_for_status()
        again = npud.complete(f"Secret {i}: " + "it must not be seen, " * 60, max_tokens=1)
        assert again["timings"]["cached_n"] == 0
        httpx.delete(f"{npud.base_url}/v1/sessions/{again['timings']['cache']['session']}").raise_for_status()
        choices, cache = ask(npud)
        assert choices == expected and cache["cached"] == 0
        httpx.delete(f"{npud.base_url}/v1/sessions/{cache['session']}").raise_for_status()

"""Sessions outlive eviction, a clean stop and a kill: the next turn finds its old tokens, and the text is the same."""
import os
import pathlib
import random
import signal
import subprocess
import time

import httpx
import pytest
from conftest import MODEL, NPUD
from metrics_text import read_metrics

SYSTEM = "<|im_start|>system\nYou are a helpful assistant that answers in short sentences and never lies.<|im_end|>\n"
TOPICS = ["oceans", "mountains", "clouds"]


def user(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


class Chat:
    """A conversation under a key, one turn after the other."""

    def __init__(self, topic):
        self.topic = topic
        self.history = SYSTEM
        self.n_turns = 0
        self.tokens = 0

    def question(self):
        return self.history + user(f"Question {self.n_turns} about {self.topic}: what is there to know?")

    def turn(self, npud, **fields):
        prompt = self.question()
        answer = npud.complete(prompt, max_tokens=16, prompt_cache_key=self.topic, **fields)
        self.history = prompt + answer["choices"][0]["text"] + "<|im_end|>\n"
        self.n_turns += 1
        # All but the last token given out, which was not fed back.
        self.tokens = answer["usage"]["total_tokens"] - 1
        return answer


def expect_old_tokens(answer, tokens, source="disk"):
    cache = answer["timings"]["cache"]
    # A token or two at the seam of the turns may be cut differently.
    assert answer["timings"]["cached_n"] >= tokens - 2, cache
    assert cache["source"] == source
    if source == "disk":
        assert cache["restored"] > 0 and cache["restore_ms"] > 0


def sessions(npud):
    return httpx.get(npud.base_url + "/v1/sessions", timeout=60).json()["data"]


def wait_saved(npud, keys, seconds=60):
    """Until the state folder has every session with these keys, and nothing more is being written."""
    deadline = time.monotonic() + seconds
    saves = -1
    while True:
        saved = {session["key"] for session in sessions(npud) if session["on_disk"]}
        before, saves = saves, read_metrics(npud)["npud_session_saves_total"]
        if set(keys) <= saved and saves == before:
            return
        assert time.monotonic() < deadline, f"not saved: {set(keys) - saved}"
        time.sleep(1.5)  # longer than the interval of checkpoints


def size_of(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def alone(request):
    """The texts of two turns of each chat, from a daemon that keeps nothing."""
    from conftest import Daemon

    daemon = Daemon()
    try:
        daemon.wait_until_ready()
        chats = [Chat(topic) for topic in TOPICS]
        texts = {(chat.topic, i): chat.turn(daemon)["choices"][0]["text"] for i in range(3) for chat in chats}
        daemon.stop()
    finally:
        daemon.kill()
    return texts


def restart(start, folder, *options):
    return start("--state-dir", folder, "--checkpoint-interval", "1", *options)


# ---- restart ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_next_turn_after_a_restart_finds_its_old_tokens(start, tmp_path, alone, number):
    npud = restart(start, tmp_path)
    chats = [Chat(topic) for topic in TOPICS]
    for i in range(2):
        for chat in chats:
            assert chat.turn(npud)["choices"][0]["text"] == alone[chat.topic, i]
    if number == signal.SIGKILL:
        wait_saved(npud, TOPICS)
        npud.kill()
    else:
        npud.stop()
    npud = restart(start, tmp_path)
    listed = {session["key"]: session for session in sessions(npud)}
    for chat in chats:
        assert listed[chat.topic]["state"] == "on_disk" and listed[chat.topic]["tokens"] == chat.tokens
        tokens = chat.tokens
        answer = chat.turn(npud)
        expect_old_tokens(answer, tokens)
        assert answer["choices"][0]["text"] == alone[chat.topic, 2]
    metrics = read_metrics(npud)
    assert metrics["npud_session_restores_total"] == len(chats) and metrics["npud_state_damaged_files_total"] == 0


def test_saved_session_survives_a_kill_at_once(start, tmp_path, alone):
    npud = start("--state-dir", tmp_path, "--checkpoint-interval", "3600")
    chat = Chat(TOPICS[0])
    session = chat.turn(npud)["timings"]["cache"]["session"]
    answer = httpx.post(f"{npud.base_url}/v1/sessions/{session}/save", timeout=60)
    assert answer.status_code == 200 and answer.json()["on_disk"]
    npud.kill()
    npud = restart(start, tmp_path)
    tokens = chat.tokens
    answer = chat.turn(npud)
    expect_old_tokens(answer, tokens)
    assert answer["choices"][0]["text"] == alone[chat.topic, 1]
    assert answer["timings"]["cache"]["session"] == session


def wait_for_writing(folder, seconds=5):
    """Until a file is being written; but if the last one has just been, not for ever."""
    deadline = time.monotonic() + seconds
    while not any(name.endswith(".tmp") for name in os.listdir(folder)) and time.monotonic() < deadline:
        pass


def kill_at_random_moments(start, folder, alone, n, seed):
    """Chats go on while checkpoints are written, until the kill, which is every other time in the middle of writing a file;
    afterwards all is right and the saved part is there."""
    source = random.Random(seed)
    for i in range(n):
        npud = restart(start, folder)
        assert not any("damaged" in line for line in npud.log), npud.log
        for topic in TOPICS:
            chat = Chat(topic)
            for turn in range(2):
                assert chat.turn(npud)["choices"][0]["text"] == alone[topic, turn]
        # New blocks for the writer: it is interrupted in the middle of them.
        npud.post("/v1/prefill", prompt=f"{source.random()} " + "more and more " * source.randint(20, 80),
                  prompt_cache_key=source.choice("abc"))
        if i % 2 == 0:
            wait_for_writing(folder)
        else:
            time.sleep(source.uniform(0, 1.5))
        npud.kill()
    npud = restart(start, folder)
    for topic in TOPICS:
        chat = Chat(topic)
        for i in range(3):
            answer = chat.turn(npud)
            assert answer["choices"][0]["text"] == alone[topic, i]
    assert read_metrics(npud)["npud_state_damaged_files_total"] == 0


def test_kills_at_random_moments_damage_nothing(start, tmp_path, alone):
    kill_at_random_moments(start, tmp_path, alone, n=5, seed=1)


@pytest.mark.long
def test_many_kills_at_random_moments_damage_nothing(start, tmp_path, alone):
    kill_at_random_moments(start, tmp_path, alone, n=50, seed=2)


# ---- what is written ----


def test_single_completions_are_never_written(start, tmp_path):
    npud = restart(start, tmp_path)
    for i in range(3):
        npud.complete(f"{i} is a number that " + "counts " * 40)
    two_turns = SYSTEM + user("What is a second turn?")
    text = npud.text(two_turns)
    npud.text(two_turns + text + "<|im_end|>\n" + user("And a third?"))
    npud.stop()
    npud = restart(start, tmp_path)
    listed = sessions(npud)
    assert len(listed) == 1 and listed[0]["key"] is None and listed[0]["turns"] >= 1


def test_without_a_state_folder_nothing_is_written(start, tmp_path):
    npud = start(env={name: value for name, value in os.environ.items() if name != "STATE_DIRECTORY"})
    session = npud.complete("One two", prompt_cache_key="k")["timings"]["cache"]["session"]
    answer = httpx.post(f"{npud.base_url}/v1/sessions/{session}/save", timeout=60)
    assert answer.status_code == 400 and "--state-dir" in answer.json()["error"]["message"]
    assert not sessions(npud)[0]["on_disk"]


def test_the_service_manager_names_the_state_folder(start, tmp_path):
    npud = start(env={**os.environ, "STATE_DIRECTORY": f"{tmp_path}/state:/somewhere/else"})
    npud.complete("One two three four", prompt_cache_key="k")
    npud.stop()
    assert size_of(tmp_path / "state") > 0


def test_deleted_session_is_gone_from_the_folder(start, tmp_path):
    npud = restart(start, tmp_path)
    session = npud.complete(SYSTEM + "Delete me. " * 60, prompt_cache_key="k")["timings"]["cache"]["session"]
    wait_saved(npud, ["k"])
    assert read_metrics(npud)["npud_state_bytes"] > 0
    assert httpx.delete(f"{npud.base_url}/v1/sessions/{session}", timeout=60).status_code == 200
    npud.stop()
    assert size_of(tmp_path) < 64 << 10
    npud = restart(start, tmp_path)
    assert sessions(npud) == []


def test_state_max_bounds_the_folder(start, tmp_path):
    npud = restart(start, tmp_path, "--state-max", "8M")
    for i in range(6):
        answer = npud.complete(f"Number {i} " + "of many words. " * 40, prompt_cache_key=str(i), max_tokens=1)
        session = answer["timings"]["cache"]["session"]
        assert httpx.post(f"{npud.base_url}/v1/sessions/{session}/save", timeout=60).status_code == 200
        assert size_of(tmp_path) <= 8 << 20
    assert read_metrics(npud)["npud_state_bytes"] <= 8 << 20
    npud.stop()
    assert 0 < size_of(tmp_path) <= 8 << 20
    npud = restart(start, tmp_path)
    keys = {session["key"] for session in sessions(npud)}
    assert "5" in keys and "0" not in keys  # the oldest went first


# ---- eviction ----


@pytest.mark.short
def test_evicted_session_comes_back_from_disk(start, tmp_path):
    npud = start("--context", "256", "--parallel", "1", "--kv-memory", "8M", "--state-dir", tmp_path)
    prompts = {str(i): f"Chat {i}: " + f"number {i} " * 50 for i in range(6)}
    first = {key: npud.complete(prompt, max_tokens=4, prompt_cache_key=key) for key, prompt in prompts.items()}
    assert "on_disk" in {session["state"] for session in sessions(npud)}
    for key, prompt in prompts.items():
        again = npud.complete(prompt, max_tokens=4, prompt_cache_key=key)
        assert again["choices"] == first[key]["choices"]
        assert again["timings"]["cached_n"] >= again["usage"]["prompt_tokens"] - 33
    metrics = read_metrics(npud)
    assert metrics["npud_session_restores_total"] >= 3 and metrics["npud_session_evictions_total"] >= 3
    npud.wait_for_line("read from disk")


def test_evicted_session_without_a_copy_has_nothing_to_save(start, tmp_path):
    npud = start("--context", "256", "--parallel", "1", "--kv-memory", "8M", "--state-dir", tmp_path)
    for i in range(6):
        npud.complete(f"Passing by {i}: " + f"number {i} " * 50, max_tokens=4)
    evicted = [session["id"] for session in sessions(npud) if session["state"] == "evicted"]
    answers = [httpx.post(f"{npud.base_url}/v1/sessions/{name}/save", timeout=60) for name in evicted]
    # The newest of them may still have blocks that nobody else has needed.
    assert {answer.status_code for answer in answers} <= {200, 400}
    refused = [answer.json()["error"]["message"] for answer in answers if answer.status_code == 400]
    assert refused and all("has no K/V" in message for message in refused)


# ---- damage ----


def damage(folder, source, kind):
    """Damages most files of the folder in one way."""
    for path in sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file()):
        size = path.stat().st_size
        if size == 0 or source.random() < 0.2:
            continue
        if kind == "missing":
            path.unlink()
        elif kind == "cut":
            os.truncate(path, source.randrange(size))
        elif kind == "longer":
            with open(path, "ab") as file:
                file.write(source.randbytes(100))
        elif kind == "zeros":
            path.write_bytes(bytes(size))
        elif kind == "folder":
            path.unlink()
            path.mkdir()
        else:
            data = bytearray(path.read_bytes())
            data[source.randrange(size)] ^= 1 << source.randrange(8)
            path.write_bytes(data)


@pytest.mark.parametrize("kind", ["bit", "cut", "longer", "zeros", "missing", "folder"])
def test_damaged_files_cost_time_and_nothing_else(start, tmp_path, alone, kind):
    npud = restart(start, tmp_path)
    for topic in TOPICS:
        Chat(topic).turn(npud)
    npud.stop()
    damage(tmp_path, random.Random(3), kind)
    npud = restart(start, tmp_path)
    for topic in TOPICS:
        chat = Chat(topic)
        for i in range(2):
            assert chat.turn(npud)["choices"][0]["text"] == alone[topic, i]
    npud.stop()
    npud = restart(start, tmp_path)  # and the folder is good again
    for topic in TOPICS:
        chat = Chat(topic)
        for i in range(2):
            assert chat.turn(npud)["choices"][0]["text"] == alone[topic, i]
    assert read_metrics(npud)["npud_session_restores_total"] > 0


def test_other_numerics_find_nothing_that_they_could_use(start, tmp_path, alone):
    npud = restart(start, tmp_path)
    chat = Chat(TOPICS[0])
    chat.turn(npud)
    npud.stop()
    npud = restart(start, tmp_path, "--kv-type", "f32")
    other = Chat(TOPICS[0])
    answer = other.turn(npud)
    assert answer["timings"]["cached_n"] == 0 or answer["timings"]["cache"]["source"] != "disk"
    npud.stop()


# ---- folders that cannot be used ----


def test_unusable_folder_is_one_line_and_status_1(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    result = subprocess.run([NPUD, "--model", MODEL, "--listen", "127.0.0.1:0", "--state-dir", file],
                            capture_output=True, text=True, timeout=120)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("<7>")]
    assert result.returncode == 1 and len(lines) == 1 and str(file) in lines[0], result.stderr


def test_folder_of_a_running_daemon_is_refused(start, tmp_path):
    restart(start, tmp_path)
    result = subprocess.run([NPUD, "--model", MODEL, "--listen", "127.0.0.1:0", "--state-dir", tmp_path],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and str(tmp_path) in result.stderr, result.stderr

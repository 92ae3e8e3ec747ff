"""Clients that do not read: their generations pause, others go on; those that stay away are cancelled."""
import json
import socket
import time

import httpx
import pytest
from metrics_text import read_metrics

# Frames of a kilobyte and more, over sockets that hold some 200 KB.
STREAM = {"prompt": ["Once upon a time"] * 4, "max_tokens": 500, "temperature": 0, "stream": True, "ignore_eos": True,
          "logprobs": 20}


@pytest.fixture
def serve(start, tmp_path):
    """Starts a daemon on a unix socket; npud.http is a client for it."""
    clients = []

    def serve_with(*options):
        npud = start(*options, listen=f"unix:{tmp_path}/npud.sock")
        clients.append(httpx.Client(transport=httpx.HTTPTransport(uds=f"{tmp_path}/npud.sock"), timeout=120))
        npud.http = clients[-1]
        return npud

    yield serve_with
    for client in clients:
        client.close()


def text_of(npud, prompt, **fields):
    body = {"prompt": prompt, "temperature": 0, **fields}
    answer = npud.http.post("http://npud/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def metrics_of(npud):
    return read_metrics(npud, npud.http, "http://npud")


class SlowClient:
    """Asks for a stream, and reads when it is told to."""

    def __init__(self, npud, body=STREAM):
        self.socket = npud.connect()
        data = json.dumps(body).encode()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    def read(self, n_bytes):
        data = b""
        while len(data) < n_bytes:
            piece = self.socket.recv(min(65536, n_bytes - len(data)))
            if not piece:
                break
            data += piece
        return data

    def read_answer(self):
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            piece = self.socket.recv(1 << 20)
            assert piece, "the stream broke off"
            data += piece
        return data

    def read_stream(self):
        """The texts of all choices, to the end of the answer."""
        head, _, rest = self.read_answer().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
        texts = {}
        for frame in body.split(b"\n\n"):
            if frame.startswith(b"data: {"):
                for choice in json.loads(frame[6:])["choices"]:
                    texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
        return [texts[i] for i in sorted(texts)]

    def close(self):
        self.socket.close()


def wait_for(npud, name, value, seconds=60):
    deadline = time.monotonic() + seconds
    while metrics_of(npud)[name] != value:
        assert time.monotonic() < deadline, f"{name} should be {value}"
        time.sleep(0.05)


def test_slow_client_pauses_and_gets_everything_when_it_reads(serve):
    npud = serve()
    expected = text_of(npud, STREAM["prompt"][0], max_tokens=STREAM["max_tokens"], ignore_eos=True)
    slow = SlowClient(npud)
    wait_for(npud, "npud_generations_paused", 4)
    # Others go on, and get what they would get alone.
    texts = {text_of(npud, "The capital of France is", max_tokens=24) for _ in range(4)}
    assert len(texts) == 1 and texts.pop().startswith(" Paris")
    # Nothing is generated into the void meanwhile.
    before = metrics_of(npud)
    assert before["npud_generations_paused"] == 4
    time.sleep(0.3)
    assert metrics_of(npud)["npud_generated_tokens_total"] == before["npud_generated_tokens_total"]
    assert slow.read_stream() == [expected] * 4
    slow.close()


def test_client_that_stays_away_is_cancelled(serve):
    npud = serve("--client-timeout", "1")
    slow = [SlowClient(npud) for _ in range(2)]
    wait_for(npud, 'npud_requests_total{endpoint="completions",outcome="client_unread"}', 2, seconds=120)
    npud.wait_for_line("client did not read")
    metrics = metrics_of(npud)
    assert metrics["npud_generations_running"] == metrics["npud_generations_paused"] == 0
    assert metrics["npud_kv_blocks_active"] == 0
    for client in slow:
        client.close()


def test_client_that_sips_is_cancelled_too(serve):
    """A few bytes now and then do not free the buffer."""
    npud = serve("--client-timeout", "1")
    slow = SlowClient(npud)
    deadline = time.monotonic() + 120
    while metrics_of(npud)['npud_requests_total{endpoint="completions",outcome="client_unread"}'] == 0:
        assert time.monotonic() < deadline
        slow.read(100)
        time.sleep(0.1)
    slow.close()


def test_buffers_of_unread_streams_are_bounded(serve):
    """What is generated for clients that read nothing: 256 KiB, what the socket holds, and what a step brings."""
    npud = serve("--client-timeout", "600")
    body = {**STREAM, "prompt": ["Once upon a time"], "max_tokens": 1200}
    slow = [SlowClient(npud, body) for _ in range(6)]
    wait_for(npud, "npud_generations_paused", 6, seconds=120)
    n_tokens = metrics_of(npud)["npud_generated_tokens_total"] / 6
    for client in slow[1:]:
        client.close()
    bytes_per_token = len(slow[0].read_answer()) / body["max_tokens"]
    assert n_tokens * bytes_per_token < 640 << 10
    slow[0].close()


def test_slow_clients_that_leave_disturb_nobody(serve):
    npud = serve()
    expected = text_of(npud, "Count: one, two,", max_tokens=48)
    for _ in range(3):
        slow = [SlowClient(npud, {**STREAM, "prompt": ["Once upon a time"]}) for _ in range(4)]
        texts = [text_of(npud, "Count: one, two,", max_tokens=48) for _ in range(2)]
        assert texts == [expected] * 2
        for client in slow:
            client.close()
    wait_for(npud, "npud_generations_running", 0)
    assert npud.http.get("http://npud/health").status_code == 200


@pytest.mark.long
def test_client_that_stays_away_on_tcp_is_cancelled(start):
    """The kernel's buffers are larger there: it takes some megabytes."""
    npud = start("--client-timeout", "2")
    slow = SlowClient(npud, {**STREAM, "prompt": ["Once upon a time"] * 8, "max_tokens": 4000})
    npud.wait_for_line("client did not read", seconds=300)
    slow.close()

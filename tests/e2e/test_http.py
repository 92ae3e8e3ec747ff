"""Raw bytes over sockets: what HTTP asks for, what it forbids, and clients that do not behave."""
import json
import random
import socket
import struct
import time

import httpx
import pytest

BODY = json.dumps({"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}).encode()


def request(body=BODY, *headers, method="POST", path="/v1/completions", version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: npud", f"Content-Length: {len(body)}",
             "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Answer:
    """One answer read from a socket's file."""

    def __init__(self, stream, head_only=False):
        self.raw = stream.readline()
        assert self.raw.endswith(b"\r\n"), f"no status line: {self.raw!r}"
        self.status = int(self.raw.split()[1])
        self.headers = {}
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()
        self.body = b""
        if head_only or self.status in (204, 100):
            return
        if self.headers.get("transfer-encoding") == "chunked":
            while (size := int(stream.readline(), 16)) > 0:
                self.body += stream.read(size)
                assert stream.readline() == b"\r\n"
            assert stream.readline() == b"\r\n"
        else:
            self.body = stream.read(int(self.headers["content-length"]))

    @property
    def error(self):
        return json.loads(self.body)["error"]


def exchange(npud, data, shut=False):
    """Sends data on a new connection; the first answer."""
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(data)
        if shut:
            connection.shutdown(socket.SHUT_WR)
        return Answer(stream)


def is_well(npud):
    return httpx.get(npud.base_url + "/health").status_code == 200


# ---- methods and targets ----


@pytest.mark.short
def test_health_head_and_options(npud):
    assert exchange(npud, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").body == b'{"status":"ok"}'
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        head = Answer(stream, head_only=True)
        assert head.status == 200 and head.headers["content-length"] == "15"
        assert Answer(stream).body == b'{"status":"ok"}'
    options = exchange(npud, b"OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n")
    assert options.status in (200, 204) and "POST" in options.headers["allow"]


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/v1/completions", 405), ("POST", "/health", 405), ("DELETE", "/v1/models", 405), ("POST", "/nowhere", 404),
    ("GET", "/", 404), ("GET", "/v1/models/", 404),
])
def test_wrong_method_or_target(npud, method, path, status):
    answer = exchange(npud, request(method=method, path=path))
    assert answer.status == status and answer.error["type"] == "invalid_request_error"
    assert status != 405 or answer.headers["allow"]


# ---- malformed ----

MALFORMED = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS to a plain port
    (b"GET\r\n\r\n", 400), (b"GET /health\r\n\r\n", 505), (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", 505),
    (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 505), (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nA\x00B: c\r\n\r\n", 400), (b"get /health HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    (request().replace(b"Content-Length: ", b"Content-Length: x"), 400),
    (request().replace(b"Content-Length: ", b"Content-Length: -"), 400),
    (request(b"{}", "Content-Length: 3"), 400), (request(b"{}", "Transfer-Encoding: chunked"), 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", (400, 501)),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 411),
    (request().replace(b"application/json", b"text/plain"), 415), (request(b"{}", "Expect: magic"), 417),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),  # no Host
]


@pytest.mark.parametrize("data, status", MALFORMED, ids=lambda value: repr(value)[:40])
def test_malformed_request_is_refused(npud, data, status):
    answer = exchange(npud, data)
    assert answer.status in (status if isinstance(status, tuple) else (status,)), answer.body
    assert answer.error["message"] and is_well(npud)


@pytest.mark.parametrize("body, code", [
    (b"", "invalid_json"), (b"{", "invalid_json"), (b"[]", None), (b"null", None), (b'{"prompt":"a",}', "invalid_json"),
    (b'{"prompt":"\xff"}', "invalid_json"), (b'{"prompt":"\\ud800"}', "invalid_json"), (b"[" * 100000, None),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, None), (b'{"prompt":"a"} x', "invalid_json"),
    (b'{"prompt":"a","prompt":"b"}', None), (b'{"prompt":NaN}', "invalid_json"), (b"\x00", "invalid_json"),
], ids=lambda value: repr(value)[:30])
def test_malformed_json_is_refused(npud, body, code):
    answer = exchange(npud, request(body))
    assert answer.status == 400, answer.body
    assert code is None or answer.error["code"] == code


@pytest.mark.short
def test_garbage_bytes_do_no_harm(npud):
    source = random.Random(1)
    for length in [1, 10, 100, 1000, 10000] * 10:
        with npud.connect() as connection:
            try:
                connection.sendall(source.randbytes(length))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass
    assert is_well(npud)


def test_mutated_requests_do_no_harm(npud):
    source = random.Random(2)
    whole = request()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        with npud.connect() as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass
    assert is_well(npud)


# ---- sizes ----


def test_header_limit(npud):
    small = b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 60000 + b"\r\n\r\n"
    assert exchange(npud, small).status == 200
    large = b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 66000 + b"\r\n\r\n"
    assert exchange(npud, large).status == 431
    many = b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20000 + b"\r\n"
    assert exchange(npud, many).status == 431


def test_body_limit_is_told_at_the_head(npud):
    answer = exchange(npud, request().replace(b"Content-Length: %d" % len(BODY), b"Content-Length: 16777217"))
    assert answer.status == 413 and "16777216" in answer.error["message"] or "16 MiB" in answer.error["message"]


def test_body_of_the_limit_is_read(npud):
    body = b'{"prompt": 1' + b" " * (16 * 1024 * 1024 - 13) + b"}"
    assert len(body) == 16 * 1024 * 1024
    assert exchange(npud, request(body)).error["param"] == "prompt"


def test_early_error_reaches_a_client_that_is_still_sending(npud):
    """The answer must not be lost to a reset while megabytes are still on their way."""
    body = b"x" * (20 * 1024 * 1024)
    for data in (request(body),
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                 + b"".join(b"100000\r\n" + b"x" * 0x100000 + b"\r\n" for _ in range(20)),
                 request(body, path="/nowhere"), request(body, method="DELETE")):
        with npud.connect() as connection, connection.makefile("rb") as stream:
            for start in range(0, len(data), 65536):
                connection.sendall(data[start:start + 65536])
            assert Answer(stream).status in (404, 405, 413)


# ---- pipelining, chunks, keep-alive, 100-continue ----


def test_pipelined_requests_are_answered_in_order(npud):
    prompts = ["The capital of France is", "One two three", "Hello"]
    expected = [npud.text(prompt, max_tokens=4) for prompt in prompts]
    data = b"".join(request(json.dumps({"prompt": prompt, "max_tokens": 4, "temperature": 0}).encode())
                    for prompt in prompts)
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(data + b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [json.loads(Answer(stream).body)["choices"][0]["text"] for _ in prompts] == expected
        assert Answer(stream).status == 404


def test_request_byte_by_byte(npud):
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request():
            connection.sendall(bytes([byte]))
        assert Answer(stream).status == 200


def test_chunked_body_with_extensions_and_trailers(npud):
    data = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5;name=value\r\n" + BODY[:5] + b"\r\n%x\r\n" % (len(BODY) - 5) + BODY[5:] + b"\r\n0\r\nTrailer: x\r\n\r\n")
    assert exchange(npud, data).status == 200


def test_http_1_0_closes_after_the_answer(npud):
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(request(version="1.0"))
        assert Answer(stream).status == 200
        assert stream.read() == b""


def test_connection_close_is_obeyed(npud):
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(request(BODY, "Connection: close"))
        assert Answer(stream).headers["connection"] == "close"
        assert stream.read() == b""


def test_expect_100_continue(npud):
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(request(b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: %d" % len(BODY)))
        assert Answer(stream).status == 100
        connection.sendall(BODY)
        assert Answer(stream).status == 200


def test_expect_100_continue_is_refused_at_once_when_the_body_is_too_large(npud):
    head = request(b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 99999999")
    assert exchange(npud, head).status == 413


# ---- clients that go slowly, half, or away ----


def test_slow_sender_is_cut_off(npud):
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(b"GET /health HTTP/1.1\r\nHos")
        started = time.monotonic()
        assert Answer(stream).status == 408
        assert time.monotonic() - started < 60


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
def test_half_closed_client_gets_its_answer(npud, streamed):
    body = json.dumps({"prompt": "a", "max_tokens": 20, "temperature": 0, "stream": streamed}).encode()
    with npud.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(request(body))
        connection.shutdown(socket.SHUT_WR)
        answer = Answer(stream)
        while answer.status == 100:  # how npud asks whether the client is still there
            answer = Answer(stream)
        assert answer.status == 200
        assert answer.body.endswith(b"data: [DONE]\n\n") if streamed else json.loads(answer.body)["choices"]


LONG = {"prompt": "Once upon a time", "max_tokens": 3000, "temperature": 0, "ignore_eos": True}


def leave(connection, with_reset):
    if with_reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.short
@pytest.mark.parametrize("with_reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
def test_generation_ends_when_its_client_goes(npud, with_reset, streamed):
    mark = npud.mark()
    connection = npud.connect()
    connection.sendall(request(json.dumps({**LONG, "stream": streamed}).encode()))
    if streamed:
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(65536)
    else:
        time.sleep(0.5)
    leave(connection, with_reset)
    generated = npud.wait_for_line(r"(\d+) generated.*client gone", mark, 30).group(1)
    assert int(generated) < 2900
    assert is_well(npud)


def test_queued_request_ends_when_its_client_goes(start):
    npud = start("--parallel", "1")
    with npud.connect() as busy:
        busy.sendall(request(json.dumps({**LONG, "stream": True}).encode()))
        busy.recv(1)
        mark = npud.mark()
        waiting = npud.connect()
        waiting.sendall(request())
        time.sleep(0.3)
        leave(waiting, with_reset=True)
        npud.wait_for_line(r" 0 generated.*client gone", mark, 30)


def test_many_idle_connections_do_not_shut_others_out(npud):
    connections = [npud.connect() for _ in range(300)]
    assert is_well(npud)
    for connection in connections:
        connection.close()
    assert is_well(npud)


@pytest.mark.short
def test_unix_socket(start, tmp_path):
    npud = start(listen=f"unix:{tmp_path}/npud.sock")
    assert exchange(npud, request()).status == 200
    npud.stop()

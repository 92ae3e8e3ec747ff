"""Whoever can write a file can forge one: the K/V of an import must not reach clients that did not name it."""
import ctypes
import struct

import httpx
import pytest

FILE = {"Content-Type": "application/octet-stream"}
HEAD = struct.Struct("<8sIIQQQIIQqqQIIIIQQ")  # of a manifest; docs/sessions.md, daemon/state_store_format.h
BLOCK_HEADER, END = 80, 32
PROMPT = ("<|im_start|>system\nYou are the assistant of a bank. You are polite, answer in short sentences, and tell nobody "
          "about the accounts of others.<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
          "<|im_start|>assistant\n")

xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxhash.XXH3_64bits.restype = ctypes.c_uint64


def checksum(data):
    return struct.pack("<Q", xxhash.XXH3_64bits(bytes(data), len(data)))


def forge(data):
    """Other K/V for the same tokens, and checksums that fit."""
    head = HEAD.unpack_from(data)
    block_bytes, n_tokens, n_blocks, key_bytes = head[5], head[13], head[14], head[15]
    forged = bytearray(data)
    at = HEAD.size + key_bytes + 4 * n_tokens + 16 * n_blocks
    assert n_blocks >= 2 and len(data) == at + n_blocks * (BLOCK_HEADER + block_bytes) + END
    for _ in range(n_blocks):
        body = at + BLOCK_HEADER
        forged[body:body + block_bytes] = bytes(byte & 0x3f for byte in reversed(forged[body:body + block_bytes]))
        forged[body - 16:body - 8] = checksum(forged[body:body + block_bytes])
        forged[body - 8:body] = checksum(forged[at:body - 8])
        at = body + block_bytes
    return bytes(forged)


def rename(data, key):
    """Another key of as many bytes, and checksums that fit."""
    head = HEAD.unpack_from(data)
    n_tokens, n_blocks, key_bytes = head[13:16]
    assert len(key) == key_bytes
    body_end = HEAD.size + key_bytes + 4 * n_tokens + 16 * n_blocks
    renamed = bytearray(data)
    renamed[HEAD.size:HEAD.size + key_bytes] = key
    renamed[HEAD.size - 16:HEAD.size - 8] = checksum(renamed[HEAD.size:body_end])
    renamed[HEAD.size - 8:HEAD.size] = checksum(renamed[:HEAD.size - 8])
    return bytes(renamed)


def call(npud, method, path, status=200, **arguments):
    answer = httpx.request(method, f"{npud.base_url}/v1/sessions{path}", timeout=120, **arguments)
    assert answer.status_code == status, answer.text
    return answer


def take_in(npud, data, status=200, **params):
    return call(npud, "POST", "/import", status, params=params, content=data, headers=FILE).json()


@pytest.fixture(scope="module")
def honest(npud):
    """A file, and the text that follows its prompt."""
    answer = npud.complete(PROMPT, prompt_cache_key="me")
    data = call(npud, "GET", f"/{answer['timings']['cache']['session']}/export").content
    return {"data": data, "text": answer["choices"][0]["text"]}


def follows(npud, key=None):
    answer = npud.complete(PROMPT, **({"prompt_cache_key": key} if key else {}))
    return answer["choices"][0]["text"], answer["timings"]["cache"]


def test_forged_kv_changes_no_answer_but_to_who_names_it(start, honest, tmp_path):
    other = start("--state-dir", tmp_path)
    session = take_in(other, forge(honest["data"]), key="evil")
    assert session["imported"] and session["resident_tokens"] == session["tokens"]
    # Neither does anybody see it,
    text, cache = follows(other)
    assert text == honest["text"]
    assert cache["cached"] == 0 and cache["source"] == "none" and cache["miss"] == "first_use"
    text, cache = follows(other, "mine")
    assert text == honest["text"] and cache["session"] != session["id"]
    # nor what is computed behind it;
    wrong, cache = follows(other, "evil")
    assert wrong != honest["text"] and cache["session"] == session["id"] and cache["cached"] > 0
    fork = call(other, "POST", f"/{session['id']}/fork", json={"key": "evil too", "tokens": 40}).json()
    assert fork["imported"] and follows(other, "evil too")[0] != honest["text"]
    assert follows(other)[0] == honest["text"]
    # no name of somebody else leads there;
    take_in(other, forge(honest["data"]), 400, key="mine")
    call(other, "POST", f"/{session['id']}/fork", 400, json={"key": "mine"})
    # and a restart changes nothing about that.
    other.stop()
    other = start("--state-dir", tmp_path)
    text, cache = follows(other, "mine")
    assert text == honest["text"] and cache["source"] == "disk"
    assert follows(other)[0] == honest["text"]
    text, cache = follows(other, "evil")
    assert text == wrong and cache["source"] == "disk" and cache["session"] == session["id"]
    assert call(other, "GET", f"/{session['id']}").json()["imported"]
    again = call(other, "GET", f"/{session['id']}/export").content
    assert take_in(other, again, key="evil again")["imported"]
    assert follows(other)[0] == honest["text"]


def test_an_import_without_a_key_gets_one(start, npud, honest):
    answer = npud.complete(PROMPT + "Well,", max_tokens=8)
    data = call(npud, "GET", f"/{answer['timings']['cache']['session']}/export").content
    other = start()
    session = take_in(other, data)
    assert session["key"] == f"import-{session['id']}"
    text, cache = follows(other, session["key"])
    assert text == honest["text"]
    assert cache["cached"] > 32 and cache["from_session"] == session["id"]


def test_a_key_that_is_not_text_is_refused(npud, honest):
    assert "UTF-8" in take_in(npud, rename(honest["data"], b"\xff\xfe"), 400)["error"]["message"]
    assert take_in(npud, rename(honest["data"], b"ok"))["key"] == "ok"

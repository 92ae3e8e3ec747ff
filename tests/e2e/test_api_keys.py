"""Only those with a key are served, once there is a file of keys."""
import os
import signal

import httpx
import openai
import pytest

from conftest import MODEL
from test_service import run


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# two of them\nfirst-key\n\nsecond-key\n")
    path.chmod(0o600)
    return path


def client_of(npud, key):
    return openai.OpenAI(base_url=npud.base_url + "/v1", api_key=key, max_retries=0, timeout=60)


@pytest.mark.short
def test_keys_open_everything_and_health_needs_none(start, key_file):
    npud = start("--api-key-file", key_file)
    assert httpx.get(npud.base_url + "/health").status_code == 200
    for path in ("/v1/models", "/metrics", "/v1/sessions", "/nothing"):
        answer = httpx.get(npud.base_url + path)
        assert answer.status_code == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["error"]["code"] == "invalid_api_key"
    for key in ("first-key", "second-key"):
        client = client_of(npud, key)
        assert client.completions.create(model="any", prompt="Once", max_tokens=1).usage.completion_tokens == 1
    for key in ("first-keY", "first-key2", "# two of them"):
        with pytest.raises(openai.AuthenticationError) as raised:
            client_of(npud, key).models.list()
        assert raised.value.code == "invalid_api_key"
    npud.stop()
    assert "key2" not in "\n".join(npud.log) and "first-key" not in "\n".join(npud.log)


def test_keys_are_read_again_at_sighup(start, key_file):
    npud = start("--api-key-file", key_file)
    key_file.write_text("third-key\n")
    mark = npud.mark()
    npud.process.send_signal(signal.SIGHUP)
    npud.wait_for_line("read 1 API keys", mark)
    assert client_of(npud, "third-key").models.list().data
    with pytest.raises(openai.AuthenticationError):
        client_of(npud, "first-key").models.list()
    key_file.write_text("")
    mark = npud.mark()
    npud.process.send_signal(signal.SIGHUP)
    npud.wait_for_line("has 0 API keys", mark)
    npud.wait_for_line("the API keys from before hold", mark)
    assert client_of(npud, "third-key").models.list().data


def test_sighup_without_keys_changes_nothing(start):
    npud = start()
    mark = npud.mark()
    npud.process.send_signal(signal.SIGHUP)
    npud.wait_for_line("nothing to read again", mark)
    assert httpx.get(npud.base_url + "/health").status_code == 200


def test_useless_key_files_are_told_at_start(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("# nobody\n")
    for path, part in ((tmp_path / "none", "No such file"), (tmp_path, "regular file"), (empty, "0 API keys")):
        status, lines = run("--model", MODEL, "--listen", "127.0.0.1:0", "--api-key-file", path)
        assert status == 1 and len(lines) == 1 and part in lines[0] and str(path) in lines[0], lines


def test_key_file_that_everybody_may_read_is_warned_of(start, key_file):
    os.chmod(key_file, 0o644)
    npud = start("--api-key-file", key_file)
    npud.wait_for_line("every user of this machine may read")

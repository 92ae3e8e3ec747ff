"""The process: options, bad models, users without rights, few CPUs, signals."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import pytest
from conftest import BUILD, MODEL, NPUD

STREAM = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "stream": True, "ignore_eos": True}


def run(*options, env=None, command=(NPUD,)):
    """A start that fails: its exit status and its lines on stderr."""
    result = subprocess.run([str(part) for part in (*command, *options)], capture_output=True, text=True, timeout=60,
                            env=env)
    return result.returncode, result.stderr.splitlines()


# ---- options ----


@pytest.mark.short
@pytest.mark.parametrize("options", [
    [], ["--model"], ["--nonsense"], ["--model", "x", "--parallel", "0"], ["--model", "x", "--parallel", "257"],
    ["--model", "x", "--context", "1"], ["--model", "x", "--context=4096x"], ["--model", "x", "--kv-memory", "2X"],
    ["--model", "x", "--self-check", "maybe"], ["--model", "x", "--log-level", "loud"], ["--model", "x", "extra"],
    ["--model", "x", "--help=yes"], ["--model", ""],
], ids=lambda options: " ".join(options) or "none")
def test_wrong_option_is_one_line_and_status_2(options):
    status, lines = run(*options)
    assert status == 2 and len(lines) == 1, lines


def test_help_and_version():
    for option in ("--help", "--version"):
        result = subprocess.run([NPUD, option], capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout and not result.stderr


def test_every_option_of_the_help_is_in_the_readme():
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    options = [line.split()[0] for line in subprocess.run([NPUD, "--help"], capture_output=True, text=True)
               .stdout.splitlines() if line.startswith("  --")]
    assert options and [option for option in options if f"`{option}" not in readme] == []


@pytest.mark.parametrize("address, code, word", [
    ("127.0.0.1:99999", 2, "127.0.0.1:99999"), ("nowhere", 2, "nowhere"), ("192.0.2.1:80", 1, "192.0.2.1"),
    ("unix:/does/not/exist/sock", 1, "/does/not/exist/sock: no such file or directory"),
])
def test_address_that_cannot_be_listened_on(address, code, word):
    status, lines = run("--model", MODEL, "--listen", address)
    assert status == code and len(lines) == 1 and word in lines[0], lines


def test_port_in_use(npud):
    status, lines = run("--model", MODEL, "--listen", npud.address)
    assert status == 1 and len(lines) == 1 and npud.address in lines[0], lines


# ---- models ----


@pytest.mark.short
@pytest.mark.parametrize("content", [
    None, b"", b"GGUF", b"not a model at all" * 100, b"GGUF\x03\x00\x00\x00" + b"\xff" * 200,
    b"GGUF\x09\x00\x00\x00" + bytes(100),
], ids=["missing", "empty", "magic only", "other", "huge counts", "version 9"])
def test_bad_model_is_one_line_and_status_1(tmp_path, content):
    model = tmp_path / "bad.gguf"
    if content is not None:
        model.write_bytes(content)
    status, lines = run("--model", model, "--listen", "127.0.0.1:0")
    assert status == 1 and len(lines) == 1 and "bad.gguf" in lines[0], lines


@pytest.mark.parametrize("part", [0.001, 0.5, 0.999])
def test_cut_model_says_so(tmp_path, part):
    model = tmp_path / "cut.gguf"
    with open(MODEL, "rb") as source:
        model.write_bytes(source.read(int(os.path.getsize(MODEL) * part)))
    status, lines = run("--model", model, "--listen", "127.0.0.1:0")
    assert status == 1 and len(lines) == 1 and "cut.gguf" in lines[0], lines


def test_model_that_cannot_be_read_any_more_is_one_line(start):
    npud = start()
    npud.process.send_signal(signal.SIGBUS)  # as the system does where a mapped file ends early
    assert npud.wait() == 1
    npud.wait_for_line("the model file was cut short")


def test_closed_standard_streams_do_no_harm(tmp_path):
    address = f"unix:{tmp_path}/sock"
    command = f'exec "$0" --model "$1" --listen {address} --cache-dir "$2" 0<&- 1>&- 2>&-'
    process = subprocess.Popen(["sh", "-c", command, NPUD, MODEL, BUILD / "e2e-cache"])
    client = httpx.Client(transport=httpx.HTTPTransport(uds=f"{tmp_path}/sock"), base_url="http://npud")
    for _ in range(1200):
        try:
            if client.get("/health").status_code == 200:
                break
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 0


def test_few_descriptors_mean_few_connections_and_newcomers_get_places(start):
    npud = start(prefix=["prlimit", "--nofile=64:64"])
    npud.wait_for_line("16 connections at most, because only 64 files may be open")
    idle = [npud.connect() for _ in range(40)]
    assert httpx.get(npud.base_url + "/health", timeout=60).status_code == 200
    for connection in idle:
        connection.close()


def test_folder_as_model(tmp_path):
    status, lines = run("--model", tmp_path, "--listen", "127.0.0.1:0")
    assert status == 1 and len(lines) == 1, lines


# ---- devices ----


def test_no_driver_says_what_to_install(tmp_path):
    status, lines = run("--model", MODEL, "--listen", "127.0.0.1:0", env={**os.environ, "OCL_ICD_VENDORS": str(tmp_path)})
    assert status == 1 and len(lines) == 1 and "pocl-opencl-icd" in lines[0], lines


def test_unknown_device_is_told_with_what_there_is():
    status, lines = run("--model", MODEL, "--listen", "127.0.0.1:0", "--device", "no such thing")
    assert status == 1 and len(lines) == 1 and "no such thing" in lines[0], lines
    status, lines = run("--model", MODEL, "--listen", "127.0.0.1:0", "--device", "7")
    assert status == 1 and len(lines) == 1 and "7" in lines[0], lines


def test_device_by_index_and_by_name(start):
    for selector in ("0", "portable"):
        npud = start("--device", selector)
        assert npud.text("The capital of France is").startswith(" Paris")
        npud.stop()


# ---- users and CPUs ----


@pytest.fixture
def open_folder():
    """A folder that any user can reach, with copies of the daemon and the model, and a cache folder for nobody."""
    folder = tempfile.mkdtemp(prefix="npud-")
    os.chmod(folder, 0o755)
    shutil.copy(NPUD, folder)
    shutil.copy(MODEL, f"{folder}/model.gguf")
    os.mkdir(f"{folder}/cache")
    yield folder
    shutil.rmtree(folder)


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user_with_nothing_but_a_cache_folder(start, open_folder):
    cache = f"{open_folder}/cache"
    os.chown(cache, 65534, 65534)
    environment = {"HOME": "/", "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": cache, "CACHE_DIRECTORY": cache,
                   "OCL_ICD_VENDORS": os.environ["OCL_ICD_VENDORS"]}
    npud = start("--cache-dir", cache, prefix=NOBODY, env=environment, npud=f"{open_folder}/npud",
                 model=f"{open_folder}/model.gguf")
    assert npud.text("The capital of France is").startswith(" Paris")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user_without_a_cache_folder_is_told_so(open_folder):
    environment = {"HOME": "/", "PATH": "/usr/bin:/bin", "OCL_ICD_VENDORS": os.environ["OCL_ICD_VENDORS"]}
    status, lines = run("--model", f"{open_folder}/model.gguf", "--listen", "127.0.0.1:0", env=environment,
                        command=[*NOBODY, f"{open_folder}/npud"])
    assert status == 1 and "XDG_CACHE_HOME" in lines[-1], lines


def test_one_cpu_gives_the_same_text(start, npud):
    alone = start(prefix=["taskset", "-c", "0"])
    prompts = ["The capital of France is", "Once upon a time"]
    for prompt in prompts:
        assert alone.text(prompt, max_tokens=32) == npud.text(prompt, max_tokens=32)


# ---- start and stop ----


def test_health_says_loading_until_ready(start):
    npud = start(ready=False).wait_until_listening()
    first = httpx.get(npud.base_url + "/health")
    if first.status_code != 200:
        assert first.status_code == 503 and first.json()["error"]["code"] == "model_loading"
    npud.wait_until_ready()
    assert httpx.get(npud.base_url + "/health").status_code == 200


def test_stop_while_loading(start):
    npud = start(ready=False).wait_until_listening()
    npud.stop()


@pytest.mark.short
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_lets_a_stream_finish(start, number):
    npud = start()
    with httpx.stream("POST", npud.base_url + "/v1/completions", json=STREAM, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        npud.process.send_signal(number)
        rest = [line for line in lines if line.startswith("data: ")]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
    assert npud.wait() == 0


def test_stopping_daemon_takes_no_new_connections(start):
    npud = start()
    with httpx.stream("POST", npud.base_url + "/v1/completions", json={**STREAM, "max_tokens": 300}, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        npud.process.send_signal(signal.SIGTERM)
        npud.wait_for_line("stopping")
        with pytest.raises(httpx.ConnectError):
            httpx.get(npud.base_url + "/health")
        npud.process.send_signal(signal.SIGTERM)  # the second one ends running answers
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert npud.wait() == 0


def test_stop_with_idle_keep_alive_connections_is_quick(start):
    npud = start()
    with httpx.Client() as client:
        client.get(npud.base_url + "/health")
        started = time.monotonic()
        npud.stop()
        assert time.monotonic() - started < 10


def test_warm_start_uses_the_cache(start, tmp_path):
    cold = start("--cache-dir", tmp_path)
    cold.stop()
    assert os.listdir(tmp_path)
    warm = start("--cache-dir", tmp_path)
    assert "(cached)" in warm.wait_for_line("serving .*").group()


def test_damaged_cache_is_made_anew(start, tmp_path):
    start("--cache-dir", tmp_path).stop()
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), "r+b") as file:
                file.truncate(os.path.getsize(file.name) // 2)
    npud = start("--cache-dir", tmp_path)
    assert npud.text("The capital of France is").startswith(" Paris")


def test_log_has_one_line_a_request_and_no_prompt(start):
    npud = start()
    mark = npud.mark()
    secret = "a very secret sentence"
    npud.text(secret)
    npud.wait_for_line(r"<6>cmpl-\w+: \d+ prompt tokens, \d+ cached, \d+ generated, first token [\d.]+ ms, [\d.]+ tok/s", mark)
    npud.stop()
    assert secret not in "\n".join(npud.log)


def test_ready_is_told_to_the_service_manager(start, tmp_path):
    """NOTIFY_SOCKET as systemd gives it: STATUS while loading, READY after, STOPPING at the end."""
    path = f"{tmp_path}/notify"
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(path)
    receiver.settimeout(60)
    npud = start(env={**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "600000"})
    messages = b""
    while b"READY=1" not in messages or b"WATCHDOG=1" not in messages:
        messages += receiver.recv(65536) + b"\n"
    assert messages.index(b"STATUS=") < messages.index(b"READY=1")
    npud.stop()
    while b"STOPPING=1" not in messages:
        messages += receiver.recv(65536) + b"\n"

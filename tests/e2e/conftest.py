"""The real daemon with the real model, and what the tests ask of it."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import openai
import pytest

BUILD = pathlib.Path(os.environ["NPUD_TEST_BUILD"])
MODEL = pathlib.Path(os.environ["NPUD_TEST_MODEL"])
NPUD = BUILD / "npud"
NPUCTL = BUILD / "npuctl"
START_SECONDS = 120  # compiling the kernels included
STOP_SECONDS = 45


class Daemon:
    """A running npud. Its log is kept; stopping it checks that it ends well."""

    def __init__(self, *options, model=MODEL, prefix=(), env=None, listen="127.0.0.1:0", npud=NPUD):
        command = [*prefix, npud, "--model", model, "--listen", listen, "--log-level", "debug", *options]
        if "--cache-dir" not in options:
            command += ["--cache-dir", BUILD / "e2e-cache"]
        self.log = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            [str(part) for part in command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env)
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        self.address = None

    def _read_log(self):
        for line in self.process.stderr:
            with self.changed:
                self.log.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.log.append("(end of the log)")
            self.changed.notify_all()

    def wait_for_line(self, pattern, start=0, seconds=START_SECONDS):
        """The match of pattern in the first log line from index start on that has one."""
        deadline = time.monotonic() + seconds
        with self.changed:
            checked = start
            while True:
                while checked < len(self.log):
                    match = re.search(pattern, self.log[checked])
                    if match:
                        return match
                    checked += 1
                left = deadline - time.monotonic()
                if left <= 0 or "(end of the log)" in self.log:
                    raise AssertionError(f"no log line matches {pattern!r} in:\n" + "\n".join(self.log))
                self.changed.wait(left)

    def wait_until_listening(self):
        self.address = self.wait_for_line(r"listening on (\S+),").group(1)
        return self

    def wait_until_ready(self):
        self.wait_until_listening()
        self.wait_for_line(r"serving .* on ")
        return self

    @property
    def port(self):
        return int(self.address.rpartition(":")[2])

    @property
    def base_url(self):
        return f"http://{self.address}"

    def connect(self):
        if self.address.startswith("unix:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.address[5:])
        else:
            connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(60)
        return connection

    def post(self, path="/v1/completions", **body):
        return httpx.post(self.base_url + path, json=body, timeout=120)

    def complete(self, prompt, **fields):
        """The answer to a greedy completion; it must be a 200."""
        answer = self.post(prompt=prompt, **{"temperature": 0, "max_tokens": 16, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def text(self, prompt, **fields):
        return self.complete(prompt, **fields)["choices"][0]["text"]

    def mark(self):
        """The end of the log as it is now: a start for wait_for_line."""
        with self.changed:
            return len(self.log)

    def wait(self, seconds=STOP_SECONDS):
        status = self.process.wait(seconds)
        self.reader.join(seconds)
        return status

    def stop(self, number=signal.SIGTERM):
        assert self.process.poll() is None, "npud ended by itself:\n" + "\n".join(self.log)
        self.process.send_signal(number)
        status = self.wait()
        assert status == 0, f"npud ended with status {status}:\n" + "\n".join(self.log)
        assert re.search(r"stopped", self.log[-2]), self.log
        if self.address and self.address.startswith("unix:"):
            assert not os.path.exists(self.address[5:]), "the socket is left behind"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.wait()


@pytest.fixture
def start():
    """Starts daemons for one test; those that the test does not stop are stopped, and checked, after it."""
    daemons = []

    def start_daemon(*options, ready=True, **keywords):
        daemon = Daemon(*options, **keywords)
        daemons.append(daemon)
        return daemon.wait_until_ready() if ready else daemon

    yield start_daemon
    try:
        for daemon in daemons:
            if daemon.process.poll() is None:
                daemon.stop()
    finally:
        for daemon in daemons:
            daemon.kill()


@pytest.fixture(scope="module")
def npud():
    """A daemon with default options for all tests of a file."""
    daemon = Daemon()
    try:
        daemon.wait_until_ready()
        yield daemon
        daemon.stop()
    finally:
        daemon.kill()


@pytest.fixture(scope="module")
def client(npud):
    return openai.OpenAI(base_url=npud.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def npuctl(*arguments):
    return subprocess.run([str(part) for part in (NPUCTL, *arguments)], capture_output=True, text=True, timeout=300)

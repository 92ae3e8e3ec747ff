#!/usr/bin/env python3
"""Requests of every kind at once for a long time, against one daemon with a KV cache that is too small for them.

Checked: answers that should be deterministic equal their first one; nothing is refused but what should be; resident memory
and open files stay flat once everything has happened a few times; at the end no generation is left, all KV blocks are free
once the sessions are deleted, and the daemon stops well.

    soak.py --build build/release --model models/M.gguf [--seconds 1200] [--requests 10000] [--listen 127.0.0.1:0]

Needs the packages of tests/requirements.txt."""
import argparse
import collections
import json
import os
import pathlib
import random
import socket
import statistics
import sys
import tempfile
import threading
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))

TOPICS = ["rivers", "bread", "the moon", "bees", "glass", "chess", "whales", "paper", "rain", "clocks", "salt", "bridges"]
SYSTEM = "<|im_start|>system\nYou are a helpful assistant that answers in short sentences.<|im_end|>\n"
MAX_TURNS = 5


def turn(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


class Failure(Exception):
    pass


class Soak:
    def __init__(self, daemon, options):
        self.daemon = daemon
        self.options = options
        self.lock = threading.Lock()
        self.first_answers = {}
        self.histories = {}
        self.counts = collections.Counter()
        self.failures = []
        self.memory = []  # (requests so far, resident bytes, open files)
        self.n_requests = 0
        self.began = time.monotonic()

    # ---- tools ----

    def client(self):
        address = self.daemon.address
        if address.startswith("unix:"):
            return httpx.Client(transport=httpx.HTTPTransport(uds=address[5:]), base_url="http://npud", timeout=180)
        return httpx.Client(base_url=f"http://{address}", timeout=180)

    def over(self):
        return self.n_requests >= self.options.requests and time.monotonic() - self.began >= self.options.seconds

    def same_as_first(self, question, answer):
        with self.lock:
            first = self.first_answers.setdefault(question, answer)
        if answer != first:
            raise Failure(f"{question!r}: {answer!r} is not {first!r}")

    def post(self, client, body, allowed=(200,), path="/v1/completions"):
        answer = client.post(path, json=body)
        if answer.status_code not in allowed:
            raise Failure(f"{path} {body!r}: {answer.status_code} {answer.text}")
        return answer.json() if answer.status_code == 200 else None

    def sessions(self, client):
        answer = client.get("/v1/sessions")
        if answer.status_code != 200:
            raise Failure(f"/v1/sessions: {answer.status_code} {answer.text}")
        return answer.json()["data"]

    def connect(self):
        connection = self.daemon.connect()
        connection.settimeout(180)
        return connection

    def send_raw(self, body):
        connection = self.connect()
        data = json.dumps(body).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" %
                           len(data) + data)
        return connection

    # ---- kinds of requests ----

    def whole(self, client, source):
        topic = source.choice(TOPICS)
        body = {"prompt": f"A few words about {topic}:", "max_tokens": source.choice([1, 8, 24]), "temperature": 0}
        if source.random() < 0.3:
            body |= {"temperature": 0.9, "seed": source.randint(1, 3), "top_k": 40}
        if source.random() < 0.2:
            body |= {"logprobs": 3, "echo": True}
        if source.random() < 0.2:
            body |= {"n": 2, "stop": ["."]}
        self.same_as_first(json.dumps(body), self.post(client, body)["choices"])

    def chat(self, client, source):
        """The next turn of a chat, or the same one again."""
        topic = source.choice(TOPICS)
        with self.lock:
            history = list(self.histories.setdefault(topic, []))
        n = source.randint(0, len(history))
        if n == MAX_TURNS:
            n = source.randrange(MAX_TURNS)
        prompt = SYSTEM
        for i in range(n):
            prompt += turn(f"Question {i} about {topic}: why?") + history[i] + "<|im_end|>\n"
        body = {"prompt": prompt + turn(f"Question {n} about {topic}: why?"), "max_tokens": 16, "temperature": 0}
        if source.random() < 0.7:
            body["prompt_cache_key"] = topic
        text = self.post(client, body)["choices"][0]["text"]
        self.same_as_first(body["prompt"], text)
        with self.lock:
            if len(self.histories[topic]) == n:
                self.histories[topic].append(text)

    def stream(self, client, source):
        body = {"prompt": f"A list of things about {source.choice(TOPICS)}:", "max_tokens": 32, "temperature": 0,
                "stream": True, "stream_options": {"include_usage": True}}
        text, done = "", False
        with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                raise Failure(f"stream: {answer.status_code} {answer.read()}")
            for line in answer.iter_lines():
                done = done or line == "data: [DONE]"
                if line.startswith("data: {"):
                    text += "".join(choice["text"] for choice in json.loads(line[6:])["choices"])
        if not done:
            raise Failure("a stream has no end")
        self.same_as_first(body["prompt"], text)

    def cancel(self, client, source):
        body = {"prompt": f"The whole history of {source.choice(TOPICS)}:" + " word" * source.randint(0, 200),
                "max_tokens": 250, "ignore_eos": True, "temperature": 0, "stream": source.random() < 0.7}
        connection = self.send_raw(body)
        for _ in range(source.randint(0, 6) if body["stream"] else 0):
            connection.recv(4096)
        if source.random() < 0.5:  # a reset instead of an end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    def slow_reader(self, client, source):
        """Reads nothing for a while, then all, or leaves, or is thrown out."""
        body = {"prompt": [f"{source.choice(TOPICS)} and"] * 2, "max_tokens": 250, "ignore_eos": True, "temperature": 0,
                "logprobs": 20, "stream": True}
        connection = self.send_raw(body)
        time.sleep(source.choice([0.2, 1, 5]))
        if source.random() < 0.5:
            while connection.recv(65536):
                if source.random() < 0.01:
                    break
        connection.close()

    def fork(self, client, source):
        for session in source.sample(listed := self.sessions(client), min(2, len(listed))):
            body = {"key": source.choice(TOPICS)} if source.random() < 0.5 else {}
            if source.random() < 0.5:
                body["tokens"] = source.randint(1, session["tokens"])
            answer = client.post(f"/v1/sessions/{session['id']}/fork", json=body)
            if answer.status_code not in (200, 400, 404):  # it may be gone or shorter by now
                raise Failure(f"fork: {answer.status_code} {answer.text}")

    def alter(self, client, source):
        listed = self.sessions(client)
        if not listed:
            return
        session = source.choice(listed)
        path = f"/v1/sessions/{session['id']}"
        kind = source.choice(["delete", "truncate", "pin", "unpin", "save", "get"])
        if kind == "delete":
            answer = client.delete(path)
        elif kind == "get":
            answer = client.get(path)
        elif kind == "truncate":
            answer = client.post(path + "/truncate", json={"tokens": source.randint(1, session["tokens"])})
        else:
            answer = client.post(f"{path}/{kind}")
        if answer.status_code not in (200, 400, 404, 409, 507 if kind == "save" else 200):
            raise Failure(f"{kind}: {answer.status_code} {answer.text}")
        if kind == "pin" and answer.status_code == 200:
            client.post(path + "/unpin")

    def carry_over(self, client, source):
        """Exports a session, and imports it under another name."""
        listed = self.sessions(client)
        if not listed:
            return
        answer = client.get(f"/v1/sessions/{source.choice(listed)['id']}/export")
        if answer.status_code == 404:
            return
        data = answer.content
        if answer.status_code != 200:
            raise Failure(f"export: {answer.status_code} {answer.text}")
        good = source.random() < 0.7
        if not good:  # cut, or with a wrong bit
            at = source.randrange(len(data))
            data = data[:at] if source.random() < 0.5 else data[:at] + bytes([data[at] ^ 4]) + data[at + 1:]
        answer = client.post("/v1/sessions/import", params={"key": "imported"}, content=data,
                             headers={"Content-Type": "application/octet-stream"})
        if answer.status_code not in ((200, 503) if good else (200, 400, 503)):
            raise Failure(f"import: {answer.status_code} {answer.text}")

    def prefill(self, client, source):
        topic = source.choice(TOPICS)
        self.post(client, {"prompt": SYSTEM + f"Something long about {topic}. " * 20, "prompt_cache_key": topic},
                  path="/v1/prefill")

    def embed(self, client, source):
        inputs = [f"Something about {source.choice(TOPICS)}. " * source.choice([1, 3, 12]) for _ in range(source.randint(1, 3))]
        body = {"input": inputs, "pooling": source.choice(["mean", "last"]), "encoding_format": "base64"}
        for text, item in zip(inputs, self.post(client, body, path="/v1/embeddings")["data"]):
            self.same_as_first(body["pooling"] + text, item["embedding"])

    def respond(self, client, source):
        """A response, one that goes on from it, and both are forgotten."""
        topic, ids = source.choice(TOPICS), []
        for text in (f"What about {topic}?", "Why?"):
            body = {"input": text, "previous_response_id": ids[-1] if ids else None, "max_output_tokens": 12, "temperature": 0,
                    "stream": source.random() < 0.3}
            answer = client.post("/v1/responses", json=body)
            if answer.status_code != 200:
                raise Failure(f"/v1/responses {body!r}: {answer.status_code} {answer.text}")
            response = answer.json() if not body["stream"] else json.loads(
                answer.text.rstrip().rpartition("\ndata: ")[2])["response"]
            self.same_as_first(f"{topic}, turn {len(ids)}", [item["content"] for item in response["output"]])
            ids.append(response["id"])
        for id in ids:
            if source.random() < 0.5 and client.get(f"/v1/responses/{id}").status_code != 200:
                raise Failure(f"{id} is gone")
            if client.delete(f"/v1/responses/{id}").status_code != 200:
                raise Failure(f"{id} cannot be deleted")

    def impatient(self, client, source):
        body = {"prompt": f"Hurry, {source.choice(TOPICS)}:", "max_tokens": 100, "temperature": 0}
        body |= {"priority": source.randint(0, 9)}
        body |= source.choice([{"max_wait_ms": source.randint(1, 50)}, {"timeout_ms": source.randint(1, 300)}])
        self.post(client, body, allowed=(200, 503, 504))

    def bad_input(self, client, source):
        kind = source.randrange(4)
        if kind == 0:
            body = source.choice([{"prompt": 5}, {}, {"prompt": "a", "n": 0}, {"prompt": "a" * 9000}, {"prompt": [1 << 30]}])
            self.post(client, body, allowed=(400,))
        elif kind == 1:
            answer = client.post("/v1/completions", content=source.randbytes(source.randint(0, 300)))
            if answer.status_code != 400:
                raise Failure(f"garbage: {answer.status_code} {answer.text}")
        elif kind == 2:
            connection = self.connect()
            connection.sendall(source.randbytes(source.randint(1, 3000)))
            connection.close()
        else:
            connection = self.connect()
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{\"prompt\":")
            connection.close()

    def look(self, client, source):
        for path in ("/metrics", "/health", "/v1/models"):
            answer = client.get(path)
            if answer.status_code != 200:
                raise Failure(f"{path}: {answer.status_code}")

    KINDS = [(whole, 20), (chat, 20), (stream, 12), (cancel, 14), (slow_reader, 4), (fork, 5), (alter, 10),
             (carry_over, 3), (prefill, 4), (embed, 4), (respond, 6), (impatient, 6), (bad_input, 10), (look, 3)]

    # ---- running ----

    def work(self, seed):
        source = random.Random(seed)
        kinds, weights = zip(*self.KINDS)
        with self.client() as client:
            while not self.over() and len(self.failures) < 10:
                kind = source.choices(kinds, weights)[0]
                try:
                    kind(self, client, source)
                except Failure as failure:
                    self.failures.append(f"{kind.__name__}: {failure}")
                except (httpx.HTTPError, OSError) as failure:
                    if kind is not Soak.slow_reader:  # they are thrown out now and then
                        self.failures.append(f"{kind.__name__}: {failure!r}")
                with self.lock:
                    self.counts[kind.__name__] += 1
                    self.n_requests += 1

    def sample_memory(self):
        process = f"/proc/{self.daemon.process.pid}"
        with open(f"{process}/status") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024
        self.memory.append((self.n_requests, resident, len(os.listdir(f"{process}/fd"))))

    def run(self):
        workers = [threading.Thread(target=self.work, args=(seed,)) for seed in range(self.options.clients)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            if self.daemon.process.poll() is not None:
                self.failures.append("npud ended")
                break
            self.sample_memory()
            time.sleep(0.5)
        for worker in workers:
            worker.join()

    # ---- checks at the end ----

    def check_memory(self):
        """After the first tenth of the requests (1,000 of 10,000) everything has happened: from then on the later half against
        the earlier one."""
        for tenth in range(11):
            sample = self.memory[tenth * (len(self.memory) - 1) // 10]
            print(f"after {sample[0]} requests: {sample[1] / 2**20:.1f} MiB, {sample[2]} open files")
        settled = [sample for sample in self.memory if sample[0] >= self.n_requests / 10]
        if len(settled) < 20:
            raise Failure("too short to say anything about memory")
        halves = settled[:len(settled) // 2], settled[len(settled) // 2:]
        earlier, later = (statistics.median(sample[1] for sample in half) for half in halves)
        files = [max(sample[2] for sample in half) for half in halves]
        print(f"resident memory: {self.memory[0][1] / 2**20:.1f} MiB at first, then {earlier / 2**20:.1f} and "
              f"{later / 2**20:.1f} MiB; open files: {files[0]} and {files[1]} at most")
        if later > earlier * 1.02 + (2 << 20):
            raise Failure("resident memory grows")
        if files[1] > files[0] + 2 * self.options.clients:
            raise Failure("open files become more")

    def metrics(self, client):
        text = client.get("/metrics").text
        return {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines()
                if not line.startswith(("#", "npud_info"))}

    def check_end(self):
        with self.client() as client:
            deadline, calm = time.monotonic() + 60, 0
            while calm < 10:  # requests whose clients have left may still be on their way
                metrics = self.metrics(client)
                calm = calm + 1 if metrics["npud_generations_running"] + metrics["npud_generations_waiting"] == 0 else 0
                if time.monotonic() > deadline:
                    raise Failure("generations are left over")
                time.sleep(0.1)
            for session in self.sessions(client):
                answer = client.delete(f"/v1/sessions/{session['id']}")
                if answer.status_code != 200:
                    raise Failure(f"delete: {answer.status_code} {answer.text}")
            metrics = self.metrics(client)
            for state in ("used", "shared", "active", "pinned"):
                if metrics[f"npud_kv_blocks_{state}"] != 0:
                    raise Failure(f"{metrics[f'npud_kv_blocks_{state}']:.0f} KV blocks are {state} without a session")
            if metrics["npud_kv_blocks_free"] + metrics["npud_kv_blocks_cached"] != metrics["npud_kv_blocks"]:
                raise Failure("KV blocks are lost")
            if left := self.sessions(client):
                raise Failure(f"sessions are left over: {left}")
        for name in ("npud_session_evictions_total", "npud_session_restores_total", "npud_session_saves_total",
                     "npud_launch_mode_switches_total"):
            print(f"{name}: {metrics[name]:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.environ.get("NPUD_TEST_BUILD"), help="the folder with npud")
    parser.add_argument("--model", default=os.environ.get("NPUD_TEST_MODEL"))
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--requests", type=int, default=0, help="so many at least")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--listen", help="default: a unix socket, whose small buffers show slow readers soon")
    options = parser.parse_args()
    if not options.build or not options.model:
        parser.error("--build and --model are required")
    os.environ["NPUD_TEST_BUILD"], os.environ["NPUD_TEST_MODEL"] = options.build, options.model
    from conftest import Daemon

    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon("--context", "512", "--kv-memory", "40M", "--queue", "256", "--client-timeout", "2",
                        "--state-dir", f"{folder}/state", "--state-max", "64M", "--checkpoint-interval", "5",
                        listen=options.listen or f"unix:{folder}/npud.sock")
        try:
            daemon.wait_until_ready()
            soak = Soak(daemon, options)
            soak.run()
            print(f"{soak.n_requests} requests in {time.monotonic() - soak.began:.0f} s:",
                  ", ".join(f"{n} {kind}" for kind, n in soak.counts.most_common()))
            if not soak.failures:
                try:
                    soak.check_end()
                    soak.check_memory()
                    daemon.stop()
                except (Failure, AssertionError) as failure:
                    soak.failures.append(str(failure))
        finally:
            daemon.kill()
    for failure in soak.failures:
        print("FAILED", failure)
    if soak.failures:
        print("the end of npud's log:", *daemon.log[-40:], sep="\n")
    print("failed" if soak.failures else "passed")
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())

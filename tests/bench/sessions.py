"""Measures what sessions save: memory and time of many that share a prefix, and reading one from disk.

usage: sessions.py --model FILE [--npud PATH] [--sessions 100] [--prefix 1000] [--own 50] [--long 2000] [--rounds 3]

shared   so many sessions, each a prefix that all have and some tokens of its own: KV memory relative to separate ones, and the
         time to the first token of all but the first relative to the first one's
restore  a long session is read (its prefill), pushed out of memory by others, and asked again: the time to the first token
         with its K/V from disk, relative to the prefill's

Times are a client's, of whole requests for one token. Every round starts a fresh npud with a fresh state folder. Prompts are
random tokens. Standard library only.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import tempfile
import time
import urllib.request

import compare

LEAST_TOKEN, MOST_TOKEN = 1000, 20000  # plain ones in every model


class Npud(compare.Process):
    def __init__(self, options, folder, *more):
        port = compare.free_port()
        super().__init__([options.npud, "--model", options.model, "--listen", f"127.0.0.1:{port}", *more], port,
                         f"{folder}/npud.log")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=600) as answer:
            return answer.read().decode()

    def metric(self, name):
        return next(float(line.split()[1]) for line in self.get("/metrics").splitlines() if line.startswith(name + " "))

    def ask(self, prompt, key):
        """Seconds to the first and only token, and the answer."""
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_cache_key": key}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer = json.load(answer)
        return time.perf_counter() - began, answer


def tokens(n, source):
    return [source.randint(LEAST_TOKEN, MOST_TOKEN) for _ in range(n)]


def warm_up(npud, source):
    npud.ask(tokens(300, source), "warm-up")
    for session in json.loads(npud.get("/v1/sessions"))["data"]:
        urllib.request.urlopen(urllib.request.Request(f"{npud.url}/v1/sessions/{session['id']}", method="DELETE")).close()


def shared(options, folder, seed):
    source = random.Random(seed)
    npud = Npud(options, folder, "--context", options.context, "--parallel", 8)
    try:
        warm_up(npud, source)
        before = npud.metric("npud_kv_blocks_used")
        prefix = tokens(options.prefix, source)
        times, alone = [], 0
        for i in range(options.sessions):
            times.append(npud.ask(prefix + tokens(options.own, source), f"session {i}")[0])
            if i == 0:
                alone = npud.metric("npud_kv_blocks_used") - before
        blocks = npud.metric("npud_kv_blocks_used") - before
        if npud.metric("npud_session_evictions_total") > 0:
            raise SystemExit("the KV memory is too small for all sessions: --context")
    finally:
        npud.stop()
    return {"first session, ms": times[0] * 1000, "others, median ms": statistics.median(times[1:]) * 1000,
            "others, worst ms": max(times[1:]) * 1000, "others / first": statistics.median(times[1:]) / times[0],
            "KV blocks": blocks, "KV blocks / separate": blocks / (options.sessions * alone)}


def restore(options, folder, seed):
    source = random.Random(seed)
    npud = Npud(options, folder, "--context", options.long + 64, "--parallel", 1, "--state-dir", f"{folder}/state")
    try:
        warm_up(npud, source)
        prompt = tokens(options.long, source)
        prefill, _ = npud.ask(prompt, "long")
        for _ in range(3):  # as much as the memory holds, and half of it again
            npud.ask(tokens(options.long // 2, source), None)
        while npud.metric("npud_session_saves_total") == 0:
            time.sleep(0.1)
        again, answer = npud.ask(prompt, "long")
        cache = answer["timings"]["cache"]
        if cache["source"] != "disk" or cache["restored"] < options.long - 1:
            raise SystemExit(f"not all of it came from disk: {cache}")
    finally:
        npud.stop()
    return {"prefill, ms": prefill * 1000, "from disk, ms": again * 1000, "of which reading, ms": cache["restore_ms"],
            "tokens read": cache["restored"], "from disk / prefill": again / prefill}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--npud", default=compare.TOP / "build/release/npud")
    parser.add_argument("--sessions", default=100, type=int)
    parser.add_argument("--prefix", default=1000, type=int)
    parser.add_argument("--own", default=50, type=int)
    parser.add_argument("--long", default=2000, type=int)
    parser.add_argument("--context", default=4096, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    options = parser.parse_args()
    figures = {}
    for number in range(options.rounds):
        for measure in (shared, restore):
            with tempfile.TemporaryDirectory(prefix="npud-sessions-", dir=pathlib.Path.home()) as folder:
                for key, value in measure(options, folder, number).items():
                    figures.setdefault(key, []).append(value)
    print(f"{compare.processor()}, {len(os.sched_getaffinity(0))} CPUs; {pathlib.Path(options.model).name}; "
          f"{compare.version([options.npud, '--version'])}; medians of {options.rounds} rounds\n")
    print("| | median | lowest | highest |\n|---|---|---|---|")
    for key, values in figures.items():
        digits = 3 if "/" in key else 1
        print(f"| {key} | {statistics.median(values):.{digits}f} | {min(values):.{digits}f} | {max(values):.{digits}f} |")


if __name__ == "__main__":
    main()

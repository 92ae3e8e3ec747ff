"""Runs npud and llama.cpp's server on one machine, by turns, and prints what they did and the ratios.

usage: compare.py --model FILE [--npud PATH] [--llama-server PATH] [--rounds 3] [--parallel 16] [--context 4096]
                  [--cases decode,prefill,conc,turns,stall] [--conc 1,4,8,16] [--tokens N] [--json FILE]

Both get the same context, places and CPUs. Both run all the while; only one is asked at a time, in every case first one, then
the other, and the other way round in the next round, so that what else happens on the machine meets both alike. Figures are
medians over the rounds; so are ratios, each of two figures measured one after the other. Start times are of warm starts.
Peak memory (VmHWM) is taken at the end.
"""
import argparse
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import serve_bench

TOP = pathlib.Path(__file__).resolve().parents[2]
PEERS = pathlib.Path.home() / "npud-peers"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A server that runs; start_s is the time from its start to its first answer that says that it is ready."""

    def __init__(self, command, port, log):
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(log, "ab")
        began = time.perf_counter()
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log, stderr=self.log)
        while not self._is_ready():
            if self.process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with status {self.process.returncode}; see {log}")
            if time.perf_counter() - began > 300:
                raise SystemExit(f"{command[0]} is not ready after five minutes; see {log}")
            time.sleep(0.01)
        self.start_s = time.perf_counter() - began

    def _is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def peak_mib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def commands(options):
    """How to start each server on a port."""
    cpus = len(os.sched_getaffinity(0))

    def npud(port):
        return [options.npud, "--model", options.model, "--listen", f"127.0.0.1:{port}", "--context", options.context,
                "--parallel", options.parallel]

    def llama(port):
        return [options.llama_server, "-m", options.model, "--host", "127.0.0.1", "--port", port, "-t", cpus, "-c",
                options.context * options.parallel, "-np", options.parallel, "--no-webui"]

    return {"npud": npud, "llama-server": llama}


def in_turns(names, turn):
    """The order of this turn."""
    return names if turn % 2 == 0 else names[::-1]


def run(options, folder):
    starts = commands(options)
    names = list(starts)
    figures = {}  # case -> server -> values

    def note(case, name, value):
        figures.setdefault(case, {}).setdefault(name, []).append(value)

    def start(name):
        port = free_port()
        return Process(starts[name](port), port, f"{folder}/{name}.log")

    for turn in range(options.starts + 1):
        for name in in_turns(names, turn):
            process = start(name)
            process.stop()
            if turn > 0:  # the first one fills caches
                note("start_s", name, process.start_s)
    running = {}
    try:
        for name in names:
            running[name] = start(name)
        for name in names:
            serve_bench.Server(running[name].url).stream("Hello", 8)
        turn = 0
        for number in range(options.rounds):
            for index, (case, measure) in enumerate(serve_bench.cases(options.cases, options.conc).items()):
                turn += 1
                for name in in_turns(names, number + turn):
                    print(f"round {number + 1} of {options.rounds}: {case}, {name}", file=sys.stderr)
                    seed = 1000000 * (number + 1) + 10000 * index
                    for key, value in measure(serve_bench.Server(running[name].url), seed, options.tokens).items():
                        note(key, name, value)
        for name in names:
            note("peak_mib", name, running[name].peak_mib())
    finally:
        for process in running.values():
            process.stop()
    return figures


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def version(command):
    result = subprocess.run(command, capture_output=True, text=True)
    return (result.stdout + result.stderr).strip().splitlines()[0]


def print_table(figures):
    print("| | npud | llama-server | npud / llama-server |\n|---|---|---|---|")
    for case, values in figures.items():
        ours, theirs = values["npud"], values["llama-server"]
        ratio = statistics.median(a / b for a, b in zip(ours, theirs) if b)
        digits = 2 if case.endswith("_s") and not case.endswith("tok_s") else 1 if statistics.median(ours) < 100 else 0
        print(f"| {case} | {statistics.median(ours):.{digits}f} | {statistics.median(theirs):.{digits}f} | {ratio:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--npud", default=TOP / "build/release/npud")
    parser.add_argument("--llama-server", default=PEERS / "llama.cpp/bin/llama-server")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--starts", default=3, type=int)
    parser.add_argument("--parallel", default=16, type=int)
    parser.add_argument("--context", default=4096, type=int)
    parser.add_argument("--cases", default=serve_bench.ALL_CASES, type=lambda text: text.split(","))
    parser.add_argument("--conc", default="1,4,8,16", type=serve_bench.integers)
    parser.add_argument("--tokens", default=96, type=int)
    parser.add_argument("--json", help="write all single figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="npud-compare-") as folder:
        figures = run(options, folder)
    print(f"{processor()}, {len(os.sched_getaffinity(0))} CPUs; {pathlib.Path(options.model).name}; "
          f"context {options.context}, parallel {options.parallel}; medians of {options.rounds} rounds")
    print(f"{version([options.npud, '--version'])}; llama-server {version([options.llama_server, '--version'])}\n")
    print_table(figures)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

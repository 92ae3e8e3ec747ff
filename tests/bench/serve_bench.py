"""Measures any server of OpenAI's completions API over HTTP.

usage: serve_bench.py URL [--model NAME] [--cases decode,prefill,conc,turns,stall] [--conc 1,4,8,16] [--tokens N] [--seed N]

decode   tok/s of one stream, after its first token
prefill  prompt tokens per second: a prompt of 900 words, until its first token
conc     tok/s of several streams together, prompts included
turns    time to the first token in turn 1 and turn 6 of two chats that alternate
stall    the longest gap in a stream while another client's prompt of 1,200 words is read, and how long that one takes

Prints one JSON object. Prompts are random words, so that no two share a prefix unless the case says so.
Standard library only: it also runs where the tests' packages are not installed.
"""
import argparse
import http.client
import json
import random
import statistics
import threading
import time
import urllib.parse

VOCABULARY = """air apple arm bank bird blue boat bone book bread bridge brown bus cake camp card cat chair city clock cloud coat
corn cup dance day deep desk dog door dream dust ear earth egg eye farm fire fish flag floor flower fog food foot fork fox game
gate girl glass gold grass green hand hat head heart hill home horse house ice iron island jar key king kite lake lamp leaf lion
map milk mill moon mouse mouth nest night north nose oak ocean paper park path pen pond rain ring river road rock roof room rope
salt sand sea seed ship shoe silver sky snow song spoon star stone storm street sun table tail tea tent tower town train tree
valley wall water wave wheel wind window winter wolf wood wool yard year""".split()


def words(n, seed):
    source = random.Random(seed)
    return " ".join(source.choice(VOCABULARY) for _ in range(n))


class Stream:
    """What one streamed completion was like."""

    def __init__(self):
        self.began = time.perf_counter()
        self.times = []  # of the pieces of text
        self.text = ""
        self.usage = {}
        self.ended = None

    @property
    def first_token_s(self):
        return self.times[0] - self.began

    @property
    def n_tokens(self):
        return self.usage.get("completion_tokens", len(self.times))

    @property
    def rate(self):
        return (self.n_tokens - 1) / (self.times[-1] - self.times[0])


class Server:
    def __init__(self, url, model="any"):
        address = urllib.parse.urlparse(url)
        self.host, self.port, self.model = address.hostname, address.port, model

    def stream(self, prompt, max_tokens, stop=None):
        """Greedy, to max_tokens; ends early when the event stop is set."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=900)
        result = Stream()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.read(500)!r}")
        for line in answer:
            if stop is not None and stop.is_set():
                break
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[6:])
            result.usage = event.get("usage") or result.usage
            if event.get("choices") and event["choices"][0].get("text"):
                result.times.append(time.perf_counter())
                result.text += event["choices"][0]["text"]
        result.ended = time.perf_counter()
        connection.close()
        return result


def at_once(calls):
    """The results of all calls, each on a thread of its own."""
    results = [None] * len(calls)

    def run(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in results:
        raise RuntimeError("a client failed")
    return results


def measure_decode(server, seed, tokens):
    return {"decode_tok_s": server.stream("The " + words(20, seed), tokens).rate}


def measure_prefill(server, seed, tokens):
    result = server.stream(words(900, seed), 2)
    return {"prefill_tok_s": result.usage["prompt_tokens"] / result.first_token_s}


def measure_conc(server, seed, tokens, clients):
    began = time.perf_counter()
    results = at_once([lambda i=i: server.stream(words(20, seed + i), tokens) for i in range(clients)])
    total = sum(result.n_tokens for result in results)
    return {f"conc{clients}_tok_s": total / (time.perf_counter() - began)}


def measure_turns(server, seed, tokens):
    histories = ["", ""]
    first_ms = [[], []]
    for turn in range(6):
        for chat in (0, 1):
            said = words(200 if turn == 0 else 60, seed + 2 * turn + chat)
            histories[chat] += f"\n\nUser: {said}\nAssistant:"
            result = server.stream(histories[chat], 24)
            histories[chat] += result.text
            first_ms[chat].append(1000 * result.first_token_s)
    return {"turn1_first_token_ms": statistics.mean(times[0] for times in first_ms),
            "turn6_first_token_ms": statistics.mean(times[5] for times in first_ms)}


def measure_stall(server, seed, tokens):
    stop = threading.Event()
    box = []
    streaming = threading.Thread(target=lambda: box.append(server.stream("The " + words(20, seed), 3000, stop)))
    streaming.start()
    time.sleep(1.5)
    other = server.stream(words(1200, seed + 1), 2)
    time.sleep(0.5)
    stop.set()
    streaming.join()
    times = box[0].times
    gaps = [(after - before, before) for before, after in zip(times, times[1:])]
    quiet = [gap for gap, when in gaps if when < other.began - 0.2]
    busy = [gap for gap, when in gaps if other.began - 0.05 <= when <= other.ended]
    alone = server.stream(words(1200, seed + 2), 2)
    return {"gap_quiet_median_ms": 1000 * statistics.median(quiet), "gap_busy_longest_ms": 1000 * max(busy, default=0),
            "other_first_token_ms": 1000 * other.first_token_s, "other_alone_first_token_ms": 1000 * alone.first_token_s}


def cases(names, conc):
    """Functions of a server, a seed and a number of tokens, by name."""
    table = {"decode": measure_decode, "prefill": measure_prefill, "turns": measure_turns, "stall": measure_stall}
    result = {}
    for name in names:
        if name == "conc":
            for clients in conc:
                result[f"conc{clients}"] = lambda *arguments, clients=clients: measure_conc(*arguments, clients)
        else:
            result[name] = table[name]
    return result


ALL_CASES = "decode,prefill,conc,turns,stall"


def integers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", default="any")
    parser.add_argument("--cases", default=ALL_CASES)
    parser.add_argument("--conc", default="1,4,8,16", type=integers)
    parser.add_argument("--tokens", default=96, type=int)
    parser.add_argument("--seed", default=1, type=int)
    options = parser.parse_args()
    server = Server(options.url, options.model)
    server.stream("Hello", 8)
    report = {}
    for index, measure in enumerate(cases(options.cases.split(","), options.conc).values()):
        report |= measure(server, 100000 * options.seed + 1000 * index, options.tokens)
    print(json.dumps({name: round(value, 2) for name, value in report.items()}))


if __name__ == "__main__":
    main()

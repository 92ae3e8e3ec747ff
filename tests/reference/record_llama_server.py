#!/usr/bin/env python3
"""Records what llama-server makes of ten prompts of 32 tokens: their token ids, 32 greedy tokens after each with the
logarithms of their probabilities, and its first choice at each step. test_real_model.c feeds the same tokens to npud.

    record_llama_server.py LLAMA_SERVER MODEL.gguf OUTPUT.json

The end of a text is never chosen (ignore_eos), so that every prompt gives 32 tokens; where it would be, the first choice
that is recorded differs from the token."""

import argparse
import hashlib
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

N_TOKENS = 32
THREADS = "2"

# Longer than 32 tokens each; cut where 32 tokens end.
TEXTS = [
    "The lighthouse stood on a narrow strip of rock, and for more than a hundred years its keepers had climbed the same "
    "worn stairs every evening to light the lamp before the fishing boats came home.",
    "To make a simple tomato soup, first chop two onions and fry them gently in olive oil. Then add a can of tomatoes, a "
    "cup of water, salt, pepper and a little sugar, and let everything simmer for twenty minutes.",
    "def binary_search(items, wanted):\n    low, high = 0, len(items) - 1\n    while low <= high:\n        middle = (low + "
    "high) // 2\n        if items[middle] == wanted:\n            return middle\n",
    "Photosynthesis is the process by which green plants turn light into chemical energy. In the first stage, chlorophyll "
    "absorbs light and water molecules are split, which releases oxygen into the air.",
    "Q: What is the capital of Australia?\nA: Canberra.\n\nQ: What is the largest planet of the solar system?\nA: "
    "Jupiter.\n\nQ: Who wrote the play Hamlet?\nA: William Shakespeare.",
    "Der Zug nach München fährt heute mit einer Verspätung von etwa zwanzig Minuten ab. Wir bitten alle Reisenden um "
    "Entschuldigung und empfehlen Ihnen, auf die Anzeigen am Bahnsteig zu achten.",
    "Il était une fois, dans un petit village au bord de la mer, une vieille femme qui connaissait le nom de tous les "
    "vents et qui racontait leurs histoires aux enfants du port.",
    "<start_of_turn>user\nExplain in one paragraph why the sky is blue during the day and red in the evening, for a "
    "child of ten years, with an example from daily life.<end_of_turn>\n<start_of_turn>model\n",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584",
    "Meeting notes, Tuesday:\n- budget for the new server room approved\n- Anna will ask three companies for offers\n- "
    "the old printers go to the school across the street\n- next meeting in two weeks\n",
]


class Server:
    def __init__(self, binary, model):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [binary, "-m", model, "-t", THREADS, "-c", "512", "-np", "1", "--host", "127.0.0.1", "--port", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def wait(self):
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"llama-server ended with status {self.process.returncode}")
            try:
                if self.ask("/health").get("status") == "ok":
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.2)
        sys.exit("llama-server is not ready after two minutes")

    def tokenize(self, text):
        return self.ask("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]

    def complete(self, text):
        return self.ask("/completion", {"prompt": text, "n_predict": N_TOKENS, "temperature": 0, "n_probs": 1,
                                        "ignore_eos": True, "cache_prompt": False})["completion_probabilities"]


def cut(server, text):
    """The beginning of text that has N_TOKENS tokens: whole words, if some do."""
    words = [i for i in range(1, len(text)) if text[i].isspace() and not text[i - 1].isspace()]
    for end in words + list(range(len(text), 0, -1)):
        if len(tokens := server.tokenize(text[:end])) == N_TOKENS:
            return text[:end], tokens
    sys.exit(f"no beginning of {text!r} has {N_TOKENS} tokens")


def record(server, text):
    prompt, tokens = cut(server, text)
    steps = server.complete(prompt)
    if len(steps) != N_TOKENS:
        sys.exit(f"{len(steps)} tokens after {prompt!r}")
    return {"text": prompt, "prompt": tokens, "tokens": [step["id"] for step in steps],
            "logprobs": [round(step["logprob"], 5) for step in steps],
            "first": [step["top_logprobs"][0]["id"] for step in steps]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    version = subprocess.run([options.server, "--version"], capture_output=True, text=True, check=True)
    server = Server(options.server, options.model)
    try:
        server.wait()
        prompts = [record(server, text) for text in TEXTS]
    finally:
        server.process.terminate()
        server.process.wait()
    sha256 = hashlib.sha256(pathlib.Path(options.model).read_bytes()).hexdigest()
    lines = ",\n".join(json.dumps(prompt, separators=(",", ":")) for prompt in prompts)
    options.output.write_text(f'{{"server": {json.dumps((version.stdout + version.stderr).splitlines()[0])},\n'
                              f'"model_sha256": "{sha256}",\n"prompts": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()

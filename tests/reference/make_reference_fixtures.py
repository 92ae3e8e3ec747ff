#!/usr/bin/env python3
"""Builds the models of tiny_models.py with random weights, writes each as NAME.gguf, and the logits that Hugging Face
transformers computes as NAME.json, in the format of `npuctl verify --reference`.

Usage: make_reference_fixtures.py [--check] OUT_DIR [NAME...]      (pip install -r requirements.txt)
--check writes nothing and fails when what is in OUT_DIR is not what would be written (logits within 1e-4).
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from export_gguf import export, random_tensors
from tiny_models import MODELS, VOCAB

PROMPT_TOKENS = 21
STEPS = 32


def random_values(name: str, shape, random: np.random.Generator, architecture: str) -> np.ndarray:
    """Spread enough that a wrong mask, rope or scale moves the logits."""
    noise = random.standard_normal(shape)
    if name.endswith("layer_scalar"):
        return 1.0 + 0.4 * np.tanh(noise)
    if name.endswith("norm.weight"):
        return 0.3 * noise + (0.0 if architecture == "gemma3" else 1.0)
    if name.endswith("bias"):
        return 0.3 * noise
    if "embed_tokens" in name or "lm_head" in name:
        return noise * (0.5 if architecture.startswith("gemma") else 1.0)
    gain = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
    return gain * noise / np.sqrt(shape[-1])


def build(name: str):
    architecture, make_config = MODELS[name]
    config = make_config()
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    random = np.random.default_rng(list(name.encode()))
    with torch.no_grad():
        for key, tensor in random_tensors(model).items():
            values = torch.from_numpy(random_values(key, tuple(tensor.shape), random, architecture))
            tensor.copy_(values.to(torch.bfloat16).to(torch.float32))  # bfloat16's values: they compress
    prompt = random.integers(0, VOCAB, PROMPT_TOKENS).tolist()
    return architecture, model, prompt


def run(model, prompt: list[int]) -> dict:
    with torch.no_grad():
        cache = DynamicCache(config=model.config)
        out = model(input_ids=torch.tensor([prompt]), cache=cache, use_cache=True)
        prefill = out.logits[0].numpy()
        steps = []
        logits = prefill[-1]
        while True:
            token = int(logits.argmax())
            steps.append({"logits": logits, "argmax": token})
            if len(steps) == STEPS:
                return {"cases": [{"prompt": prompt, "prefill_logits": prefill, "steps": steps}]}
            out = model(input_ids=torch.tensor([[token]]), cache=cache, use_cache=True)
            logits = out.logits[0, -1].numpy()


def as_json(value) -> str:
    return json.dumps(value, separators=(",", ":"), default=lambda a: [rounded(x) for x in a])


def rounded(x):
    return [rounded(y) for y in x] if isinstance(x, np.ndarray) else float(f"{float(x):.7g}")


def largest_difference(a, b) -> float:
    """Between two trees of lists and numbers of one shape; infinite where tokens or shapes differ."""
    if isinstance(a, dict):
        return max((largest_difference(a[k], b[k]) for k in a), default=0.0) if a.keys() == b.keys() else np.inf
    if isinstance(a, list):
        if len(a) != len(b):
            return np.inf
        if a and isinstance(a[0], (int, float)):
            return float(np.abs(np.array(a, dtype=float) - np.array(b, dtype=float)).max())
        return max((largest_difference(x, y) for x, y in zip(a, b)), default=0.0)
    return 0.0 if a == b else np.inf


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failures = 0
    for name in options.names or MODELS:
        architecture, model, prompt = build(name)
        text = as_json(run(model, prompt))
        if not options.check:
            export(model, architecture, str(options.out / f"{name}.gguf"))
            (options.out / f"{name}.json").write_text(text)
            print(f"{name}: written")
            continue
        with tempfile.NamedTemporaryFile() as fresh:
            export(model, architecture, fresh.name)
            same_file = Path(fresh.name).read_bytes() == (options.out / f"{name}.gguf").read_bytes()
        difference = largest_difference(json.loads(text), json.loads((options.out / f"{name}.json").read_text()))
        good = same_file and difference <= 1e-4
        failures += not good
        print(f"{name}: {'same' if good else 'DIFFERENT'} (GGUF {'same' if same_file else 'differs'}, "
              f"logits differ by {difference:.3g})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

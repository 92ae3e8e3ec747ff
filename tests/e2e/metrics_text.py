"""The numbers of GET /metrics."""
import re

import httpx

SAMPLE = re.compile(r'^([a-z_]+)(?:\{(.*)\})? (\S+)$')


def read_metrics(npud, client=httpx, base_url=None):
    """Samples by name, or by name{labels} as they are written."""
    answer = client.get((base_url or npud.base_url) + "/metrics", timeout=60)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            samples[name + (f"{{{labels}}}" if labels else "")] = float(value)
    return samples

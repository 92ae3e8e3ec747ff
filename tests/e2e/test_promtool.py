"""Prometheus' own checker on /metrics. Without promtool (Debian package prometheus) ctest counts this file as skipped."""
import pathlib
import shutil
import subprocess

import httpx
import pytest

UNPACKED = pathlib.Path(__file__).parents[2] / "build" / "promtool"


def test_promtool_finds_nothing_to_say(npud):
    promtool = shutil.which("promtool") or (UNPACKED if UNPACKED.exists() else None)
    if promtool is None:
        pytest.exit("promtool: skipped, not installed (the package prometheus)", returncode=77)
    npud.complete("One two three", prompt_cache_key="k")
    text = httpx.get(npud.base_url + "/metrics").text
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stderr, result.stderr

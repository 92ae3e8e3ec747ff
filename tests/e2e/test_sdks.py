"""Clients that are not this suite's own: the official one for Node.js, Vercel's AI SDK, LangChain, LiteLLM. Each program of
tests/sdk checks what it gets; here are the daemons that it talks to."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import Daemon
from test_tools import ARGUMENTS, AS_JSON, SCRIPT, STYLES

PROGRAMS = pathlib.Path(__file__).parent.parent / "sdk"
NODE = shutil.which("node")
NODE_MODULES = pathlib.Path(os.environ.get("NPUD_TEST_NODE_MODULES", "not given"))
PYTHON = pathlib.Path(os.environ.get("NPUD_TEST_SDK_PYTHON", "not given"))


@pytest.fixture(scope="module")
def environment(npud, tmp_path_factory):
    """What the programs need to know: a daemon, and one whose model calls a tool."""
    mentioned, call = STYLES["hermes"]
    template = tmp_path_factory.mktemp("template") / "script.jinja"
    template.write_text(SCRIPT.replace("MENTIONED", mentioned))
    scripted = Daemon("--chat-template", template)
    try:
        scripted.wait_until_ready()
        yield {**os.environ, "NPUD_URL": npud.base_url, "NPUD_TOOLS_URL": scripted.base_url,
               "NPUD_TOOLS_PROMPT": (call.replace("ARGUMENTS", AS_JSON) + "\n") * 4,
               "NPUD_TOOLS_ARGUMENTS": json.dumps(ARGUMENTS)}
        scripted.stop()
    finally:
        scripted.kill()


def run(command, environment, folder):
    result = subprocess.run([str(part) for part in command], cwd=folder, env=environment, text=True, timeout=300,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.skipif(not NODE_MODULES.is_dir(), reason="the packages of tests/sdk/package.json are not installed")
@pytest.mark.parametrize("program", ["openai.mjs", "ai.mjs"])
def test_nodejs(environment, tmp_path, program):
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)  # where imports look: beside the program
    shutil.copy(PROGRAMS / program, tmp_path)
    output = run([NODE, "--test", "--test-reporter=tap", program], environment, tmp_path)
    assert re.search(r"^# pass [1-9]", output, re.MULTILINE) and "# fail 0" in output, output


@pytest.mark.long
@pytest.mark.skipif(not PYTHON.exists(), reason="the packages of tests/sdk/requirements.txt are not installed")
@pytest.mark.parametrize("program", ["langchain_chat.py", "litellm_chat.py"])
def test_python(environment, tmp_path, program):
    output = run([PYTHON, PROGRAMS / program], environment, tmp_path)
    assert output.count("passed: ") >= 3, output

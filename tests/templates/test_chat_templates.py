"""Chat templates give the same bytes as Hugging Face's transformers, for everything that transformers renders."""
import datetime
import json
import os
import pathlib
import subprocess
import time

import pytest
from transformers.utils import chat_template_utils

from conversations import CONVERSATIONS, SPECIAL_TOKENS, VARIABLES

BUILD = pathlib.Path(os.environ["NPUD_TEST_BUILD"])
TEMPLATES = sorted(pathlib.Path(os.environ["NPUD_TEST_TEMPLATES"]).glob("*.jinja"))
NOW = 1753363805  # 2025-07-24


class Renderer:
    """npud's side: a process that answers a line with a line."""

    def __init__(self):
        self.process = subprocess.Popen([BUILD / "tests" / "render_template"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, template, variables):
        question = {"template": template, "variables": variables, "now": NOW}
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def text(self, template, **variables):
        answer = self.ask(template, variables)
        assert "text" in answer, answer
        return answer["text"]


@pytest.fixture(scope="module")
def renderer():
    renderer = Renderer()
    yield renderer
    renderer.process.stdin.close()
    assert renderer.process.wait(10) == 0


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch):
    monkeypatch.setattr(chat_template_utils, "datetime", FixedTime)


def expected(template, messages, tools, variables):
    """What transformers gives, or the error that it raises."""
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [messages], tools=tools, chat_template=template, **SPECIAL_TOKENS, **variables)
        return rendered[0]
    except Exception as error:
        return error


def difference(got, want):
    """What was got, or where the two texts part."""
    if "text" not in got or not isinstance(want, str):
        return f"{got} instead of {want!r}"
    at = len(os.path.commonprefix([got["text"], want]))
    start = max(at - 60, 0)
    return f"...{got['text'][start:at + 60]!r} instead of ...{want[start:at + 60]!r}"


# What MiniJinja cannot do: a string marked as safe escapes, in Jinja, what is added to it.
KNOWN_TO_DIFFER = {"meetkai-functionary-medium-v3.1"}


@pytest.mark.parametrize("path", [path for path in TEMPLATES if path.stem not in KNOWN_TO_DIFFER], ids=lambda path: path.stem)
def test_templates_give_the_bytes_of_transformers(renderer, path):
    template = path.read_text()
    differences = []
    n_rendered = 0
    for name, (messages, tools) in CONVERSATIONS.items():
        for kind, variables in VARIABLES.items():
            want = expected(template, messages, tools, variables)
            normalized = chat_template_utils._alias_reasoning_fields(messages)
            got = renderer.ask(template, {"messages": normalized, "tools": tools, "documents": None,
                                          "add_generation_prompt": False, **SPECIAL_TOKENS, **variables})
            n_rendered += isinstance(want, str)
            if isinstance(want, str) and got.get("text") != want:
                differences.append(f"{name}, {kind}: {difference(got, want)}")
            if isinstance(want, Exception) and "raised" in str(want) and got.get("status") != "refused":
                differences.append(f"{name}, {kind}: {difference(got, want)}")
    if n_rendered == 0:
        pytest.skip("it wants variables that no chat has")
    if differences:
        pytest.fail(f"{len(differences)} of {n_rendered} differ; first {differences[0]}", pytrace=False)


def test_there_are_templates():
    assert len(TEMPLATES) > 50


# ---- what templates can do, one by one: each is compared with transformers ----

VALUES = {
    "text": "Ünïcode 'quoted' \"twice\" <b>&\n\t\\ \x07\x7f 🦆",
    "numbers": [0, -1, 1.0, 0.1, 1e16, 1e-5, -2.5e300, 1234567890123456789, True, None],
    "nested": {"b": [1, {"c": []}], "a": {}, "": [[]], "é": "ü"},
    "words": ["one", "two", "three"],
}

EXPRESSIONS = [
    *(f"{name} | tojson({arguments})" for name in VALUES for arguments in (
        "", "indent=2", "indent=0", "indent='\t'", "separators=(',', ':')", "indent=1, separators=(' ,', '= ')",
        "ensure_ascii=True", "sort_keys=True", "true, 4", "none, none, none, true")),
    "none", "true", "numbers", "nested", "words", "text", "undefined_name", "1e16", "0.1 + 0.2", "7 // 2", "-7 // 2",
    "-7 % 3", "7 / 2", "2 ** 10", "text | length", "words[::-1]", "words[-2:]", "text[1:4]", "words[5]", "'x' * 3",
    "text | trim | upper | lower | title | capitalize", "'  a b '.strip().split(' ')", "'a,b,,c'.split(',')",
    "'a\nb\r\nc'.splitlines()", "'banana'.replace('a', 'o')", "'banana'.replace('a', 'o', 1)", "'xxabxx'.strip('x')",
    "'xxabxx'.lstrip('x') ~ 'xxabxx'.rstrip('x')", "'abc'.startswith('ab')", "'abc'.endswith(('bc', 'x'))",
    "'abcb'.find('b') ~ 'abcb'.rfind('b') ~ 'abcb'.find('z')", "'abab'.count('ab')", "', '.join(words)", "words | join(', ')",
    "nested.items() | list", "nested.keys() | list", "nested.values() | list", "nested.get('b')", "nested.get('z', 7)",
    "nested | items | list", "nested | dictsort", "'b' in nested", "'two' in words", "'wo' in 'two'", "nested is mapping",
    "text is string", "words is sequence", "text is sequence", "nested is sequence", "nested is iterable", "none is none",
    "text is iterable", "3 is iterable", "true is number", "1.0 is float", "1 is integer", "true is integer",
    "undefined_name is defined", "true is boolean", "3 is odd", "4 is divisibleby(2)", "words | first", "words | last",
    "words | reverse | list", "words | sort", "numbers[:3] | sum", "words | map('upper') | list",
    "[{'a': 1}, {'a': 2}] | map(attribute='a') | list", "[{'a': 1}, {'a': 2}] | selectattr('a', 'equalto', 2) | list",
    "[{'a': 1}, {}] | selectattr('a', 'defined') | list", "words | select('in', ['one']) | list", "words | reject('eq', 'two') | list",
    "undefined_name | default('d')", "'' | default('d', true)", "'7' | int + 1", "'x' | int", "3.7 | int", "'1.5' | float",
    "3.14159 | round(2)", "[1, [2, 3]] | string", "nested | string | length", "true ~ none ~ 1.5", "1 if words else 2",
    "(1, 'a')", "{'a': (1, 2)}", "'%s is %d' | format('a', 3)", "'{} {}'.format(1, 'b')",
    "range(3) | list", "range(5, 1, -2) | list", "words | length", "words | unique | list", "1 < 2 < 3", "not words", "1 == 1.0",
    "'a' < 'b'", "[1] + [2]", "'a' 'b'", "namespace(x=1).x", "dict(a=1)", "'é'.upper()", "'text' | indent(2)", "text | indent(4, true)",
    "strftime_now('%d %b %Y')", "strftime_now('%Y-%m-%d %H:%M:%S %A %B %j')", "'abc' | list", "'A'.isupper()", "'12'.isdigit()",
    "'x' is in 'xyz'", "[] is defined", "words.index('two')", "'abcb'.index('b')", "'abc'.removeprefix('ab')", "'abc'.removesuffix('bc')", "'a-b-c'.partition('-')",
    "'a-b-c'.rpartition('-')", "'abc'.partition('-')", "'abc'.rpartition('-')", "'a-b-c'.rsplit('-', 1)", "'a-b-c'.rsplit('-')",
    "' 12 ' | int", "'ff' | int(base=16)", "none | int(5)", "'1e3' | int", "'x' | float", "true | int", "[1.5e-07, 'a', (1,)]", "nested['b'][1]['c']", "nested.a", "nested.zzz",
]

STATEMENTS = [
    "{% for word in words %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ word }}{% endfor %}",
    "{% for word in words if word != 'two' %}{{ loop.index0 }}{{ word }}{% else %}none{% endfor %}",
    "{% for word in [] %}x{% else %}none{% endfor %}",
    "{% for word in words %}{% if word == 'two' %}{% continue %}{% endif %}{{ word }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for key, value in nested.items() %}{{ key }}={{ value }};{% endfor %}",
    "{% for word in words %}{{ loop.previtem }}<{{ word }}>{{ loop.nextitem }}{% endfor %}",
    "{% for word in words %}{{ loop.cycle('a', 'b') }}{{ loop.revindex }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for word in words %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% set n = 0 %}{% for word in words %}{% set n = n + 1 %}{% endfor %}{{ n }}",
    "{% set block %}  in {{ text }}  {% endset %}[{{ block }}]{{ block | trim }}",
    "{% macro m(a, b='c') %}{{ a }}-{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', b='y') }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}inside{% endcall %}",
    "{% macro deep(n) %}{{ n }}{% if n > 0 %}{{ deep(n - 1) }}{% endif %}{% endmacro %}{{ deep(5) }}",
    "{% filter upper %}abc{% endfilter %}",
    "{% with a = 1 %}{{ a }}{% endwith %}{{ a is defined }}",
    "a\n  {% if true %}  \n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true -%}  \n  b\n  {%- endif -%}\nc\n\n",
    "  {#- comment -#}  x\n{# comment #}\ny",
    "{% raw %}{{ not }}{% endraw %}",
    "{%- generation -%}\n in {{ text }}\n{%- endgeneration -%}\n after",
    "a\n{% generation %}\nb{% set c = 1 %}\n{% endgeneration %}\n{{ c is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% if undefined_name %}x{% elif words %}y{% else %}z{% endif %}",
    "{{ undefined_name.attribute }}",
    "{{ raise_exception('No: ' ~ text) }}",
    "{% if 1 %}{{ 'a' }}{% endif %}\n\n{{ 'b' }}\n",
]


@pytest.mark.parametrize("template", [*("{{ " + expression + " }}" for expression in EXPRESSIONS), *STATEMENTS])
def test_parts_of_the_language_work_as_in_jinja2(renderer, template):
    want = expected(template, [], None, VALUES)
    got = renderer.ask(template, {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False,
                                  **SPECIAL_TOKENS, **VALUES})
    if isinstance(want, str):
        assert got.get("text") == want, got
    elif "raise_exception" in template:
        assert got == {"status": "refused", "message": str(want)}
    else:
        assert "status" in got


# ---- limits ----

@pytest.mark.parametrize("template", [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{{ 'x' * 1000000000 }}",
    "{{ ['x'] * 1000000000 }}",
    "{% set ns = namespace(x='x') %}{% for a in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x='x') %}{% for a in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x='x') %}{% for a in range(64) %}{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}{% endfor %}",
    "{% set ns = namespace(x='x') %}{% for a in range(64) %}{% set ns.x = ns.x | replace('x', 'xx') %}{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for a in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for a in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "{{ range(10 ** 12) | list }}",
    "{{ 'x'.rjust(10 ** 12) }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ 'x' | indent(10 ** 10, true) }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ [1] | tojson(indent=10 ** 9) }}",
    "{{ [1, [2]] | tojson(indent='x' * 10000000) }}",
    "{{ words | join('x' * 90000000) }}",
    "{{ 'x' * 30000000 | replace('x', 'y' * 1000000) }}",
    "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
    "{{ ('x' * 1000000).join(range(99999) | list) }}",
])
def test_what_explodes_is_stopped(renderer, template):
    began = time.monotonic()
    answer = renderer.ask(template, {"words": list("abc")})
    assert answer.get("status") in ("limit", "invalid"), answer
    assert time.monotonic() - began < 20
    status = pathlib.Path(f"/proc/{renderer.process.pid}/status").read_text()
    peak_kib = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    assert peak_kib < 600 * 1024, template


def test_a_long_conversation_is_no_explosion(renderer):
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    messages = [{"role": "user", "content": "x" * 100}] * 20000
    assert len(renderer.text(template, messages=messages)) > 2_000_000
    messages = [{"role": "user", "content": "é" * (1 << 20)}]
    assert "é" * (1 << 20) in renderer.text(template, messages=messages)


# ---- errors ----

@pytest.mark.parametrize("template, part", [
    ("a\n{% if %}", "line 2"),
    ("{{ x.y.z }}", "undefined"),
    ("{{ 1 | nosuchfilter }}", "nosuchfilter"),
    ("{% include 'x' %}", "include"),
    ("{{ {} | tojson(colour=1) }}", "colour"),
    ("{{ undefined_name | tojson }}", "not JSON serializable"),
])
def test_errors_say_what_is_wrong(renderer, template, part):
    answer = renderer.ask(template, {})
    assert answer["status"] == "invalid" and part in answer["message"], answer

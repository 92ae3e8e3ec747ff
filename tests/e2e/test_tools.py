"""Tool calls through the official client. The model is small, so templates script it: they write a call several times, and at
temperature 0 it goes on in the same way."""
import json

import openai
import pytest

from conftest import MODEL, Daemon

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
ARGUMENTS = {"city": "Zürich 🌧️", "days": 2}
AS_JSON = json.dumps(ARGUMENTS, ensure_ascii=False)

# A style is told by what its template mentions; the messages are written as they are, calls as in CALLS.
SCRIPT = (
    "{# MENTIONED #}{% if tools %}{{ tools[0].function.name[:0] }}{% if tools[0].function.name == 'npud_probe' %}npud_probe"
    "{% endif %}{% endif %}{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls if c.function.name != "
    "'npud_probe' %}[{{ c.function.name }} {{ c.function.arguments | tojson }} {{ c.id }}]{% endfor %}{% elif m.role == 'tool' %}({{ m.tool_call_id }}) "
    "{{ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}")
STYLES = {
    "hermes": ("<tool_call>", '<tool_call> {"name": "get_weather", "arguments": ARGUMENTS} </tool_call>'),
    "llama": ("<|python_tag|>", '{"name": "get_weather", "parameters": ARGUMENTS}'),
    "gemma": ("<|tool_call>call:", '<|tool_call>call:get_weather{city:<|"|>CITY<|"|>,days:2}<tool_call|>'),
}


only_hermes = pytest.mark.parametrize("scripted", ["hermes"], indirect=True)
every_style = pytest.mark.parametrize("scripted", STYLES, indirect=True)


@pytest.fixture(scope="module")
def scripted(request, tmp_path_factory):
    """A client, and messages that the model answers with calls, one a line."""
    mentioned, call = STYLES[request.param]
    template = tmp_path_factory.mktemp("template") / "script.jinja"
    template.write_text(SCRIPT.replace("MENTIONED", mentioned))
    daemon = Daemon("--chat-template", template)
    try:
        daemon.wait_until_ready()
        call = call.replace("ARGUMENTS", AS_JSON).replace("CITY", ARGUMENTS["city"])
        client = openai.OpenAI(base_url=daemon.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
        yield client, [{"role": "user", "content": (call + "\n") * 4}]
        daemon.stop()
    finally:
        daemon.kill()


def create(client, messages, **fields):
    return client.chat.completions.create(
        model="any", messages=messages, **{"temperature": 0, "stop": ["\n"], "tools": [WEATHER], **fields})


@only_hermes
def test_a_call_is_answered_and_goes_back(scripted):
    client, messages = scripted
    answer = create(client, messages)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.id.startswith("call_") and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == ARGUMENTS
    result = {"role": "tool", "tool_call_id": call.id, "content": "It rains. " * 12 + "It"}  # whatever the id
    answer = create(client, [{"role": "user", "content": "x"}, choice.message, result], max_tokens=4)
    assert "rains" in answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


@every_style
def test_a_streamed_call_is_the_whole_one_in_pieces(scripted):
    client, messages = scripted
    whole = create(client, messages).choices[0].message.tool_calls[0].function
    chunks = [chunk.choices[0] for chunk in create(client, messages, stream=True)]
    first, *pieces, last = chunks
    assert first.delta.role == "assistant" and first.delta.content is None
    [begin] = first.delta.tool_calls
    assert (begin.index, begin.type, begin.function.name, begin.function.arguments) == (
        0, "function", "get_weather", "")
    assert begin.id.startswith("call_")
    calls = [piece.delta.tool_calls[0] for piece in pieces]
    assert all(call.index == 0 and call.id is None and call.function.name is None for call in calls)
    assert len(calls) > 5, "arguments come as they are generated"
    assert "".join(call.function.arguments for call in calls) == whole.arguments
    assert all("\\x" not in call.function.arguments for call in calls), "a character was cut"
    assert last.finish_reason == "tool_calls" and last.delta.tool_calls is None


@only_hermes
def test_several_calls_are_told_apart(scripted):
    client, messages = scripted
    fields = {"stop": None, "max_tokens": 110}
    calls = create(client, messages, **fields).choices[0].message.tool_calls
    assert len(calls) >= 2 and len({call.id for call in calls}) == len(calls)
    assert json.loads(calls[1].function.arguments) == ARGUMENTS
    one = create(client, messages, **fields, parallel_tool_calls=False).choices[0].message.tool_calls
    assert [call.function.arguments for call in one] == [calls[0].function.arguments]


@only_hermes
def test_without_tools_nothing_is_a_call(scripted):
    client, messages = scripted
    for fields in ({"tools": None}, {"tool_choice": "none"}):
        message = create(client, messages, **fields).choices[0].message
        assert message.tool_calls is None and "get_weather" in message.content


@only_hermes
def test_calls_of_the_past_reach_the_template(scripted):
    client, _ = scripted
    call = {"id": "call_7", "type": "function", "function": {"name": "f", "arguments": '{"b": [1, "ü"], "a": null}'}}
    messages = [
        {"role": "user", "content": "Hi."}, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_7", "content": [{"type": "text", "text": "42"}]}]
    answer = client.post("/chat/completions/render", body={"messages": messages}, cast_to=object)
    assert answer["prompt"] == 'Hi.[f {"b": [1, "ü"], "a": null} call_7](call_7) 42'


# ---- models that know no tools ----


def test_tools_are_explained_to_a_model_that_knows_none(npud):
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'}}
    messages = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "1", "content": "Sun"}, {"role": "tool", "tool_call_id": "1", "content": "Rain"},
        {"role": "user", "content": "Thanks."}]
    prompt = npud.post("/v1/chat/completions/render", messages=messages, tools=[WEATHER]).json()["prompt"]
    system, user, assistant, results, end = prompt.split("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\n") and system.endswith("\n\nBe brief.")
    assert json.dumps(WEATHER["function"]) in system and "<tool_call>" in system
    assert assistant == "<|im_start|>assistant\nI look." + '\n<tool_call>\n{"name": "get_weather", "arguments": ' \
        '{"city": "Bern"}}\n</tool_call>' * 2
    assert results == "<|im_start|>user\n<tool_response>\nSun\n</tool_response>\n<tool_response>\nRain\n" \
        "</tool_response>\nThanks."
    assert end == "<|im_start|>assistant\n"
    plain = npud.post("/v1/chat/completions/render", messages=messages[:2], tools=[WEATHER], tool_choice="none")
    assert "get_weather" not in plain.json()["prompt"]


# ---- templates ----


def test_a_model_without_a_template_says_what_to_do(start, tmp_path):
    model = tmp_path / "without.gguf"
    model.write_bytes(MODEL.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_somewhat"))
    daemon = start(model=model)
    answer = daemon.post("/v1/chat/completions", messages=[{"role": "user", "content": "x"}])
    assert answer.status_code == 400 and "--chat-template" in answer.json()["error"]["message"]
    assert daemon.complete("x", max_tokens=1)
    daemon.wait_for_line("no chats: the model has no chat template")


def test_a_template_file_that_cannot_be_used_stops_the_start(start, tmp_path):
    template = tmp_path / "broken.jinja"
    template.write_text("{% for m in messages %}")
    daemon = start("--chat-template", template, ready=False)
    assert daemon.wait() != 0
    assert any("broken.jinja" in line and "line 1" in line for line in daemon.log), daemon.log


def test_what_a_template_refuses_is_said_in_its_words(start, tmp_path):
    template = tmp_path / "strict.jinja"
    template.write_text("{% if messages | length > 1 %}{{ raise_exception('One message, please!') }}{% endif %}x")
    daemon = start("--chat-template", template)
    hello = {"role": "user", "content": "x"}
    assert daemon.post("/v1/chat/completions", messages=[hello], max_tokens=1).status_code == 200
    answer = daemon.post("/v1/chat/completions", messages=[hello, hello], max_tokens=1)
    assert answer.status_code == 400 and "One message, please!" in answer.json()["error"]["message"]

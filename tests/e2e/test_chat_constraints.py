"""What chats must match: content of a form, calls that are demanded, arguments of strict tools. What ends by itself matches,
also at high temperatures."""
import json

import jsonschema
import openai
import pydantic
import pytest

from conftest import Daemon

HELLO = [{"role": "user", "content": "A person lives in Bern. Who?"}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}


def tool(name, parameters, **fields):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


PLACE = {"type": "object", "properties": {"city": {"enum": ["Bern", "Zürich"]}}, "required": ["city"],
         "additionalProperties": False}
TOOLS = [tool("get_weather", PLACE), tool("add_person", PERSON)]
SCHEMAS = {"get_weather": PLACE, "add_person": PERSON}


def create(client, messages=HELLO, **fields):
    return client.chat.completions.create(
        model="any", messages=messages, **{"temperature": 1.5, "max_tokens": 120, "seed": 1, **fields})


def check_calls(choice):
    """Calls of a choice that ended by itself: each matches its schema."""
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    for call in choice.message.tool_calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    return [call.function.name for call in choice.message.tool_calls]


def test_content_has_its_form(client):
    for choice in create(client, response_format=FORM, n=4).choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), PERSON)
    choice = create(client, response_format={"type": "json_object"}, temperature=0, max_tokens=200).choices[0]
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content), dict)


def test_a_stream_has_the_form_of_the_whole_answer(client):
    text = "".join(chunk.choices[0].delta.content or "" for chunk in create(client, response_format=FORM, stream=True))
    assert text == create(client, response_format=FORM).choices[0].message.content


def test_pydantic_models_are_filled(client):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        age: int

    answer = client.chat.completions.parse(
        model="any", messages=HELLO, response_format=Person, temperature=1, seed=3, max_tokens=100)
    assert answer.choices[0].message.parsed.age is not None


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_function_is_called_once(client, stream):
    choice = {"type": "function", "function": {"name": "add_person"}}
    fields = {"tools": TOOLS, "tool_choice": choice}
    if not stream:
        assert check_calls(create(client, **fields).choices[0]) == ["add_person"]
        return
    chunks = [chunk.choices[0] for chunk in create(client, **fields, stream=True)]
    calls = [chunk.delta.tool_calls[0] for chunk in chunks if chunk.delta.tool_calls]
    assert [call.function.name for call in calls if call.id] == ["add_person"]
    jsonschema.validate(json.loads("".join(call.function.arguments for call in calls)), PERSON)
    assert chunks[-1].finish_reason == "tool_calls"


def test_a_required_call_is_one_of_the_tools(client):
    names = [name for choice in create(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, n=6).choices
             for name in check_calls(choice)]
    assert len(names) == 6 and set(names) <= set(SCHEMAS)
    several = create(client, tools=TOOLS, tool_choice="required", max_tokens=200).choices[0]
    assert several.message.tool_calls
    if several.finish_reason != "length":
        check_calls(several)


def test_content_of_a_form_leaves_room_for_calls(client):
    for choice in create(client, tools=TOOLS, response_format=FORM, n=6).choices:
        assert choice.finish_reason in ("stop", "tool_calls", "length")
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content), PERSON)


def test_a_strict_tool_keeps_to_its_schema_and_text_stays_free(client):
    strict = [tool("get_weather", PLACE, strict=True)]
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    messages = [{"role": "user", "content": f"Say it: {call}"}, {"role": "assistant", "content": call},
                {"role": "user", "content": "Again."}, {"role": "assistant", "content": call},
                {"role": "user", "content": "Again."}]
    free = create(client, messages, tools=[tool("get_weather", PLACE)], temperature=0).choices[0]
    assert json.loads(free.message.tool_calls[0].function.arguments) == {"city": "Paris"}
    kept = create(client, messages, tools=strict, temperature=0).choices[0]
    assert check_calls(kept)[0] == "get_weather"
    text = create(client, tools=strict, temperature=0, max_tokens=20).choices[0]
    assert text.message.content == create(client, tools=TOOLS[:1], temperature=0, max_tokens=20).choices[0].message.content


def test_a_grammar_is_for_all_of_the_text(client):
    grammar = {"type": "regex", "value": "<tool_call>[a-c]{3}"}
    for fields in ({}, {"tools": TOOLS}):
        choice = create(client, extra_body={"grammar": grammar}, **fields).choices[0]
        assert choice.finish_reason == "stop" and choice.message.content.startswith("<tool_call>")


@pytest.mark.parametrize("fields, param", [
    ({"response_format": FORM, "stop": ["x"]}, "stop"),
    ({"tools": TOOLS, "tool_choice": "required", "stop": ["x"]}, "stop"),
    ({"tools": TOOLS, "tool_choice": "required", "extra_body": {"grammar": {"type": "json_object"}}}, "grammar"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}},
     "response_format.json_schema.schema"),
    ({"tools": [tool("f", {"type": "object", "properties": {"a": {"type": "thing"}}})], "tool_choice": "required"}, "tools"),
])
def test_what_cannot_be_kept_to_is_refused(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, **fields)
    assert caught.value.param == param
    if param == "tools":
        assert "the parameters of f: at #/properties/a" in caught.value.message


def test_thinking_comes_before_what_is_constrained(tmp_path):
    template = tmp_path / "thinks.jinja"
    template.write_text(
        "{# </think> #}{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>\n{% endif %}")
    daemon = Daemon("--chat-template", template)
    try:
        daemon.wait_until_ready()
        client = openai.OpenAI(base_url=daemon.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
        example = "<think>\nI see.\n</think>\n\n{}\n" * 5
        messages = [{"role": "user", "content": example}]
        for effort in ({}, {"reasoning_effort": "high"}):
            answer = create(client, messages, response_format=FORM, temperature=0, **effort)
            choice = answer.choices[0]
            thought = answer.usage.completion_tokens_details.reasoning_tokens
            assert 3 <= thought <= 12 < answer.usage.completion_tokens
            assert choice.message.model_dump()["reasoning_content"] == "I see."
            jsonschema.validate(json.loads(choice.message.content), PERSON)
            choice = create(client, messages, tools=TOOLS[:1], tool_choice="required", parallel_tool_calls=False,
                            temperature=0, **effort).choices[0]
            assert check_calls(choice) == ["get_weather"]
        daemon.stop()
    finally:
        daemon.kill()

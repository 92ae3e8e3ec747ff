"""POST /v1/responses through the official client: whole and streamed, chains, tools, what is stored, every refusal."""
import json
import time

import httpx
import openai
import pydantic
import pytest

from conftest import Daemon
from test_tools import AS_JSON, ARGUMENTS, SCRIPT, WEATHER

FUNCTION = {"type": "function", **WEATHER["function"]}


def create(client, said="Name three colours.", **fields):
    return client.responses.create(
        model="any", input=said, **{"temperature": 0, "max_output_tokens": 16, **fields})


def connect(daemon):
    return openai.OpenAI(base_url=daemon.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def events(daemon, **body):
    """The names and the data of a stream's events, as they came."""
    body = {"input": "Name three colours.", "temperature": 0, "max_output_tokens": 8, "stream": True, **body}
    answer = httpx.post(daemon.base_url + "/v1/responses", json=body, timeout=120)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    *frames, end = answer.text.split("\n\n")
    assert end == ""
    pairs = [frame.split("\n") for frame in frames]
    assert all(len(pair) == 2 for pair in pairs)
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def without(response, *names):
    return {name: value for name, value in response.items() if name not in names}


# ---- answers ----


@pytest.mark.short
def test_whole_answer_has_every_part(client):
    answer = create(client, metadata={"a": "b"}, user="me", instructions="Be brief.", top_p=0.5)
    assert answer.object == "response" and answer.id.startswith("resp_") and answer.created_at > 1.7e9
    assert "SmolLM2" in answer.model and answer.error is None
    [message] = answer.output
    assert message.type == "message" and message.role == "assistant" and message.id.startswith("msg_")
    assert message.content[0].type == "output_text" and message.content[0].annotations == []
    assert answer.output_text == message.content[0].text and answer.output_text.strip()
    assert answer.metadata == {"a": "b"} and answer.user == "me" and answer.instructions == "Be brief."
    assert (answer.temperature, answer.top_p, answer.max_output_tokens) == (0, 0.5, 16)
    assert answer.tools == [] and answer.tool_choice == "auto" and answer.parallel_tool_calls is True
    assert answer.text.format.type == "text" and answer.truncation == "disabled"
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and 0 < usage.output_tokens <= 16
    assert usage.output_tokens_details.reasoning_tokens == 0
    assert answer.model_dump()["timings"]["predicted_n"] == usage.output_tokens


def test_the_limit_makes_it_incomplete(client):
    answer = create(client)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete" and answer.completed_at is None


def test_the_end_of_the_turn_completes_it(client):
    answer = create(client, max_output_tokens=300)
    assert answer.status == "completed" and answer.incomplete_details is None
    assert answer.output[0].status == "completed" and answer.completed_at >= answer.created_at
    assert "<|im_end|>" not in answer.output_text


def test_text_is_that_of_a_chat(client):
    chat = client.chat.completions.create(
        model="any", temperature=0, max_tokens=16,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours."}])
    expected = chat.choices[0].message.content
    assert create(client, instructions="Be brief.").output_text == expected
    items = [{"role": "system", "content": "Be brief."},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Name three colours."}]}]
    assert create(client, items).output_text == expected


# ---- streams ----


def test_events_are_openais(npud, client):
    whole = create(client, max_output_tokens=8)
    stream = events(npud)
    names = [name for name, _ in stream]
    n = names.count("response.output_text.delta")
    assert n > 1 and names == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        *["response.output_text.delta"] * n, "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.incomplete"]
    assert all(data["type"] == name for name, data in stream)
    assert [data["sequence_number"] for _, data in stream] == list(range(len(stream)))
    created, progress, item, part, *deltas, done, part_done, item_done, last = [data for _, data in stream]
    assert created["response"] == progress["response"] and created["response"]["status"] == "in_progress"
    assert created["response"]["output"] == [] and created["response"]["usage"] is None
    message = last["response"]["output"][0]
    place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    assert item["item"] == {**message, "status": "in_progress", "content": []} and item["output_index"] == 0
    assert part["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    for event in [part, *deltas, done, part_done]:
        assert event.items() >= place.items()
    assert "".join(delta["delta"] for delta in deltas) == done["text"] == whole.output_text
    assert part_done["part"] == message["content"][0] and item_done["item"] == message
    passing = ("id", "created_at", "completed_at", "output", "usage", "timings")
    given = json.loads(client.responses.with_raw_response.retrieve(whole.id).text)
    assert without(last["response"], *passing) == without(given, *passing)
    assert last["response"]["usage"]["output_tokens"] == 8


def test_the_clients_own_stream_helper_follows(client):
    with client.responses.stream(model="any", input="Count to five.", temperature=0, max_output_tokens=300) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert final.status == "completed" and final.output_text == "".join(deltas)


# ---- chains ----


@pytest.mark.parametrize("streamed", [False, True])
def test_each_turn_of_a_chain_reads_what_is_new_and_no_more(client, streamed):
    previous, known = None, 0
    for turn in range(5):
        fields = {"previous_response_id": previous, "max_output_tokens": 12}
        if streamed:
            *_, last = create(client, f"Say something about number {turn}.", stream=True, **fields)
            answer = last.response
        else:
            answer = create(client, f"Say something about the letter {'abcde'[turn]}.", **fields)
        usage = answer.usage
        if turn > 0:  # the last token was given out and not read
            assert usage.input_tokens_details.cached_tokens == known - 1, answer.model_dump()["timings"]
        assert usage.input_tokens > known
        previous, known = answer.id, usage.total_tokens
        assert answer.previous_response_id is None if turn == 0 else answer.previous_response_id.startswith("resp_")


def test_a_chain_is_the_conversation_written_out(client):
    first = create(client)
    second = create(client, "And one more?", previous_response_id=first.id)
    written = create(client, [{"role": "user", "content": "Name three colours."}, first.output[0].model_dump(),
                              {"role": "user", "content": "And one more?"}])
    assert written.output_text == second.output_text and written.usage.input_tokens == second.usage.input_tokens


def test_a_chain_branches(client):
    first = create(client)
    texts = [create(client, "And one more?", previous_response_id=first.id).output_text for _ in range(2)]
    other = create(client, "Why these?", previous_response_id=first.id)
    assert texts[0] == texts[1] and other.usage.input_tokens_details.cached_tokens > 0


def test_instructions_are_not_carried_over(client):
    pirate = {"instructions": "Speak like a pirate who is very old and very tired."}
    first = create(client, **pirate)
    second = create(client, "And one more?", previous_response_id=first.id)
    again = create(client, "And one more?", previous_response_id=first.id, **pirate)
    written = create(client, [{"role": "user", "content": "Name three colours."}, *first.output,
                              {"role": "user", "content": "And one more?"}])
    assert second.instructions is None
    assert (second.output_text, second.usage.input_tokens) == (written.output_text, written.usage.input_tokens)
    assert again.usage.input_tokens_details.cached_tokens == first.usage.total_tokens - 1


def test_items_may_be_referred_to(client):
    first = create(client)
    items = [{"role": "user", "content": "Name three colours."}, {"type": "item_reference", "id": first.output[0].id},
             {"role": "user", "content": "And one more?"}]
    second = create(client, items)
    assert second.output_text == create(client, "And one more?", previous_response_id=first.id).output_text
    assert create(client, [items[0], {"id": first.output[0].id}, items[2]]).output_text == second.output_text


# ---- what is stored ----


def test_a_stored_response_is_given_again(client):
    answer = create(client, "Hello.", metadata={"x": "y"})
    again = client.responses.with_raw_response.retrieve(answer.id, include=["file_search_call.results"])
    assert json.loads(again.text) == json.loads(answer.model_dump_json(exclude_unset=True))


def test_what_is_not_stored_is_unknown(client):
    answer = create(client, store=False)
    assert answer.model_dump()["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    with pytest.raises(openai.BadRequestError) as refusal:
        create(client, previous_response_id=answer.id)
    assert refusal.value.code == "previous_response_not_found" and refusal.value.param == "previous_response_id"


def test_a_deleted_response_is_unknown_and_what_continued_it_stays(npud, client):
    first = create(client)
    second = create(client, "And one more?", previous_response_id=first.id)
    deleted = httpx.delete(npud.base_url + f"/v1/responses/{first.id}").json()
    assert deleted == {"id": first.id, "object": "response", "deleted": True}
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            call(first.id)
    assert client.responses.retrieve(second.id).output_text == second.output_text
    third = create(client, "And another?", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.total_tokens


# ---- tools and thinking ----


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """A client of a model that goes on with the lines of its prompt, whatever they are."""
    template = tmp_path_factory.mktemp("template") / "script.jinja"
    template.write_text(SCRIPT.replace("MENTIONED", "<tool_call> </think>"))
    daemon = Daemon("--chat-template", template)
    try:
        daemon.wait_until_ready()
        yield connect(daemon), daemon
        daemon.stop()
    finally:
        daemon.kill()


CALL = f'<tool_call> {{"name": "get_weather", "arguments": {AS_JSON}}} </tool_call>'
SCRIPTED = {"extra_body": {"stop": ["\n"]}, "max_output_tokens": 100, "tools": [FUNCTION]}


def test_a_call_is_an_item_and_its_output_goes_back(scripted):
    client, _ = scripted
    answer = create(client, (CALL + "\n") * 4, **SCRIPTED)
    [call] = answer.output
    assert call.type == "function_call" and call.name == "get_weather" and call.status == "completed"
    assert call.id.startswith("fc_") and call.call_id.startswith("call_") and json.loads(call.arguments) == ARGUMENTS
    assert answer.tools[0].name == "get_weather" and answer.tools[0].parameters == FUNCTION["parameters"]
    output = {"type": "function_call_output", "call_id": call.call_id,
              "output": "It rains. Say so: It rains. It rains. It"}
    second = create(client, [output], previous_response_id=answer.id, max_output_tokens=4)
    assert "rains" in second.output_text and second.usage.input_tokens > answer.usage.input_tokens
    written = create(client, [{"role": "user", "content": (CALL + "\n") * 4}, call, output], max_output_tokens=4)
    assert written.output_text == second.output_text and written.usage.input_tokens == second.usage.input_tokens


def test_a_streamed_call_comes_in_pieces(scripted):
    _, daemon = scripted
    stream = events(daemon, input=(CALL + "\n") * 4, tools=[FUNCTION], stop=["\n"], max_output_tokens=100)
    names = [name for name, _ in stream]
    n = names.count("response.function_call_arguments.delta")
    assert n > 1 and names[2:] == [
        "response.output_item.added", *["response.function_call_arguments.delta"] * n,
        "response.function_call_arguments.done", "response.output_item.done", "response.completed"]
    added, *deltas, done, item_done, completed = [data for _, data in stream[2:]]
    assert added["item"]["arguments"] == "" and added["item"]["name"] == "get_weather"
    assert "".join(delta["delta"] for delta in deltas) == done["arguments"] == item_done["item"]["arguments"]
    assert json.loads(done["arguments"]) == ARGUMENTS
    assert {event["item_id"] for event in [*deltas, done]} == {item_done["item"]["id"]}
    assert completed["response"]["output"] == [item_done["item"]]


def test_thinking_is_an_item_of_its_own(scripted):
    client, daemon = scripted
    thought = "<think> It rains, so I say no. </think> No, not today."
    body = {"input": (thought + "\n") * 4, "stop": ["\n"], "max_output_tokens": 40}
    stream = events(daemon, **body)
    names = list(dict.fromkeys(name for name, _ in stream))
    assert names == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done",
        "response.output_item.done", "response.output_text.delta", "response.output_text.done", "response.completed"]
    response = stream[-1][1]["response"]
    reasoning, message = response["output"]
    assert reasoning["type"] == "reasoning" and reasoning["summary"] == []
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "It rains, so I say no."}]
    assert message["content"][0]["text"] == "No, not today."
    details = response["usage"]["output_tokens_details"]
    assert 8 < details["reasoning_tokens"] < response["usage"]["output_tokens"] - 3
    # It may be sent back.
    items = [{"role": "user", "content": "x"}, reasoning, message, {"role": "user", "content": "y"}]
    assert client.responses.create(model="any", input=items, max_output_tokens=1).output


def test_without_tools_nothing_is_a_call(scripted):
    client, _ = scripted
    answer = create(client, (CALL + "\n") * 4, **{**SCRIPTED, "tool_choice": "none"})
    assert answer.output[0].type == "message" and "get_weather" in answer.output_text


# ---- structured output ----


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)


def test_text_format_is_kept(client):
    answer = client.responses.parse(model="any", input="Invent a person.", text_format=Person, max_output_tokens=100,
                                    extra_body={"seed": 3})
    assert answer.status == "completed" and isinstance(answer.output_parsed, Person)
    assert answer.text.format.name == "Person"
    free = create(client, "Write JSON.", text={"format": {"type": "json_object"}}, max_output_tokens=40)
    assert free.output_text.startswith("{")
    own = create(client, "Write.", extra_body={"grammar": {"type": "regex", "value": "[a-c]{3}"}})
    assert len(own.output_text) == 3 and set(own.output_text) <= set("abc")


def test_a_call_can_be_demanded(client):
    cities = {"type": "object", "properties": {"city": {"enum": ["Bern", "Zürich"]}}, "required": ["city"],
              "additionalProperties": False}
    tools = [{**FUNCTION, "parameters": cities}, {**FUNCTION, "name": "get_time", "parameters": cities}]
    demands = ["required", {"type": "function", "name": "get_time"}]
    for demand, names in zip(demands, [{"get_weather", "get_time"}, {"get_time"}]):
        answer = create(client, tools=tools, tool_choice=demand, parallel_tool_calls=False, temperature=1.5,
                        max_output_tokens=60, extra_body={"seed": 1})
        [call] = answer.output
        assert answer.status == "completed" and call.type == "function_call" and call.name in names
        assert json.loads(call.arguments)["city"] in ("Bern", "Zürich")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
    assert create(client, [output], previous_response_id=answer.id, tools=tools, max_output_tokens=2).output_text


# ---- refusals ----

HELLO = {"input": "Hello."}


@pytest.mark.parametrize("body, param", [
    ({}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": ["x"]}, "input[0]"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
    ({"input": [{"content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
     "input[0].content[0].type"),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]}, "input[0].name"),
    ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}, "input[0].encrypted_content"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
    ({"input": [{"type": "item_reference", "id": "msg_" + 32 * "0" + "0"}]}, "input[0].id"),
    ({**HELLO, "previous_response_id": "resp_1"}, "previous_response_id"),
    ({**HELLO, "previous_response_id": "resp_" + 32 * "a"}, "previous_response_id"),
    ({**HELLO, "previous_response_id": "msg_" + 32 * "a"}, "previous_response_id"),
    ({**HELLO, "previous_response_id": 5}, "previous_response_id"),
    ({**HELLO, "instructions": ["x"]}, "instructions"),
    ({**HELLO, "max_output_tokens": 0}, "max_output_tokens"),
    ({**HELLO, "temperature": 2.1}, "temperature"), ({**HELLO, "top_p": "x"}, "top_p"),
    ({**HELLO, "metadata": {"a": 1}}, "metadata.a"), ({**HELLO, "metadata": {"a": "x" * 513}}, "metadata.a"),
    ({**HELLO, "metadata": {"x" * 65: ""}}, "metadata"),
    ({**HELLO, "metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({**HELLO, "store": 1}, "store"), ({**HELLO, "stream": "yes"}, "stream"),
    ({**HELLO, "stream_options": {}}, "stream_options"),
    ({**HELLO, "stream": True, "stream_options": {"include_obfuscation": True}},
     "stream_options.include_obfuscation"),
    ({**HELLO, "stop": ["x"], "tools": [FUNCTION], "tool_choice": "required"}, "stop"),
    ({**HELLO, "stop": ["x"], "text": {"format": {"type": "json_object"}}}, "stop"),
    ({**HELLO, "grammar": {"type": "json_object"}, "text": {"format": {"type": "text"}}}, "grammar"),
    ({**HELLO, "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "thing"}}}},
     "text.format.schema"),
    ({**HELLO, "tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({**HELLO, "tools": [{"type": "function"}]}, "tools[0].name"),
    ({**HELLO, "tool_choice": "required"}, "tool_choice"),
    ({**HELLO, "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
    ({**HELLO, "tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ({**HELLO, "text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({**HELLO, "text": {"verbosity": "low"}}, "text.verbosity"),
    ({**HELLO, "reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({**HELLO, "reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    ({**HELLO, "truncation": "auto"}, "truncation"), ({**HELLO, "background": True}, "background"),
    ({**HELLO, "conversation": "conv_1"}, "conversation"), ({**HELLO, "prompt": {"id": "x"}}, "prompt"),
    ({**HELLO, "include": ["message.output_text.logprobs"]}, "include[0]"), ({**HELLO, "include": "x"}, "include"),
    ({**HELLO, "include": ["nonsense"]}, "include[0]"), ({**HELLO, "top_logprobs": 3}, "top_logprobs"),
    ({**HELLO, "service_tier": "flex"}, "service_tier"), ({**HELLO, "max_tool_calls": 1}, "max_tool_calls"),
    ({"messages": [{"role": "user", "content": "x"}]}, "messages"), ({**HELLO, "max_tokens": 5}, "max_tokens"),
])
def test_wrong_values_are_refused_with_their_path(npud, body, param):
    answer = npud.post("/v1/responses", **body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and param.split("[")[0].split(".")[0] in error["message"] or "resp" in param
    assert error["type"] == "invalid_request_error"


def test_null_and_unknown_fields_mean_nothing(client):
    nulls = {name: None for name in (
        "instructions", "metadata", "previous_response_id", "conversation", "background", "truncation", "tools",
        "reasoning", "text", "store", "include", "stream", "unheard_of")}
    answer = create(client, "Hello.", extra_body={**nulls, "unheard_of_too": 3})
    assert answer.output_text == create(client, "Hello.").output_text


@pytest.mark.parametrize("path", ["/v1/responses/resp_1", "/v1/responses/x", "/v1/responses/resp_" + 32 * "0"])
def test_unknown_ids_are_not_found(npud, path):
    for method in ("GET", "DELETE"):
        answer = httpx.request(method, npud.base_url + path)
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("query, param", [
    ("stream=true", "stream"), ("starting_after=3", "starting_after"),
    ("include[]=message.output_text.logprobs", "include"), ("include=nonsense", "include")])
def test_what_retrieve_does_not_know_is_refused(npud, client, query, param):
    answer = httpx.get(npud.base_url + f"/v1/responses/{create(client, max_output_tokens=1).id}?{query}")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_a_chain_that_grows_past_the_context_is_refused(client):
    first = create(client, max_output_tokens=1)
    with pytest.raises(openai.BadRequestError) as refusal:
        create(client, " word" * 4060, previous_response_id=first.id)
    assert refusal.value.code == "context_length_exceeded" and refusal.value.param == "input"


# ---- the state folder ----


def files(folder):
    """Stored responses, the oldest first."""
    return sorted(folder.glob("*.response"))


def test_a_chain_goes_on_after_a_restart(start, tmp_path):
    daemon = start("--state-dir", tmp_path)
    first = create(connect(daemon))
    second = create(connect(daemon), "And one more?", previous_response_id=first.id)
    deleted = create(connect(daemon), "Forget this.")
    connect(daemon).responses.delete(deleted.id)
    daemon.stop()
    assert len(files(tmp_path)) == 2

    daemon = start("--state-dir", tmp_path)
    client = connect(daemon)
    daemon.wait_for_line(r"2 of its files are stored responses")
    given = client.responses.retrieve(second.id)
    assert given.model_dump() == second.model_dump()
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(deleted.id)
    third = create(client, "And another?", previous_response_id=second.id)
    assert third.usage.input_tokens_details.cached_tokens == second.usage.total_tokens - 1
    cache = third.model_dump()["timings"]["cache"]
    assert cache["source"] == "disk" and cache["restored"] > 0
    branch = create(client, "Why?", previous_response_id=first.id)
    assert branch.usage.input_tokens_details.cached_tokens > 0
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damaged_files_are_as_if_unknown(start, tmp_path):
    daemon = start("--state-dir", tmp_path)
    made = [create(connect(daemon), f"Hello {i}.", max_output_tokens=1) for i in range(6)]
    daemon.stop()
    stored = files(tmp_path)
    assert len(stored) == 6 and [path.stem for path in stored] == [answer.id[5:] for answer in made]
    flip(stored[0])
    stored[1].write_bytes(stored[1].read_bytes()[:-1])
    stored[2].write_bytes(b"")
    data = bytearray(stored[3].read_bytes())
    data[8] += 1  # the version
    stored[3].write_bytes(data)
    stored[4].write_bytes(stored[5].read_bytes())

    daemon = start("--state-dir", tmp_path)
    for answer in made[:5]:
        with pytest.raises(openai.BadRequestError) as refusal:
            create(connect(daemon), previous_response_id=answer.id)
        assert refusal.value.code == "previous_response_not_found"
    for answer in made[:5]:
        with pytest.raises(openai.NotFoundError):
            connect(daemon).responses.retrieve(answer.id)
    assert connect(daemon).responses.retrieve(made[5].id).id == made[5].id
    lines = [line for line in daemon.log if "a stored response is forgotten" in line]
    assert len(lines) == 5 and all(str(path) in line for path, line in zip(stored, lines))
    daemon.stop()
    assert files(tmp_path) == [stored[5]]


def test_the_oldest_make_room(start, tmp_path):
    daemon = start("--state-dir", tmp_path, "--state-max", "1M", "--checkpoint-interval", "0")
    large = {"tools": [{**FUNCTION, "description": "x" * 100_000}], "tool_choice": "none", "max_output_tokens": 1}
    made = [create(connect(daemon), f"Hello {i}.", **large) for i in range(15)]
    deadline = time.monotonic() + 30
    while not files(tmp_path) or files(tmp_path)[-1].stem != made[-1].id[5:]:
        assert time.monotonic() < deadline, files(tmp_path)
        time.sleep(0.1)
    daemon.kill()  # stopping would save the sessions, too
    left = [path.stem for path in files(tmp_path)]
    assert 5 < len(left) < 11 and left == [answer.id[5:] for answer in made[-len(left):]]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1024 * 1024

    daemon = start("--state-dir", tmp_path, "--state-max", "1M")
    assert connect(daemon).responses.retrieve(made[-1].id).tools[0].description == "x" * 100_000
    with pytest.raises(openai.NotFoundError):
        connect(daemon).responses.retrieve(made[0].id)

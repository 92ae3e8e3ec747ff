"""POST /v1/chat/completions through the official client: whole and streamed answers, every field, every limit."""
import json

import httpx
import openai
import pytest

HELLO = [{"role": "user", "content": "Name three colours."}]


def create(client, messages=HELLO, **fields):
    return client.chat.completions.create(
        model="any", messages=messages, **{"temperature": 0, "max_tokens": 24, **fields})


def stream_text(client, **fields):
    return "".join(chunk.choices[0].delta.content or "" for chunk in create(client, stream=True, **fields))


def frames(npud, **body):
    """The frames of a stream as they came."""
    body = {"messages": HELLO, "temperature": 0, "max_tokens": 8, "stream": True, **body}
    answer = httpx.post(npud.base_url + "/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    *events, done, end = answer.text.split("\n\n")
    assert done == "data: [DONE]" and end == ""
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event[6:]) for event in events]


# ---- answers ----


@pytest.mark.short
def test_whole_answer_has_every_part(client):
    answer = create(client)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert "SmolLM2" in answer.model and answer.created > 1.7e9
    assert choice.message.role == "assistant" and choice.message.content.strip()
    assert choice.message.tool_calls is None and choice.message.refusal is None
    assert choice.index == 0 and choice.logprobs is None and choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens <= 24
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0
    assert answer.model_dump()["timings"]["predicted_n"] == answer.usage.completion_tokens


@pytest.mark.short
def test_stream_gives_the_whole_answers_text(client):
    assert stream_text(client) == create(client).choices[0].message.content


def test_frames_are_openais(npud):
    first, *middle, last, usage = frames(npud, stream_options={"include_usage": True})
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"] == [{
        "index": 0, "delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None,
        "finish_reason": None}]
    assert middle and all(list(frame["choices"][0]["delta"]) == ["content"] for frame in middle)
    assert all(frame["choices"][0]["finish_reason"] is None for frame in middle)
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 8
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert all(frame["usage"] is None for frame in [first, *middle, last])
    assert len({(frame["id"], frame["created"], frame["model"]) for frame in [first, *middle, last, usage]}) == 1


def test_stream_without_include_usage_has_none(npud):
    assert all("usage" not in frame for frame in frames(npud))


def test_answer_ends_at_the_end_of_the_turn(client):
    answer = create(client, max_tokens=300)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_max_tokens_has_two_names(client):
    answers = [create(client, max_tokens=None, max_completion_tokens=5), create(client, max_tokens=5)]
    assert [answer.usage.completion_tokens for answer in answers] == [5, 5]
    assert [answer.choices[0].finish_reason for answer in answers] == ["length", "length"]


def test_without_max_tokens_an_answer_goes_on_to_its_end(client):
    answer = create(client, max_tokens=None)
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens > 24


def test_roles_and_parts_reach_the_prompt(npud):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
        {"role": "assistant", "content": "Three.", "name": "bot"},
        {"role": "user", "content": "Four."},
    ]
    rendered = npud.post("/v1/chat/completions/render", messages=messages).json()
    assert rendered["prompt"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne.\nTwo.<|im_end|>\n"
        "<|im_start|>assistant\nThree.<|im_end|>\n<|im_start|>user\nFour.<|im_end|>\n<|im_start|>assistant\n")
    text = npud.post("/detokenize", tokens=rendered["tokens"]).json()["content"]
    assert text == rendered["prompt"]


def test_rendered_prompt_is_what_is_answered(npud, client):
    rendered = npud.post("/v1/chat/completions/render", messages=HELLO).json()
    answer = create(client)
    assert answer.usage.prompt_tokens == len(rendered["tokens"])
    assert answer.choices[0].message.content == npud.text(rendered["tokens"], max_tokens=24)


def test_samples_of_one_seed_are_equal(client):
    texts = {create(client, temperature=1, seed=7).choices[0].message.content for _ in range(2)}
    assert len(texts) == 1 and create(client, temperature=1, seed=8).choices[0].message.content not in texts


def test_each_choice_is_the_one_that_its_seed_gives_alone(client):
    answer = create(client, n=3, temperature=1, seed=5, max_tokens=60)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for i in range(3):
        alone = create(client, temperature=1, seed=5 + i, max_tokens=60)
        assert answer.choices[i].message.content == alone.choices[0].message.content
        assert answer.choices[i].finish_reason == alone.choices[0].finish_reason


def test_streamed_choices_end_each_on_its_own(client):
    fields = {"n": 3, "temperature": 1.2, "seed": 5, "max_tokens": 40, "stop": ["."]}
    whole = create(client, **fields)
    assert {choice.finish_reason for choice in whole.choices} == {"stop", "length"}
    text, reasons, roles = [""] * 3, [None] * 3, [0] * 3
    for chunk in create(client, stream=True, **fields):
        choice = chunk.choices[0]
        assert reasons[choice.index] is None, "a choice goes on behind its end"
        text[choice.index] += choice.delta.content or ""
        reasons[choice.index] = choice.finish_reason
        roles[choice.index] += choice.delta.role is not None
    assert text == [choice.message.content for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert roles == [1, 1, 1]


# ---- stop strings ----


def test_stop_strings_cut_wherever_tokens_end(client):
    text = create(client).choices[0].message.content
    for start, end in ((5, 8), (7, 14), (10, 11)):
        stop = text[start:end]
        answer = create(client, stop=stop)
        assert answer.choices[0].message.content == text[:text.index(stop)]
        assert answer.choices[0].finish_reason == "stop"
        assert stream_text(client, stop=stop) == text[:text.index(stop)]


def test_the_stop_string_that_ends_first_wins(client):
    text = create(client).choices[0].message.content
    prefix, longer = text[6:9], text[6:14]
    for stops in ([prefix, longer], [longer, prefix]):
        assert create(client, stop=stops).choices[0].message.content == text[:text.index(prefix)]
    unmet = longer + "\x00"
    assert create(client, stop=[unmet, longer]).choices[0].message.content == text[:text.index(longer)]


# ---- logprobs ----


def test_logprobs_have_openais_shape(client):
    answer = create(client, logprobs=True, top_logprobs=2, max_tokens=6)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 6 and answer.choices[0].logprobs.refusal is None
    assert "".join(entry.token for entry in entries) == answer.choices[0].message.content
    for entry in entries:
        assert bytes(entry.bytes).decode() == entry.token
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 2
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert entry.top_logprobs[0].logprob == entry.logprob >= entry.top_logprobs[1].logprob
    assert create(client, logprobs=True, max_tokens=2).choices[0].logprobs.content[0].top_logprobs == []


def test_streamed_logprobs_are_those_of_the_whole_answer(client):
    fields = {"logprobs": True, "top_logprobs": 3, "max_tokens": 20, "stop": ["blue"]}
    whole = create(client, **fields).choices[0].logprobs.content
    streamed = []
    for chunk in create(client, stream=True, **fields):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [entry.model_dump() for entry in streamed] == [entry.model_dump() for entry in whole]


# ---- turns ----


def test_each_of_ten_turns_reads_what_is_new_and_no_more(client):
    messages = [{"role": "system", "content": "You are terse."}]
    said = None
    for turn in range(10):
        messages.append({"role": "user", "content": f"Tell me about the number {turn}, <b>quickly</b>!  \n\n ok?"})
        answer = create(client, messages, temperature=1.3, seed=turn, max_tokens=20)
        usage, cached = answer.usage, answer.usage.prompt_tokens_details.cached_tokens
        if said is not None:
            assert cached >= said - 1, f"turn {turn}: {cached} of {said} cached"  # the last token was never computed
            assert answer.model_dump()["timings"]["prompt_n"] == usage.prompt_tokens - cached
        said = usage.total_tokens
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})


# ---- limits and wrong values ----


def refusal(npud, **body):
    answer = httpx.post(npud.base_url + "/v1/chat/completions", json={"messages": HELLO, "max_tokens": 1, **body})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def message(**fields):
    return {"messages": [*HELLO, {"role": "assistant", "content": "Red."}, fields]}


def call(**function):
    return message(role="assistant", tool_calls=[{"id": "1", "type": "function", "function": function}])


def tool(**function):
    return {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": function}]}


@pytest.mark.parametrize("body, param", [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": ["Hello"]}, "messages[0]"),
    (message(content="x"), "messages[2].role"),
    (message(role="function", content="x"), "messages[2].role"),
    (message(role="user\0", content="x"), "messages[2].role"),
    (message(role=1, content="x"), "messages[2].role"),
    (message(role="user"), "messages[2].content"),
    (message(role="assistant"), "messages[2].content"),
    (message(role="user", content=[]), "messages[2].content"),
    (message(role="user", content=3), "messages[2].content"),
    (message(role="user", content=[{"text": "x"}]), "messages[2].content[0].type"),
    (message(role="user", content=[{"type": "text"}]), "messages[2].content[0].text"),
    (message(role="user", content=[{"type": "image_url", "image_url": {"url": "x"}}]), "messages[2].content[0].type"),
    (message(role="user", content="x", name=1), "messages[2].name"),
    (message(role="tool", content="x"), "messages[2].tool_call_id"),
    (message(role="assistant", tool_calls={}), "messages[2].tool_calls"),
    (message(role="assistant", tool_calls=[{"id": "1"}]), "messages[2].tool_calls[0].function"),
    (call(arguments="{}"), "messages[2].tool_calls[0].function.name"),
    (call(name="f"), "messages[2].tool_calls[0].function.arguments"),
    (call(name="f", arguments={}), "messages[2].tool_calls[0].function.arguments"),
    (call(name="f", arguments="x" * (4 << 20) + "x"), "messages[2].tool_calls[0].function.arguments"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    (tool(), "tools[1].function.name"),
    (tool(name="a b"), "tools[1].function.name"),
    (tool(name="f"), "tools[1].function.name"),
    (tool(name="g" * 65), "tools[1].function.name"),
    (tool(name="g", parameters=[]), "tools[1].function.parameters"),
    (tool(name="g", parameters={"type": "array"}), "tools[1].function.parameters.type"),
    ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "always"}, "tool_choice"),
    ({**tool(name="g"), "tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice.function.name"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
    ({"n": 129}, "n"),
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": 1}, "logprobs"),
    ({"temperature": 2.1}, "temperature"),
    ({"stop": [str(i) for i in range(17)]}, "stop"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"reasoning_effort": "most"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"stream_options": {}}, "stream_options"),
])
def test_wrong_values_are_refused_with_their_path(npud, body, param):
    error = refusal(npud, **body)
    assert error["param"] == param and error["type"] == "invalid_request_error"
    assert param in error["message"]


@pytest.mark.parametrize("field, value", [
    ("audio", {"voice": "x"}), ("functions", []), ("function_call", "auto"), ("modalities", ["text", "audio"]),
    ("prediction", {}), ("service_tier", "flex"), ("store", True), ("web_search_options", {}), ("verbosity", "low"),
    ("prompt_cache_retention", "24h"), ("moderation", {}),
])
def test_what_is_not_supported_is_refused(npud, field, value):
    error = refusal(npud, **{field: value})
    assert error["code"] == "unsupported_parameter" and error["param"] == field


def test_fields_at_their_limits_are_taken(npud):
    body = {
        "messages": [*HELLO, {"role": "assistant", "content": None, "refusal": "No."}, *HELLO],
        "temperature": 2, "logprobs": True, "top_logprobs": 20, "max_tokens": 1, "max_completion_tokens": 1,
        "stop": [str(i) for i in range(16)], "tools": [], "tool_choice": "none", "reasoning_effort": "none",
        "modalities": ["text"], "service_tier": "auto", "verbosity": "medium", "prompt_cache_retention": "in_memory",
        "store": False, "metadata": {"a": "b"}, "user": "u",
        "response_format": {"type": "text"}, "something_new": [1], "seed": 1, "logit_bias": None,
        "safety_identifier": "s", "parallel_tool_calls": True, "chat_template_kwargs": {"enable_thinking": False},
    }
    answer = httpx.post(npud.base_url + "/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    tools = [{"type": "function", "function": {"name": f"{i:064}"}} for i in range(128)]
    answer = npud.post("/v1/chat/completions/render", messages=HELLO, tools=tools)
    assert answer.status_code == 200 and f"{127:064}" in answer.json()["prompt"]


def test_errors_have_openais_classes(npud, client):
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, [{"role": "captain", "content": "x"}])
    assert caught.value.param == "messages[0].role" and caught.value.code == "invalid_value"
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, [{"role": "user", "content": "word " * 5000}])
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "messages"
    other = openai.OpenAI(base_url=npud.base_url + "/v2", api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError):
        create(other)


def test_a_megabyte_of_messages_is_read(npud):
    messages = [{"role": "user", "content": "ab " * 330}, {"role": "assistant", "content": "cd"}] * 1000
    answer = npud.post("/v1/chat/completions", messages=[*messages, *HELLO], max_tokens=1)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == "messages"
    answer = npud.post("/v1/chat/completions/render", messages=[*messages[:1600], *HELLO])
    assert answer.status_code == 200 and answer.json()["prompt"].count("<|im_start|>") == 1603  # with SmolLM2's system


def test_json_that_is_nested_too_deep_is_refused(npud):
    def post(metadata):
        body = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "x": ' + metadata.encode() + b"}"
        return httpx.post(npud.base_url + "/v1/chat/completions", content=body,
                          headers={"Content-Type": "application/json"}, timeout=60)
    assert post("[" * 63 + "]" * 63).status_code == 200
    answer = post("[" * 64 + "]" * 64)
    assert answer.status_code == 400 and "64 levels" in answer.json()["error"]["message"]


# ---- text ----


def test_tokens_and_text_go_back_and_forth(npud):
    text = "Grüße, 世界 🌧️! <|im_end|>\n\0 x"
    tokens = npud.post("/tokenize", content=text).json()["tokens"]
    assert npud.post("/detokenize", tokens=tokens).json() == {"content": text}
    as_text = npud.post("/tokenize", content="<|im_end|>", parse_special=False).json()["tokens"]
    assert npud.post("/tokenize", content="<|im_end|>").json()["tokens"] == [2] and len(as_text) > 1
    assert npud.post("/tokenize", content="").json() == {"tokens": []}
    assert npud.post("/detokenize", tokens=[]).json() == {"content": ""}


@pytest.mark.parametrize("path, body, param", [
    ("/tokenize", {}, "content"),
    ("/tokenize", {"content": 1}, "content"),
    ("/tokenize", {"content": "x", "add_special": 1}, "add_special"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": [0, -1]}, "tokens[1]"),
    ("/detokenize", {"tokens": [49152]}, "tokens[0]"),
    ("/detokenize", {"tokens": ["x"]}, "tokens[0]"),
    ("/v1/chat/completions/render", {"messages": []}, "messages"),
])
def test_wrong_texts_and_tokens_are_refused(npud, path, body, param):
    answer = npud.post(path, **body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param

"""LiteLLM. The environment is as in openai.mjs."""
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched

import litellm  # noqa: E402

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}


def complete(name, **fields):
    return litellm.completion(model="openai/any", api_base=os.environ[name] + "/v1", api_key="none", temperature=0,
                              num_retries=0, **fields)


def check_streamed_chat():
    fields = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 12}
    whole = complete("NPUD_URL", **fields)
    chunks = list(complete("NPUD_URL", stream=True, stream_options={"include_usage": True}, **fields))
    total = litellm.stream_chunk_builder(chunks)
    assert total.choices[0].message.content == whole.choices[0].message.content != ""
    assert total.usage.completion_tokens == whole.usage.completion_tokens


def check_tool_call():
    messages = [{"role": "user", "content": os.environ["NPUD_TOOLS_PROMPT"]}]
    chunks = list(complete("NPUD_TOOLS_URL", messages=messages, tools=[WEATHER], stop=["\n"], stream=True))
    message = litellm.stream_chunk_builder(chunks).choices[0].message
    [call] = message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == json.loads(os.environ["NPUD_TOOLS_ARGUMENTS"])
    result = {"role": "tool", "tool_call_id": call.id, "content": "It rains. " * 12 + "It"}
    answer = complete("NPUD_TOOLS_URL", messages=[{"role": "user", "content": "x"}, message.model_dump(), result],
                      tools=[WEATHER], max_tokens=4)
    assert "rains" in answer.choices[0].message.content


def check_embeddings():
    answer = litellm.embedding(model="openai/any", api_base=os.environ["NPUD_URL"] + "/v1", api_key="none",
                               input=["a text", "another one"])
    assert [item["index"] for item in answer.data] == [0, 1] and answer.usage.prompt_tokens > 0


def check_errors():
    try:
        complete("NPUD_URL", messages=[{"role": "nobody", "content": "x"}])
    except litellm.BadRequestError as error:
        assert "messages[0].role" in str(error)
    else:
        raise AssertionError("a role that does not exist was taken")


for check in (check_streamed_chat, check_tool_call, check_embeddings, check_errors):
    check()
    print("passed:", check.__name__)

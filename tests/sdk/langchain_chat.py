"""LangChain. The environment is as in openai.mjs."""
import json
import os

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


@tool
def get_weather(city: str, days: int = 1) -> str:
    """The weather of a place"""
    return f"It rains in {city}. It rains in"


def open_chat(name, **fields):
    return ChatOpenAI(base_url=os.environ[name] + "/v1", api_key="none", model="any", temperature=0, max_retries=0, **fields)


def check_streamed_chat():
    chat = open_chat("NPUD_URL", max_tokens=12, stream_usage=True)
    whole = chat.invoke("Name a colour.")
    chunks = list(chat.stream("Name a colour."))
    assert len(chunks) > 3 and "".join(chunk.content for chunk in chunks) == whole.content != ""
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"] <= 12
    assert total.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]


def check_tool_call():
    expected = json.loads(os.environ["NPUD_TOOLS_ARGUMENTS"])
    chat = open_chat("NPUD_TOOLS_URL").bind_tools([get_weather])
    question = HumanMessage(os.environ["NPUD_TOOLS_PROMPT"])
    total = None
    for chunk in chat.stream([question], stop=["\n"]):
        total = chunk if total is None else total + chunk
    [call] = total.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", expected) and not total.invalid_tool_calls
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage) and result.tool_call_id == call["id"]
    answer = chat.invoke([HumanMessage("x"), total, result], max_tokens=4)
    assert isinstance(answer.content, str) and answer.content


def check_embeddings():
    embeddings = OpenAIEmbeddings(base_url=os.environ["NPUD_URL"] + "/v1", api_key="none", model="any", max_retries=0,
                                  check_embedding_ctx_length=False)  # which would fetch another model's tokenizer
    first, second = embeddings.embed_documents(["a text", "another one"])
    assert len(first) == len(second) and embeddings.embed_query("a text") == first


for check in (check_streamed_chat, check_tool_call, check_embeddings):
    check()
    print("passed:", check.__name__)

"""Conversations that between them use every role, tools, tool calls, content parts and reasoning, as lists of messages and
the other arguments of a chat template."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.\nTwo lines, \"quoted\", <tags> & 'apostrophes', ünïcode 天気 🌦.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, e.g. \"Zürich\""},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "limits": {
                    "type": "object",
                    "properties": {"low": {"type": "number", "default": -1.5}, "high": {"type": ["number", "null"]}},
                },
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
}

SYSTEM = {"role": "system", "content": "You are terse.\n\nNever   explain. {{ not_a_variable }} {% if %}"}
DEVELOPER = {"role": "developer", "content": "Answer in French."}
HELLO = {"role": "user", "content": "  Hello, Wörld! <|im_start|> 👋🏽\n"}
ANSWER = {"role": "assistant", "content": "Bonjour.\n\n- a\n- b  "}
AGAIN = {"role": "user", "content": "And again?\r\n\tTab."}
PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "First part."}, {"type": "text", "text": "\nSecond part. "}],
}
SYSTEM_PARTS = {"role": "system", "content": [{"type": "text", "text": "Terse, in parts."}]}
ANSWER_PARTS = {"role": "assistant", "content": [{"type": "text", "text": "An answer in a part."}]}
THOUGHT = {"role": "assistant", "content": "4", "reasoning_content": "Two and two\nis four."}
THOUGHT_INLINE = {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\n4"}


def call(arguments, name="get_weather", number=1):
    return {"id": f"call00{number:03}", "type": "function", "function": {"name": name, "arguments": arguments}}


ARGUMENTS = {"city": "Zürich", "days": 2, "limits": {"low": -0.5, "high": None}, "tags": ["a", "b\n"], "ok": True}
ASKS = {"role": "assistant", "content": "", "tool_calls": [call(ARGUMENTS)]}
ASKS_WITH_TEXT = {"role": "assistant", "content": "Let me look.", "tool_calls": [call({"city": "Bern"})]}
ASKS_WITHOUT_CONTENT = {"role": "assistant", "tool_calls": [call({"city": "Bern"})]}
ASKS_TWICE = {
    "role": "assistant",
    "content": "",
    "tool_calls": [call({"city": "Bern"}), call({}, name="clock", number=2)],
}
ASKS_IN_TEXT = {"role": "assistant", "content": "", "tool_calls": [call('{"city": "Bern", "days": 1}')]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"temperature": 21.5, "sky": "☀"}'}
RESULT_TWO = {"role": "tool", "tool_call_id": "call00002", "name": "clock", "content": "12:00"}
RESULT_PARTS = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": [{"type": "text", "text": "21"}]}
CONCLUDES = {"role": "assistant", "content": "It is 21.5 degrees."}
THANKS = {"role": "user", "content": "Thanks"}

TOOLS = [WEATHER, CLOCK]

# name: (messages, tools)
CONVERSATIONS = {
    "user": ([HELLO], None),
    "system": ([SYSTEM, HELLO], None),
    "developer": ([DEVELOPER, HELLO], None),
    "turns": ([SYSTEM, HELLO, ANSWER, AGAIN], None),
    "turns without system": ([HELLO, ANSWER, AGAIN, ANSWER, THANKS], None),
    "ends with assistant": ([SYSTEM, HELLO, ANSWER], None),
    "starts with assistant": ([ANSWER, HELLO], None),
    "two users": ([HELLO, AGAIN], None),
    "late system": ([HELLO, ANSWER, SYSTEM, AGAIN], None),
    "parts": ([PARTS], None),
    "parts everywhere": ([SYSTEM_PARTS, PARTS, ANSWER_PARTS, PARTS], None),
    "parts and strings": ([SYSTEM, PARTS, ANSWER, HELLO], None),
    "reasoning": ([HELLO, THOUGHT, AGAIN], None),
    "reasoning at the end": ([HELLO, THOUGHT, AGAIN, THOUGHT], None),
    "inline reasoning": ([HELLO, THOUGHT_INLINE, AGAIN], None),
    "tools": ([HELLO], TOOLS),
    "tools and system": ([SYSTEM, HELLO, ANSWER, AGAIN], TOOLS),
    "one tool": ([HELLO], [CLOCK]),
    "no tools": ([HELLO], []),
    "tool call": ([SYSTEM, HELLO, ASKS], TOOLS),
    "tool result": ([SYSTEM, HELLO, ASKS, RESULT], TOOLS),
    "tool result without tools": ([HELLO, ASKS, RESULT], None),
    "tool round trip": ([SYSTEM, HELLO, ASKS, RESULT, CONCLUDES, THANKS], TOOLS),
    "tool call with text": ([HELLO, ASKS_WITH_TEXT, RESULT, CONCLUDES], TOOLS),
    "tool call without content": ([HELLO, ASKS_WITHOUT_CONTENT, RESULT], TOOLS),
    "two tool calls": ([HELLO, ASKS_TWICE, RESULT, RESULT_TWO, CONCLUDES, THANKS], TOOLS),
    "arguments in text": ([HELLO, ASKS_IN_TEXT, RESULT], TOOLS),
    "tool result in parts": ([HELLO, ASKS, RESULT_PARTS], TOOLS),
    "tool calls in sequence": ([HELLO, ASKS, RESULT, ASKS_WITH_TEXT, RESULT, CONCLUDES], TOOLS),
    "reasoning and tool call": ([HELLO, {**ASKS, "reasoning_content": "I must look."}, RESULT], TOOLS),
    "unknown role": ([HELLO, {"role": "critic", "content": "No."}], None),
    "empty": ([], None),
    "empty content": ([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}], None),
}

# What clients may add, on top of add_generation_prompt.
VARIABLES = {
    "plain": {},
    "prompt": {"add_generation_prompt": True},
    "thinking": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "no thinking": {"add_generation_prompt": True, "enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
}

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

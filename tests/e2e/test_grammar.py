"""Structured output: grammar and response_format of /v1/completions."""
import concurrent.futures
import json
import re

import httpx
import jsonschema
import pytest

from metrics_text import read_metrics

PROMPT = "<|im_start|>user\nTell me about a person.<|im_end|>\n<|im_start|>assistant\n"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "colours"],
    "additionalProperties": False,
}


def grammar(kind, value=None):
    return {"grammar": {"type": kind} if value is None else {"type": kind, "value": value}}


def ask(npud, fields, **more):
    answer = npud.complete(PROMPT, **{"max_tokens": 120, **fields, **more})
    return [(choice["text"], choice["finish_reason"]) for choice in answer["choices"]]


def refusal(npud, **fields):
    answer = npud.post(prompt=PROMPT, **fields)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


# ---- what comes matches ----


@pytest.mark.short
def test_greedy_output_matches_the_schema(npud):
    [(text, reason)] = ask(npud, grammar("json_schema", PERSON))
    assert reason == "stop"
    jsonschema.validate(json.loads(text), PERSON)


def test_response_format_is_the_same_as_grammar(npud):
    form = {"response_format": {
        "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}}
    assert ask(npud, form) == ask(npud, grammar("json_schema", PERSON))


def test_hot_output_matches_the_schema(npud):
    for text, reason in ask(npud, grammar("json_schema", PERSON), temperature=1.5, seed=1, n=8):
        assert reason == "stop"
        jsonschema.validate(json.loads(text), PERSON)


def test_choices_of_a_request_are_constrained_apart(npud):
    texts = [text for text, _ in ask(npud, grammar("regex", "[a-z]{1,12}"), temperature=1, seed=5, n=6)]
    assert len(set(texts)) > 1 and all(re.fullmatch("[a-z]{1,12}", text) for text in texts)


def test_json_object_is_an_object(npud):
    for fields in (grammar("json_object"), {"response_format": {"type": "json_object"}}):
        [(text, reason)] = ask(npud, fields, max_tokens=300)
        assert reason == "stop" and isinstance(json.loads(text), dict)


def test_regular_expression_matches_as_a_whole(npud):
    for pattern in ("(yes|no), [0-9]{3}!", "^[A-Z]{2}-[0-9]{1,6}/[a-f]$", "ä+ö \\(\"x\"\\)"):
        [(text, reason)] = ask(npud, grammar("regex", pattern), temperature=1, seed=2)
        assert reason == "stop" and re.fullmatch(pattern, text), text


def test_lark_grammar_is_kept_to(npud):
    lark = 'start: sum\nsum: NUMBER (" + " NUMBER){2,3} " = ?"\nNUMBER: /[1-9][0-9]?/\n'
    [(text, reason)] = ask(npud, grammar("lark", lark), temperature=1, seed=3)
    assert reason == "stop" and re.fullmatch(r"[1-9]\d?( \+ [1-9]\d?){2,3} = \?", text), text


def test_response_format_text_constrains_nothing(npud):
    assert ask(npud, {"response_format": {"type": "text"}}, max_tokens=8) == ask(npud, {}, max_tokens=8)


# ---- with other fields ----


def test_streamed_text_is_the_whole_answers(npud):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 120, "stream": True, **grammar("json_schema", PERSON)}
    answer = httpx.post(npud.base_url + "/v1/completions", json=body, timeout=120)
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [("".join(choice["text"] for choice in choices), choices[-1]["finish_reason"])] == ask(
        npud, grammar("json_schema", PERSON))


def test_the_end_comes_only_where_the_grammar_may_end(npud):
    """What the model would end at once if it could."""
    ended = PROMPT + "Yes.<|im_end|>\n<|im_start|>assistant\nYes."
    answer = npud.complete(ended, **grammar("regex", "[ab]{5,7}"))
    assert re.fullmatch("[ab]{5,7}", answer["choices"][0]["text"])
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_ignore_eos_goes_on_as_long_as_the_grammar_does(npud):
    [(text, reason)] = ask(npud, grammar("regex", "[a-c]{1,30}"), ignore_eos=True)
    assert reason == "stop" and re.fullmatch("[a-c]{30}", text)


def test_max_tokens_cuts_with_length_unless_all_is_there(npud):
    assert ask(npud, grammar("regex", "[a-c]{30}"), max_tokens=2)[0][1] == "length"
    [(text, reason)] = ask(npud, grammar("regex", "a"), max_tokens=1)
    assert (text, reason) == ("a", "stop")


def test_bias_and_penalties_choose_among_what_is_allowed(npud):
    [a] = npud.post("/tokenize", content="a", add_special=False).json()["tokens"]
    [(text, _)] = ask(npud, {**grammar("regex", "a|b"), "logit_bias": {str(a): -100}})
    assert text == "b"
    [(text, _)] = ask(npud, {**grammar("regex", "a"), "logit_bias": {str(a): -100}})
    assert text == "a"
    [(text, _)] = ask(npud, {**grammar("regex", "[ab]{4}"), "repeat_penalty": 10})
    assert re.fullmatch("[ab]{4}", text)


def test_logprobs_are_the_models(npud):
    answer = npud.complete(PROMPT, logprobs=3, max_tokens=120, **grammar("json_schema", PERSON))
    logprobs = answer["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == answer["choices"][0]["text"]
    assert all(value <= 0 for value in logprobs["token_logprobs"])
    free = npud.complete(PROMPT, logprobs=3, max_tokens=1)["choices"][0]["logprobs"]
    assert free["top_logprobs"][0].items() <= logprobs["top_logprobs"][0].items()


def test_a_constrained_answer_is_the_same_beside_others(npud):
    alone = ask(npud, grammar("json_schema", PERSON), temperature=0.8, seed=11)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = [pool.submit(ask, npud, grammar("json_schema", PERSON), temperature=0.8, seed=11) for _ in range(4)]
        others = [pool.submit(ask, npud, {}, max_tokens=40, temperature=1) for _ in range(2)]
        assert all(task.result() == alone for task in together)
        assert all(task.result() for task in others)


def test_a_grammar_goes_on_where_it_was_after_being_moved_out(start):
    """Generations that need more KV memory than there is, each as if it were alone."""
    npud = start("--context", "128", "--parallel", "4", "--kv-memory", "7M")
    fields = {**grammar("regex", "([a-z]+[ ,.]){70,80}"), "max_tokens": 60}
    alone = [ask(npud, fields, temperature=0.9, seed=seed) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: ask(npud, fields, temperature=0.9, seed=seed), range(4)))
    assert together == alone
    assert read_metrics(npud)["npud_generations_moved_out_total"] > 0


def test_clients_that_go_leave_nothing_behind(npud):
    body = {"prompt": PROMPT, "max_tokens": 400, "stream": True, **grammar("regex", "[a-z ]{2000,}")}
    for pieces in (0, 1, 5):
        with httpx.stream("POST", npud.base_url + "/v1/completions", json=body, timeout=120) as answer:
            for _, _ in zip(range(pieces), answer.iter_lines()):
                pass
    [(text, reason)] = ask(npud, grammar("regex", "b+"), max_tokens=5)
    assert set(text) == {"b"} and reason in ("stop", "length")


def test_time_that_is_over_ends_a_grammar(npud):
    answer = npud.post(prompt=PROMPT, max_tokens=2000, timeout_ms=300, **grammar("regex", "[a-z ]{2000,}"))
    assert answer.status_code == 504


def test_a_dead_end_is_the_grammars_fault(npud):
    """What no token of the model continues is found when it is met."""
    error = refusal(npud, **grammar("lark", 'start: "a" <|im_end|> "b"'))
    assert error["param"] == "grammar.value" and "no token" in error["message"], error


def test_an_end_that_the_grammar_names_ends_it(npud):
    assert ask(npud, grammar("lark", 'start: "a" <|im_end|>')) == [("a", "stop")]


def test_hostile_grammars_are_refused_quickly(npud):
    patterns = [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(1, 60)]
    for fields in (grammar("json_schema", {"allOf": patterns}), grammar("json_schema", {"items": {"maxItems": 10**9}}),
                   grammar("lark", "start: " + "(" * 20000 + '"a"' + ")" * 20000), grammar("regex", "(" * 60000),
                   grammar("json_schema", {"multipleOf": 99999989}), grammar("regex", "x" * 70000)):
        assert refusal(npud, **fields)["param"] == "grammar.value"
    assert npud.text("Hello", max_tokens=1)


# ---- what is refused ----


@pytest.mark.short
@pytest.mark.parametrize("fields, param, part", [
    (grammar("json_schema", {"type": "objekt"}), "grammar.value", "objekt"),
    (grammar("regex", "(a"), "grammar.value", "unclosed group"),
    (grammar("lark", 'start: "a" b'), "grammar.value", 'unknown name: "b"'),
    (grammar("lark", 'start: "a"\n\n"b"'), "grammar.value", "line 3"),
    (grammar("gbnf", "root ::= x"), "grammar.type", "json_schema, json_object, regex or lark"),
    (grammar("regex"), "grammar.value", "is required"),
    (grammar("regex", 7), "grammar.value", "a string"),
    (grammar("json_schema", []), "grammar.value", "a JSON Schema"),
    (grammar("json_object", {}), "grammar.value", "must not be given"),
    ({"grammar": "x"}, "grammar", "an object"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "text, json_object or json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is required"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema",
     "is required"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format.json_schema.name",
     "is required"),
    ({"response_format": {"type": "json_object"}, **grammar("regex", "a")}, "grammar", "together"),
    ({"stop": ["x"], **grammar("regex", "a")}, "stop", "would not match"),
])
def test_refused_with_the_place(npud, fields, param, part):
    error = refusal(npud, **fields)
    assert error["param"] == param and part in error["message"], error

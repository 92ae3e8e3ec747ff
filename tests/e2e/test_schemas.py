"""The real model under schemas of every kind: what it ends validates, however hot it is."""
import concurrent.futures
import json
import os
import pathlib

import jsonschema
import pytest

import schema_makers

PROMPT = "<|im_start|>user\nWrite a record as JSON.<|im_end|>\n<|im_start|>assistant\n"
SUITE = pathlib.Path(os.environ.get("NPUD_TEST_SCHEMAS", "missing"))


def answer_to(npud, schema, temperature, max_tokens=100):
    """Status, text, finish reason."""
    answer = npud.post(
        prompt=PROMPT, max_tokens=max_tokens, temperature=temperature, seed=1,
        grammar={"type": "json_schema", "value": schema})
    body = answer.json()
    if answer.status_code != 200:
        return answer.status_code, body["error"]["message"], None
    return 200, body["choices"][0]["text"], body["choices"][0]["finish_reason"]


def check(npud, schemas, temperature):
    """How many of the schemas were taken, and how many answers ended."""
    taken = ended = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda schema: answer_to(npud, schema, temperature), schemas)
        for schema, (status, text, reason) in zip(schemas, answers):
            if status != 200:
                assert status == 400 and text.startswith("grammar.value: at #"), (schema, status, text)
                continue
            taken += 1
            if reason == "stop":
                ended += 1
                validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
                problem = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(text)))
                assert problem is None, (schema, text, problem)
            else:
                assert reason == "length"
    return taken, ended


def made(numbers):
    return [schema_makers.schema(number) for number in numbers]


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_what_a_few_schemas_end_with_validates(npud, temperature):
    taken, ended = check(npud, made(range(8)), temperature)
    assert taken == 8 and ended >= 2


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0, 0.8, 1.5])
def test_what_200_schemas_end_with_validates(npud, temperature):
    taken, ended = check(npud, made(range(200)), temperature)
    assert taken == 200 and ended >= 67


@pytest.mark.long
@pytest.mark.skipif(not SUITE.is_dir(), reason="the JSON Schema Test Suite is not there")
def test_what_the_suite_ends_with_validates(npud):
    groups = [group for path in sorted((SUITE / "draft2020-12").glob("*.json")) for group in json.loads(path.read_text())]
    taken, ended = check(npud, [group["schema"] for group in groups], 1.5)
    assert taken > len(groups) * 0.4 and ended > taken / 3

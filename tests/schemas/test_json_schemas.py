"""What ends under a JSON schema validates: the schemas of the JSON Schema Test Suite, walked through by chance."""
import json
import os
import pathlib
import re
import subprocess

import jsonschema
import pytest

BUILD = pathlib.Path(os.environ["NPUD_TEST_BUILD"])
SUITE = pathlib.Path(os.environ["NPUD_TEST_SCHEMAS"])
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
JSON_SCHEMA = 0  # enum text_grammar_kind
# Patterns that Python reads otherwise than ECMA-262, which the specifications name.
OTHERWISE_IN_PYTHON = re.compile(r'\\\\[WDS]|\\\\[pP]\{')


def suite(draft):
    """Name and schema of each group of tests."""
    for path in sorted((SUITE / draft).rglob("*.json")):
        for group in json.loads(path.read_text()):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            if not OTHERWISE_IN_PYTHON.search(json.dumps(schema)):
                yield f"{path.name}: {group['description']}", schema


class Walker:
    """A process that answers a line with a line."""

    def __init__(self):
        self.process = subprocess.Popen([BUILD / "tests" / "walk_grammar"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, text, kind=JSON_SCHEMA, walks=12, tokens=150):
        question = {"kind": kind, "text": text, "walks": walks, "tokens": tokens}
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def walker():
    walker = Walker()
    yield walker
    walker.process.stdin.close()
    assert walker.process.wait(10) == 0


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_ends_validates(walker, draft):
    taken = ended = 0
    for name, schema in suite(draft):
        answer = walker.ask(json.dumps(schema))
        if "message" in answer:
            assert answer["status"] in ("invalid", "limit"), (name, answer)
            assert answer["message"].startswith("at #"), (name, answer)
            continue
        taken += 1
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
        for text in (walk["text"] for walk in answer["walks"] if walk["stopped"]):
            ended += 1
            problem = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(text)))
            assert problem is None, (name, schema, text, problem)
    # Much of each draft can be kept to (the rest has not, if, dependencies, references elsewhere, ...).
    assert taken > len(list(suite(draft))) * 0.4 and ended > taken * 8


def test_every_kind_of_value_is_reached(walker):
    texts = [walk["text"] for walk in walker.ask("{}", walks=200)["walks"] if walk["stopped"]]
    kinds = {type(json.loads(text)) for text in texts}
    assert kinds == {dict, list, str, int, float, bool, type(None)}, kinds


TAKEN = [
    # Patterns apply to named properties as well.
    {"type": "object", "properties": {"xa": {"type": "string"}}, "patternProperties": {"^x": {"maxLength": 2}}, "required": ["xa"]},
    {"required": ["foo"], "properties": {"foo": {"type": "array", "maxItems": 3}}, "patternProperties": {"f.o": {"minItems": 2}}},
    {"allOf": [{"patternProperties": {"^x": {"type": "string"}}}, {"properties": {"xa": {"maxLength": 1}}, "required": ["xa"]}],
     "type": "object"},
    # Names that no property is called are not all alike.
    {"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"ab": {"type": "null"}}},
    {"type": "object", "properties": {"uniqueItems": False, "format": {"type": "null"}, "default": {"format": "uri"}},
     "required": ["default"]},
    {"allOf": [{"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"a": True}},
               {"properties": {"b": True}, "required": ["b"]}]},
    {"allOf": [{"type": "array", "prefixItems": [True, True], "items": False}, {"prefixItems": [True, True, True], "minItems": 2}]},
    # What tells two schemas apart may stand behind references.
    {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
     "$defs": {"cat": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
               "dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "hound"]}}, "required": ["kind"]}}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
     "anyOf": [{"required": ["b"]}, {"properties": {"a": {"minimum": 5}}}]},
    {"type": "number", "exclusiveMinimum": 0.1, "maximum": 0.3},
    {"type": "integer", "multipleOf": 2.5, "minimum": 0, "maximum": 99},
    {"type": "array", "uniqueItems": False, "minItems": 1.0, "maxItems": 2.0},
    {"type": "string", "format": "uri"},
    {"type": "string", "format": "a-format-that-nobody-knows"},
    {"enum": ["a", "b", 7, [1.50]], "not-a-keyword": 1},
]


@pytest.mark.parametrize("schema", TAKEN, ids=range(len(TAKEN)))
def test_what_meets_is_kept_to(walker, schema):
    answer = walker.ask(json.dumps(schema), walks=60)
    assert "walks" in answer, answer
    texts = [walk["text"] for walk in answer["walks"] if walk["stopped"]]
    assert len(texts) > 20
    for text in texts:
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("schema, place", [
    ({"allOf": [{"patternProperties": {"^x": {}}}, {"properties": {"b": {}}, "additionalProperties": False}]}, "at #: patternProp"),
    ({"enum": [1, {"b": 2}], "patternProperties": {"^x": {"minLength": 1}}}, "at #: patternProp"),
    ({"properties": {"a": {"minProperties": 2}}}, "at #/properties/a/minProperties: "),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "at #: oneOf"),
    ({"items": {"if": {}, "then": {}}}, 'at #/items: not supported: "if", "then"'),
    ({"items": {"format": "idn-email"}}, "at #/items/format: "),
    ({"items": {"$ref": "other.json"}}, "at #/items/$ref: "),
    ({"properties": {"a": {"pattern": "("}}}, "at #/properties/a: "),
    ({"items": {"type": "string", "minLength": 3, "maxLength": 2}, "type": "array", "minItems": 1}, "at #: Unsatisfiable"),
    ({"type": "object", "properties": {"a": False, "b": {"maxProperties": 1, "properties": {"c": {}}}}},
     "at #/properties/b: min/maxProperties"),
])
def test_what_cannot_be_kept_to_is_refused_with_its_place(walker, schema, place):
    answer = walker.ask(json.dumps(schema))
    assert answer["status"] == "invalid" and answer["message"].startswith(place), answer

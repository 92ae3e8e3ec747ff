"""Schemas as programs write them: records of people, orders, settings, calls of functions. The same ones each time."""
import random

NAMES = ("name", "title", "id", "city", "street", "status", "kind", "unit", "note", "amount", "price", "count", "tags", "when",
         "email", "active", "owner", "items", "location", "score", "language", "colour", "code", "parent", "options", "range")
WORDS = ("open", "closed", "red", "green", "blue", "celsius", "fahrenheit", "low", "medium", "high", "de", "en", "EUR", "USD")


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.uses_tree = False

    def string(self):
        return self.random.choice((
            {"type": "string"},
            {"type": "string", "minLength": 1, "maxLength": self.random.randint(2, 20)},
            {"type": "string", "enum": self.random.sample(WORDS, self.random.randint(1, 5))},
            {"type": "string", "pattern": self.random.choice(("^[A-Z]{2,3}-[0-9]{2,4}$", "^[a-z_]+$", "^\\+?[0-9]{3,9}$"))},
            {"type": "string", "format": self.random.choice(("date", "time", "uuid", "ipv4", "email", "hostname", "uri"))},
            {"const": self.random.choice(WORDS)},
        ))

    def number(self):
        low = self.random.randint(-20, 20)
        return self.random.choice((
            {"type": "integer", "minimum": low, "maximum": low + self.random.randint(0, 500)},
            {"type": "integer", "exclusiveMinimum": low, "multipleOf": 5},
            {"type": "number", "minimum": low, "maximum": low + 1.5},
            {"type": ["integer", "null"], "minimum": 0, "maximum": 99},
            {"enum": [1, 2.5, 40]},
        ))

    def array(self, depth):
        least = self.random.randint(0, 2)
        items = {"items": self.value(depth - 1), "minItems": least, "maxItems": least + self.random.randint(0, 3)}
        tuples = {"prefixItems": [self.number(), self.string()], "items": False, "minItems": 2}
        return {"type": "array", **self.random.choice((items, items, tuples))}

    def record(self, depth):
        names = self.random.sample(NAMES, self.random.randint(1, 5))
        required = [name for name in names if self.random.random() < 0.7]
        properties = {name: self.value(depth - 1) for name in names}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def choice(self, depth):
        variants = []
        for kind in self.random.sample(WORDS, 2):
            record = self.record(depth - 1)
            record["properties"] = {"type": {"const": kind}, **record["properties"]}
            variants.append({**record, "required": ["type", *record["required"]]})
        return {self.random.choice(("anyOf", "oneOf")): variants}

    def table(self, depth):
        return {"type": "object", "additionalProperties": self.value(depth - 1), "maxProperties": 3}

    def tree(self, _depth):
        self.uses_tree = True
        return {"$ref": "#/$defs/node"}

    def both(self, depth):
        first, second = self.record(depth), self.record(depth)
        for part in (first, second):
            del part["additionalProperties"]
        second["properties"] = {f"{name}_2": schema for name, schema in second["properties"].items()}
        second["required"] = [f"{name}_2" for name in second["required"]]
        return {"allOf": [first, second]}

    def value(self, depth):
        if depth <= 0 or self.random.random() < 0.5:
            return self.random.choice((self.string, self.string, self.number, lambda: {"type": "boolean"}))()
        return self.random.choice((self.array, self.record, self.record, self.choice, self.table, self.tree))(depth)


def schema(number):
    """The schema of this number: an object at the top, as programs want it."""
    maker = Maker(number)
    made = maker.random.choice((maker.record, maker.record, maker.record, maker.choice, maker.both))(3)
    if maker.uses_tree:
        node = {"type": "object", "properties": {
            "value": {"type": "integer", "minimum": 0, "maximum": 9},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
            "required": ["value"], "additionalProperties": False}
        made["$defs"] = {"node": node}
    return made

//! What of a JSON Schema is refused before the grammar library sees it: what would not be kept to, and what would take
//! too much time or memory.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::interface::{Failure, Status};
use crate::json_schema::{children, escaped, invalid, FORMATS, OTHER_FORMATS};

/// Grammars write each item and property down.
const MAX_COUNT: u64 = 4096;
/// Characters of a string: more would be more states than a lexer may have.
const MAX_LENGTH: u64 = 10_000;
/// Patterns and formats that one string must match, and the numbers that one must be a multiple of, multiplied: work
/// grows exponentially with the one and in proportion to the other.
const MAX_PATTERNS_THAT_MEET: f64 = 8.0;
const MAX_MULTIPLE_OF: f64 = 10_000.0;
/// Bounds of numbers: what every JSON reader takes exactly (2^53); beyond 2^63 the grammar library would take others.
const MAX_BOUND: f64 = 9_007_199_254_740_992.0;
/// Each is compared with each other.
const MAX_PATTERN_PROPERTIES: usize = 32;
/// Of the squares of how many properties each object has: the time that their grammar takes grows so. 2000 in one
/// object.
const MAX_PROPERTY_WORK: u64 = 4_000_000;

const DRAFTS: [&str; 6] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/schema",
];

struct Walk<'a> {
    root: &'a Value,
    seen: HashSet<String>,
    todo: Vec<(String, &'a Value)>,
    property_work: u64,
    has_references: bool,
    inner_id: Option<String>,
}

/// Refuses what would not be kept to.
pub fn check(root: &Value) -> Result<(), Failure> {
    if let Some(draft) = root.get("$schema") {
        let name = draft.as_str().unwrap_or_default().trim_end_matches('#');
        if !DRAFTS.contains(&name) {
            let known = DRAFTS.join(", ");
            return Err(invalid("#/$schema", format!("{draft} is not one of the drafts that are known: {known}")));
        }
    }
    let mut walk =
        Walk { root, seen: HashSet::new(), todo: Vec::new(), property_work: 0, has_references: false, inner_id: None };
    walk.todo.push(("#".into(), root));
    while let Some((place, schema)) = walk.todo.pop() {
        if walk.seen.insert(place.clone()) {
            walk.check_one(&place, schema)?;
        }
    }
    if let Some(place) = walk.inner_id.filter(|_| walk.has_references) {
        let message = "an id inside the schema, which changes what $ref means, is not supported beside $ref";
        return Err(invalid(&place, message));
    }
    Meeting { root, of_references: HashMap::new() }.of(root, "#").map(|_| ())
}

impl<'a> Walk<'a> {
    fn check_one(&mut self, place: &str, schema: &'a Value) -> Result<(), Failure> {
        let Value::Object(object) = schema else {
            return match schema {
                Value::Bool(_) => Ok(()),
                _ => Err(invalid(place, "a schema must be an object or a boolean")),
            };
        };
        let n_properties = object.get("properties").and_then(Value::as_object).map_or(0, Map::len) as u64;
        self.property_work += (n_properties + count_required(object)).pow(2);
        self.property_work += ["const", "enum"].iter().filter_map(|key| object.get(*key)).map(value_work).sum::<u64>();
        if self.property_work > MAX_PROPERTY_WORK {
            return Err(Failure::new(Status::Limit, format!("at {place}: there are too many properties in all")));
        }
        for (keyword, value) in object {
            self.check_keyword(place, object, keyword, value)?;
        }
        self.todo.extend(children(object, place));
        Ok(())
    }

    fn check_keyword(
        &mut self,
        place: &str,
        object: &Map<String, Value>,
        keyword: &str,
        value: &Value,
    ) -> Result<(), Failure> {
        let at = format!("{place}/{}", escaped(keyword));
        match keyword {
            "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                check_count(&at, value, MAX_COUNT)?;
                let most = count_required(object).max(1);
                if keyword == "minProperties" && value.as_u64().is_some_and(|least| least > most) {
                    return Err(invalid(&at, "more than 1 is supported for properties only that are required"));
                }
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
                if value.as_f64().is_some_and(|bound| bound.abs() > MAX_BOUND) =>
            {
                let message = format!("at {at}: {value} lies outside of -2^53 to 2^53, the bounds that are supported");
                return Err(Failure::new(Status::Limit, message));
            }
            "minLength" | "maxLength" => check_count(&at, value, MAX_LENGTH)?,
            "patternProperties" if value.as_object().is_some_and(|object| object.len() > MAX_PATTERN_PROPERTIES) => {
                let message = format!("at {at}: more than {MAX_PATTERN_PROPERTIES} patterns are not supported");
                return Err(Failure::new(Status::Limit, message));
            }
            "format" if value.as_str().is_some_and(|name| OTHER_FORMATS.contains(&name)) => {
                let known = FORMATS.join(", ");
                return Err(invalid(&at, format!("the format {value} is not supported, only {known} and uri")));
            }
            "$ref" => self.follow(&at, value)?,
            "$id" | "id" if place != "#" && value.is_string() => self.inner_id = Some(at),
            _ => {}
        }
        Ok(())
    }

    fn follow(&mut self, at: &str, reference: &Value) -> Result<(), Failure> {
        let text = reference.as_str().ok_or_else(|| invalid(at, "a reference must be a string"))?;
        self.has_references = true;
        let Some(pointer) = text.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'))
        else {
            return Err(invalid(at, format!("{reference}: only references inside the schema (#/...) are supported")));
        };
        if pointer.contains(['~', '%']) {
            return Err(invalid(at, format!("{reference}: escapes in references are not supported")));
        }
        let target = if pointer == "/" { Some(self.root) } else { self.root.pointer(pointer) };
        let target = target.ok_or_else(|| invalid(at, format!("{reference} is not there")))?;
        self.todo.push((text.to_owned(), target));
        Ok(())
    }
}

fn count_required(object: &Map<String, Value>) -> u64 {
    object.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64
}

fn check_count(at: &str, value: &Value, limit: u64) -> Result<(), Failure> {
    match value.as_f64() {
        Some(number) if number > limit as f64 => Err(Failure::new(
            Status::Limit,
            format!("at {at}: {value} is more than {limit}, the most that is supported"),
        )),
        Some(number) if number >= 0.0 => Ok(()),
        _ => Err(invalid(at, "it must be a number of at least 0")),
    }
}

/// The squares of how many members the objects in a value have: 0 without any.
fn value_work(value: &Value) -> u64 {
    match value {
        Value::Array(list) => list.iter().map(value_work).sum(),
        Value::Object(object) => 1 + (object.len() as u64).pow(2) + object.values().map(value_work).sum::<u64>(),
        _ => 0,
    }
}

// ---- what meets in one value ----

/// At the worst place in and below a schema.
#[derive(Clone, Copy)]
struct Worst {
    patterns: f64,
    multiple_of: f64,
    /// There are patternProperties; there are additionalProperties.
    names_by_pattern: bool,
    names_others: bool,
    /// These two meet: the library does not apply the others' schema to what the patterns name.
    names_meet: bool,
}

const NOTHING: Worst =
    Worst { patterns: 0.0, multiple_of: 1.0, names_by_pattern: false, names_others: false, names_meet: false };

impl Worst {
    /// Of schemas for the same value.
    fn and(self, other: Worst) -> Worst {
        let meet = (self.names_by_pattern && other.names_others) || (self.names_others && other.names_by_pattern);
        Worst {
            patterns: self.patterns + other.patterns,
            multiple_of: self.multiple_of * other.multiple_of,
            names_meet: meet || self.names_meet || other.names_meet,
            ..self.or(other)
        }
    }

    /// Of schemas for values that are different, or of which one applies.
    fn or(self, other: Worst) -> Worst {
        Worst {
            patterns: self.patterns.max(other.patterns),
            multiple_of: self.multiple_of.max(other.multiple_of),
            names_by_pattern: self.names_by_pattern || other.names_by_pattern,
            names_others: self.names_others || other.names_others,
            names_meet: self.names_meet || other.names_meet,
        }
    }
}

struct Meeting<'a> {
    root: &'a Value,
    /// None while it is being found: a schema that leads back to itself brings nothing new.
    of_references: HashMap<&'a str, Option<Worst>>,
}

impl<'a> Meeting<'a> {
    fn of(&mut self, schema: &'a Value, place: &str) -> Result<Worst, Failure> {
        let Value::Object(object) = schema else { return Ok(NOTHING) };
        let patterns = ["pattern", "format"].iter().filter(|key| object.contains_key(**key)).count() as f64;
        let own = Worst {
            patterns,
            multiple_of: object.get("multipleOf").map_or(1.0, significant_digits),
            names_by_pattern: object.contains_key("patternProperties"),
            names_others: object.get("additionalProperties").is_some_and(|others| *others != Value::Bool(true)),
            names_meet: false,
        };
        let mut all = NOTHING;
        let (mut any, mut one, mut elsewhere) = (NOTHING, NOTHING, own);
        for (below, child) in children(object, place) {
            let worst = self.of(child, &below)?;
            let keyword = &below[place.len()..];
            if keyword.starts_with("/allOf/") {
                all = all.and(worst);
            } else if keyword.starts_with("/anyOf/") {
                any = any.or(worst);
            } else if keyword.starts_with("/oneOf/") {
                one = one.or(worst);
            } else {
                elsewhere = elsewhere.or(worst);
            }
        }
        let referred = self.of_reference(object.get("$ref"))?;
        // An object that is a value has no other names.
        let has_objects =
            ["const", "enum"].iter().filter_map(|key| object.get(*key)).any(|value| value_work(value) > 0);
        let values = Worst { names_others: has_objects, ..NOTHING };
        let worst = all.and(any).and(one).and(referred).and(elsewhere).and(values);
        if worst.patterns > MAX_PATTERNS_THAT_MEET {
            let message =
                format!("more than {MAX_PATTERNS_THAT_MEET} patterns and formats may meet in one string here");
            return Err(Failure::new(Status::Limit, format!("at {place}: {message}")));
        }
        if worst.multiple_of > MAX_MULTIPLE_OF {
            let message = format!("multipleOf is supported up to {MAX_MULTIPLE_OF}, powers of ten left out");
            return Err(Failure::new(Status::Limit, format!("at {place}: {message}")));
        }
        if worst.names_meet {
            let message = "patternProperties and additionalProperties of two schemas that both apply are not supported";
            return Err(invalid(place, message));
        }
        Ok(worst)
    }

    fn of_reference(&mut self, reference: Option<&'a Value>) -> Result<Worst, Failure> {
        let Some(text) = reference.and_then(Value::as_str) else { return Ok(NOTHING) };
        if let Some(known) = self.of_references.get(text) {
            return Ok(known.unwrap_or(NOTHING));
        }
        self.of_references.insert(text, None);
        let pointer = text.trim_start_matches('#');
        let target = if pointer == "/" { Some(self.root) } else { self.root.pointer(pointer) };
        let worst = target.map_or(Ok(NOTHING), |schema| self.of(schema, text))?;
        self.of_references.insert(text, Some(worst));
        Ok(worst)
    }
}

/// 25 of 0.0025 and of 2500: how many remainders there are to tell apart.
fn significant_digits(number: &Value) -> f64 {
    let text = number.to_string();
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').parse().unwrap_or(1.0)
}

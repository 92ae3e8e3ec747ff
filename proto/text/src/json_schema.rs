//! JSON Schema: what of it can be kept to, with a place for each fault, and the way to a parser.
//!
//! Sources: the specifications of drafts 4, 6, 7, 2019-09 and 2020-12.

use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::TokenParser;
use serde_json::{json, Map, Value};

use crate::grammar::{build, with_layout};
use crate::interface::{Failure, Status};
use crate::json_schema_check::check;
use crate::json_schema_rewrite::rewrite;
use crate::vocabulary::Vocabulary;

/// How long subschemas are compiled by themselves to find the one that is at fault.
const PROBING: Duration = Duration::from_millis(300);
/// What probes call the schema.
const PROBED: &str = "probed";

pub const FORMATS: [&str; 9] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Formats of the specifications that are not kept to. Others have no meaning that is agreed on.
pub const OTHER_FORMATS: [&str; 9] = [
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
];
pub fn compile(vocabulary: &Vocabulary, schema: Value) -> Result<TokenParser, Failure> {
    let schema = prepare(schema)?;
    check(&schema)?;
    build(vocabulary, TopLevelGrammar::from_json_schema(schema.clone())).map_err(|failure| {
        let place = locate(vocabulary, &schema, &failure.message);
        Failure::new(failure.status, format!("at {place}: {}", in_other_words(&failure.message)))
    })
}

/// The schema as the grammar library takes it.
pub fn prepare(schema: Value) -> Result<Value, Failure> {
    match schema {
        Value::Object(_) => {
            let mut schema = schema;
            rewrite(&mut schema);
            Ok(with_layout(schema))
        }
        Value::Bool(true) => Ok(with_layout(json!({}))),
        Value::Bool(false) => Err(invalid("#", "the schema is false: nothing matches it")),
        _ => Err(invalid("#", "a schema must be an object or a boolean")),
    }
}

/// Of what the library says: without options that there are not here.
fn in_other_words(said: &str) -> String {
    if let Some(keywords) = said.strip_prefix("Unimplemented keys: [").and_then(|rest| rest.strip_suffix(']')) {
        return format!("not supported: {keywords}");
    }
    if said.starts_with("oneOf constraints are not supported") {
        return "oneOf is supported only where it is plain that no value matches two of its schemas; try anyOf".into();
    }
    said.to_owned()
}

pub fn invalid(place: &str, message: impl std::fmt::Display) -> Failure {
    Failure::new(Status::Invalid, format!("at {place}: {message}"))
}

// ---- keywords ----

enum Children {
    One,
    List,
    /// One, or in older drafts a list.
    OneOrList,
    Named,
}

/// Keywords whose values hold schemas that apply.
const APPLICATORS: [(&str, Children); 9] = [
    ("properties", Children::Named),
    ("patternProperties", Children::Named),
    ("additionalProperties", Children::One),
    ("items", Children::OneOrList),
    ("additionalItems", Children::One),
    ("prefixItems", Children::List),
    ("allOf", Children::List),
    ("anyOf", Children::List),
    ("oneOf", Children::List),
];

/// The schemas right below one, with their places.
pub fn children<'a>(schema: &'a Map<String, Value>, place: &str) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    for (keyword, kind) in &APPLICATORS {
        let Some(value) = schema.get(*keyword) else { continue };
        let below = format!("{place}/{keyword}");
        match (kind, value) {
            (Children::Named, Value::Object(named)) => {
                found.extend(named.iter().map(|(name, child)| (format!("{below}/{}", escaped(name)), child)));
            }
            (Children::List | Children::OneOrList, Value::Array(list)) => {
                found.extend(list.iter().enumerate().map(|(index, child)| (format!("{below}/{index}"), child)));
            }
            (Children::One | Children::OneOrList, _) => found.push((below, value)),
            _ => {} // the grammar library tells
        }
    }
    found
}

/// As JSON pointers have it.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

// ---- where the fault is ----

/// The place of the deepest schema that the library refuses with the same words, as far as it is found.
fn locate(vocabulary: &Vocabulary, root: &Value, said: &str) -> String {
    let mut probed = root.clone();
    move_references(&mut probed);
    let (mut place, mut schema, begin) = (String::from("#"), root, Instant::now());
    let draft = root.get("$schema");
    loop {
        let Value::Object(object) = schema else { return place };
        let mut below = children(object, &place);
        if let Some(text) = object.get("$ref").and_then(Value::as_str) {
            below.extend(root.pointer(text.trim_start_matches('#')).map(|target| (text.to_owned(), target)));
        }
        let fault = below.into_iter().find(|(_, child)| {
            let alone = if begin.elapsed() < PROBING { refusal(vocabulary, &probed, draft, child) } else { None };
            alone.is_some_and(|alone| fault_in(&alone) == fault_in(said))
        });
        match fault {
            Some((child, target)) => (place, schema) = (child, target),
            None => return place,
        }
    }
}

/// Without the way to it.
fn fault_in(said: &str) -> &str {
    said.split(" while processing ").next().unwrap_or(said)
}

/// What is wrong with a schema by itself, with the whole one beside it for its references.
fn refusal(vocabulary: &Vocabulary, probed: &Value, draft: Option<&Value>, schema: &Value) -> Option<String> {
    let mut one = schema.clone();
    move_references(&mut one);
    let mut probe = Map::new();
    if let Some(draft) = draft {
        probe.insert("$schema".into(), draft.clone());
    }
    probe.insert(PROBED.into(), probed.clone());
    probe.insert("one".into(), one);
    probe.insert("$ref".into(), "#/one".into());
    build(vocabulary, TopLevelGrammar::from_json_schema(Value::Object(probe))).err().map(|failure| failure.message)
}

fn move_references(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(move_references),
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get_mut("$ref") {
                reference.insert_str(1, &format!("/{PROBED}"));
            }
            object.values_mut().for_each(move_references);
        }
        _ => {}
    }
}

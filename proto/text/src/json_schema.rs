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
use crate::vocabulary::Vocabulary;

/// How long subschemas are compiled by themselves to find the one that is at fault.
const PROBING: Duration = Duration::from_millis(300);
/// What probes call the schema.
const PROBED: &str = "probed";

const COUNTS: [&str; 6] = ["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"];
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
/// Absolute ones with a host, without percent signs: no other form is written.
const URI_PATTERN: &str = "^[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)*(:[1-9][0-9]{0,3})?\
     (/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$";

pub fn compile(vocabulary: &Vocabulary, schema: Value) -> Result<TokenParser, Failure> {
    let schema = prepare(schema)?;
    check(&schema)?;
    build(vocabulary, TopLevelGrammar::from_json_schema(schema.clone())).map_err(|failure| {
        let place = locate(vocabulary, &schema);
        Failure::new(failure.status, format!("at {place}: {}", in_other_words(&failure.message)))
    })
}

/// The schema as the grammar library takes it.
pub fn prepare(schema: Value) -> Result<Value, Failure> {
    match schema {
        Value::Object(_) => {
            let mut schema = schema;
            simplify(&mut schema);
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

/// Takes out what says nothing, and puts what the library lacks in its own words.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(simplify),
        Value::Object(object) => {
            if object.get("uniqueItems") == Some(&Value::Bool(false)) {
                object.shift_remove("uniqueItems");
            }
            for keyword in COUNTS {
                // 2.0 is a 2 as well.
                let whole = object.get(keyword).and_then(Value::as_f64).filter(|number| number.fract() == 0.0);
                if let Some(number) = whole.filter(|number| (0.0..1e9).contains(number)) {
                    object.insert(keyword.into(), json!(number as u64));
                }
            }
            let format = object.get("format").and_then(Value::as_str).unwrap_or_default();
            if format == "uri" {
                object.shift_remove("format");
                let pattern = json!({"pattern": URI_PATTERN});
                match object.get_mut("allOf") {
                    Some(Value::Array(all)) => all.push(pattern),
                    Some(_) => {}
                    None => {
                        object.insert("allOf".into(), json!([pattern]));
                    }
                }
            } else if !format.is_empty() && !FORMATS.contains(&format) && !OTHER_FORMATS.contains(&format) {
                object.shift_remove("format");
            }
            // Values stand for themselves.
            let children = object.iter_mut().filter(|(key, _)| !matches!(key.as_str(), "const" | "enum" | "default"));
            children.for_each(|(_, value)| simplify(value));
        }
        _ => {}
    }
}

// ---- where the fault is ----

/// The place of the deepest schema that does not compile, as far as it is found: of the same that the library refused.
fn locate(vocabulary: &Vocabulary, root: &Value) -> String {
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
        let fails = |child| begin.elapsed() < PROBING && !compiles(vocabulary, &probed, draft, child);
        let fault = below.into_iter().find(|(_, child)| fails(child));
        match fault {
            Some((child, target)) => (place, schema) = (child, target),
            None => return place,
        }
    }
}

/// By itself, with the whole schema beside it for its references.
fn compiles(vocabulary: &Vocabulary, probed: &Value, draft: Option<&Value>, schema: &Value) -> bool {
    let mut one = schema.clone();
    move_references(&mut one);
    let mut probe = Map::new();
    if let Some(draft) = draft {
        probe.insert("$schema".into(), draft.clone());
    }
    probe.insert(PROBED.into(), probed.clone());
    probe.insert("one".into(), one);
    probe.insert("$ref".into(), "#/one".into());
    build(vocabulary, TopLevelGrammar::from_json_schema(Value::Object(probe))).is_ok()
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

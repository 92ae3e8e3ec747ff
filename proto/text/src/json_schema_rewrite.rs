//! A JSON Schema in words that the grammar library knows, with the same meaning.

use llguidance::derivre::RegexBuilder;
use llguidance::regex_to_lark;
use serde_json::{json, Map, Value};

use crate::json_schema::{FORMATS, OTHER_FORMATS};

/// Absolute ones with a host, without percent signs: no other form is written.
const URI_PATTERN: &str = "^[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)*(:[1-9][0-9]{0,3})?\
     (/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$";

const COUNTS: [&str; 6] = ["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"];
/// Keywords whose values are schemas, lists of schemas, or schemas by names.
const SCHEMAS: [&str; 4] = ["additionalProperties", "items", "additionalItems", "not"];
const LISTS: [&str; 5] = ["items", "prefixItems", "allOf", "anyOf", "oneOf"];
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// How far references are followed to see what a schema is about.
const MAX_REFERENCES: usize = 8;
/// Work to see whether a name matches a pattern.
const MATCHING_FUEL: u64 = 10_000;

pub fn rewrite(root: &mut Value) {
    let original = root.clone();
    rewrite_below(root, &original);
}

fn rewrite_below(schema: &mut Value, root: &Value) {
    let Value::Object(object) = schema else { return };
    if object.get("uniqueItems") == Some(&Value::Bool(false)) {
        object.shift_remove("uniqueItems");
    }
    round_counts(object);
    replace_format(object);
    apply_patterns_to_properties(object);
    make_one_of_any_of(object, root);
    for (keyword, value) in object.iter_mut() {
        let keyword = keyword.as_str();
        match value {
            Value::Array(list) if LISTS.contains(&keyword) => {
                list.iter_mut().for_each(|child| rewrite_below(child, root));
            }
            Value::Object(named) if MAPS.contains(&keyword) => {
                named.values_mut().for_each(|child| rewrite_below(child, root));
            }
            Value::Object(_) if SCHEMAS.contains(&keyword) => rewrite_below(value, root),
            _ => {}
        }
    }
}

/// 2.0 is a 2 as well.
fn round_counts(object: &mut Map<String, Value>) {
    for keyword in COUNTS {
        let whole = object.get(keyword).and_then(Value::as_f64).filter(|number| number.fract() == 0.0);
        if let Some(number) = whole.filter(|number| (0.0..1e9).contains(number)) {
            object.insert(keyword.into(), json!(number as u64));
        }
    }
}

fn also(object: &mut Map<String, Value>, schema: Value) {
    match object.get_mut("allOf") {
        Some(Value::Array(all)) => all.push(schema),
        Some(_) => {} // it will be refused
        None => {
            object.insert("allOf".into(), json!([schema]));
        }
    }
}

/// Names that the specifications do not know mean nothing.
fn replace_format(object: &mut Map<String, Value>) {
    let format = object.get("format").and_then(Value::as_str).unwrap_or_default();
    if format == "uri" {
        object.shift_remove("format");
        also(object, json!({"pattern": URI_PATTERN}));
    } else if !format.is_empty() && !FORMATS.contains(&format) && !OTHER_FORMATS.contains(&format) {
        object.shift_remove("format");
    }
}

/// A property that matches a pattern must match that pattern's schema, too.
fn apply_patterns_to_properties(object: &mut Map<String, Value>) {
    let Some(Value::Object(patterns)) = object.get("patternProperties").cloned() else { return };
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for (pattern, schema) in &patterns {
        for (name, property) in properties.iter_mut() {
            if matches(pattern, name) {
                *property = json!({"allOf": [property.take(), schema]});
            }
        }
    }
}

/// True also when it cannot be told: the library will say what is wrong with the pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    let regex = expression.and_then(|expression| builder.to_regex_limited(expression, MATCHING_FUEL));
    regex.map_or(true, |mut regex| regex.is_match(name))
}

// ---- oneOf ----

/// Where no value can match two of the schemas, which the library sees only if there are no references.
fn make_one_of_any_of(object: &mut Map<String, Value>, root: &Value) {
    let Some(Value::Array(options)) = object.get("oneOf") else { return };
    let has_references = options.iter().any(|option| option.get("$ref").is_some());
    let are_apart = |(index, option)| options[..index].iter().all(|other| is_apart(option, other, root));
    if !has_references || object.contains_key("anyOf") || !options.iter().enumerate().all(are_apart) {
        return;
    }
    let renamed = std::mem::take(object).into_iter().map(|(keyword, value)| {
        let keyword = if keyword == "oneOf" { "anyOf".into() } else { keyword };
        (keyword, value)
    });
    *object = renamed.collect();
}

fn resolved<'a>(mut schema: &'a Value, root: &'a Value) -> &'a Value {
    for _ in 0..MAX_REFERENCES {
        let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
        match pointer.and_then(|pointer| root.pointer(pointer)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Objects of which a property that one of them requires tells which is which.
fn is_apart(a: &Value, b: &Value, root: &Value) -> bool {
    let (a, b) = (resolved(a, root), resolved(b, root));
    let values = |schema: &'_ Value, name: &str| -> Option<Vec<String>> {
        let property = resolved(schema.get("properties")?.get(name)?, root);
        match (property.get("const"), property.get("enum")) {
            (Some(value), _) => Some(vec![value.as_str()?.to_owned()]),
            (None, Some(list)) => list.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect(),
            _ => None,
        }
    };
    let tells = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        match (values(a, name), values(b, name)) {
            (Some(of_a), Some(of_b)) => !of_a.iter().any(|value| of_b.contains(value)),
            _ => false,
        }
    };
    let is_object = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "object");
    let required = [a, b].into_iter().filter_map(|schema| schema.get("required")?.as_array()).flatten();
    (is_object(a) || is_object(b)) && required.into_iter().any(tells)
}

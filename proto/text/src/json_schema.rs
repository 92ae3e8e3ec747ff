//! JSON Schema.
use llguidance::api::TopLevelGrammar;
use llguidance::TokenParser;
use serde_json::{json, Value};

use crate::grammar::{build, with_layout};
use crate::interface::{Failure, Status};
use crate::vocabulary::Vocabulary;

pub fn compile(vocabulary: &Vocabulary, schema: Value) -> Result<TokenParser, Failure> {
    let schema = prepare(schema)?;
    check(&schema)?;
    build(vocabulary, TopLevelGrammar::from_json_schema(schema))
}

pub fn prepare(schema: Value) -> Result<Value, Failure> {
    match schema {
        Value::Object(_) => Ok(with_layout(schema)),
        Value::Bool(true) => Ok(with_layout(json!({}))),
        Value::Bool(false) => Err(Failure::new(Status::Invalid, "is false: nothing matches it")),
        _ => Err(Failure::new(Status::Invalid, "must be an object or a boolean")),
    }
}

pub fn check(_schema: &Value) -> Result<(), Failure> {
    Ok(())
}

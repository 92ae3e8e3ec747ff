//! A look at a Lark grammar before the grammar library reads it: what would take too much time or memory is refused,
//! and JSON schemas inside it are prepared as those that come alone.

use serde_json::{Deserializer, Value};

use crate::interface::{Failure, Status};
use crate::{json_schema, json_schema_check};

/// Brackets inside one another: the parser calls itself for each.
const MAX_DEPTH: usize = 128;
/// Terminals that must match at once: work grows exponentially with them.
const MAX_CONJUNCTIONS: usize = 8;

const JSON: &str = "%json";

pub fn prepare(text: &str) -> Result<String, Failure> {
    let bytes = text.as_bytes();
    let mut prepared = String::with_capacity(text.len());
    let (mut depth, mut n_conjunctions, mut at, mut copied) = (0usize, 0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'&' => n_conjunctions += 1,
            b'#' => at = last_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = last_of_line(bytes, at),
            quote @ (b'"' | b'/') => at = closing(bytes, at, quote),
            b'<' => at = end_of_special(bytes, at),
            b'%' if text[at..].starts_with(JSON) => {
                let from = at + JSON.len();
                let (schema, length) = read_schema(text, from)?;
                prepared.push_str(&text[copied..from]);
                prepared.push(' ');
                prepared.push_str(&schema);
                copied = from + length;
                at = copied - 1;
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(limit(text, at, &format!("brackets are nested deeper than {MAX_DEPTH} levels")));
        }
        if n_conjunctions > MAX_CONJUNCTIONS {
            return Err(limit(text, at, &format!("& is supported {MAX_CONJUNCTIONS} times in a grammar")));
        }
        at += 1;
    }
    prepared.push_str(&text[copied..]);
    Ok(prepared)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

fn limit(text: &str, at: usize, message: &str) -> Failure {
    Failure::new(Status::Limit, format!("line {}: {message}", line_of(text, at)))
}

/// The last byte before the line's end.
fn last_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| from + length - 1)
}

/// The quote that ends a string or a regular expression.
fn closing(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// Of <name>, which may hold anything but blanks.
fn end_of_special(bytes: &[u8], from: usize) -> usize {
    let inner = bytes[from + 1..].iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'<' | b'>'));
    match inner {
        Some(length) if length > 0 && bytes[from + 1 + length] == b'>' => from + 1 + length,
        _ => from,
    }
}

/// The schema that begins at from, as the library takes it, and its length in the text.
fn read_schema(text: &str, from: usize) -> Result<(String, usize), Failure> {
    let wrong = |message: String| Failure::new(Status::Invalid, format!("line {}: {message}", line_of(text, from)));
    let mut values = Deserializer::from_str(&text[from..]).into_iter::<Value>();
    let schema = match values.next() {
        Some(Ok(schema)) => schema,
        Some(Err(error)) => return Err(wrong(format!("what follows {JSON} is not JSON: {error}"))),
        None => return Err(wrong(format!("no schema follows {JSON}"))),
    };
    let prepared = json_schema::prepare(schema).and_then(|schema| json_schema_check::check(&schema).map(|()| schema));
    let prepared = prepared.map_err(|failure| {
        let message = format!("line {}: {JSON}: {}", line_of(text, from), failure.message);
        Failure::new(failure.status, message)
    })?;
    Ok((prepared.to_string(), values.byte_offset()))
}

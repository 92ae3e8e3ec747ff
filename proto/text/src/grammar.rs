//! From a grammar in one of its forms to a parser: JSON Schema, any JSON, a regular expression, Lark, or calls of tools.

use std::ffi::c_int;
use std::fmt::Write;
use std::thread;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{regex_to_lark, JsonCompileOptions, TokenParser};
use serde_json::{json, Value};

use crate::interface::{Failure, Status};
use crate::json_schema;
use crate::vocabulary::Vocabulary;

/// `enum text_grammar_kind`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Lark,
    Calls,
}

impl Kind {
    pub fn from_c(kind: c_int) -> Result<Self, Failure> {
        [Kind::JsonSchema, Kind::JsonObject, Kind::Regex, Kind::Lark, Kind::Calls]
            .get(kind as usize)
            .copied()
            .ok_or_else(|| Failure::new(Status::Invalid, format!("there is no grammar of kind {kind}")))
    }
}

const MAX_SCHEMA_BYTES: usize = 256 << 10;
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Brackets inside one another.
const MAX_DEPTH: usize = 128;
/// Of the thread that compiles: parsers that call themselves need some, chains of references the more.
const STACK_BYTES: usize = 256 << 20;

/// Compiles on a thread of its own, whose stack is larger than others'.
pub fn compile(vocabulary: &Vocabulary, kind: Kind, text: &str) -> Result<TokenParser, Failure> {
    let limit = match kind {
        Kind::Regex | Kind::Lark => MAX_TEXT_BYTES,
        _ => MAX_SCHEMA_BYTES,
    };
    if text.len() > limit {
        let message = format!("it has {} bytes; at most {limit} are compiled", text.len());
        return Err(Failure::new(Status::Limit, message));
    }
    thread::scope(|scope| {
        let work = || compile_here(vocabulary, kind, text);
        let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let worker = worker.map_err(|error| Failure::new(Status::Memory, format!("no thread to compile on: {error}")))?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn compile_here(vocabulary: &Vocabulary, kind: Kind, text: &str) -> Result<TokenParser, Failure> {
    let grammar = match kind {
        Kind::JsonSchema => return json_schema::compile(vocabulary, json(text)?),
        Kind::JsonObject => TopLevelGrammar::from_json_schema(with_layout(json!({"type": "object"}))),
        Kind::Regex => from_regex(text)?,
        Kind::Lark => from_lark(text)?,
        Kind::Calls => from_calls(vocabulary, json(text)?)?,
    };
    build(vocabulary, grammar)
}

pub fn build(vocabulary: &Vocabulary, grammar: TopLevelGrammar) -> Result<TokenParser, Failure> {
    vocabulary.factory.create_parser(grammar).map_err(|error| {
        let said = first_words(&error.to_string());
        let status = if said.contains("too big") || said.contains("too large") || said.contains("too complex") {
            Status::Limit
        } else {
            Status::Invalid
        };
        Failure::new(status, said)
    })
}

fn json(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::new(Status::Invalid, format!("it is not JSON: {error}")))
}

/// Objects on one line, as json.dumps writes them: a model that may put in blanks as it likes may do so for ever.
pub fn with_layout(mut schema: Value) -> Value {
    let layout = JsonCompileOptions {
        item_separator: ", ".into(),
        key_separator: ": ".into(),
        whitespace_flexible: false,
        ..JsonCompileOptions::default()
    };
    layout.apply_to(&mut schema);
    schema
}

fn from_regex(text: &str) -> Result<TopLevelGrammar, Failure> {
    if text.is_empty() {
        return Err(Failure::new(Status::Invalid, "the regular expression is empty"));
    }
    // The whole text must match in any case.
    let start = text.strip_prefix('^').unwrap_or(text);
    let inner = match start.strip_suffix('$') {
        Some(inner) if !ends_with_escape(inner) => inner,
        _ => start,
    };
    if inner.is_empty() {
        return Err(Failure::new(Status::Invalid, "the regular expression matches the empty text only"));
    }
    Ok(TopLevelGrammar::from_lark(format!("start: /{}/", regex_to_lark(inner, ""))))
}

/// An odd number of backslashes.
fn ends_with_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn from_lark(text: &str) -> Result<TopLevelGrammar, Failure> {
    check_depth(text)?;
    let mut grammar = GrammarWithLexer::from_lark(text.to_owned());
    grammar.name = None;
    Ok(TopLevelGrammar::from_grammar(grammar))
}

/// Lark's parser calls itself for each bracket inside another. Strings, regular expressions and comments count as nothing.
fn check_depth(text: &str) -> Result<(), Failure> {
    let bytes = text.as_bytes();
    let (mut depth, mut line, mut at) = (0usize, 1, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => line += 1,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'#' => at = end_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = end_of_line(bytes, at),
            quote @ (b'"' | b'/') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    line += usize::from(bytes[at] == b'\n');
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            let message = format!("line {line}: brackets are nested deeper than {MAX_DEPTH} levels");
            return Err(Failure::new(Status::Limit, message));
        }
        at += 1;
    }
    Ok(())
}

/// The last byte before the line's end.
fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| from + length - 1)
}

/// {"calls": [{"begin": text, "schema": JSON Schema, "end": text}, ...], "separator": text or null}: one of the calls, or
/// with a separator one or more. Control tokens that are written in begin, end and separator stand for themselves.
fn from_calls(vocabulary: &Vocabulary, description: Value) -> Result<TopLevelGrammar, Failure> {
    let invalid = |message: String| Failure::new(Status::Invalid, message);
    let calls = description["calls"].as_array().filter(|calls| !calls.is_empty());
    let calls = calls.ok_or_else(|| invalid("calls must be an array of at least one call".into()))?;
    let mut lark = String::from("start: call");
    if let Some(separator) = description["separator"].as_str() {
        let _ = write!(lark, " ({} call)*", terms(vocabulary, separator)?);
    }
    lark.push_str("\ncall: ");
    for index in 0..calls.len() {
        let _ = write!(lark, "{}call_{index}", if index > 0 { " | " } else { "" });
    }
    for (index, call) in calls.iter().enumerate() {
        let text = |key: &str| call[key].as_str().ok_or_else(|| invalid(format!("calls[{index}].{key} must be a text")));
        let (begin, end) = (terms(vocabulary, text("begin")?)?, terms(vocabulary, text("end")?)?);
        let schema = json_schema::prepare(call["schema"].clone())
            .and_then(|schema| json_schema::check(&schema).map(|()| schema))
            .map_err(|failure| Failure::new(failure.status, format!("calls[{index}].schema {}", failure.message)))?;
        let _ = write!(lark, "\ncall_{index}: {begin} arguments_{index} {end}\narguments_{index}: %json {schema}");
    }
    Ok(TopLevelGrammar::from_lark(lark))
}

/// Lark for a text: strings, and control tokens by their ids.
fn terms(vocabulary: &Vocabulary, text: &str) -> Result<String, Failure> {
    let (mut lark, mut plain_from, mut at) = (String::new(), 0, 0);
    while at <= text.len() {
        let rest = &text[at..];
        let control = vocabulary.control_tokens.iter().find(|(name, _)| !name.is_empty() && rest.starts_with(name.as_str()));
        if (rest.is_empty() || control.is_some()) && plain_from < at {
            let quoted = Value::from(&text[plain_from..at]).to_string().replace('\u{7f}', "\\u007f");
            let _ = write!(lark, "{quoted} ");
        }
        if let Some((name, id)) = control {
            let _ = write!(lark, "<[{id}]> ");
            at += name.len();
            plain_from = at;
            continue;
        }
        at += rest.chars().next().map_or(1, char::len_utf8);
    }
    if lark.is_empty() {
        lark.push_str("\"\"");
    }
    Ok(lark)
}

/// Of an error of the grammar library: on one line, without what it tells for finding errors of its own.
pub fn first_words(said: &str) -> String {
    let end = ["<state>", "<backtrace>", "<non-verbose/>"].iter().filter_map(|mark| said.find(mark)).min();
    let lines = said[..end.unwrap_or(said.len())].lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

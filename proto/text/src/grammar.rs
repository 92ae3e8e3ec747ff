//! From a grammar in one of its forms to a parser: JSON Schema, any JSON, a regular expression, Lark, or a turn of a
//! chat.

use std::ffi::c_int;
use std::thread;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{regex_to_lark, JsonCompileOptions, TokenParser};
use serde_json::{json, Value};

use crate::interface::{Failure, Status};
use crate::vocabulary::Vocabulary;
use crate::{json_schema, lark_scan, turn};

/// `enum text_grammar_kind`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Lark,
    Turn,
}

impl Kind {
    pub fn from_c(kind: c_int) -> Result<Self, Failure> {
        [Kind::JsonSchema, Kind::JsonObject, Kind::Regex, Kind::Lark, Kind::Turn]
            .get(kind as usize)
            .copied()
            .ok_or_else(|| Failure::new(Status::Invalid, format!("there is no grammar of kind {kind}")))
    }
}

const MAX_SCHEMA_BYTES: usize = 256 << 10;
const MAX_TEXT_BYTES: usize = 64 << 10;
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
        let worker =
            worker.map_err(|error| Failure::new(Status::Memory, format!("no thread to compile on: {error}")))?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn compile_here(vocabulary: &Vocabulary, kind: Kind, text: &str) -> Result<TokenParser, Failure> {
    let grammar = match kind {
        Kind::JsonSchema => return json_schema::compile(vocabulary, json(text)?),
        Kind::JsonObject => TopLevelGrammar::from_json_schema(with_layout(json!({"type": "object"}))),
        Kind::Regex => from_regex(text)?,
        Kind::Lark => from_lark(text)?,
        Kind::Turn => return turn::compile(vocabulary, &json(text)?),
    };
    build(vocabulary, grammar).map_err(|failure| match failure.message.split_once(" (in regex): ") {
        Some((_, said)) if kind == Kind::Regex => Failure::new(failure.status, said),
        _ => failure,
    })
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
    let mut grammar = GrammarWithLexer::from_lark(lark_scan::prepare(text)?);
    grammar.name = None;
    Ok(TopLevelGrammar::from_grammar(grammar))
}

/// Of an error of the grammar library: on one line, without excerpts and what helps to find errors of its own.
pub fn first_words(said: &str) -> String {
    let end = ["<state>", "<backtrace>", "<non-verbose/>"].iter().filter_map(|mark| said.find(mark)).min();
    let lines = said[..end.unwrap_or(said.len())].lines().map(str::trim);
    let lines = lines.filter(|line| !line.chars().all(|c| c == '^' || c == ' ') && !is_excerpt(line));
    in_plain_words(&lines.collect::<Vec<_>>().join(" "))
}

/// "  12 | text"
fn is_excerpt(line: &str) -> bool {
    line.split_once(" |").is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// "at 2(30): said" has line and column.
fn in_plain_words(said: &str) -> String {
    let place_and_rest = said.strip_prefix("at ").unwrap_or(said).split_once("): ");
    let place = place_and_rest.and_then(|(place, rest)| Some((place.split_once('(')?, rest)));
    match place {
        Some(((line, column), rest)) if line.bytes().chain(column.bytes()).all(|b| b.is_ascii_digit()) => {
            format!("line {line}, column {column}: {rest}")
        }
        _ => said.to_owned(),
    }
}

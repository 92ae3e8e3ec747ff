//! What an assistant may say: thinking, then content or calls of tools.

use std::fmt::Write;

use llguidance::api::TopLevelGrammar;
use llguidance::TokenParser;
use serde_json::Value;

use crate::grammar::build;
use crate::interface::{Failure, Status};
use crate::vocabulary::Vocabulary;
use crate::{json_schema, json_schema_check};

/// {"thinking": {"open": text or null, "close": text}, "content": JSON Schema, "free": {"mark": text} or {"not": regular
/// expression}, "calls": [{"name": text, "begin": text, "schema": JSON Schema, "end": text}, ...], "separator": text or null}
///
/// Thinking comes first, perhaps; for certain if it is open already (null). Then content, or one of the calls, or with a
/// separator one or more. Free makes content any text: up to a mark, which begins a call; or any that the expression does not
/// match. All may be missing but there must be content, free or calls. Control tokens that are written in the texts stand for
/// themselves. Names are for messages.
pub fn compile(vocabulary: &Vocabulary, description: &Value) -> Result<TokenParser, Failure> {
    build(vocabulary, grammar(vocabulary, description)?).map_err(|failure| fault(vocabulary, description, failure))
}

/// Of the schema that does not compile by itself, if there is one.
fn fault(vocabulary: &Vocabulary, description: &Value, failure: Failure) -> Failure {
    let content = (!description["content"].is_null()).then(|| (String::new(), &description["content"]));
    let calls = description["calls"].as_array().into_iter().flatten().enumerate();
    let arguments = calls.map(|(index, call)| (schema_name(index, call), &call["schema"]));
    let mut faults = content.into_iter().chain(arguments).filter_map(|(place, schema)| {
        let fault = json_schema::compile(vocabulary, schema.clone()).err()?;
        Some(Failure::new(fault.status, format!("{place}{}", fault.message)))
    });
    faults.next().unwrap_or(failure)
}

/// What messages call the schema of a call.
fn schema_name(index: usize, call: &Value) -> String {
    call["name"].as_str().map_or(format!("calls[{index}].schema: "), |name| format!("the parameters of {name}: "))
}

fn grammar(vocabulary: &Vocabulary, description: &Value) -> Result<TopLevelGrammar, Failure> {
    let mut writer = Writer { vocabulary, lark: String::new(), forms: Vec::new() };
    if !description["content"].is_null() {
        let schema = checked_schema(&description["content"], "")?;
        writer.rule("content", &format!("%json {schema}"));
        writer.forms.push("content");
    }
    let calls = description["calls"].as_array().map_or(&[][..], Vec::as_slice);
    let mark = description["free"]["mark"].as_str();
    if !calls.is_empty() {
        writer.write_calls(calls, description["separator"].as_str(), mark)?;
    }
    writer.write_free(mark, description["free"]["not"].as_str())?;
    if writer.forms.is_empty() {
        return Err(invalid("there must be content, free or calls".into()));
    }
    let lead = match &description["thinking"] {
        Value::Null => String::new(),
        thinking => writer.write_thinking(thinking)?,
    };
    Ok(TopLevelGrammar::from_lark(format!("start: {lead}({}){}", writer.forms.join(" | "), writer.lark)))
}

fn invalid(message: String) -> Failure {
    Failure::new(Status::Invalid, message)
}

fn checked_schema(schema: &Value, place: &str) -> Result<Value, Failure> {
    json_schema::prepare(schema.clone())
        .and_then(|schema| json_schema_check::check(&schema).map(|()| schema))
        .map_err(|failure| Failure::new(failure.status, format!("{place}{}", failure.message)))
}

fn text_at<'a>(value: &'a Value, key: &str, place: &str) -> Result<&'a str, Failure> {
    value[key].as_str().ok_or_else(|| invalid(format!("{place}.{key} must be a text")))
}

struct Writer<'a> {
    vocabulary: &'a Vocabulary,
    lark: String,
    forms: Vec<&'static str>,
}

impl Writer<'_> {
    fn rule(&mut self, name: &str, body: &str) {
        let _ = write!(self.lark, "\n{name}: {body}");
    }

    /// Where a mark leads to the first call, that call is written without it.
    fn write_calls(&mut self, calls: &[Value], separator: Option<&str>, mark: Option<&str>) -> Result<(), Failure> {
        let more = match separator {
            Some(separator) => format!(" ({} call)*", self.terms(separator)),
            None => String::new(),
        };
        if let Some(mark) = mark {
            let until = self.until("until_mark", mark);
            self.rule("calls", &format!("{until} marked{more}"));
            self.forms.push("calls");
        } else {
            self.rule("calls", &format!("call{more}"));
            self.forms.push("calls");
        }
        let (mut names, mut marked_names) = (String::new(), String::new());
        for (index, call) in calls.iter().enumerate() {
            let place = format!("calls[{index}]");
            let (begin, end) = (text_at(call, "begin", &place)?, self.terms(text_at(call, "end", &place)?));
            let schema = checked_schema(&call["schema"], &schema_name(index, call))?;
            let or = if index > 0 { " | " } else { "" };
            self.rule(&format!("arguments_{index}"), &format!("%json {schema}"));
            if mark.is_none() || separator.is_some() {
                let _ = write!(names, "{or}call_{index}");
                self.rule(&format!("call_{index}"), &format!("{} arguments_{index} {end}", self.terms(begin)));
            }
            if let Some(mark) = mark {
                let rest = begin.strip_prefix(mark);
                let rest = rest.ok_or_else(|| invalid(format!("{place}.begin must begin with the mark")))?;
                let _ = write!(marked_names, "{or}marked_{index}");
                self.rule(&format!("marked_{index}"), &format!("{} arguments_{index} {end}", self.terms(rest)));
            }
        }
        for (name, body) in [("call", names), ("marked", marked_names)] {
            if !body.is_empty() {
                self.rule(name, &body);
            }
        }
        Ok(())
    }

    fn write_free(&mut self, mark: Option<&str>, not: Option<&str>) -> Result<(), Failure> {
        let body = match (mark, not) {
            (None, None) => return Ok(()),
            (Some(mark), _) if self.is_control(mark) => "/(?s:.*)/".into(),
            (Some(mark), _) => format!("/(?s:.*)/ & ~/(?s:.*{}.*)/", escaped(mark)),
            (None, Some(not)) => format!("/(?s:.*)/ & ~/(?s:{not})/"),
        };
        self.rule("free", "FREE");
        self.rule("FREE", &body);
        self.forms.push("free");
        Ok(())
    }

    /// What goes before the answer. Thinking ends at the first closing mark; some blanks may follow it.
    fn write_thinking(&mut self, thinking: &Value) -> Result<String, Failure> {
        let until = self.until("until_close", text_at(thinking, "close", "thinking")?);
        self.rule("thought", &format!("{until} /[ \\n]{{0,4}}/"));
        match thinking["open"].as_str() {
            Some(open) => Ok(format!("({} thought)? ", self.terms(open))),
            None => Ok("thought ".into()),
        }
    }

    /// Any text up to a mark, and the mark.
    fn until(&mut self, name: &str, mark: &str) -> String {
        let terms = self.terms(mark);
        if self.is_control(mark) {
            return format!("/(?s:.*)/ {terms}");
        }
        self.rule(&format!("{name}[suffix={}]", terms.trim()), "/(?s:.*)/");
        name.into()
    }

    fn is_control(&self, text: &str) -> bool {
        self.vocabulary.control_tokens.iter().any(|(name, _)| name == text)
    }

    /// Lark for a text: strings, and control tokens by their ids.
    fn terms(&self, text: &str) -> String {
        let (mut lark, mut plain_from, mut at) = (String::new(), 0, 0);
        let controls = &self.vocabulary.control_tokens;
        while at <= text.len() {
            let rest = &text[at..];
            let control = controls.iter().find(|(name, _)| !name.is_empty() && rest.starts_with(name.as_str()));
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
        lark
    }
}

/// A text inside a regular expression between slashes.
fn escaped(text: &str) -> String {
    text.chars().map(|c| format!("\\x{{{:x}}}", c as u32)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::constraint::{Constraint, Next};
    use crate::grammar::Kind;
    use crate::vocabulary::Vocabulary;

    const WORDS: [&str; 4] = ["<|end|>", "<|channel>", "<|close|>", "<|call>"];

    /// How a text goes on under a grammar: the number of bytes that it takes, and whether it may end there.
    fn takes(description: &serde_json::Value, text: &str) -> (usize, bool) {
        let vocabulary = Vocabulary::of_bytes(&WORDS);
        let mut constraint = Constraint::new(&vocabulary, Kind::Turn, &description.to_string()).unwrap();
        let mut mask = vec![0u32; vocabulary.n_tokens.div_ceil(32)];
        let mut at = 0;
        loop {
            let next = constraint.allowed(&mut mask).unwrap();
            let may_end = mask[256 / 32] & 1 != 0;
            if next == Next::Complete || at == text.len() {
                return (at, may_end);
            }
            let rest = &text[at..];
            let word = WORDS.iter().position(|word| rest.starts_with(word));
            let token = word.map_or(rest.as_bytes()[0] as usize, |word| 256 + word);
            if mask[token / 32] >> (token % 32) & 1 == 0 {
                return (at, may_end);
            }
            constraint.commit(token as u32).unwrap();
            at += word.map_or(1, |word| WORDS[word].len());
        }
    }

    fn whole(description: &serde_json::Value, text: &str) {
        assert_eq!(takes(description, text), (text.len(), true), "{text}");
    }

    fn up_to(description: &serde_json::Value, text: &str, expected: &str) {
        assert_eq!(&text[..takes(description, text).0], expected, "{text}");
    }

    fn calls(open: &str, close: &str) -> serde_json::Value {
        let call = |name: &str, schema| json!({"begin": format!("{open}{name}: "), "schema": schema, "end": close});
        json!([
            call(
                "f",
                json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
                "additionalProperties": false})
            ),
            call("g", json!({"type": "object", "additionalProperties": false})),
        ])
    }

    #[test]
    fn calls_are_forced_one_or_several() {
        let one = json!({"calls": calls("<c>", "</c>")});
        whole(&one, "<c>f: {\"a\": 12}</c>");
        whole(&one, "<c>g: {}</c>");
        up_to(&one, "Hello", "");
        up_to(&one, "<c>h", "<c>");
        up_to(&one, "<c>f: {\"b", "<c>f: {\"");
        up_to(&one, "<c>g: {}</c>\n", "<c>g: {}</c>");
        let several = json!({"calls": calls("<c>", "</c>"), "separator": "\n"});
        whole(&several, "<c>g: {}</c>\n<c>f: {\"a\": 1}</c>\n<c>g: {}</c>");
        up_to(&several, "<c>g: {}</c>\n\n", "<c>g: {}</c>\n");
        let adjacent = json!({"calls": calls("<|call>", "<|close|>"), "separator": ""});
        whole(&adjacent, "<|call>g: {}<|close|><|call>g: {}<|close|>");
    }

    #[test]
    fn thinking_may_come_first() {
        for (open, close) in [("<think>", "</think>"), ("<|channel>thought", "<|close|>")] {
            let turn = json!({"thinking": {"open": open, "close": close}, "content": {"type": "boolean"}});
            whole(&turn, "true");
            whole(&turn, &format!("{open} a < b </thi {{}} \n{close}\n\nfalse"));
            up_to(&turn, &format!("{open}x{close}\n\nno"), &format!("{open}x{close}\n\n"));
            up_to(&turn, "maybe", "");
            let inside = json!({"thinking": {"open": null, "close": close}, "content": {"type": "boolean"}});
            whole(&inside, &format!("true? {close}true"));
            assert!(!takes(&inside, "true").1);
        }
    }

    #[test]
    fn content_and_calls_exclude_each_other() {
        let turn = json!({"content": {"type": "object", "additionalProperties": false}, "calls": calls("<c>", "</c>")});
        whole(&turn, "{}");
        whole(&turn, "<c>g: {}</c>");
        up_to(&turn, "{}<", "{}");
    }

    #[test]
    fn free_text_ends_where_a_call_is_marked() {
        for (open, close) in [("<c>", "</c>"), ("<|call>", "<|close|>")] {
            let turn = json!({"free": {"mark": open}, "calls": calls(open, close), "separator": "\n"});
            whole(&turn, "Hello.\n < <c");
            whole(&turn, "");
            whole(&turn, &format!("I look. {open}f: {{\"a\": 1}}{close}"));
            whole(&turn, &format!("{open}g: {{}}{close}\n{open}g: {{}}{close}"));
            up_to(&turn, &format!("I look. {open}h"), &format!("I look. {open}"));
            up_to(&turn, &format!("{open}g: {{}}{close}x"), &format!("{open}g: {{}}{close}"));
        }
    }

    #[test]
    fn free_text_may_be_told_from_calls_by_how_it_begins() {
        let turn = json!({"free": {"not": "\\s*\\{.*"}, "calls": calls("{", "}")});
        whole(&turn, "Hello {");
        whole(&turn, "{g: {}}");
        up_to(&turn, "{x", "{");
        up_to(&turn, " {", " ");
    }

    #[test]
    fn what_cannot_be_is_told_with_its_place() {
        let vocabulary = Vocabulary::of_bytes(&WORDS);
        for (description, message) in [
            (json!({}), "there must be content, free or calls"),
            (json!({"calls": [{"begin": "a", "end": "b", "schema": 3}]}), "calls[0].schema: at #: a schema must be"),
            (json!({"calls": [{"name": "f", "begin": "a", "end": "b", "schema": 3}]}), "the parameters of f: at #: a"),
            (json!({"calls": [{"end": "b", "schema": {}}]}), "calls[0].begin must be a text"),
            (json!({"content": {"type": "object"}, "thinking": {}}), "thinking.close must be a text"),
            (json!({"content": false}), "at #: the schema is false"),
        ] {
            match Constraint::new(&vocabulary, Kind::Turn, &description.to_string()) {
                Ok(_) => panic!("{description}"),
                Err(failure) => assert!(failure.message.contains(message), "{}", failure.message),
            }
        }
    }
}

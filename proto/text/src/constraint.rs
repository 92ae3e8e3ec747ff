//! A sequence under a grammar: which tokens may come next, and the step to the one that came.

use std::ffi::{c_char, c_int};
use std::fmt::Display;

use llguidance::Matcher;

use crate::grammar::{self, Kind};
use crate::interface::{guarded, text_from_c, CError, Failure, Status};
use crate::vocabulary::Vocabulary;

#[derive(Debug, PartialEq)]
pub enum Next {
    /// More must come, or may.
    Open,
    /// Nothing but the end.
    Complete,
}

pub struct Constraint {
    matcher: Matcher,
    end_tokens: Vec<u32>,
    n_tokens: usize,
}

/// C uses them on any thread, and forks a constraint on several at once.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Constraint>();
    is_shared::<Vocabulary>();
};

impl Constraint {
    pub fn new(vocabulary: &Vocabulary, kind: Kind, text: &str) -> Result<Self, Failure> {
        let parser = grammar::compile(vocabulary, kind, text)?;
        let mut constraint = Constraint {
            matcher: Matcher::new(Ok(parser)),
            end_tokens: vocabulary.end_tokens.clone(),
            n_tokens: vocabulary.n_tokens,
        };
        constraint.allowed(&mut vec![0; vocabulary.n_tokens.div_ceil(32)])?; // what cannot even begin is told of here
        Ok(constraint)
    }

    pub fn fork(&self) -> Self {
        Constraint { matcher: self.matcher.deep_clone(), end_tokens: self.end_tokens.clone(), n_tokens: self.n_tokens }
    }

    pub fn is_accepting(&mut self) -> Result<bool, Failure> {
        if self.matcher.is_stopped() {
            return Ok(self.matcher.stop_reason().is_ok());
        }
        let accepting = self.matcher.is_accepting();
        accepting.map_err(|error| failure(&error))
    }

    /// A bit for each token that may come next; Complete: the end alone may.
    pub fn allowed(&mut self, mask: &mut [u32]) -> Result<Next, Failure> {
        mask.fill(0);
        let accepting = self.is_accepting()?;
        if !self.matcher.is_stopped() {
            match self.matcher.compute_mask() {
                Ok(set) => {
                    for (word, bits) in mask.iter_mut().zip(set.as_slice()) {
                        *word = *bits;
                    }
                }
                Err(error) if accepting && is_dead_end(&error) => {}
                Err(error) => return Err(failure(&error)),
            }
        }
        // A grammar may itself name an end as its last token.
        let may_end = accepting || self.end_tokens.iter().any(|token| has(mask, *token) && self.ends_with(*token));
        for &token in &self.end_tokens {
            mask[token as usize / 32] &= !(1 << (token % 32));
        }
        let open = mask.iter().any(|word| *word != 0);
        if !open && !may_end {
            return Err(failure(&DEAD_END));
        }
        if may_end {
            for &token in &self.end_tokens {
                mask[token as usize / 32] |= 1 << (token % 32);
            }
        }
        Ok(if open { Next::Open } else { Next::Complete })
    }

    pub fn commit(&mut self, token: u32) -> Result<Next, Failure> {
        if self.matcher.is_stopped() {
            return Err(Failure::new(Status::Invalid, "nothing may follow"));
        }
        self.matcher.consume_token(token).map_err(|error| failure(&error))?;
        Ok(if self.matcher.is_stopped() { Next::Complete } else { Next::Open })
    }

    fn ends_with(&self, token: u32) -> bool {
        let mut fork = self.matcher.deep_clone();
        fork.consume_token(token).is_ok() && (fork.is_stopped() || fork.is_accepting().unwrap_or(false))
    }
}

fn has(mask: &[u32], token: u32) -> bool {
    mask[token as usize / 32] & 1 << (token % 32) != 0
}

/// What the grammar library says when no token fits.
const DEAD_END: &str = "NoExtensionBias";

fn is_dead_end(error: &impl Display) -> bool {
    error.to_string().starts_with(DEAD_END)
}

/// What remains, once a grammar is compiled, is that it takes too much work or comes to a dead end.
fn failure(error: &impl Display) -> Failure {
    if is_dead_end(error) {
        return Failure::new(Status::Invalid, "no token of the model can go on from here");
    }
    let said = grammar::first_words(&error.to_string());
    Failure::new(Status::Limit, format!("it takes too much work at this point: {said}"))
}

/// # Safety
/// As the header says of text_constraint_create.
#[no_mangle]
pub unsafe extern "C" fn text_constraint_create(
    ret_constraint: *mut *mut Constraint,
    vocabulary: *const Vocabulary,
    kind: c_int,
    text: *const c_char,
    length: usize,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        let kind = Kind::from_c(kind)?;
        let constraint = Constraint::new(&*vocabulary, kind, text_from_c(text, length, "the grammar")?)?;
        *ret_constraint = Box::into_raw(Box::new(constraint));
        Ok(())
    })
}

/// # Safety
/// As the header says of text_constraint_fork.
#[no_mangle]
pub unsafe extern "C" fn text_constraint_fork(
    ret_constraint: *mut *mut Constraint,
    constraint: *const Constraint,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        *ret_constraint = Box::into_raw(Box::new((*constraint).fork()));
        Ok(())
    })
}

/// # Safety
/// As the header says of text_constraint_destroy.
#[no_mangle]
pub unsafe extern "C" fn text_constraint_destroy(constraint: *mut Constraint) {
    if !constraint.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(constraint));
            Ok(())
        });
    }
}

/// # Safety
/// As the header says of text_constraint_allowed.
#[no_mangle]
pub unsafe extern "C" fn text_constraint_allowed(
    constraint: *mut Constraint,
    mask: *mut u32,
    ret_is_complete: *mut bool,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        let constraint = &mut *constraint;
        let mask = std::slice::from_raw_parts_mut(mask, constraint.n_tokens.div_ceil(32));
        *ret_is_complete = constraint.allowed(mask)? == Next::Complete;
        Ok(())
    })
}

/// # Safety
/// As the header says of text_constraint_commit.
#[no_mangle]
pub unsafe extern "C" fn text_constraint_commit(
    constraint: *mut Constraint,
    token: i32,
    ret_is_complete: *mut bool,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        let token = u32::try_from(token).map_err(|_| Failure::new(Status::Invalid, "a negative token"))?;
        *ret_is_complete = (*constraint).commit(token)? == Next::Complete;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of a vocabulary of bytes; words come after them.
    const WORD: u32 = 256;

    fn vocabulary() -> Vocabulary {
        Vocabulary::of_bytes(&["ab", "<|control|>", "<|end|>", "<|end of turn|>"])
    }

    fn allowed(constraint: &mut Constraint) -> Vec<u32> {
        let mut mask = vec![0; constraint.n_tokens.div_ceil(32)];
        constraint.allowed(&mut mask).unwrap();
        (0..constraint.n_tokens as u32).filter(|token| has(&mask, *token)).collect()
    }

    fn commit(constraint: &mut Constraint, text: &str) -> Next {
        text.bytes().map(|byte| constraint.commit(byte.into()).unwrap()).last().unwrap()
    }

    fn regex(text: &str) -> Constraint {
        Constraint::new(&vocabulary(), Kind::Regex, text).unwrap()
    }

    fn refusal(kind: Kind, text: &str) -> String {
        Constraint::new(&vocabulary(), kind, text).err().unwrap().message
    }

    #[test]
    fn tokens_of_any_length_are_allowed_where_they_fit() {
        let mut constraint = regex("a(b|c)");
        assert_eq!(allowed(&mut constraint), [b'a'.into(), WORD]);
        assert_eq!(commit(&mut constraint, "a"), Next::Open);
        assert_eq!(allowed(&mut constraint), [u32::from(b'b'), b'c'.into()]);
        assert_eq!(commit(&mut constraint, "c"), Next::Complete);
        assert!(constraint.commit(b'c'.into()).is_err());
        assert_eq!(regex("a(b|c)").commit(WORD).unwrap(), Next::Complete);
    }

    #[test]
    fn every_end_is_allowed_where_the_grammar_accepts_and_nowhere_else() {
        let mut constraint = regex("x*y?x");
        assert!(!allowed(&mut constraint).contains(&(WORD + 2)));
        commit(&mut constraint, "x");
        let tokens = allowed(&mut constraint);
        assert!(tokens.ends_with(&[WORD + 2, WORD + 3]) && !tokens.contains(&(WORD + 1)));
        commit(&mut constraint, "y");
        assert_eq!(allowed(&mut constraint), [u32::from(b'x')]);
    }

    #[test]
    fn a_grammar_may_name_the_end() {
        let text = "start: \"a\" <|end|>\n";
        let mut constraint = Constraint::new(&vocabulary(), Kind::Lark, text).unwrap();
        assert_eq!(allowed(&mut constraint), [u32::from(b'a')]);
        commit(&mut constraint, "a");
        assert_eq!(allowed(&mut constraint), [WORD + 2, WORD + 3]);
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let mut first = regex("a(b|c)(d|e)");
        commit(&mut first, "a");
        let mut second = first.fork();
        assert_eq!(commit(&mut first, "bd"), Next::Complete);
        assert_eq!(allowed(&mut second), [u32::from(b'b'), b'c'.into()]);
        assert_eq!(commit(&mut second, "ce"), Next::Complete);
    }

    #[test]
    fn bytes_of_a_character_may_come_one_by_one() {
        let mut constraint = regex("[äö]!");
        assert_eq!(allowed(&mut constraint), [0xc3]);
        constraint.commit(0xc3).unwrap();
        assert_eq!(allowed(&mut constraint), [0xa4, 0xb6]);
        constraint.commit(0xb6).unwrap();
        assert_eq!(allowed(&mut constraint), [u32::from(b'!')]);
    }

    #[test]
    fn json_has_one_layout_and_the_schemas_order() {
        let schema = r#"{"type": "object", "properties": {"b": {"const": [1, {"x": 2}]}, "a": {"type": "null"}},
                         "required": ["a", "b"], "additionalProperties": false}"#;
        let mut constraint = Constraint::new(&vocabulary(), Kind::JsonSchema, schema).unwrap();
        assert_eq!(commit(&mut constraint, r#"{"b": [1, {"x": 2}], "a": null}"#), Next::Complete);
    }

    #[test]
    fn calls_hold_control_tokens_and_repeat_only_with_a_separator() {
        let call =
            r#"{"begin": "<|control|>f(", "schema": {"type": "integer", "minimum": 1, "maximum": 9}, "end": ")"}"#;
        for (separator, last) in [("null", Next::Complete), (r#"", ""#, Next::Open)] {
            let text = format!(r#"{{"calls": [{call}], "separator": {separator}}}"#);
            let mut constraint = Constraint::new(&vocabulary(), Kind::Turn, &text).unwrap();
            assert_eq!(allowed(&mut constraint), [WORD + 1]);
            constraint.commit(WORD + 1).unwrap();
            assert_eq!(commit(&mut constraint, "f(7)"), last);
        }
    }

    #[test]
    fn a_refusal_says_where() {
        for (kind, text, part) in [
            (Kind::Regex, "a(b", "unclosed group"),
            (Kind::Regex, "", "empty"),
            (Kind::Lark, "start: a\na: \"a\" b\n", "line 2, column 4: unknown name: \"b\""),
            (Kind::Lark, "start: a\na: %json {\"maxItems\": 5000}", "line 2: %json: at #/maxItems: 5000 is more than"),
            (Kind::Lark, "start: a\na: %json {", "line 2: what follows %json is not JSON"),
            (Kind::JsonSchema, "{", "not JSON"),
            (Kind::JsonSchema, "false", "at #: the schema is false"),
            (Kind::JsonSchema, r#"{"properties": {"a/b": {"items": {"not": {}}}}}"#, "at #/properties/a~1b"),
            (
                Kind::JsonSchema,
                r#"{"properties": {"a": {"items": {"not": {}}}}}"#,
                "at #/properties/a/items: not supported",
            ),
            (Kind::JsonSchema, r##"{"items": {"$ref": "#/x"}}"##, "at #/items/$ref: \"#/x\" is not there"),
            (Kind::JsonSchema, r##"{"$ref": "#/x", "x": {"type": "text"}}"##, "at #/x: Invalid type: text"),
            (Kind::JsonSchema, r#"{"$schema": "http://json-schema.org/draft-03/schema#"}"#, "at #/$schema"),
            (
                Kind::JsonSchema,
                r#"{"minLength": "éééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}"#,
                "#/minLength",
            ),
            (Kind::Turn, r#"{"calls": [{"begin": "", "schema": {"not": {}}, "end": ""}]}"#, "calls[0].schema: at #"),
        ] {
            let said = refusal(kind, text);
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn what_takes_too_much_is_refused() {
        let patterns: Vec<String> = (1..60).map(|i| format!(r#"{{"pattern": "a.{{{i}}}b"}}"#)).collect();
        let properties: Vec<String> = (0..3000).map(|i| format!(r#""k{i}": {{}}"#)).collect();
        for (kind, text) in [
            (Kind::JsonSchema, r#"{"items": {"maxItems": 1000000000}}"#.into()),
            (Kind::JsonSchema, r#"{"multipleOf": 99999989}"#.into()),
            (Kind::JsonSchema, r#"{"type": "integer", "minimum": 1e30, "maximum": 1e31}"#.into()),
            (Kind::JsonSchema, r#"{"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}"#.into()),
            (Kind::JsonSchema, format!(r#"{{"allOf": [{}]}}"#, patterns.join(","))),
            (Kind::JsonSchema, format!(r#"{{"properties": {{{}}}}}"#, properties.join(","))),
            (Kind::Lark, format!("start: A\nA: {}/a/", "/(?s:.*)b/ & ".repeat(20))),
            (Kind::Lark, format!("start: {}\"a\"{}", "(".repeat(20000), ")".repeat(20000))),
            (Kind::Lark, format!("start: <|\"|> {}", "(".repeat(20000))),
            (Kind::Regex, "a".repeat(70000)),
        ] {
            let failure = Constraint::new(&vocabulary(), kind, &text).err().unwrap();
            assert_eq!(failure.status, Status::Limit, "{}", failure.message);
        }
    }

    #[test]
    fn long_chains_of_references_are_followed() {
        let links: Vec<String> = (0..5000).map(|i| format!(r##"{{"items": {{"$ref": "#/d/{}"}}}}"##, i + 1)).collect();
        let text = format!(r##"{{"$ref": "#/d/0", "d": [{}, {{}}]}}"##, links.join(","));
        assert!(Constraint::new(&vocabulary(), Kind::JsonSchema, &text).is_ok());
    }

    #[test]
    fn a_token_of_byte_255_is_no_control_token() {
        let mut constraint = Constraint::new(&vocabulary(), Kind::Lark, "start: <|control|> /[a]/").unwrap();
        assert_eq!(allowed(&mut constraint), [WORD + 1]);
    }
}

//! What a tokenizer's tokens are, as constraints need it: their bytes as a tree, and which of them end a generation.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, INVALID_TOKEN};
use llguidance::ParserFactory;

use crate::interface::{bytes_from_c, guarded, CError, Failure, Status};

/// `struct text_token`.
#[repr(C)]
pub struct CToken {
    bytes: *const c_char,
    length: usize,
    is_control: bool,
    ends_generation: bool,
}

pub struct Vocabulary {
    pub factory: ParserFactory,
    pub n_tokens: usize,
    /// Those that end a generation, ascending.
    pub end_tokens: Vec<u32>,
    /// Written forms and ids of control tokens, longest first.
    pub control_tokens: Vec<(String, u32)>,
}

/// Longer ones (there are some of a thousand spaces) are never chosen.
const MAX_TOKEN_BYTES: usize = 1000;

/// What a grammar may cost while it is compiled and at each token. A lexer state takes about 2 KB; fuel and items are
/// units of work, of which a millisecond does some 50000 while compiling and 15000 for a token.
const INITIAL_LEXER_FUEL: u64 = 1_000_000;
const STEP_LEXER_FUEL: u64 = 200_000;
const STEP_ITEMS: usize = 50_000;
const ROW_ITEMS: usize = 10_000;
const LEXER_STATES: usize = 20_000;
const GRAMMAR_SYMBOLS: usize = 200_000;

impl Vocabulary {
    fn new(tokens: &[(&[u8], bool, bool)]) -> Result<Self, Failure> {
        let mut words = Vec::with_capacity(tokens.len());
        let mut end_tokens = Vec::new();
        let mut control_tokens = Vec::new();
        for (id, &(bytes, is_control, ends_generation)) in tokens.iter().enumerate() {
            if ends_generation {
                end_tokens.push(id as u32);
            }
            let named = is_control || ends_generation;
            if bytes.is_empty()
                || bytes.len() > MAX_TOKEN_BYTES
                || (!named && bytes[0] == TokTrie::SPECIAL_TOKEN_MARKER)
            {
                words.push(Vec::new());
            } else if named {
                if let Ok(name) = std::str::from_utf8(bytes) {
                    control_tokens.push((name.to_owned(), id as u32));
                }
                words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat());
            } else {
                words.push(bytes.to_vec());
            }
        }
        control_tokens.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let info = TokRxInfo::new(tokens.len() as u32, end_tokens.first().copied().unwrap_or(INVALID_TOKEN));
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|error| Failure::new(Status::Internal, format!("the vocabulary: {error}")))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.initial_lexer_fuel = INITIAL_LEXER_FUEL;
        limits.step_lexer_fuel = STEP_LEXER_FUEL;
        limits.step_max_items = STEP_ITEMS;
        limits.max_items_in_row = ROW_ITEMS;
        limits.max_lexer_states = LEXER_STATES;
        limits.max_grammar_size = GRAMMAR_SYMBOLS;
        limits.verbose_errors = false;
        Ok(Vocabulary { factory, n_tokens: tokens.len(), end_tokens, control_tokens })
    }

    #[cfg(test)]
    pub fn of_bytes(words: &[&str]) -> Self {
        let bytes: Vec<[u8; 1]> = (0..=255u8).map(|byte| [byte]).collect();
        let mut tokens: Vec<(&[u8], bool, bool)> = bytes.iter().map(|byte| (&byte[..], false, false)).collect();
        tokens.extend(words.iter().map(|word| (word.as_bytes(), word.starts_with("<|"), word.starts_with("<|end"))));
        Vocabulary::new(&tokens).unwrap()
    }
}

/// # Safety
/// As the header says of text_vocabulary_create.
#[no_mangle]
pub unsafe extern "C" fn text_vocabulary_create(
    ret_vocabulary: *mut *mut Vocabulary,
    tokens: *const CToken,
    n_tokens: usize,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        let tokens: Vec<(&[u8], bool, bool)> = std::slice::from_raw_parts(tokens, n_tokens)
            .iter()
            .map(|token| (bytes_from_c(token.bytes, token.length), token.is_control, token.ends_generation))
            .collect();
        *ret_vocabulary = Box::into_raw(Box::new(Vocabulary::new(&tokens)?));
        Ok(())
    })
}

/// # Safety
/// As the header says of text_vocabulary_destroy.
#[no_mangle]
pub unsafe extern "C" fn text_vocabulary_destroy(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(vocabulary));
            Ok(())
        });
    }
}

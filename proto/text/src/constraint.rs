//! A sequence under a grammar: which tokens may come next, and the step to the one that came.

use std::ffi::{c_char, c_int};

use llguidance::api::StopReason;
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

impl Constraint {
    pub fn new(vocabulary: &Vocabulary, kind: Kind, text: &str) -> Result<Self, Failure> {
        let parser = grammar::compile(vocabulary, kind, text)?;
        Ok(Constraint {
            matcher: Matcher::new(Ok(parser)),
            end_tokens: vocabulary.end_tokens.clone(),
            n_tokens: vocabulary.n_tokens,
        })
    }

    pub fn fork(&self) -> Self {
        Constraint {
            matcher: self.matcher.deep_clone(),
            end_tokens: self.end_tokens.clone(),
            n_tokens: self.n_tokens,
        }
    }

    pub fn is_accepting(&mut self) -> Result<bool, Failure> {
        if self.matcher.is_stopped() {
            return Ok(self.matcher.stop_reason().is_ok());
        }
        let accepting = self.matcher.is_accepting();
        accepting.map_err(|error| self.failure(&error))
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
                Err(_) if accepting && self.matcher.stop_reason() == StopReason::NoExtensionBias => {}
                Err(error) => return Err(self.failure(&error)),
            }
        }
        for &token in &self.end_tokens {
            mask[token as usize / 32] &= !(1 << (token % 32));
        }
        let open = mask.iter().any(|word| *word != 0);
        if !open && !accepting {
            return Err(Failure::new(Status::Invalid, "no token of the model can go on from here"));
        }
        if accepting {
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
        self.matcher.consume_token(token).map_err(|error| self.failure(&error))?;
        Ok(if self.matcher.is_stopped() { Next::Complete } else { Next::Open })
    }

    fn failure(&self, error: &impl std::fmt::Display) -> Failure {
        let said = grammar::first_words(&error.to_string());
        match self.matcher.stop_reason() {
            StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
                Failure::new(Status::Limit, format!("it takes too much work at this point: {said}"))
            }
            StopReason::NoExtensionBias => {
                Failure::new(Status::Invalid, "no token of the model can go on from here")
            }
            _ if said.contains("too complex") || said.contains("too many") || said.contains("fuel") => {
                Failure::new(Status::Limit, format!("it takes too much work at this point: {said}"))
            }
            _ => Failure::new(Status::Invalid, said),
        }
    }
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

//! What every entry point shares: arguments from C, results and errors to C, panics.

use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// `enum text_status`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub enum Status {
    Ok,
    Invalid,
    Refused,
    Limit,
    Memory,
    Internal,
}

pub const MESSAGE_BYTES: usize = 480;

/// `struct text_error`.
#[repr(C)]
pub struct CError {
    status: Status,
    message: [c_char; MESSAGE_BYTES],
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Failure { status, message: message.into() }
    }
}

/// The longest start of text that has at most `limit` bytes and ends with a whole character.
fn clipped(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// # Safety
/// `error` is NULL or points to a `struct text_error`.
unsafe fn tell(error: *mut CError, failure: &Failure) {
    let Some(error) = error.as_mut() else { return };
    error.status = failure.status;
    let message = clipped(&failure.message, MESSAGE_BYTES - 1).bytes().map(|byte| if byte == 0 { b'?' } else { byte });
    let mut length = 0;
    for byte in message {
        error.message[length] = byte as c_char;
        length += 1;
    }
    error.message[length] = 0;
}

/// Runs the body of an entry point. The answer is the status; a failure, or what a panic said, goes to `error`.
///
/// # Safety
/// As `tell`.
pub unsafe fn guarded(error: *mut CError, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Failure::new(Status::Internal, format!("panic in the text library: {said}"))
        }
    };
    tell(error, &failure);
    failure.status as c_int
}

/// # Safety
/// `bytes` points to `length` bytes that stay valid for `'a`; with length 0 it may be anything.
pub unsafe fn bytes_from_c<'a>(bytes: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    slice::from_raw_parts(bytes.cast(), length)
}

/// As `bytes_from_c`, of UTF-8.
///
/// # Safety
/// As `bytes_from_c`.
pub unsafe fn text_from_c<'a>(bytes: *const c_char, length: usize, what: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes_from_c(bytes, length))
        .map_err(|error| Failure::new(Status::Invalid, format!("{what} is not UTF-8 at byte {}", error.valid_up_to())))
}

/// A malloc'ed, NUL-terminated copy for C, which frees it.
///
/// # Safety
/// The two pointers may be written to.
pub unsafe fn text_to_c(text: &str, ret_text: *mut *mut c_char, ret_length: *mut usize) -> Result<(), Failure> {
    let copy: *mut c_char = libc::malloc(text.len() + 1).cast();
    if copy.is_null() {
        return Err(Failure::new(Status::Memory, "no memory for the text"));
    }
    copy.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
    copy.add(text.len()).write(0);
    *ret_text = copy;
    *ret_length = text.len();
    Ok(())
}

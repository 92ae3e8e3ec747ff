//! Chat templates, rendered as Hugging Face's transformers renders them with Jinja: blocks trimmed, loop controls,
//! raise_exception, strftime_now, a plain tojson, Python's methods on strings, lists and dictionaries.

use std::ffi::{c_char, c_int};
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{escape_formatter, Environment, Error, ErrorKind, Output, State, Value};

use crate::interface::{guarded, text_from_c, text_to_c, CError, Failure, Status};
use crate::{generation_tag, python, python_methods};

/// Instructions, or as many times 64 bytes of data: what any template may spend, and what it may spend for each byte of
/// its input besides. An honest one needs about a hundred for a message and a few for a byte.
const BASE_FUEL: u64 = 1_000_000;
const FUEL_PER_BYTE: u64 = 8;
/// Of the text that comes out.
const BASE_OUTPUT_BYTES: usize = 4 << 20;
const OUTPUT_PER_BYTE: usize = 4;
const MAX_SOURCE_BYTES: usize = 4 << 20;
const NAME: &str = "chat template";
/// Marks what raise_exception said, to tell it from errors of the template.
const RAISED: &str = "\u{1}raised: ";

pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<Self, Failure> {
        if source.len() > MAX_SOURCE_BYTES {
            let message = format!("a chat template of {} bytes; at most {MAX_SOURCE_BYTES} are read", source.len());
            return Err(Failure::new(Status::Limit, message));
        }
        let mut environment = Environment::new();
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|error| failure(&error))?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(python_methods::call);
        environment.set_formatter(format_value);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", string);
        environment.add_filter("int", int);
        environment.add_filter("float", float);
        environment.add_test("sequence", |value: &Value| has_length(value));
        environment.add_test("iterable", |value: &Value| {
            has_length(value) || value.is_undefined() || value.kind() == ValueKind::Iterable
        });
        environment.add_test("number", |value: &Value| value.is_number() || value.kind() == ValueKind::Bool);
        environment.add_template_owned(NAME, generation_tag::replace(source)).map_err(|error| failure(&error))?;
        Ok(ChatTemplate { environment })
    }

    /// The text for a JSON object of variables; now_s is what strftime_now tells.
    pub fn render(&self, variables: &str, now_s: i64) -> Result<String, Failure> {
        let invalid = |message: String| Failure::new(Status::Invalid, message);
        let variables_value: Value =
            serde_json::from_str(variables).map_err(|error| invalid(format!("the variables: {error}")))?;
        if variables_value.kind() != ValueKind::Map {
            return Err(invalid("the variables are not an object".into()));
        }
        let mut environment = self.environment.clone();
        environment.add_function("strftime_now", move |format: &str| strftime(format, now_s));
        environment.set_fuel(Some(BASE_FUEL + FUEL_PER_BYTE * variables.len() as u64));
        let template = environment.get_template(NAME).map_err(|error| failure(&error))?;
        let mut output = Bounded { text: Vec::new(), limit: BASE_OUTPUT_BYTES + OUTPUT_PER_BYTE * variables.len() };
        template.render_captured_to(variables_value, &mut output).map_err(|error| failure(&error))?;
        String::from_utf8(output.text).map_err(|_| Failure::new(Status::Internal, "the text is not UTF-8"))
    }
}

/// Output that ends at a limit.
struct Bounded {
    text: Vec<u8>,
    limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.text.len() {
            return Err(io::Error::other("too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failure(error: &Error) -> Failure {
    if let Some(said) = raised(error) {
        return Failure::new(Status::Refused, said);
    }
    let at = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    match error.kind() {
        ErrorKind::OutOfFuel => Failure::new(Status::Limit, format!("{at}it takes too many steps or too much memory")),
        ErrorKind::WriteFailure => Failure::new(Status::Limit, format!("{at}its text is too long")),
        kind => {
            let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Failure::new(Status::Invalid, format!("{at}{kind}{detail}{cause}"))
        }
    }
}

/// What raise_exception was given, wherever in the chain of errors it stands.
fn raised(error: &Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        let detail = current.downcast_ref::<Error>().and_then(Error::detail);
        if let Some(said) = detail.and_then(|detail| detail.strip_prefix(RAISED)) {
            return Some(said.to_owned());
        }
        cause = current.source();
    }
    None
}

// ---- what templates see ----

/// What Python's len() and subscripts work on.
fn has_length(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Bytes)
}

fn format_value(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if is_written_otherwise(value) {
        return output.write_str(&python::text(state, value)?).map_err(Error::from);
    }
    escape_formatter(output, state, value)
}

/// What MiniJinja and Python may write differently: floats, and what holds some.
fn is_written_otherwise(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Number => !value.is_integer(),
        ValueKind::Seq | ValueKind::Map => true,
        _ => false,
    }
}

fn string(state: &State, value: &Value) -> Result<String, Error> {
    if is_written_otherwise(value) {
        python::text(state, value)
    } else {
        Ok(value.to_string())
    }
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// The time by the system's own strftime, in the local zone.
fn strftime(format: &str, now_s: i64) -> Result<String, Error> {
    let invalid = |message: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {message}"));
    if format.is_empty() {
        return Ok(String::new());
    }
    let c_format = std::ffi::CString::new(format).map_err(|_| invalid("the format holds a NUL byte"))?;
    let mut text = vec![0u8; 256 + 32 * format.len()];
    // SAFETY: all pointers are to local memory of the sizes given; tm is plain data, for which zeros are valid.
    let length = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        let seconds = now_s as libc::time_t;
        if libc::localtime_r(&seconds, &mut parts).is_null() {
            return Err(invalid("the time is out of range"));
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), c_format.as_ptr(), &parts)
    };
    text.truncate(length);
    String::from_utf8(text).map_err(|_| invalid("the result is not UTF-8"))
}

/// int and float never fail: what is no number is the default.
fn int(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = named.get::<Option<Value>>("default")?.or(default).unwrap_or_else(|| Value::from(0));
    let base = named.get::<Option<u32>>("base")?.unwrap_or(10);
    named.assert_all_used()?;
    let Some(text) = value.as_str() else {
        return Ok(match value.kind() {
            ValueKind::Bool => Value::from(value.is_true() as i64),
            ValueKind::Number if value.is_integer() => value.clone(),
            ValueKind::Number => f64::try_from(value.clone()).map_or(default, |number| Value::from(number as i128)),
            _ => default,
        });
    };
    if !(2..=36).contains(&base) {
        return Ok(default);
    }
    let digits = text.trim().replace('_', "");
    if let Ok(number) = i128::from_str_radix(&digits, base) {
        return Ok(Value::from(number));
    }
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && number.abs() < 1e36 => Ok(Value::from(number as i128)),
        _ => Ok(default),
    }
}

fn float(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = named.get::<Option<Value>>("default")?.or(default).unwrap_or_else(|| Value::from(0.0));
    named.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => text.trim().replace('_', "").parse::<f64>().ok(),
        None if value.kind() == ValueKind::Bool => Some(value.is_true() as u8 as f64),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(number.map(Value::from).unwrap_or(default))
}

/// tojson(value, ensure_ascii=false, indent=none, separators=none, sort_keys=false)
fn tojson(state: &State, value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if positional.len() > NAMES.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut arguments: [Value; 4] = [Value::from(false), Value::from(()), Value::from(()), Value::from(false)];
    for (index, name) in NAMES.iter().enumerate() {
        if let Some(argument) = positional.get(index) {
            arguments[index] = argument.clone();
        } else if let Some(argument) = named.get::<Option<Value>>(name)? {
            arguments[index] = argument;
        }
    }
    named.assert_all_used()?;
    let [ensure_ascii, indent, separators, sort_keys] = arguments;
    let indent = indentation(&indent)?;
    let (item_separator, key_separator) = if separators.is_none() {
        (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned())
    } else {
        separator_pair(&separators)?
    };
    let style = python::Style {
        ensure_ascii: ensure_ascii.is_true(),
        indent,
        item_separator,
        key_separator,
        sort_keys: sort_keys.is_true(),
    };
    python::json(state, value, &style)
}

/// A number of spaces, or what stands for one level.
fn indentation(indent: &Value) -> Result<Option<String>, Error> {
    const MAX_INDENT: i64 = 64;
    if indent.is_none() {
        return Ok(None);
    }
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let number = if indent.kind() == ValueKind::Bool { Some(indent.is_true() as i64) } else { indent.as_i64() };
    match number {
        Some(spaces) if spaces <= MAX_INDENT => Ok(Some(" ".repeat(spaces.max(0) as usize))),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson: indent must be a number up to {MAX_INDENT} or a string"),
        )),
    }
}

fn separator_pair(separators: &Value) -> Result<(String, String), Error> {
    let pair: Vec<Value> = separators.try_iter()?.collect();
    match pair.as_slice() {
        [item, key] if item.as_str().is_some() && key.as_str().is_some() => Ok((item.to_string(), key.to_string())),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
    }
}

// ---- the C interface ----

/// # Safety
/// As proto/text_library.h says.
#[no_mangle]
pub unsafe extern "C" fn text_template_create(
    ret_template: *mut *mut ChatTemplate,
    source: *const c_char,
    length: usize,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        let template = ChatTemplate::new(text_from_c(source, length, "the chat template")?)?;
        *ret_template = Box::into_raw(Box::new(template));
        Ok(())
    })
}

/// # Safety
/// As proto/text_library.h says.
#[no_mangle]
pub unsafe extern "C" fn text_template_destroy(template: *mut ChatTemplate) {
    if !template.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(template));
            Ok(())
        });
    }
}

/// # Safety
/// As proto/text_library.h says.
#[no_mangle]
pub unsafe extern "C" fn text_template_render(
    template: *const ChatTemplate,
    variables: *const c_char,
    length: usize,
    now_s: i64,
    ret_text: *mut *mut c_char,
    ret_length: *mut usize,
    error: *mut CError,
) -> c_int {
    guarded(error, || {
        let text = (*template).render(text_from_c(variables, length, "the variables of the template")?, now_s)?;
        text_to_c(&text, ret_text, ret_length)
    })
}

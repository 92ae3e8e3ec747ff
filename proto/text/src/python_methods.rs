//! Methods of Python's strings and lists that pycompat lacks.

use minijinja::value::{from_args, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

pub fn call(state: &mut State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => match string_method(text, method, arguments) {
            Some(result) => result,
            None => pycompat::unknown_method_callback(state, value, method, arguments),
        },
        (ValueKind::Seq, _) if method == "index" => index_of(value, arguments),
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn not_found(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what} not found"))
}

fn index_of(list: &Value, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(arguments)?;
    match list.try_iter()?.position(|item| item == wanted) {
        Some(index) => Ok(Value::from(index)),
        None => Err(not_found("item")),
    }
}

fn string_method(text: &str, method: &str, arguments: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "removeprefix" => one(arguments, |part| Ok(Value::from(text.strip_prefix(part).unwrap_or(text)))),
        "removesuffix" => one(arguments, |part| Ok(Value::from(text.strip_suffix(part).unwrap_or(text)))),
        "partition" => one(arguments, |part| {
            separator(part)?;
            Ok(match text.split_once(part) {
                Some((before, after)) => triple(before, part, after),
                None => triple(text, "", ""),
            })
        }),
        "rpartition" => one(arguments, |part| {
            separator(part)?;
            Ok(match text.rsplit_once(part) {
                Some((before, after)) => triple(before, part, after),
                None => triple("", "", text),
            })
        }),
        "rsplit" => from_args(arguments).and_then(|(part, most): (&str, Option<i64>)| {
            separator(part)?;
            let most = usize::try_from(most.unwrap_or(-1)).map_or(usize::MAX, |most| most + 1);
            let mut parts: Vec<Value> = text.rsplitn(most, part).map(Value::from).collect();
            parts.reverse();
            Ok(Value::from(parts))
        }),
        "index" => one(arguments, |part| {
            let byte = text.find(part).ok_or_else(|| not_found("substring"))?;
            Ok(Value::from(text[..byte].chars().count()))
        }),
        _ => return None,
    })
}

fn one(arguments: &[Value], method: impl FnOnce(&str) -> Result<Value, Error>) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(arguments)?;
    method(part)
}

fn separator(part: &str) -> Result<(), Error> {
    if part.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(())
}

fn triple(before: &str, part: &str, after: &str) -> Value {
    Value::from(Tuple::from(vec![Value::from(before), Value::from(part), Value::from(after)]))
}

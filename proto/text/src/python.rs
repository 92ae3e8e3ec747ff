//! Values as Python writes them: str(), and json.dumps with the arguments that chat templates give it.

use std::fmt::Write;

use minijinja::value::{ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

const MAX_DEPTH: usize = 200;

/// A finite float as Python's repr() writes it: the shortest digits that tell it apart, an exponent from 1e16 on and
/// below 1e-4.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// str(value) for what is not a string.
pub fn text(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    representation(state, value, &mut out, 0)?;
    Ok(out)
}

fn representation(state: &State, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a value nested deeper than {MAX_DEPTH} levels")));
    }
    let start = out.len();
    match value.kind() {
        ValueKind::Number if !value.is_integer() => out.push_str(&float(f64::try_from(value.clone())?)),
        ValueKind::Seq => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            for (index, item) in value.try_iter()?.enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                representation(state, &item, out, depth + 1)?;
            }
            out.push_str(if value.is_tuple() && value.len() == Some(1) { "," } else { "" });
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                representation(state, &key, out, depth + 1)?;
                out.push_str(": ");
                representation(state, &value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::String => write!(out, "{value:?}").map_err(|_| cannot("a string"))?,
        _ => write!(out, "{value}").map_err(|_| cannot("a value"))?,
    }
    state.consume_fuel(1 + (out.len() - start) as u64 / 64)
}

/// The arguments of json.dumps.
pub struct Style {
    pub ensure_ascii: bool,
    /// What one level is indented by; None: all on one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// json.dumps of the value. Whatever it could not write in Python is an error here.
pub fn json(state: &State, value: &Value, style: &Style) -> Result<String, Error> {
    let mut writer = Writer { state, style, out: String::new(), charged: 0, depth: 0 };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer<'a> {
    state: &'a State<'a, 'a>,
    style: &'a Style,
    out: String,
    /// Bytes that fuel was paid for.
    charged: usize,
    depth: usize,
}

fn cannot(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {what} is not JSON serializable"))
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value.try_iter()?)?,
            ValueKind::Map => self.map(value)?,
            kind => return Err(cannot(kind)),
        }
        self.pay()
    }

    /// Each 64 bytes cost as much as an instruction.
    fn pay(&mut self) -> Result<(), Error> {
        let units = (self.out.len() - self.charged) / 64;
        self.charged += units * 64;
        self.state.consume_fuel(1 + units as u64)
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            write!(self.out, "{value}").map_err(|_| cannot("a number"))
        } else {
            let number = f64::try_from(value.clone())?;
            self.out.push_str(&match float(number).as_str() {
                "nan" => "NaN".into(),
                "inf" => "Infinity".into(),
                "-inf" => "-Infinity".into(),
                finite => finite.to_owned(),
            });
            Ok(())
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                _ if character < ' ' || (self.style.ensure_ascii && !(' '..='~').contains(&character)) => {
                    self.escape(character)
                }
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    /// `\uXXXX`, as two surrogates above U+FFFF.
    fn escape(&mut self, character: char) {
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }

    fn open(&mut self, bracket: char) -> Result<(), Error> {
        self.out.push(bracket);
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(cannot(format!("a value nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    fn close(&mut self, bracket: char, empty: bool) {
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push(bracket);
    }

    fn line(&mut self) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(self.depth));
        }
    }

    fn item(&mut self, first: bool) {
        if !first {
            self.out.push_str(&self.style.item_separator);
        }
        self.line();
    }

    fn list(&mut self, items: ValueIter) -> Result<(), Error> {
        self.open('[')?;
        let mut empty = true;
        for item in items {
            self.item(empty);
            empty = false;
            self.value(&item)?;
        }
        self.close(']', empty);
        Ok(())
    }

    fn map(&mut self, map: &Value) -> Result<(), Error> {
        let mut keys: Vec<Value> = map.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.open('{')?;
        for (index, key) in keys.iter().enumerate() {
            self.item(index == 0);
            self.key(key)?;
            self.out.push_str(&self.style.key_separator);
            self.value(&map.get_item(key)?)?;
        }
        self.close('}', keys.is_empty());
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None => self.string("null"),
            ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                self.out.push('"');
                self.number(key)?;
                self.out.push('"');
            }
            kind => return Err(cannot(format!("a key of the kind {kind}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_are_written_as_python_does() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(value), text);
        }
    }
}

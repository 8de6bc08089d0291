//! JSON from strangers, read strictly, and its canonical form (RFC 8785).
//!
//! Two readers of one signed text must never see different values. So [`read`] refuses what parsers are known
//! to read differently, and what I-JSON (RFC 7493) excludes.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
pub use serde_json::Value;
use serde_json::{Map, Number};

/// The longest JSON text, in bytes. A DID document, a credential or a staple on the wire has at most 16 KiB.
pub const MAX_JSON: usize = 16 * 1024;

/// How deep arrays and objects may be nested. Credentials in use have fewer than ten levels.
pub const MAX_JSON_DEPTH: usize = 32;

/// The largest integer that every I-JSON reader represents exactly (RFC 7493 §2.2).
pub(crate) const MAX_INTEGER: u64 = (1 << 53) - 1;

/// How many characters of a name an error shows.
const SHOWN: usize = 64;

/// Why a text is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct JsonError {
    /// The fault.
    pub fault: JsonFault,
    /// The line, counted from 1.
    pub line: usize,
    /// The byte in the line, counted from 1; 0 where the text as a whole is refused.
    pub column: usize,
}

/// A fault in a JSON text or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonFault {
    /// The text is longer than the limit, which is given in bytes.
    #[error("the JSON text is longer than {0} bytes")]
    TooLong(usize),
    /// Arrays and objects are nested more than [`MAX_JSON_DEPTH`] deep.
    #[error("arrays and objects are nested more than {MAX_JSON_DEPTH} deep")]
    TooDeep,
    /// An object has two members of this name (RFC 7493 §2.3).
    #[error("the object has two members {0:?}")]
    Duplicate(String),
    /// A number exceeds a double, or an integer exceeds 2^53 - 1 (RFC 7493 §2.2).
    #[error("the number is too large for I-JSON; write it as a string")]
    Number,
    /// A string has a code point that Unicode reserves as a noncharacter (RFC 7493 §2.1).
    #[error("a string contains a noncharacter, which I-JSON excludes")]
    Noncharacter,
    /// Bytes follow the value.
    #[error("data follows the JSON value")]
    Trailing,
    /// The text is not JSON; the parser's reason.
    #[error("{0}")]
    Syntax(String),
}

/// Reads a text of at most [`MAX_JSON`] bytes.
///
/// # Errors
/// The first fault in the text, with its position.
pub fn read(text: &[u8]) -> Result<Value, JsonError> {
    read_bounded(text, MAX_JSON)
}

/// Reads a text of at most `limit` bytes.
///
/// # Errors
/// The first fault in the text, with its position.
pub fn read_bounded(text: &[u8], limit: usize) -> Result<Value, JsonError> {
    if text.len() > limit {
        return Err(JsonError { fault: JsonFault::TooLong(limit), line: 1, column: 0 });
    }
    let fault = Cell::new(None);
    let mut parser = serde_json::Deserializer::from_slice(text);
    let value = Element { depth: 0, fault: &fault }.deserialize(&mut parser);
    let value = value.map_err(|error| positioned(&error, fault.take()))?;
    parser.end().map_err(|error| positioned(&error, Some(JsonFault::Trailing)))?;
    large_integer(text)?;
    Ok(value)
}

fn positioned(error: &serde_json::Error, fault: Option<JsonFault>) -> JsonError {
    let fault = fault.unwrap_or_else(|| {
        let text = error.to_string();
        // The parser's text ends with its position, which this error has in fields.
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        if reason == "number out of range" { JsonFault::Number } else { JsonFault::Syntax(reason.to_owned()) }
    });
    JsonError { fault, line: error.line(), column: error.column() }
}

/// Finds an integer beyond 2^53 - 1 in valid JSON, or a number whose canonical form is one. The parser turns
/// one beyond 64 bits into a double, which a Value no longer shows.
fn large_integer(text: &[u8]) -> Result<(), JsonError> {
    let mut line = 1;
    let mut start = 0;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while let Some(byte) = text.get(at).filter(|byte| **byte != b'"') {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let rest = text.get(at..).unwrap_or_default();
                let length = rest.iter().take_while(|byte| b"+-.eE0123456789".contains(byte)).count();
                let token = rest.get(..length).unwrap_or_default();
                let digits = token.strip_prefix(b"-").unwrap_or(token);
                let integer = digits.iter().all(u8::is_ascii_digit);
                let value = str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
                let double = str::from_utf8(token).ok().and_then(|token| token.parse::<f64>().ok());
                if integer && value.is_none_or(|value| value > MAX_INTEGER)
                    || double.is_some_and(is_long_integer)
                {
                    return Err(JsonError { fault: JsonFault::Number, line, column: at - start + 1 });
                }
                at += length;
            }
            b'\n' => {
                line += 1;
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// Reads one value below `depth` arrays and objects.
#[derive(Clone, Copy)]
struct Element<'f> {
    depth: usize,
    fault: &'f Cell<Option<JsonFault>>,
}

impl Element<'_> {
    /// The parser adds the position to the error; the fault goes beside it.
    fn refuse<T, E: serde::de::Error>(self, fault: JsonFault) -> Result<T, E> {
        self.fault.set(Some(fault));
        Err(E::custom(""))
    }

    fn text<E: serde::de::Error>(self, text: String) -> Result<String, E> {
        if text.chars().any(is_noncharacter) { self.refuse(JsonFault::Noncharacter) } else { Ok(text) }
    }

    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_JSON_DEPTH {
            return self.refuse(JsonFault::TooDeep);
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

/// The last two code points of each plane, and U+FDD0 to U+FDEF (Unicode §23.7).
pub(crate) fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => Ok(Value::Number(number)),
            None => self.refuse(JsonFault::Number),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.text(value).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(inner)? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let name = self.text(name)?;
            // RFC 7493 §2.3: names are unique, compared after unescaping.
            if object.contains_key(&name) {
                return self.refuse(JsonFault::Duplicate(name.chars().take(SHOWN).collect()));
            }
            let value = members.next_value_seed(inner)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Whether the canonical form of this number would be an integer that [`read`] refuses (RFC 8785 §3.2.2.3
/// writes none of 22 digits). So what can be read can also be read again in its canonical form. Every number
/// of this size is an integer.
pub(crate) fn is_long_integer(value: f64) -> bool {
    value.abs() > MAX_INTEGER as f64 && value.abs() < 1e21
}

/// The canonical form of a value (RFC 8785), in which signatures and hashes cover it.
///
/// # Errors
/// [`JsonFault::TooDeep`]; [`JsonFault::Number`] for an integer that no double represents exactly. Neither
/// happens to a value that [`read`] returned.
pub fn canonical(value: &Value) -> Result<String, JsonFault> {
    let mut text = String::new();
    write(value, &mut text, 0)?;
    Ok(text)
}

fn write(value: &Value, text: &mut String, depth: usize) -> Result<(), JsonFault> {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => text.push_str(ryu_js::Buffer::new().format_finite(double(number)?)),
        Value::String(string) => quote(string, text),
        Value::Array(_) | Value::Object(_) if depth == MAX_JSON_DEPTH => return Err(JsonFault::TooDeep),
        Value::Array(elements) => {
            let mut separator = '[';
            for element in elements {
                text.push(separator);
                write(element, text, depth + 1)?;
                separator = ',';
            }
            text.push_str(if elements.is_empty() { "[]" } else { "]" });
        }
        Value::Object(members) => {
            // RFC 8785 §3.2.3: members are sorted by the UTF-16 code units of their names.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            let mut separator = '{';
            for (name, member) in &sorted {
                text.push(separator);
                quote(name, text);
                text.push(':');
                write(member, text, depth + 1)?;
                separator = ',';
            }
            text.push_str(if sorted.is_empty() { "{}" } else { "}" });
        }
    }
    Ok(())
}

/// The double that RFC 8785 §3.2.2.3 formats.
fn double(number: &Number) -> Result<f64, JsonFault> {
    let integer = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    if integer.is_some_and(|integer| integer > MAX_INTEGER) {
        return Err(JsonFault::Number);
    }
    number.as_f64().filter(|double| double.is_finite()).ok_or(JsonFault::Number)
}

/// Writes a string. serde_json escapes exactly what RFC 8785 §3.2.2.2 does, in the same form.
fn quote(string: &str, text: &mut String) {
    let is_escaped = |byte| byte < b' ' || byte == b'"' || byte == b'\\';
    if string.bytes().any(is_escaped) {
        text.push_str(&Value::from(string).to_string());
    } else {
        text.push('"');
        text.push_str(string);
        text.push('"');
    }
}

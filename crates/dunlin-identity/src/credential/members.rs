//! Members of a credential that nothing here uses. A verifier still refuses those that are malformed (VC Data
//! Model 2.0 §4).

use alloc::vec;
use alloc::vec::Vec;

use serde_json::{Map, Value};

/// A member, and whether a value of it is well formed.
type Rule = (&'static str, fn(&Value) -> bool);

const RULES: [Rule; 8] = [
    // §4.4
    ("id", is_url),
    // §4.6
    ("name", is_text),
    ("description", is_text),
    // §5.4, §5.6, §5.7 and the reserved members of §5.10
    ("refreshService", has_type),
    ("evidence", has_type),
    ("renderMethod", has_type),
    ("confidenceMethod", has_type),
    // §5.3
    ("relatedResource", is_resource),
];

/// Checks the form of these members.
///
/// # Errors
/// The name of the first malformed one.
pub(super) fn check(credential: &Map<String, Value>) -> Result<(), &'static str> {
    let is_malformed = |(name, is_right): &Rule| {
        credential.get(*name).is_some_and(|value| {
            let values = values(value);
            // An id names one thing.
            let is_single = *name != "id" || !value.is_array();
            !is_single || values.is_empty() || !values.into_iter().all(is_right)
        })
    };
    match RULES.iter().find(|rule| is_malformed(rule)) {
        Some((name, _)) => Err(name),
        None => Ok(()),
    }
}

/// The values of a member that has one or several.
fn values(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    }
}

/// Whether this begins as a URL: a scheme and a colon (RFC 3986 §3.1).
fn is_url(value: &Value) -> bool {
    let scheme = value.as_str().and_then(|text| text.split_once(':')).map(|(scheme, _)| scheme.as_bytes());
    scheme.is_some_and(|scheme| {
        scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
    })
}

/// Whether this is a text, or one with its language (§11.1).
fn is_text(value: &Value) -> bool {
    value.is_string() || value.get("@value").is_some_and(Value::is_string)
}

/// Whether this object names its type.
fn has_type(value: &Value) -> bool {
    let types = value.get("type").map(values).unwrap_or_default();
    !types.is_empty() && types.into_iter().all(Value::is_string)
}

/// Whether this names a resource and its digest.
fn is_resource(value: &Value) -> bool {
    let has_digest = ["digestSRI", "digestMultibase"].iter().any(|name| value.get(name).is_some());
    value.get("id").is_some_and(is_url) && has_digest
}

//! The short form of a credential in CBOR: what every credential says, and text that is binary data, take
//! fewer bytes.
//!
//! Each credential has one short form. [`expand`] refuses every other item.

use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::{Map, Number, Value, json};

use super::CREDENTIALS_V2;
use super::cose_error::CoseError;
use super::time::DateTime;
use crate::did::Did;
use crate::encoding::cbor::Cbor;
use crate::encoding::json::{self, JsonFault, MAX_INTEGER, MAX_JSON_DEPTH};
use crate::key::{MAX_MULTIBASE, base58btc, multibase_decode};

/// The names of members whose label is their place in this list, at every depth. Add new ones at the end.
const NAMES: [&str; 16] = [
    "@context",
    "issuer",
    "credentialSubject",
    "validFrom",
    "validUntil",
    "type",
    "id",
    "credentialStatus",
    "statusPurpose",
    "statusListIndex",
    "statusListCredential",
    "credentialSchema",
    "name",
    "description",
    "encodedList",
    "ttl",
];

/// Texts that are written as their place in this list. Add new ones at the end.
const TEXTS: [&str; 9] = [
    CREDENTIALS_V2,
    "VerifiableCredential",
    "BitstringStatusListEntry",
    "BitstringStatusListCredential",
    "BitstringStatusList",
    "revocation",
    "suspension",
    "https://w3id.org/security/data-integrity/v2",
    "https://w3id.org/security/multikey/v1",
];

/// The first byte of a byte string says which texts the others stand for. DID methods have the codes that
/// they have in handshakes.
const CONSTANT: u8 = 0;
const UUID: u8 = 1;
const TIME: u8 = 2;
const BASE64URL: u8 = 3;
const DID_DUNLIN: u8 = 0xe0;
const DID_KEY: u8 = 0xe1;
const DID_JWK: u8 = 0xe2;
const DID_WEB: u8 = 0xe3;

/// Shorter texts in base64url stay as they are: they may be words.
const MIN_BASE64URL: usize = 64;

/// The context and type of a credential that has no others; the short form leaves them out.
fn defaults() -> [(&'static str, Value); 2] {
    [("@context", json!([CREDENTIALS_V2])), ("type", json!(["VerifiableCredential"]))]
}

/// The short form of a credential, which is an object.
pub(super) fn compact(credential: &Value) -> Result<Cbor, CoseError> {
    let mut members = credential.as_object().ok_or(CoseError::Payload)?.clone();
    for (name, value) in defaults() {
        if members.get(name) == Some(&value) {
            members.remove(name);
        }
    }
    if let Some(Value::Object(subject)) = members.get("credentialSubject")
        && subject.len() == 1
        && let Some(id @ Value::String(_)) = subject.get("id")
    {
        let id = id.clone();
        members.insert("credentialSubject".to_owned(), id);
    }
    item(&Value::Object(members), 0)
}

/// The credential that an item is the short form of.
pub(super) fn expand(payload: &Cbor) -> Result<Value, CoseError> {
    let Value::Object(mut members) = value(payload)? else { return Err(CoseError::Payload) };
    for (name, value) in defaults() {
        members.entry(name).or_insert(value);
    }
    if let Some(subject) = members.get_mut("credentialSubject")
        && subject.is_string()
    {
        *subject = json!({"id": subject.take()});
    }
    let credential = Value::Object(members);
    // So a credential has one form, although texts and names could be written in two ways.
    if compact(&credential)? == *payload { Ok(credential) } else { Err(CoseError::NotShort) }
}

fn item(value: &Value, depth: usize) -> Result<Cbor, CoseError> {
    if depth > MAX_JSON_DEPTH {
        return Err(JsonFault::TooDeep.into());
    }
    Ok(match value {
        Value::Null => Cbor::Null,
        Value::Bool(value) => Cbor::Bool(*value),
        Value::Number(number) => number_item(number)?,
        Value::String(text) => short(text).map_or_else(|| Cbor::Text(text.clone()), Cbor::Bytes),
        Value::Array(elements) => {
            Cbor::Array(elements.iter().map(|element| item(element, depth + 1)).collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let entry = |(name, value): (&String, &Value)| {
                let label = (0..).zip(NAMES).find(|(_, known)| name == known);
                let label =
                    label.map_or_else(|| Cbor::Text(name.clone()), |(label, _)| Cbor::Unsigned(label));
                Ok::<_, CoseError>((label, item(value, depth + 1)?))
            };
            let mut entries = members.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
            entries.sort_by_cached_key(|(label, _)| crate::encoding::cbor::write(label));
            Cbor::Map(entries)
        }
    })
}

/// RFC 8785 writes an integer alike, whether it came as one or with a fraction of zero; so does CBOR here.
fn number_item(number: &Number) -> Result<Cbor, CoseError> {
    let float = number.as_f64().filter(|float| float.is_finite()).ok_or(JsonFault::Number)?;
    let is_integral = float.fract() == 0.0 && float.abs() < 2_f64.powi(53);
    let integer = number.as_i64().or_else(|| is_integral.then_some(float as i64));
    match integer {
        Some(integer) if integer.unsigned_abs() <= MAX_INTEGER => Ok(integer.into()),
        None if !number.is_u64() => Ok(Cbor::Float(float)),
        _ => Err(JsonFault::Number.into()),
    }
}

fn value(item: &Cbor) -> Result<Value, CoseError> {
    Ok(match item {
        Cbor::Null => Value::Null,
        Cbor::Bool(value) => (*value).into(),
        Cbor::Unsigned(_) | Cbor::Negative(_) => item.as_integer().ok_or(JsonFault::Number)?.into(),
        Cbor::Float(number) if json::is_long_integer(*number) => return Err(JsonFault::Number.into()),
        Cbor::Float(number) => Number::from_f64(*number).ok_or(JsonFault::Number)?.into(),
        Cbor::Text(text) => text.as_str().into(),
        Cbor::Bytes(bytes) => long(bytes).ok_or_else(|| CoseError::Bytes(shown(item)))?.into(),
        Cbor::Array(elements) => elements.iter().map(value).collect::<Result<_, _>>()?,
        Cbor::Map(entries) => {
            let mut members = Map::new();
            for (label, content) in entries {
                let known = match label {
                    Cbor::Unsigned(label) => usize::try_from(*label).ok().and_then(|label| NAMES.get(label)),
                    _ => None,
                };
                let name = match (known, label) {
                    (Some(name), _) => (*name).to_owned(),
                    (None, Cbor::Text(name)) => name.clone(),
                    _ => return Err(CoseError::Label(shown(label))),
                };
                // A label and a text may name one member.
                if members.insert(name.clone(), value(content)?).is_some() {
                    return Err(JsonFault::Duplicate(super::shown(&name)).into());
                }
            }
            Value::Object(members)
        }
        Cbor::Tag(..) => return Err(CoseError::Payload),
    })
}

fn shown(item: &Cbor) -> String {
    super::shown(&item.to_string())
}

/// The bytes that stand for a text; `None` if it has no short form.
fn short(text: &str) -> Option<Vec<u8>> {
    let with = |kind: u8, content: &[u8]| [&[kind], content].concat();
    if let Some((place, _)) = (0_u8..).zip(TEXTS).find(|(_, known)| *known == text) {
        return Some(with(CONSTANT, &[place]));
    }
    let bytes = if text.starts_with("did:") {
        let did: Did = text.parse().ok()?;
        let identifier = did.identifier();
        match did.method() {
            "dunlin" => with(DID_DUNLIN, &multibase_decode(&format!("z{identifier}")).ok()?),
            "key" => with(DID_KEY, &multibase_decode(identifier).ok()?),
            "jwk" => with(DID_JWK, &Base64UrlUnpadded::decode_vec(identifier).ok()?),
            "web" => with(DID_WEB, identifier.as_bytes()),
            _ => return None,
        }
    } else if let Some(uuid) = text.strip_prefix("urn:uuid:") {
        let digits: String = uuid.chars().filter(|c| *c != '-').collect();
        with(UUID, &u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
    } else if text.len() == 20 && text.ends_with('Z') {
        let seconds = u64::try_from(DateTime::read(&text.into())?.seconds()).ok()?;
        let content = seconds.to_be_bytes();
        let zeros = content.iter().take_while(|byte| **byte == 0).count();
        with(TIME, content.get(zeros..)?)
    } else if text.len() >= MIN_BASE64URL
        && let Some(rest) = text.strip_prefix('u')
    {
        with(BASE64URL, &Base64UrlUnpadded::decode_vec(rest).ok()?)
    } else {
        return None;
    };
    // Upper case, unusual punctuation and the like have no short form.
    (long(&bytes)? == text).then_some(bytes)
}

/// The text that bytes stand for.
fn long(bytes: &[u8]) -> Option<String> {
    let (kind, content) = bytes.split_first()?;
    match *kind {
        CONSTANT => match content {
            [place] => TEXTS.get(usize::from(*place)).map(|text| (*text).to_owned()),
            _ => None,
        },
        UUID => {
            let digits = format!("{:032x}", u128::from_be_bytes(content.try_into().ok()?));
            let parts =
                [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default());
            Some(format!("urn:uuid:{}", parts.join("-")))
        }
        TIME if content.len() <= 8 => {
            let seconds = content.iter().fold(0, |seconds, byte| seconds << 8 | u64::from(*byte));
            DateTime::from_seconds(i64::try_from(seconds).ok()?).map(|time| time.to_string())
        }
        BASE64URL => Some(format!("u{}", Base64UrlUnpadded::encode_string(content))),
        DID_DUNLIN if content.len() == 32 => {
            Some(format!("did:dunlin:{}", base58btc(content).strip_prefix('z')?))
        }
        // Encoding base58 takes quadratic time.
        DID_KEY if content.len() <= MAX_MULTIBASE => Some(format!("did:key:{}", base58btc(content))),
        DID_JWK => Some(format!("did:jwk:{}", Base64UrlUnpadded::encode_string(content))),
        DID_WEB => Some(format!("did:web:{}", str::from_utf8(content).ok()?)),
        _ => None,
    }
}

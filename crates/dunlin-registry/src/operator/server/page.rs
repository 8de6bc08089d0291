//! The pages that show the log and DIDs to people, without scripts and other resources. Their text is from
//! strangers, and is escaped.

use dunlin_identity::Did;
use dunlin_identity::encoding::json;
use dunlin_identity::method::dunlin::MAX_OPERATION;
use serde_json::Value;

use super::Source;
use crate::operator::error::RegistryError;
use crate::operator::history::{self, Entry, MAX_HISTORY};
use crate::operator::reader::{Reader, Resolution};

/// The most entries on a page of the log.
const SHOWN: u64 = 50;

/// The log, newest entries first, from the one before this number on.
pub(super) fn log(registry: &impl Source, before: Option<u64>) -> Result<String, RegistryError> {
    let snapshot = registry.shown();
    let size = snapshot.size();
    let dids = snapshot.map().len();
    let end = before.unwrap_or(size).min(size);
    let first = end.saturating_sub(SHOWN);
    let entries = registry.entries(first, end)?;
    let rows = (first..end).rev().zip(entries.iter().rev());
    let rows: String = rows.map(|(number, entry)| row(number, entry, true)).collect();
    let origin = escaped(&snapshot.checkpoint().checkpoint().origin);
    let note = escaped(snapshot.text());
    let signer =
        |(role, key): (&str, String)| format!("<p>{}: <code>{}</code></p>\n", escaped(role), escaped(&key));
    let signers: String = registry.signers().into_iter().map(signer).collect();
    let newer = (end < size).then(|| link("/", "Newest entries"));
    let older = (first > 0).then(|| link(&format!("/?before={first}"), "Older entries"));
    Ok(page(
        &origin,
        &format!(
            "<h1>Registry {origin}</h1>\n<p>{size} entries, {dids} DIDs. <a href=\"/openapi.json\">Interface</a>, \
             <a href=\"/checkpoint\">checkpoint</a>.</p>\n\
             <h2>Keys</h2>\n{signers}\
             <h2>Newest checkpoint</h2>\n<pre>{note}</pre>\n\
             <h2>Log</h2>\n<table>\n\
             <tr><th>Entry</th><th>Operation</th><th>Sequence</th><th>DID</th></tr>\n{rows}</table>\n{}{}",
            newer.unwrap_or_default(),
            older.unwrap_or_default()
        ),
    ))
}

/// A DID that the registry has: its state, its document, and its operations from this one on.
pub(super) fn did(
    registry: &Reader,
    did: &Did,
    resolution: &Resolution,
    first: u64,
) -> Result<Option<String>, RegistryError> {
    let Some((leaf, document)) = &resolution.state else { return Ok(None) };
    let entries = registry.history(did, first)?;
    let rows: String =
        entries.iter().map(|Entry { number, operation }| row(*number, operation.as_bytes(), false)).collect();
    let state = if leaf.active { "Active" } else { "Deactivated" };
    let document = json::read_bounded(document.as_bytes(), MAX_OPERATION).ok();
    let document = document.map(|document| format!("{document:#}")).unwrap_or_default();
    let sequence = leaf.sequence;
    let did = escaped(did.as_str());
    let document = escaped(&document);
    let path = format!("/dids/{did}/page?from=");
    let earlier = (first > 0)
        .then(|| link(&format!("{path}{}", first.saturating_sub(MAX_HISTORY)), "Earlier operations"));
    let later = history::after(first, &entries, sequence)
        .map(|after| link(&format!("{path}{after}"), "Later operations"));
    Ok(Some(page(
        &did,
        &format!(
            "<h1>{did}</h1>\n<p>{state} after {sequence} changes. <a href=\"/\">Log</a>, <a href=\"/dids/{did}\">proof</a>, \
             <a href=\"/dids/{did}/history\">history</a>.</p>\n\
             <h2>Document</h2>\n<pre>{document}</pre>\n\
             <h2>Operations</h2>\n<table>\n\
             <tr><th>Entry</th><th>Operation</th><th>Sequence</th><th>Signed by</th></tr>\n{rows}</table>\n{}{}",
            earlier.unwrap_or_default(),
            later.unwrap_or_default()
        ),
    )))
}

/// The title is escaped already.
fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n{body}</html>\n"
    )
}

fn link(path: &str, text: &str) -> String {
    format!("<p><a href=\"{path}\">{text}</a></p>\n")
}

/// Anyone may ask for a page at any rate, so the keys in the operations, which were checked before, are not
/// read.
fn row(number: u64, entry: &[u8], of_log: bool) -> String {
    let Ok(operation) = json::read_bounded(entry, MAX_OPERATION) else {
        // The root of the state map.
        let root = escaped(&String::from_utf8_lossy(entry));
        return format!("<tr><td>{number}</td><td>map</td><td></td><td><code>{root}</code></td></tr>\n");
    };
    let text = |name| escaped(operation.get(name).and_then(Value::as_str).unwrap_or_default());
    let sequence = operation.get("sequence").and_then(Value::as_u64).unwrap_or_default();
    let last = if of_log {
        format!("<a href=\"/dids/{did}/page\">{did}</a>", did = text("did"))
    } else {
        format!("<code>{}</code>", text("key"))
    };
    format!("<tr><td>{number}</td><td>{}</td><td>{sequence}</td><td>{last}</td></tr>\n", text("type"))
}

/// The text in HTML. Invisible characters and those that change the direction of others have JSON's escapes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{61c}'
            | '\u{feff}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c if c.is_control() && c != '\n' => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

//! The page that shows the log to people: one page without scripts and other resources.

use dunlin_identity::json;
use dunlin_identity::method::dunlin::MAX_OPERATION;

use super::Source;
use crate::error::RegistryError;

/// How many of the latest entries the page shows.
const SHOWN: u64 = 50;

pub(super) fn page(registry: &impl Source) -> Result<String, RegistryError> {
    let snapshot = registry.shown();
    let (size, dids) = (snapshot.size(), snapshot.map().len());
    let first = size.saturating_sub(SHOWN);
    let entries = registry.entries(first, size)?;
    // The newest first.
    let rows: String =
        (first..size).rev().zip(entries.iter().rev()).map(|(number, entry)| row(number, entry)).collect();
    let (origin, note) = (escaped(&snapshot.checkpoint().checkpoint().origin), escaped(snapshot.text()));
    let signer =
        |(role, key): (&str, String)| format!("<p>{}: <code>{}</code></p>\n", escaped(role), escaped(&key));
    let signers: String = registry.signers().into_iter().map(signer).collect();
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{origin}</title>\n\
         <h1>Registry {origin}</h1>\n<p>{size} operations on {dids} DIDs. <a href=\"/openapi.json\">Interface</a>, \
         <a href=\"/checkpoint\">checkpoint</a>.</p>\n\
         <h2>Keys</h2>\n{signers}\
         <h2>Newest checkpoint</h2>\n<pre>{note}</pre>\n\
         <h2>Latest operations</h2>\n<table>\n\
         <tr><th>Entry</th><th>Operation</th><th>Sequence</th><th>DID</th></tr>\n{rows}</table>\n</html>\n"
    ))
}

/// Anyone may ask for the page at any rate, so the keys in the operations, which were checked before, are not read.
fn row(number: u64, entry: &[u8]) -> String {
    let Ok(operation) = json::read_bounded(entry, MAX_OPERATION) else { return String::new() };
    let text = |name| operation.get(name).and_then(|text| text.as_str()).unwrap_or_default();
    let [kind, did] = ["type", "did"].map(|name| escaped(text(name)));
    let sequence = operation.get("sequence").and_then(|number| number.as_u64()).unwrap_or_default();
    format!(
        "<tr><td>{number}</td><td>{kind}</td><td>{sequence}</td><td><a href=\"/dids/{did}\">{did}</a></td></tr>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

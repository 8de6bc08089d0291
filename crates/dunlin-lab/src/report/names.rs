//! Readable forms of the names of parameters and figures, which scripts read.

use serde_json::Value;

/// The suffixes of figures, and the units they stand for.
const UNITS: [(&str, &str); 9] = [
    ("_kbit_per_s", "kbit/s"),
    ("_per_s", "per s"),
    ("_instructions", "instructions"),
    ("_percent", "%"),
    ("_bytes", "bytes"),
    ("_mj", "mJ"),
    ("_us", "µs"),
    ("_ms", "ms"),
    ("_s", "s"),
];

/// Words in capitals.
const ACRONYMS: [&str; 6] = ["aes", "dtls", "ip", "mtu", "nat", "tls"];

/// Parameters whose texts need the name beside them.
const NAMED: [&str; 1] = ["aes"];

/// Returns the name without its unit, in words, and the unit, which may be empty.
pub(super) fn words(name: &str) -> (String, &'static str) {
    let split = UNITS.iter().find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, *unit)));
    let (name, unit) = split.filter(|(name, _)| !name.is_empty()).unwrap_or((name, ""));
    let word = |word: &str| if ACRONYMS.contains(&word) { word.to_uppercase() } else { word.to_owned() };
    (name.split('_').map(word).collect::<Vec<_>>().join(" "), unit)
}

/// Returns a parameter and its value in the shortest clear form.
pub(super) fn parameter(name: &str, value: &Value) -> String {
    let (words, unit) = words(name);
    match value {
        Value::String(text) if NAMED.contains(&name) => format!("{words} {text}"),
        Value::String(text) => text.clone(),
        Value::Bool(true) => words,
        Value::Bool(false) => format!("not {words}"),
        value if unit.is_empty() => format!("{words} {}", super::concise(value)),
        value => format!("{words} {} {unit}", super::concise(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn separates_units_from_names() {
        let names = [
            ("total_bytes", ("total", "bytes")),
            ("tls_bytes", ("TLS", "bytes")),
            ("carried_kbit_per_s", ("carried", "kbit/s")),
            ("round_trip_error_ms", ("round trip error", "ms")),
            ("packets", ("packets", "")),
            ("_ms", (" ms", "")),
        ];
        for (name, (words, unit)) in names {
            assert_eq!(super::words(name), (words.to_owned(), unit));
        }
    }

    #[test]
    fn names_values_clearly() {
        let cases = [
            ("mode", json!("vanilla"), "vanilla"),
            ("aes", json!("software"), "AES software"),
            ("mtu", json!(127), "MTU 127"),
            ("delay_ms", json!(5), "delay 5 ms"),
            ("busy", json!(false), "not busy"),
        ];
        for (name, value, shown) in cases {
            assert_eq!(parameter(name, &value), shown);
        }
    }
}

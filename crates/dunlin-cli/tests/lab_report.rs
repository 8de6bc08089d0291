//! `dunlin lab report`: the page, and what is told when there is none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use dunlin_lab::report::{Report, Row};

use crate::common::Place;

fn write(place: &Place, name: &str, report: &Report) {
    std::fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
    place.write(name, serde_json::to_vec_pretty(report).unwrap());
}

/// Rows as `caching` has them: they take real sockets, and privileges.
fn caching() -> Report {
    let row = |stack: &str, mtu: u32, tls: f64, packets: f64| {
        let layers = [("link_bytes", 14.0), ("ip_bytes", 20.0), ("transport_bytes", 32.0)];
        let total = tls + layers.iter().map(|(_, bytes)| bytes * packets).sum::<f64>();
        let row = Row::new().with("stack", stack).with("credential", "rsa2048").with("mtu", mtu);
        let row = row.with("mode", "vanilla").with("connection", "initial").figure("total_bytes", &[total]);
        let row = if mtu == 1500 { row.paper("total_bytes", 6043.0) } else { row };
        let row = layers.into_iter().fold(row, |row, (name, bytes)| row.figure(name, &[bytes * packets]));
        row.figure("tls_bytes", &[tls]).figure("packets", &[packets])
    };
    let rows = vec![
        row("dunlin", 127, 4287.0, 87.0),
        row("openssl", 127, 4575.0, 94.0),
        row("dunlin", 1500, 4287.0, 16.0),
        row("openssl", 1500, 4575.0, 19.0),
    ];
    Report::new("caching", "dunlin lab run caching --json lab/caching.json".into(), 1, 10, rows)
}

/// Rows as `link` has them.
fn link() -> Report {
    let row = |delay: u32, busy: bool, error: f64| {
        let row = Row::new().with("delay_ms", delay).with("busy", busy);
        let trip = 2.0 * f64::from(delay) + error;
        row.figure("round_trip_ms", &[trip]).figure("round_trip_error_ms", &[error])
    };
    let rate = Row::new().with("rate_kbit_per_s", 250).figure("carried_kbit_per_s", &[250.25]);
    let rows = vec![row(5, false, 0.513), row(5, true, 0.549), row(30, false, 0.333), rate];
    Report::new("link", "dunlin lab run link --json lab/link.json".into(), 1, 100, rows)
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn a_directory_becomes_a_page() {
    let place = Place::new();
    place.dunlin("lab run key-exchange --runs 2 --json lab/key-exchange.json");
    write(&place, "lab/link.json", &link());
    place.write("lab/notes.txt", "not of interest");
    let told = place.dunlin("lab report");
    assert_eq!(told, "lab/report.html: experiments 2, rows 14\n");
    let page = place.read("lab/report.html");
    let (first, second) = (page.find("<h2>key-exchange</h2>").unwrap(), page.find("<h2>link</h2>").unwrap());
    assert!(first < second, "by name");
    assert_eq!(count(&page, "<tbody>"), 2);
    assert_eq!(count(&page, "<tr"), 2 + 14);
    assert!(page.contains("<code>dunlin lab run key-exchange --runs 2 --json lab/key-exchange.json</code>"));
    // The draft counts 615 bytes for raw public keys, and stands in the same table.
    assert!(page.contains("<td class=\"n paper\">615</td>"), "{page}");
    // A second time, in place of the first, and with what lies there now.
    write(&place, "lab/a.json", &caching());
    assert!(place.dunlin("lab report").contains("experiments 3, rows 18"));
}

#[test]
fn files_are_taken_as_they_are_named() {
    let place = Place::new();
    write(&place, "z.json", &caching());
    write(&place, "a.json", &link());
    assert_eq!(
        place.dunlin("lab report z.json a.json --out pages/today"),
        "pages/today/report.html: experiments 2, rows 8\n"
    );
    let page = place.read("pages/today/report.html");
    assert!(page.find("<h2>caching</h2>").unwrap() < page.find("<h2>link</h2>").unwrap());
    place.dunlin("lab report --in . --out here");
    let page = place.read("here/report.html");
    assert!(page.find("<h2>link</h2>").unwrap() < page.find("<h2>caching</h2>").unwrap());
}

#[test]
fn what_cannot_be_read_is_told_in_a_line_and_nothing_is_written() {
    let place = Place::new();
    let advice = "make one by `dunlin lab run caching --json lab/caching.json`";
    let line = place.dunlin_fails("lab report", 1);
    assert!(line.contains("lab: no such directory") && line.contains(advice), "{line}");
    std::fs::create_dir(place.path("lab")).unwrap();
    let line = place.dunlin_fails("lab report", 1);
    assert!(line.contains("lab: no *.json in it") && line.contains(advice), "{line}");

    write(&place, "good.json", &link());
    let text = place.read("good.json");
    place.write("nested.json", text.replacen(": 0.513", ": [0.513]", 1));
    place.write("half.json", &text[..text.len() / 2]);
    place.write("foreign.json", "{\"flows\": []}");
    place.write("\u{1b}name.json", text.replacen("\"busy\"", "\"\\u001b\\n\"", 1).replacen("false", "{}", 1));
    let wrong = [
        ("nested.json", "nested.json: rows[0].round_trip_error_ms: invalid type: sequence"),
        ("half.json", "half.json: EOF while parsing"),
        ("foreign.json", "foreign.json: missing field `experiment`"),
        ("'\u{1b}name.json'", "\\u{1b}name.json: rows[0].\\u{1b}\\n: invalid type: map"),
        ("nowhere.json", "nowhere.json: no such file"),
    ];
    for (file, told) in wrong {
        let line = place.dunlin_fails(&format!("lab report good.json {file} --out pages"), 1);
        assert!(line.contains(told), "{line}");
    }
    let line = place.dunlin_fails(&format!("lab report {}", "good.json ".repeat(65)), 1);
    assert!(line.contains("65 files are more than 64"), "{line}");
    place.dunlin_fails("lab report good.json --in .", 2);
    assert!(!place.path("pages").exists() && !place.path("lab/report.html").exists());
}

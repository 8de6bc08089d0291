//! Tests the experiment `handover`, and the page that shows its figures.

use std::fs;
use std::path::Path;
use std::process::Command;

use dunlin_tests::place::Place;
use serde_json::json;

use crate::{first, number, run};

/// The matrix of docs/handover.md, and the costs of a scheme's first handshake.
#[test]
fn handover_goes_on_where_the_documentation_says() {
    let place = Place::new();
    let rows = run(&place, "handover --way virtual --quick --runs 1");
    let of = |scheme: &str, delay_ms: u64, figure: &str| {
        number(first(&rows, &json!({"scheme": scheme, "nat": "none", "delay_ms": delay_ms})), figure)
    };
    for row in &rows {
        let connects_again =
            ["standard", "session_id", "ticket"].iter().any(|scheme| row["scheme"] == *scheme);
        let blocks = ["port_restricted", "symmetric"].iter().any(|nat| row["nat"] == *nat);
        let is_lost = row["scheme"] == "ipc" && blocks;
        assert_eq!(row["wall_clock_s"].is_null(), is_lost, "{row}");
        assert!(is_lost || row["handshakes"] == 1.0 || connects_again, "{row}");
        assert_eq!(row["messages_missing"], 0.0, "{row}");
    }
    // The paper's "slightly higher overhead".
    let more = |scheme, figure| of(scheme, 30, figure) - of("standard", 30, figure);
    for scheme in ["ipc", "tcs", "tcs_message", "cid12"] {
        let bytes = more(scheme, "first_handshake_bytes");
        let packets = more(scheme, "first_handshake_packets");
        assert!(bytes > 0.0 && bytes < 250.0 && packets <= 3.0, "{scheme}: {bytes} bytes, {packets} packets");
        assert_eq!(more(scheme, "first_handshake_ms"), 0.0, "{scheme}");
    }
    assert!(more("cid13", "first_handshake_ms") < 0.0);

    // The page has the table that its tool makes of these rows.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output =
        Command::new(root.join("tools/handover-tables")).arg(place.path("rows.json")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = String::from_utf8(output.stdout).unwrap();
    let page = fs::read_to_string(root.join("docs/handover.md")).unwrap();
    let table = |text: &str| {
        let (_, rest) = text.split_once("<!-- table nats: tools/handover-tables -->\n\n").unwrap();
        rest.split_once("\n\n<!--").unwrap().0.to_owned()
    };
    assert_eq!(table(&made), table(&page));
    // Every table has its place in the page, and the times are there.
    for mark in made.lines().filter(|line| line.starts_with("<!-- table ")) {
        assert_eq!(page.matches(mark).count(), 1, "{mark}");
    }
    assert!(made.contains(&format!("| cid12 | {:.2} | ", of("cid12", 5, "wall_clock_s"))), "{made}");
}

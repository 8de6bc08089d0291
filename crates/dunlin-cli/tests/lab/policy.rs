//! Tests the experiment `policy`.

use std::path::Path;

use serde_json::Value;

use crate::common::Place;
use crate::{privileged, rows_of};

/// Signatures are counted, so they do not depend on the machine: a hint about the client saves the signature of RSA-4096 or all.
#[test]
fn hints_about_clients_save_the_servers_signatures() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    place.dunlin("lab run policy --quick --runs 1 --json rows.json");
    let rows = rows_of(&place, "rows.json");
    let ours: Vec<_> = rows.iter().filter(|row| row["stack"] == "dunlin").collect();
    for row in &ours {
        let expected = match row["strategy"].as_str().unwrap() {
            "renegotiation" => 2,
            "ticket" => 0,
            _ => 1,
        };
        assert_eq!(row["signatures"], expected, "{row}");
    }
    let of = |strategy, client, size: u64| {
        let wanted = |row: &&&Value| {
            row["strategy"] == strategy && row["client"] == client && row["size_bytes"] == size
        };
        *ours.iter().find(wanted).unwrap_or_else(|| panic!("{strategy}, {client}, {size} bytes"))
    };
    for size in [10 << 10, 100 << 10] {
        let clients =
            [("none", "openssl"), ("renegotiation", "openssl"), ("ticket", "openssl"), ("cached", "dunlin")];
        for (strategy, client) in clients {
            let row = of(strategy, client, size);
            assert!(row["paper_server_us"].as_f64() > Some(0.0), "{row}");
            assert_eq!(row["reduction_percent"].is_number(), strategy != "none", "{row}");
        }
    }
    // The paper's percentages, without and with a forced renegotiation.
    let paper =
        |strategy, client| of(strategy, client, 10 << 10)["paper_reduction_percent"].as_f64().unwrap();
    for (computed, said) in [(paper("ticket", "openssl"), 85.30), (paper("renegotiation", "openssl"), 69.68)]
    {
        assert!((computed - said).abs() < 0.02, "{computed} and {said} %");
    }
    // Apache is measured where it is installed.
    let is_installed = Path::new("/usr/sbin/apache2").exists();
    assert_eq!(rows.iter().any(|row| row["stack"] == "apache"), is_installed);
}

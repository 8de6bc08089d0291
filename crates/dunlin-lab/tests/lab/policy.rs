//! Tests the experiment `policy`.

use std::fs;
use std::process::Command;

use dunlin_tests::place::{Place, has_root};
use serde_json::{Value, json};

use crate::{first, number, run, with};

/// Signatures are counted, so they do not depend on the machine: a hint about the client saves the signature
/// of RSA-4096 or all.
#[test]
fn hints_about_clients_save_the_servers_signatures() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("captures")).unwrap();
    let rows = run(&place, "policy --quick --runs 1 --pcap captures");
    for row in with(&rows, &json!({"stack": "dunlin"})) {
        let expected = match row["strategy"].as_str().unwrap() {
            "renegotiation" | "renegotiation_highest" | "renegotiation_lowest" => 2,
            "ticket" | "psk" => 0,
            _ => 1,
        };
        assert_eq!(row["signatures"], expected, "{row}");
    }
    let of = |strategy, client, size: u64| {
        let of = json!({"stack": "dunlin", "strategy": strategy, "client": client, "size_bytes": size});
        first(&rows, &of)
    };
    for size in [10 << 10, 100 << 10] {
        let clients = [
            ("none", "openssl"),
            ("renegotiation_lowest", "openssl"),
            ("ticket", "openssl"),
            ("cached", "dunlin"),
        ];
        for (strategy, client) in clients {
            let row = of(strategy, client, size);
            assert!(row["paper_server_us"].as_f64() > Some(0.0), "{row}");
            assert_eq!(row["reduction_percent"].is_number(), strategy != "none", "{row}");
        }
    }
    // The paper's percentages, without and with a forced renegotiation.
    let paper = |strategy, client| number(of(strategy, client, 10 << 10), "paper_reduction_percent");
    let said = [(paper("ticket", "openssl"), 85.30), (paper("renegotiation_lowest", "openssl"), 69.68)];
    for (computed, said) in said {
        assert!((computed - said).abs() < 0.02, "{computed} and {said} %");
    }
    for (stack, client) in [("apache", "openssl"), ("apache", "curl"), ("dunlin", "curl")] {
        let found = with(&rows, &json!({"stack": stack, "client": client}));
        assert!(!found.is_empty(), "no rows of {stack} and {client}: run `tools/setup test`");
    }
    shows_the_papers_figures_5_and_6(&place);
}

/// The captures show the messages of one handshake and of two, each with its suite and with a signature of
/// the server's key. tshark decrypts them with the client's keys.
fn shows_the_papers_figures_5_and_6(place: &Place) {
    // The suite, and the length of the signature in the ServerKeyExchange.
    let [high, low, short] = [["0xc030", "512"], ["0xc02f", "256"], ["0xc02f", "128"]];
    let mut cases = vec![
        ("dunlin-none", vec![high]),
        ("dunlin-renegotiation", vec![high, low]),
        ("dunlin-renegotiation_highest", vec![high, high]),
        ("dunlin-renegotiation_lowest", vec![low, low]),
        // Apache keeps its certificate.
        ("apache-renegotiation", vec![high, ["0xc02f", "512"]]),
        ("apache-renegotiation_highest", vec![high, high]),
        ("apache-renegotiation_lowest", vec![low, low]),
    ];
    if cfg!(feature = "legacy-lab") {
        cases.push(("dunlin-renegotiation_lowest-rsa1024", vec![short, short]));
        cases.push(("apache-renegotiation_lowest-rsa1024", vec![short, short]));
    }
    for (case, handshakes) in cases {
        let [capture, keys] =
            ["pcap", "keys"].map(|extension| format!("captures/{case}-openssl-hardware.{extension}"));
        let mut tshark = Command::new("tshark");
        let messages = "tls.handshake.type == 2 || tls.handshake.type == 12";
        tshark.arg("-r").arg(place.path(&capture)).args(["-Y", messages, "-T", "fields"]);
        tshark.args(["-e", "tls.handshake.ciphersuite", "-e", "tls.handshake.sig_len", "-o"]);
        tshark.arg(format!("tls.keylog_file:{}", place.path(&keys).display()));
        let told = tshark.output().expect("tshark is missing: run `tools/setup test`");
        let told = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told.split_whitespace().collect::<Vec<_>>(), handshakes.concat(), "{case}");
    }
    let captures = fs::read_dir(place.path("captures")).unwrap().map(|entry| entry.unwrap().path());
    let captures: Vec<_> = captures.filter(|path| path.extension().is_some_and(|of| of == "pcap")).collect();
    assert!(captures.len() > 20, "{captures:?}");
    for capture in captures {
        let name = capture.file_name().unwrap().to_str().unwrap();
        let explained: Value =
            serde_json::from_str(&place.dunlin(&format!("explain --json captures/{name}"))).unwrap();
        let suite =
            explained["flows"].as_array().unwrap().iter().find_map(|flow| flow["cipher_suite"].as_str());
        assert!(suite.is_some(), "{name}: {explained}");
    }
}

//! Tests the experiment `gateway`.

use std::path::Path;

use dunlin_tests::place::{Place, has_root};
use serde_json::{Value, json};

use crate::{run, with};

/// The paths of the other programs in Debian.
const RIVALS: [(&str, &str); 3] = [
    ("stunnel", "/usr/bin/stunnel4"),
    ("haproxy", "/usr/sbin/haproxy"),
    ("nginx", "/usr/lib/nginx/modules/ngx_stream_module.so"),
];

/// The experiment itself checks that echoes are complete, and that handshakes are cached where they should
/// be.
#[test]
fn measures_the_gateway_beside_installed_rivals() {
    if !has_root() {
        return;
    }
    let rows = run(&Place::new(), "gateway --quick");
    let of = |stack: &str, part: &str| with(&rows, &json!({"stack": stack, "part": part}));
    let ours = of("dunlin", "connections");
    let kinds: Vec<_> = ours.iter().map(|row| [&row["credential"], &row["mode"]]).collect();
    assert_eq!(kinds, [["p256", "full"], ["p256", "cached"], ["rsa2048", "full"], ["rsa2048", "cached"]]);
    let is_rival_there = RIVALS.iter().any(|(_, program)| Path::new(program).exists());
    for row in &ours {
        assert!(row["connections_per_s"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["core_connections_per_s_ratio"].is_number(), is_rival_there, "{row}");
    }
    let all = ["dunlin"].into_iter().chain(RIVALS.map(|(stack, _)| stack));
    for stack in all {
        let program = RIVALS.iter().find(|(name, _)| *name == stack).map(|(_, program)| program);
        if program.is_some_and(|program| !Path::new(program).exists()) {
            assert_eq!(of(stack, "connections"), [&Value::Null; 0], "{stack}");
            continue;
        }
        for (part, figures) in [
            ("connections", ["connections_per_s", "server_us"]),
            ("concurrent", ["connect_p99_ms", "round_trip_p99_ms"]),
            ("upload", ["mb_per_s", "server_per_mb_us"]),
            ("download", ["mb_per_s", "server_per_mb_us"]),
        ] {
            let rows = of(stack, part);
            assert!(!rows.is_empty(), "{stack}, {part}");
            for (row, figure) in rows.into_iter().flat_map(|row| figures.map(|figure| (row, figure))) {
                assert!(row[figure].as_f64() > Some(0.0), "{figure}: {row}");
            }
        }
    }
    // The clients that stay.
    for protocol in ["tls", "dtls", "new tls"] {
        let rows = with(&rows, &json!({"stack": "dunlin", "part": "hold", "protocol": protocol}));
        let attacks: Vec<_> = rows.iter().map(|row| row["attack"].as_str().unwrap()).collect();
        assert_eq!(attacks, ["none", "flood", "half_open", "slow"], "{protocol}");
        for row in &rows {
            assert!(row["messages"].as_u64() > Some(0), "{row}");
            assert!(protocol != "tls" || row["lost"] == 0, "{row}");
            assert_eq!(row["attacks_per_s"].as_f64() > Some(0.0), row["attack"] != "none", "{row}");
        }
    }
    let memory = of("dunlin", "memory");
    let protocols: Vec<_> = memory.iter().map(|row| row["protocol"].as_str().unwrap()).collect();
    assert_eq!(protocols, ["tls", "dtls", "all, at the end"]);
}

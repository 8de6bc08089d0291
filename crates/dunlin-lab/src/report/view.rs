//! How to draw the plots of each experiment.

use super::compare::STACK;
use super::{Row, names};

/// How to draw an experiment.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// The caption, in one line; by default the name of the figure.
    pub(super) caption: Option<&'static str>,
    /// The figure of the bars' length; by default the first one of the rows.
    pub(super) figure: Option<&'static str>,
    /// The rows to draw.
    pub(super) rows: fn(&Row) -> bool,
    /// The figures whose sum it is.
    pub(super) parts: &'static [&'static str],
    /// The parameter that distinguishes the bars of a group.
    pub(super) bar: &'static str,
    /// The parameters that distinguish the groups of a panel; by default all but that of the bars. The
    /// remaining parameters distinguish panels.
    pub(super) group: &'static [&'static str],
    /// The reference to compare with.
    pub(super) reference: Reference,
}

/// A reference beside Dunlin's figures.
#[derive(Clone, Copy)]
pub(super) enum Reference {
    /// The figure and its parts in a paper, under the paper's name with its article.
    Paper(&'static str),
    /// The name of another figure of Dunlin, with the expected value.
    Figure(&'static str),
}

impl Reference {
    /// The name of the reference.
    pub(super) fn name(self) -> String {
        match self {
            Self::Paper(name) => name.to_owned(),
            Self::Figure(figure) => names::words(figure).0,
        }
    }
}

impl View {
    /// The view of an experiment that has no views: the first figure of each row, by stack.
    const PLAIN: Self = Self {
        caption: None,
        figure: None,
        rows: |_| true,
        parts: &[],
        bar: STACK,
        group: &[],
        reference: Reference::Paper("the paper"),
    };

    /// How to draw an experiment, plot by plot.
    pub(super) fn of(experiment: &str) -> Vec<Self> {
        match experiment {
            "caching" => caching(),
            "handover" => handover(),
            "identity" => identity(),
            "key-exchange" => key_exchange(),
            "policy" => policy(),
            "link" => vec![Self {
                caption: Some("By how many milliseconds a round trip is longer than twice the delay"),
                figure: Some("round_trip_error_ms"),
                bar: "busy",
                group: &["delay_ms"],
                ..View::PLAIN
            }],
            _ => vec![Self::PLAIN],
        }
    }
}

/// The plots of `caching`. Rows about bytes have an MTU, rows about radio networks a medium.
fn caching() -> Vec<View> {
    fn is(row: &Row, parameter: &str, value: &str) -> bool {
        row.get(parameter).is_some_and(|of| of == value)
    }
    fn is_on_link(row: &Row) -> bool {
        row.get("mtu").is_some()
    }
    let bytes = View {
        figure: Some("total_bytes"),
        parts: &["tls_bytes", "transport_bytes", "ip_bytes", "link_bytes"],
        group: &["mode", "connection"],
        ..View::PLAIN
    };
    let computed = View { bar: "mode", group: &["chain_length"], ..View::PLAIN };
    let on_air = |caption, rows| View {
        caption: Some(caption),
        figure: Some("airtime_ms"),
        rows,
        parts: &["client_airtime_ms", "server_airtime_ms"],
        bar: "mode",
        group: &["connection"],
        ..View::PLAIN
    };
    vec![
        View {
            caption: Some("Bytes of a connection on the link, by layer, beside the paper's totals"),
            rows: |row| {
                let other = row.get("credential").is_some_and(|of| of != "rsa2048");
                is_on_link(row) && !other && row.get("server_credential").is_none()
            },
            ..bytes
        },
        View {
            caption: Some("Bytes of a repeated connection with other keys, at an MTU of 1500"),
            rows: |row| {
                let other = row.get("credential").is_some_and(|of| of != "rsa2048");
                other && is(row, "connection", "repeat") && row.number("mtu") == Some(1500.0)
            },
            group: &["mode"],
            ..bytes
        },
        View {
            caption: Some("Instructions of the client in a repeated handshake, by length of the chains"),
            figure: Some("client_instructions"),
            ..computed
        },
        View {
            caption: Some("Instructions of the server in a repeated handshake, by length of the chains"),
            figure: Some("server_instructions"),
            ..computed
        },
        View {
            caption: Some("Heap of a store by the number of its entries (the paper's figure 7)"),
            figure: Some("store_bytes"),
            // The paper draws small stores, which would vanish beside a large one.
            rows: |row| row.number("entries").is_some_and(|entries| entries <= 50.0),
            bar: "store",
            group: &["entries"],
            ..View::PLAIN
        },
        on_air("Time on the air over 802.15.4 in ms", |row| is(row, "medium", "ieee802154")),
        on_air("Time on the air over LoRaWAN, SF7, in ms", |row| is(row, "medium", "lorawan_sf7")),
        on_air("Time on the air over LoRaWAN, SF12, in ms", |row| is(row, "medium", "lorawan_sf12")),
        on_air("Time on the air over NB-IoT in ms", |row| is(row, "medium", "nb_iot")),
    ]
}

/// The plots of `handover`: the paper's figure 4 and its Table I, the time lost, and the NATs.
fn handover() -> Vec<View> {
    fn is(row: &Row, parameter: &str, value: &str) -> bool {
        row.get(parameter).is_some_and(|of| of == value)
    }
    /// The paper has neither NATs nor losses.
    fn is_plain(row: &Row) -> bool {
        is(row, "nat", "none") && row.number("loss_percent") == Some(0.0)
    }
    let plain = View {
        rows: |row| is_plain(row) && row.number("downtime_ms") == Some(5.0),
        bar: "delay_ms",
        group: &["stack", "scheme", "protocol", "server"],
        ..View::PLAIN
    };
    vec![
        View {
            caption: Some(
                "Time to 600 acknowledgements in s, 5 ms of downtime a handover, without NAT and loss \
                 (the paper's figure 4)",
            ),
            figure: Some("wall_clock_s"),
            ..plain
        },
        View {
            caption: Some("Time lost in each handover in ms, 5 ms of downtime, without NAT and loss"),
            figure: Some("lost_per_handover_ms"),
            ..plain
        },
        View {
            caption: Some(
                "Time saved in % against a new handshake with the single server, without NAT and loss \
                 (the paper's Table I)",
            ),
            figure: Some("saved_percent"),
            rows: is_plain,
            ..plain
        },
        View {
            caption: Some(
                "Time saved in % against a new handshake with the listening server, without NAT and loss \
                 (the paper's Table I)",
            ),
            figure: Some("saved_over_listening_percent"),
            rows: is_plain,
            ..plain
        },
        View {
            caption: Some(
                "Time saved in % against OpenSSL's new handshake with the single server, without NAT and loss \
                 (the paper's Table I)",
            ),
            figure: Some("saved_over_openssl_percent"),
            rows: is_plain,
            ..plain
        },
        View {
            caption: Some("Acknowledged messages behind each NAT, at a delay of 30 ms, without loss"),
            figure: Some("messages_acknowledged"),
            rows: |row| {
                let delay_and_downtime = [row.number("delay_ms"), row.number("downtime_ms")];
                row.number("loss_percent") == Some(0.0) && delay_and_downtime == [Some(30.0), Some(5.0)]
            },
            bar: "nat",
            ..plain
        },
        View {
            caption: Some("Bytes of the first handshake at a delay of 30 ms, with the headers of IP and UDP"),
            figure: Some("first_handshake_bytes"),
            rows: |row| {
                is_plain(row)
                    && row.number("delay_ms") == Some(30.0)
                    && row.number("downtime_ms") == Some(5.0)
            },
            ..plain
        },
    ]
}

/// The plots of `identity`: the paper's tables II to V, its model, and figures 4 and 5.
fn identity() -> Vec<View> {
    fn is(row: &Row, parameter: &str, value: &str) -> bool {
        row.get(parameter).is_some_and(|of| of == value)
    }
    /// Look-ups over the network take so long that other figures would vanish beside them.
    fn has_network(row: &Row) -> bool {
        row.get("delay_ms").is_some()
    }
    fn is_unilateral(row: &Row) -> bool {
        is(row, "client", "none") && !has_network(row)
    }
    /// Whether both sides show the same.
    fn is_mutual(row: &Row) -> bool {
        row.get("client").is_some_and(|client| row.get("server") == Some(client)) && !has_network(row)
    }
    let plain = View { bar: "server", group: &["client", "form", "resolver", "delay_ms"], ..View::PLAIN };
    let latency = |caption, rows| View { caption: Some(caption), figure: Some("latency_ms"), rows, ..plain };
    let difference = |caption, rows| View {
        caption: Some(caption),
        figure: Some("difference_ms"),
        rows,
        bar: "percentile",
        group: &["credential"],
        reference: Reference::Figure("model_difference_ms"),
        ..plain
    };
    vec![
        View {
            caption: Some("Bytes from the server to the client (the paper's Table II)"),
            figure: Some("server_bytes"),
            rows: is_unilateral,
            ..plain
        },
        View {
            caption: Some("Time to judge the peer's identity in ms (the paper's Table III)"),
            figure: Some("verify_ms"),
            bar: "message",
            ..plain
        },
        latency(
            "Latency at the server in ms, only the server authenticates (the paper's Table IV)",
            is_unilateral,
        ),
        latency("Latency at the server in ms, both sides show the same (the paper's Table IV)", is_mutual),
        latency(
            "Latency at the server in ms, the sides show different identities (the paper's Table V)",
            |row| row.get("client").is_some() && !is_unilateral(row) && !is_mutual(row) && !has_network(row),
        ),
        latency("Latency at the server in ms, where DIDs are looked up in a registry", has_network),
        View {
            caption: Some("Latency at the server in ms, beside the model of equations (1) to (8)"),
            figure: Some("latency_ms"),
            rows: |row| row.get("model_ms").is_some() && !has_network(row),
            reference: Reference::Figure("model_ms"),
            ..plain
        },
        difference(
            "How many ms longer a handshake with a credential takes than one with certificates, by percentile, beside the \
             model (the paper's figure 4)",
            |row| is(row, "figure", "4"),
        ),
        difference("The same where both sides show credentials (the paper's figure 5)", |row| {
            is(row, "figure", "5")
        }),
    ]
}

/// The parameter that distinguishes figures 9 and 10 of `key-exchange`.
const RATE: &str = "rate_kbit_per_s";

/// The plots of `key-exchange`: the paper's, and one of the draft.
fn key_exchange() -> Vec<View> {
    let plain = View {
        rows: |row| row.get("cipher").is_some(),
        group: &["mechanism", "authentication", "cipher", "key_bits"],
        ..View::PLAIN
    };
    let duration = |caption, rows| View {
        caption: Some(caption),
        figure: Some("duration_ms"),
        rows,
        reference: Reference::Figure("model_ms"),
        ..plain
    };
    vec![
        View {
            caption: Some("Bytes of a handshake, beside the paper's Table I"),
            figure: Some("handshake_bytes"),
            ..plain
        },
        View {
            caption: Some("Processing time of the client in µs, by operation (the paper's figures 5 and 7)"),
            figure: Some("client_us"),
            parts: &["client_key_us", "client_signature_us", "client_common_us"],
            ..plain
        },
        View {
            caption: Some("Processing time of the server in µs, by operation (the paper's figures 6 and 8)"),
            figure: Some("server_us"),
            parts: &["server_key_us", "server_signature_us", "server_common_us"],
            ..plain
        },
        duration(
            "Duration of a handshake in ms at 10 kbit/s, beside the model (the paper's figures 9 and 10 a)",
            |row| row.number(RATE) == Some(10.0),
        ),
        duration(
            "Duration of a handshake in ms at 100 kbit/s, beside the model (the paper's figures 9 and 10 b)",
            |row| row.number(RATE) == Some(100.0),
        ),
        duration(
            "Duration of a handshake in ms at 1 Mbit/s, beside the model (the paper's figures 9 and 10 c)",
            |row| row.number(RATE) == Some(1000.0),
        ),
        View {
            caption: Some("Bytes of the smallest handshakes by flight, beside those of the draft"),
            figure: Some("handshake_bytes"),
            rows: |row| row.get("flight1_bytes").is_some(),
            parts: &["flight1_bytes", "flight2_bytes", "flight3_bytes"],
            group: &["mechanism", "credential", "group"],
            reference: Reference::Paper("the draft"),
            ..plain
        },
    ]
}

/// The plots of `policy`: the server's time for each size, as in the paper's tables 3 and 4, since 10 MB
/// would dwarf 10 KB; and the reductions that the paper computes from these tables.
fn policy() -> Vec<View> {
    let plain = View {
        figure: Some("server_us"),
        group: &["strategy", "level", "client", "credential", "protocol"],
        ..View::PLAIN
    };
    let of = |caption, rows| View { caption: Some(caption), rows, ..plain };
    let operations = |caption, rows| View {
        caption: Some(caption),
        figure: Some("operation_us"),
        rows,
        bar: "algorithm",
        group: &["operation", "level"],
        ..View::PLAIN
    };
    vec![
        of("Server's time for an upload of 10 KB in µs", |row| row.number("size_bytes") == Some(10_240.0)),
        of("Server's time for an upload of 100 KB in µs", |row| row.number("size_bytes") == Some(102_400.0)),
        of("Server's time for an upload of 1 MB in µs", |row| row.number("size_bytes") == Some(1_048_576.0)),
        of("Server's time for an upload of 10 MB in µs", |row| {
            row.number("size_bytes") == Some(10_485_760.0)
        }),
        View {
            caption: Some(
                "By how many % the server's time is below that of the highest scheme, beside the paper's reductions",
            ),
            figure: Some("reduction_percent"),
            rows: |row| {
                row.get("strategy").is_some_and(|of| of == "lowest" || of == "renegotiation_lowest")
                    && row.get("client").is_none_or(|client| client == "openssl")
            },
            ..plain
        },
        operations("Time of an RSA operation in µs (the paper's figure 7 a, c, e)", |row| {
            row.get("operation").is_some_and(|of| of != "seal")
        }),
        operations("Time to encrypt a record of 16 KiB in µs (the paper's figure 7 b, d, f)", |row| {
            row.get("operation").is_some_and(|of| of == "seal")
        }),
    ]
}

/// The reference of an experiment.
pub(super) fn paper(experiment: &str) -> String {
    let mut names = Vec::new();
    for view in View::of(experiment) {
        if let Reference::Paper(name) = view.reference
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names.join(" or ")
}

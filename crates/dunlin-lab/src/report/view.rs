//! How to draw the plots of each experiment.

use super::compare::STACK;
use super::{Row, names};

/// How to draw an experiment.
#[derive(Clone)]
pub(super) struct View {
    /// The caption, in one line; by default the name of the figure.
    pub(super) caption: Option<String>,
    /// The figure of the bars' length; by default the first one of the rows.
    pub(super) figure: Option<&'static str>,
    /// The values of parameters that the drawn rows have.
    values: Vec<(&'static str, &'static str)>,
    /// Which of these rows are drawn.
    rows: fn(&Row) -> bool,
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
    fn plain() -> Self {
        Self {
            caption: None,
            figure: None,
            values: Vec::new(),
            rows: |_| true,
            parts: &[],
            bar: STACK,
            group: &[],
            reference: Reference::Paper("the paper"),
        }
    }

    fn by(bar: &'static str, group: &'static [&'static str]) -> Self {
        Self { bar, group, ..Self::plain() }
    }

    fn with(&self, name: &'static str, value: &'static str) -> Self {
        Self { values: [&self.values[..], &[(name, value)]].concat(), ..self.clone() }
    }

    fn among(&self, rows: fn(&Row) -> bool) -> Self {
        Self { rows, ..self.clone() }
    }

    fn of_parts(&self, parts: &'static [&'static str]) -> Self {
        Self { parts, ..self.clone() }
    }

    fn beside(&self, reference: Reference) -> Self {
        Self { reference, ..self.clone() }
    }

    fn plot(&self, figure: &'static str, caption: impl Into<String>) -> Self {
        Self { caption: Some(caption.into()), figure: Some(figure), ..self.clone() }
    }

    /// Returns whether the row is drawn.
    pub(super) fn has(&self, row: &Row) -> bool {
        self.values.iter().all(|(name, value)| row.is(name, value)) && (self.rows)(row)
    }

    /// How to draw an experiment, plot by plot.
    pub(super) fn of(experiment: &str) -> Vec<Self> {
        match experiment {
            "caching" => caching(),
            "handover" => handover(),
            "identity" => identity(),
            "key-exchange" => key_exchange(),
            "policy" => policy(),
            "link" => {
                let caption = "By how many milliseconds a round trip is longer than twice the delay";
                vec![Self::by("busy", &["delay_ms"]).plot("round_trip_error_ms", caption)]
            }
            _ => vec![Self::plain()],
        }
    }
}

/// The plots of `caching`. Rows about bytes have an MTU, rows about radio networks a medium.
fn caching() -> Vec<View> {
    fn has_other_keys(row: &Row) -> bool {
        row.has("credential") && !row.is("credential", "rsa2048")
    }
    fn has_the_papers_keys(row: &Row) -> bool {
        row.has("mtu") && !has_other_keys(row) && !row.has("server_credential")
    }
    let layers = &["tls_bytes", "transport_bytes", "ip_bytes", "link_bytes"];
    let bytes = View::by(STACK, &["mode", "connection"]).of_parts(layers).among(has_the_papers_keys);
    let others = View::by(STACK, &["mode"]).of_parts(layers).among(has_other_keys);
    let others = others.with("connection", "repeat").with("mtu", "1500");
    // The paper draws small stores, which would vanish beside a large one.
    let store = View::by("store", &["entries"])
        .among(|row| row.number("entries").is_some_and(|entries| entries <= 50.0));
    let computed =
        [("client", "client_instructions"), ("server", "server_instructions")].map(|(side, figure)| {
            let caption =
                format!("Instructions of the {side} in a repeated handshake, by length of the chains");
            View::by("mode", &["chain_length"]).plot(figure, caption)
        });
    let media = [
        ("ieee802154", "802.15.4 in ms"),
        ("lorawan_sf7", "LoRaWAN, SF7, in ms"),
        ("lorawan_sf12", "LoRaWAN, SF12, in ms"),
        ("nb_iot", "NB-IoT in ms"),
    ];
    let on_air = View::by("mode", &["connection"]).of_parts(&["client_airtime_ms", "server_airtime_ms"]);
    let on_air = media.map(|(medium, name)| {
        on_air.with("medium", medium).plot("airtime_ms", format!("Time on the air over {name}"))
    });
    let bytes = [
        bytes.plot("total_bytes", "Bytes of a connection on the link, by layer, beside the paper's totals"),
        others.plot("total_bytes", "Bytes of a repeated connection with other keys, at an MTU of 1500"),
    ];
    let store =
        store.plot("store_bytes", "Heap of a store by the number of its entries (the paper's figure 7)");
    bytes.into_iter().chain(computed).chain([store]).chain(on_air).collect()
}

/// The plots of `handover`: the paper's figure 4 and its Table I, the time lost, and the NATs.
fn handover() -> Vec<View> {
    let all = View::by("delay_ms", &["stack", "scheme", "protocol", "server"]).with("loss_percent", "0");
    // The paper has neither NATs nor losses.
    let plain = all.with("nat", "none");
    let short = plain.with("downtime_ms", "5");
    let by_nat = View { bar: "nat", ..all.with("delay_ms", "30").with("downtime_ms", "5") };
    let saved = [
        ("saved_percent", "a new handshake with the single server"),
        ("saved_over_listening_percent", "a new handshake with the listening server"),
        ("saved_over_openssl_percent", "OpenSSL's new handshake with the single server"),
    ];
    let saved = saved.map(|(figure, other)| {
        let caption = format!("Time saved in % against {other}, without NAT and loss (the paper's Table I)");
        plain.plot(figure, caption)
    });
    let times = [
        short.plot(
            "wall_clock_s",
            "Time to 600 acknowledgements in s, 5 ms of downtime a handover, without NAT and loss \
             (the paper's figure 4)",
        ),
        short.plot(
            "lost_per_handover_ms",
            "Time lost in each handover in ms, 5 ms of downtime, without NAT and loss",
        ),
    ];
    let others = [
        by_nat.plot(
            "messages_acknowledged",
            "Acknowledged messages behind each NAT, at a delay of 30 ms, without loss",
        ),
        short.with("delay_ms", "30").plot(
            "first_handshake_bytes",
            "Bytes of the first handshake at a delay of 30 ms, with the headers of IP and UDP",
        ),
    ];
    times.into_iter().chain(saved).chain(others).collect()
}

/// The plots of `identity`: the paper's tables II to V, its model, and figures 4 and 5.
fn identity() -> Vec<View> {
    /// Look-ups over the network take so long that other figures would vanish beside them.
    fn has_network(row: &Row) -> bool {
        row.has("delay_ms")
    }
    fn is_unilateral(row: &Row) -> bool {
        row.is("client", "none") && !has_network(row)
    }
    /// Whether both sides show the same.
    fn is_mutual(row: &Row) -> bool {
        row.get("client").is_some_and(|client| row.get("server") == Some(client)) && !has_network(row)
    }
    fn is_hybrid(row: &Row) -> bool {
        row.has("client") && !is_unilateral(row) && !is_mutual(row) && !has_network(row)
    }
    let plain = View::by("server", &["client", "form", "resolver", "delay_ms"]);
    let latency =
        |rows, what| plain.among(rows).plot("latency_ms", format!("Latency at the server in ms, {what}"));
    let modelled = plain.beside(Reference::Figure("model_ms"));
    let difference = View::by("percentile", &["credential"]).beside(Reference::Figure("model_difference_ms"));
    vec![
        plain
            .among(is_unilateral)
            .plot("server_bytes", "Bytes from the server to the client (the paper's Table II)"),
        View { bar: "message", ..plain.clone() }
            .plot("verify_ms", "Time to judge the peer's identity in ms (the paper's Table III)"),
        latency(is_unilateral, "only the server authenticates (the paper's Table IV)"),
        latency(is_mutual, "both sides show the same (the paper's Table IV)"),
        latency(is_hybrid, "the sides show different identities (the paper's Table V)"),
        latency(has_network, "where DIDs are looked up in a registry"),
        modelled
            .among(|row| row.has("model_ms") && !has_network(row))
            .plot("latency_ms", "Latency at the server in ms, beside the model of equations (1) to (8)"),
        difference.with("figure", "4").plot(
            "difference_ms",
            "How many ms longer a handshake with a credential takes than one with certificates, by percentile, beside the \
             model (the paper's figure 4)",
        ),
        difference
            .with("figure", "5")
            .plot("difference_ms", "The same where both sides show credentials (the paper's figure 5)"),
    ]
}

/// The plots of `key-exchange`: the paper's, and one of the draft.
fn key_exchange() -> Vec<View> {
    let plain = View::by(STACK, &["mechanism", "authentication", "cipher", "key_bits"]);
    let ciphers = plain.among(|row| row.has("cipher"));
    let client = ciphers.of_parts(&["client_key_us", "client_signature_us", "client_common_us"]);
    let server = ciphers.of_parts(&["server_key_us", "server_signature_us", "server_common_us"]);
    let rates = [("10", "10 kbit/s", "a"), ("100", "100 kbit/s", "b"), ("1000", "1 Mbit/s", "c")];
    let durations = rates.map(|(rate, name, part)| {
        let caption = format!(
            "Duration of a handshake in ms at {name}, beside the model (the paper's figures 9 and 10 {part})"
        );
        plain.with("rate_kbit_per_s", rate).beside(Reference::Figure("model_ms")).plot("duration_ms", caption)
    });
    let flights = View::by(STACK, &["mechanism", "credential", "group"])
        .of_parts(&["flight1_bytes", "flight2_bytes", "flight3_bytes"])
        .among(|row| row.has("flight1_bytes"))
        .beside(Reference::Paper("the draft"));
    let papers = [
        ciphers.plot("handshake_bytes", "Bytes of a handshake, beside the paper's Table I"),
        client.plot(
            "client_us",
            "Processing time of the client in µs, by operation (the paper's figures 5 and 7)",
        ),
        server.plot(
            "server_us",
            "Processing time of the server in µs, by operation (the paper's figures 6 and 8)",
        ),
    ];
    let flights = flights
        .plot("handshake_bytes", "Bytes of the smallest handshakes by flight, beside those of the draft");
    papers.into_iter().chain(durations).chain([flights]).collect()
}

/// The plots of `policy`: the server's time for each size, as in the paper's tables 3 and 4, since 10 MB
/// would dwarf 10 KB; and the reductions that the paper computes from these tables.
fn policy() -> Vec<View> {
    fn is_lowest(row: &Row) -> bool {
        let is_of_openssl = !row.has("client") || row.is("client", "openssl");
        is_of_openssl && (row.is("strategy", "lowest") || row.is("strategy", "renegotiation_lowest"))
    }
    let plain = View::by(STACK, &["strategy", "level", "client", "credential", "protocol"]);
    let sizes = [("10240", "10 KB"), ("102400", "100 KB"), ("1048576", "1 MB"), ("10485760", "10 MB")];
    let times = sizes.map(|(bytes, size)| {
        let caption = format!("Server's time for an upload of {size} in µs");
        plain.with("size_bytes", bytes).plot("server_us", caption)
    });
    let operations = View::by("algorithm", &["operation", "level"]);
    let others = [
        plain.among(is_lowest).plot(
            "reduction_percent",
            "By how many % the server's time is below that of the highest scheme, beside the paper's reductions",
        ),
        operations
            .among(|row| row.has("operation") && !row.is("operation", "seal"))
            .plot("operation_us", "Time of an RSA operation in µs (the paper's figure 7 a, c, e)"),
        operations
            .with("operation", "seal")
            .plot("operation_us", "Time to encrypt a record of 16 KiB in µs (the paper's figure 7 b, d, f)"),
    ];
    times.into_iter().chain(others).collect()
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

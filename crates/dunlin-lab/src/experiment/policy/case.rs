//! The measured cases: how the server learns who the client is, which client, how much it uploads, and the
//! paper's figures.

use crate::report::Row;

named! {
    /// How the server learns which scheme the client may have.
    pub(super) enum Strategy {
        /// Every client has the highest scheme.
        None = "none",
        /// The server has only the lowest scheme: the cost of the strategies without their overhead.
        Lowest = "lowest",
        /// The first handshake has the highest scheme and proves who the client is; the second one has the lowest
        /// scheme.
        Renegotiation = "renegotiation",
        /// Both handshakes have the highest scheme.
        RenegotiationHighest = "renegotiation_highest",
        /// Both handshakes have the lowest scheme.
        RenegotiationLowest = "renegotiation_lowest",
        /// A request over plain HTTP names the client; the server sends it to HTTPS, where its certificate must
        /// match.
        Redirection = "redirection",
        /// As `Redirection`, but the server asks for no certificate.
        RedirectionUnauthenticated = "redirection_unauthenticated",
        /// The server remembers the address of a client that has proven its identity earlier.
        Address = "address",
        /// The client resumes a session of the lowest scheme.
        Ticket = "ticket",
        /// The identity of a pre-shared key names the client; TLS 1.3.
        Psk = "psk",
        /// The ticket of the handshake cache names the client, which makes a full handshake.
        Cached = "cached",
        /// A client that prefers ChaCha20 gets it, with the key of the highest scheme.
        ChaCha20 = "chacha20",
    }
}

impl Strategy {
    /// Whether a request over plain HTTP comes first.
    pub(super) const fn is_redirection(self) -> bool {
        matches!(self, Self::Redirection | Self::RedirectionUnauthenticated)
    }

    /// Whether each connection has a second handshake.
    pub(super) const fn is_renegotiation(self) -> bool {
        matches!(self, Self::Renegotiation | Self::RenegotiationHighest | Self::RenegotiationLowest)
    }

    /// The part of a suite's name that shows the cipher of the upload.
    pub(super) const fn cipher(self) -> &'static str {
        match self {
            Self::None | Self::RenegotiationHighest => "AES256",
            Self::ChaCha20 => "CHACHA20",
            _ => "AES128",
        }
    }
}

named! {
    /// The server.
    pub(super) enum Stack {
        Dunlin = "dunlin",
        Apache = "apache",
    }
}

named! {
    /// The client. No client knows of the strategies.
    pub(super) enum ClientKind {
        OpenSsl = "openssl",
        Dunlin = "dunlin",
        Curl = "curl",
    }
}

named! {
    /// Whether both sides use the processor's instructions for AES.
    pub(super) enum Aes {
        Hardware = "hardware",
        Software = "software",
    }
}

named! {
    /// The server's key of the lowest scheme.
    pub(super) enum LowKey {
        Rsa2048 = "rsa2048",
        /// The paper's key.
        Rsa1024 = "rsa1024",
    }
}

/// A client and its server, which exist for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub(super) stack: Stack,
    pub(super) strategy: Strategy,
    pub(super) client: ClientKind,
    pub(super) aes: Aes,
    pub(super) low: LowKey,
}

/// The sizes of uploads: 10 KB, 100 KB, 1 MB, 10 MB.
pub(super) const SIZES: [usize; 4] = [10 << 10, 100 << 10, 1 << 20, 10 << 20];

/// The paper's Table 3, scenarios 1 to 4, in microseconds by size: the strategy has no overhead.
const TABLE_3: [[f64; 4]; 4] = [
    [7410.0, 8289.0, 15_025.0, 78_805.0],
    [785.0, 1456.0, 6900.0, 66_672.0],
    [5027.0, 5259.0, 6969.0, 28_137.0],
    [739.0, 952.0, 2675.0, 21_209.0],
];
/// The paper's Table 4, scenarios 1 to 4: every connection renegotiates. For 10 KB, scenarios 2 and 4 take
/// about twice the time of Table 3, and less than one handshake of the highest scheme. So both handshakes
/// must have the lowest scheme.
const TABLE_4: [[f64; 4]; 4] = [
    [15_105.0, 15_770.0, 22_478.0, 86_297.0],
    [1689.0, 2299.0, 7646.0, 67_415.0],
    [10_150.0, 10_412.0, 12_021.0, 32_836.0],
    [1524.0, 1878.0, 3565.0, 21_984.0],
];

impl Case {
    /// The parameters in a row.
    pub(super) fn row(&self, size: usize) -> Row {
        let (credential, level) = self.credential();
        Row::new()
            .with("stack", self.stack.name())
            .with("strategy", self.strategy.name())
            .with("level", level)
            .with("client", self.client.name())
            .with("credential", credential)
            .with("protocol", if self.strategy == Strategy::Psk { "tls1.3" } else { "tls1.2" })
            .with("size_bytes", size)
            .with("aes", self.aes.name())
            .with("way", "real")
    }

    /// The uploads of a round that count. `cached` and `lowest` differ in cost by less than two successive
    /// uploads of 10 MB do, so the cases of Dunlin's client have many.
    pub(super) const fn uploads(&self) -> u32 {
        match self.client {
            ClientKind::Dunlin => 16,
            ClientKind::OpenSsl | ClientKind::Curl => 1,
        }
    }

    /// The credential behind the keys of the upload, and its scheme's level in the paper's Table 1. The
    /// weakest algorithm decides: AES-128 and X25519 have the near-term level, which takes RSA-3072, and the
    /// legacy level takes RSA-1024.
    const fn credential(&self) -> (&'static str, &'static str) {
        match (self.strategy, self.stack, self.low) {
            (Strategy::None | Strategy::RenegotiationHighest | Strategy::ChaCha20, ..)
            // Apache shows the same certificate in its second handshake.
            | (Strategy::Renegotiation, Stack::Apache, _) => ("rsa4096", "near-term"),
            (Strategy::Psk, ..) => ("psk", "near-term"),
            (_, _, LowKey::Rsa2048) => ("rsa2048", "below near-term"),
            (_, _, LowKey::Rsa1024) => ("rsa1024", "legacy"),
        }
    }

    /// A short distinguishing name.
    pub(super) fn name(&self) -> String {
        let low = if self.low == LowKey::Rsa1024 { "-rsa1024" } else { "" };
        let stack = self.stack.name();
        let strategy = self.strategy.name();
        let client = self.client.name();
        format!("{stack}-{strategy}{low}-{client}-{}", self.aes.name())
    }

    /// The case whose clients all have the highest scheme.
    pub(super) const fn reference(&self) -> Self {
        Self { strategy: Strategy::None, low: LowKey::Rsa2048, ..*self }
    }

    /// The same client without any overhead of the strategy, for a strategy with a second handshake.
    pub(super) fn without_overhead(&self) -> Option<Self> {
        match self.strategy {
            Strategy::Renegotiation | Strategy::RenegotiationLowest => {
                Some(Self { strategy: Strategy::Lowest, ..*self })
            }
            Strategy::RenegotiationHighest => Some(self.reference()),
            _ => None,
        }
    }

    /// The paper's time for this size, in microseconds.
    pub(super) fn paper_us(&self, size: usize) -> Option<f64> {
        let at = SIZES.iter().position(|of| *of == size)?;
        let scenario = match self.aes {
            Aes::Software => 0,
            Aes::Hardware => 2,
        };
        let row = match self.strategy {
            Strategy::None => TABLE_3.get(scenario),
            Strategy::RenegotiationHighest => TABLE_4.get(scenario),
            Strategy::RenegotiationLowest => TABLE_4.get(scenario + 1),
            // The paper has tested none of these on whole uploads.
            Strategy::Renegotiation
            | Strategy::Redirection
            | Strategy::RedirectionUnauthenticated
            | Strategy::ChaCha20 => None,
            _ => TABLE_3.get(scenario + 1),
        };
        row?.get(at).copied()
    }
}

/// The cases of a run.
pub(super) fn cases(aes: &[Aes]) -> Vec<Case> {
    aes.iter().flat_map(|aes| cases_with(*aes)).collect()
}

fn cases_with(aes: Aes) -> Vec<Case> {
    use Strategy::{
        Address, Cached, ChaCha20, Lowest, None, Psk, Redirection, RedirectionUnauthenticated, Renegotiation,
        RenegotiationHighest, RenegotiationLowest, Ticket,
    };
    let mut cases = Vec::new();
    let mut add = |stack, client, low, strategies: &[Strategy]| {
        let all = strategies.iter().map(|strategy| Case { stack, strategy: *strategy, client, aes, low });
        cases.extend(all);
    };
    let openssl = ClientKind::OpenSsl;
    let dunlin = ClientKind::Dunlin;
    let curl = ClientKind::Curl;
    let handshakes = [None, Lowest, Renegotiation, RenegotiationHighest, RenegotiationLowest];
    add(Stack::Dunlin, openssl, LowKey::Rsa2048, &handshakes);
    add(Stack::Dunlin, openssl, LowKey::Rsa2048, &[Redirection, RedirectionUnauthenticated]);
    add(Stack::Dunlin, openssl, LowKey::Rsa2048, &[Address, Ticket, Psk]);
    // The client of the strategy `cached` is Dunlin's; so are those of its references.
    add(Stack::Dunlin, dunlin, LowKey::Rsa2048, &[None, Lowest, Cached]);
    add(Stack::Apache, openssl, LowKey::Rsa2048, &handshakes);
    add(Stack::Apache, openssl, LowKey::Rsa2048, &[Redirection, RedirectionUnauthenticated, Ticket]);
    match aes {
        Aes::Hardware => {
            add(Stack::Dunlin, curl, LowKey::Rsa2048, &[None, Renegotiation, Redirection, Address]);
            add(Stack::Apache, curl, LowKey::Rsa2048, &[None, Renegotiation, Redirection]);
        }
        Aes::Software => {
            add(Stack::Dunlin, openssl, LowKey::Rsa2048, &[ChaCha20]);
            add(Stack::Apache, openssl, LowKey::Rsa2048, &[ChaCha20]);
        }
    }
    if cfg!(feature = "legacy-lab") {
        add(Stack::Dunlin, openssl, LowKey::Rsa1024, &[Lowest, Renegotiation, RenegotiationLowest, Address]);
        add(Stack::Apache, openssl, LowKey::Rsa1024, &[Lowest, RenegotiationLowest]);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(strategy: Strategy, aes: Aes) -> Case {
        let stack = Stack::Dunlin;
        let client = ClientKind::OpenSsl;
        Case { stack, strategy, client, aes, low: LowKey::Rsa2048 }
    }

    /// The percentages in the paper's abstract and in its section 4.5.
    #[test]
    fn the_papers_tables_give_its_percentages() {
        let reduction = |strategy, aes, size| {
            let us = |case: Case| case.paper_us(size).unwrap();
            (1.0 - us(case(strategy, aes)) / us(case(strategy, aes).reference())) * 100.0
        };
        let said = [
            (Strategy::Ticket, Aes::Software, [89.41, 82.43, 54.08, 15.40]),
            (Strategy::Ticket, Aes::Hardware, [85.30, 81.90, 61.62, 24.63]),
            (Strategy::RenegotiationLowest, Aes::Software, [77.21, 72.26, 49.11, 14.45]),
            (Strategy::RenegotiationLowest, Aes::Hardware, [69.68, 64.28, 48.84, 21.87]),
        ];
        for (strategy, aes, percentages) in said {
            for (size, percentage) in SIZES.into_iter().zip(percentages) {
                let computed = reduction(strategy, aes, size);
                assert!((computed - percentage).abs() < 0.02, "{strategy:?} {aes:?} {size}: {computed} %");
            }
        }
    }

    #[test]
    fn names_of_cases_differ() {
        let cases = cases(&[Aes::Hardware, Aes::Software]);
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(Strategy::ALL.iter().all(|strategy| cases.iter().any(|case| case.strategy == *strategy)));
    }
}

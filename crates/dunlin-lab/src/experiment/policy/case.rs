//! The measured cases: how the server learns who the client is, which client, how much it uploads, and the paper's figures.

use crate::report::Row;

/// How the server learns which scheme the client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strategy {
    /// Every client has the highest scheme.
    None,
    /// The server has only the lowest scheme: the cost of the strategies without their overhead.
    Lowest,
    /// The first handshake has the highest scheme and proves who the client is; the second one has the lowest scheme.
    Renegotiation,
    /// The server remembers the address of a client that has proven its identity earlier.
    Address,
    /// The client resumes a session of the lowest scheme.
    Ticket,
    /// The ticket of the handshake cache names the client, which makes a full handshake.
    Cached,
}

impl Strategy {
    pub(super) const ALL: [Self; 6] =
        [Self::None, Self::Lowest, Self::Renegotiation, Self::Address, Self::Ticket, Self::Cached];

    /// The name in rows and in arguments.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lowest => "lowest",
            Self::Renegotiation => "renegotiation",
            Self::Address => "address",
            Self::Ticket => "ticket",
            Self::Cached => "cached",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// Whether the client is to have the lowest scheme.
    pub(super) const fn is_lowered(self) -> bool {
        !matches!(self, Self::None)
    }
}

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stack {
    Dunlin,
    Apache,
}

/// The client. No client knows of the strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientKind {
    OpenSsl,
    Dunlin,
}

/// Whether both sides use the processor's instructions for AES.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aes {
    Hardware,
    Software,
}

/// A client and its server, which exist for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub(super) stack: Stack,
    pub(super) strategy: Strategy,
    pub(super) client: ClientKind,
    pub(super) aes: Aes,
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
/// The paper's Table 4, scenarios 2 and 4: every connection renegotiates.
const TABLE_4: [[f64; 4]; 2] = [[1689.0, 2299.0, 7646.0, 67_415.0], [1524.0, 1878.0, 3565.0, 21_984.0]];

impl Case {
    /// The parameters in a row.
    pub(super) fn row(&self, size: usize) -> Row {
        Row::new()
            .with("stack", if self.stack == Stack::Dunlin { "dunlin" } else { "apache" })
            .with("protocol", "tls1.2")
            .with("strategy", self.strategy.name())
            .with("client", self.client.name())
            .with("size_bytes", size)
            .with("aes", self.aes.name())
            .with("way", "real")
    }

    /// A short distinguishing name.
    pub(super) fn name(&self) -> String {
        let stack = if self.stack == Stack::Dunlin { "dunlin" } else { "apache" };
        format!("{stack}-{}-{}-{}", self.strategy.name(), self.client.name(), self.aes.name())
    }

    /// The case whose clients all have the highest scheme.
    pub(super) const fn reference(&self) -> Self {
        Self { strategy: Strategy::None, ..*self }
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
            Strategy::Renegotiation => TABLE_4.get(scenario / 2),
            _ => TABLE_3.get(scenario + 1),
        };
        row?.get(at).copied()
    }
}

impl ClientKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenSsl => "openssl",
            Self::Dunlin => "dunlin",
        }
    }
}

impl Aes {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Software => "software",
        }
    }
}

/// The cases of a run.
pub(super) fn cases(aes: &[Aes]) -> Vec<Case> {
    use Strategy::{Address, Cached, Lowest, None, Renegotiation, Ticket};
    let with = |stack, client, strategies: &[Strategy]| {
        let case = |aes: &Aes| {
            strategies
                .iter()
                .map(|strategy| Case { stack, strategy: *strategy, client, aes: *aes })
                .collect::<Vec<_>>()
        };
        aes.iter().flat_map(case).collect::<Vec<_>>()
    };
    [
        with(Stack::Dunlin, ClientKind::OpenSsl, &[None, Lowest, Renegotiation, Address, Ticket]),
        // The client of the strategy `cached` is Dunlin's; so are those of its references.
        with(Stack::Dunlin, ClientKind::Dunlin, &[None, Lowest, Cached]),
        with(Stack::Apache, ClientKind::OpenSsl, &[None, Lowest, Renegotiation, Ticket]),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The percentages in the paper's abstract and in its section 4.5.
    #[test]
    fn the_papers_tables_give_its_percentages() {
        let reduction = |strategy, aes, size| {
            let case = Case { stack: Stack::Dunlin, strategy, client: ClientKind::OpenSsl, aes };
            let us = |case: Case| case.paper_us(size).unwrap();
            (1.0 - us(case) / us(case.reference())) * 100.0
        };
        let said = [
            (Strategy::Ticket, Aes::Software, [89.41, 82.43, 54.08, 15.40]),
            (Strategy::Ticket, Aes::Hardware, [85.30, 81.90, 61.62, 24.63]),
            (Strategy::Renegotiation, Aes::Software, [77.21, 72.26, 49.11, 14.45]),
            (Strategy::Renegotiation, Aes::Hardware, [69.68, 64.28, 48.84, 21.87]),
        ];
        for (strategy, aes, percentages) in said {
            for (size, percentage) in SIZES.into_iter().zip(percentages) {
                let computed = reduction(strategy, aes, size);
                assert!((computed - percentage).abs() < 0.02, "{strategy:?} {aes:?} {size}: {computed} %");
            }
        }
    }
}

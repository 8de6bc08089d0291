//! The kinds of PSK. Each kind has its own binder label, so that a binder of one kind is never valid for
//! another (RFC 8446 §7.1).

/// The kind of a pre-shared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PskKind {
    /// Provisioned outside TLS.
    External,
    /// Provisioned outside TLS and imported (RFC 9258).
    Imported,
    /// From a ticket of an earlier connection.
    Resumption,
}

impl PskKind {
    pub(crate) const fn label(self) -> &'static [u8] {
        match self {
            Self::External => b"ext binder",
            // RFC 9258 §5.2.
            Self::Imported => b"imp binder",
            Self::Resumption => b"res binder",
        }
    }
}

//! The measured cases: which side shows which identity, with which keys, and how DIDs resolve.

use dunlin::SsiMessages;
use dunlin_pki::KeyType;

use super::kind::Kind;
use super::paper;
use crate::report::Row;

named! {
    /// The form of credentials.
    pub(super) enum Form {
        /// The paper's: JSON with a proof.
        Json = "json",
        /// The same with a status entry, whose list the verifier has.
        JsonStatus = "json_status",
        /// CBOR and COSE.
        Compact = "compact",
    }
}

/// How a side resolves the DID of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolver {
    /// The document is in a cache.
    Cached,
    /// The peer sends the proof along.
    Stapled,
    /// It asks a registry behind a link with this delay in each direction, in milliseconds.
    Network(Asking, u32),
}

/// How a side asks a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// By HTTPS on a new connection, with a full handshake.
    Full,
    /// The same with a resumption, in which the request is early data.
    Resumed,
    /// By a datagram; HMAC authenticates the answer.
    Hmac,
}

impl Asking {
    pub(super) const ALL: [Self; 3] = [Self::Full, Self::Resumed, Self::Hmac];
}

impl Resolver {
    const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Stapled => "stapled",
            Self::Network(Asking::Full, _) => "network",
            Self::Network(Asking::Resumed, _) => "network_resumed",
            Self::Network(Asking::Hmac, _) => "network_hmac",
        }
    }
}

/// A handshake to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) key_type: KeyType,
    pub(super) server: Kind,
    /// `None`: the client does not authenticate.
    pub(super) client: Option<Kind>,
    pub(super) form: Form,
    pub(super) resolver: Resolver,
}

/// The cases of a type of keys without a network: the paper's, then ours.
pub(super) fn cases(key_type: KeyType) -> Vec<Case> {
    use Kind::{Did, Vc, X509};
    let case = |server, client| Case::new(key_type, server, client);
    let unilateral = Kind::ALL.map(|kind| case(kind, None));
    let mutual = Kind::ALL.map(|kind| case(kind, Some(kind)));
    let hybrid = [(X509, Vc), (X509, Did), (Vc, X509), (Did, X509)];
    let hybrid = hybrid.map(|(server, client)| case(server, Some(client)));
    let in_form = |form| [case(Vc, None), case(Vc, Some(Vc))].map(|case| Case { form, ..case });
    let forms = [Form::Compact, Form::JsonStatus].map(in_form);
    let stapled = |case| Case { resolver: Resolver::Stapled, ..case };
    let staples = self_sovereign(key_type).map(stapled);
    let compact = Case { form: Form::Compact, ..stapled(case(Vc, None)) };
    [&unilateral[..], &mutual, &hybrid, forms.as_flattened(), &staples, &[compact]].concat()
}

/// The cases of a type of keys whose resolvers ask a registry behind a link with this delay, and the original
/// handshakes beside them.
pub(super) fn network_cases(key_type: KeyType, delay_ms: u32) -> Vec<Case> {
    let asking = |asking| {
        let resolver = Resolver::Network(asking, delay_ms);
        self_sovereign(key_type).map(|case| Case { resolver, ..case })
    };
    let original = [None, Some(Kind::X509)].map(|client| Case::new(key_type, Kind::X509, client));
    [&original[..], Asking::ALL.map(asking).as_flattened()].concat()
}

/// The handshakes in which all sides that authenticate show a credential, or all a DID.
fn self_sovereign(key_type: KeyType) -> [Case; 4] {
    [(Kind::Vc, None), (Kind::Did, None), (Kind::Vc, Some(Kind::Vc)), (Kind::Did, Some(Kind::Did))]
        .map(|(server, client)| Case::new(key_type, server, client))
}

impl Case {
    const fn new(key_type: KeyType, server: Kind, client: Option<Kind>) -> Self {
        Self { key_type, server, client, form: Form::Json, resolver: Resolver::Cached }
    }

    /// Whether a side shows this.
    fn shows(&self, kind: Kind) -> bool {
        self.server == kind || self.client == Some(kind)
    }

    /// Whether all sides that authenticate show certificates.
    pub(super) fn is_original(&self) -> bool {
        self.server == Kind::X509 && self.client.is_none_or(|client| client == Kind::X509)
    }

    /// The same sides with certificates.
    pub(super) fn original(&self) -> Self {
        Self::new(self.key_type, Kind::X509, self.client.map(|_| Kind::X509))
    }

    /// The handshake in which the server alone authenticates, and shows this.
    pub(super) fn unilateral(&self, kind: Kind) -> Self {
        let original = Self::new(self.key_type, Kind::X509, None);
        let form = if kind == Kind::Vc { self.form } else { Form::Json };
        let of_kind = Self { server: kind, form, resolver: self.resolver, ..original };
        if kind == Kind::X509 { original } else { of_kind }
    }

    /// Whether the paper has measured it: with its form of credentials, and a registry in its laboratory. Its
    /// figures also stand beside a cached document.
    pub(super) fn is_of_paper(&self) -> bool {
        let resolver = matches!(self.resolver, Resolver::Cached | Resolver::Network(Asking::Full, 0));
        self.form == Form::Json && resolver
    }

    /// The messages of both profiles.
    pub(super) fn messages(&self) -> SsiMessages {
        if self.is_original() { SsiMessages::Off } else { SsiMessages::Alone }
    }

    /// The delay of the link to the registry in each direction, in milliseconds.
    const fn delay_ms(&self) -> Option<u32> {
        match self.resolver {
            Resolver::Network(_, delay_ms) => Some(delay_ms),
            _ => None,
        }
    }

    /// Makes a row for the case.
    pub(super) fn row(&self) -> Row {
        Row::new()
            .with("stack", "dunlin")
            .with("protocol", "tls1.3")
            .with("way", if self.delay_ms().is_some() { "real" } else { "virtual" })
            .with("credential", self.key_type.name())
            .with("server", self.server.name())
            .with("client", self.client.map_or("none", Kind::name))
            .with_some("form", self.shows(Kind::Vc).then_some(self.form.name()))
            .with_some("resolver", (!self.is_original()).then_some(self.resolver.name()))
            .with_some("delay_ms", self.delay_ms())
    }

    /// The paper's figures of this handshake.
    pub(super) fn paper(&self) -> Option<paper::Handshake> {
        self.is_of_paper().then(|| paper::handshake(self.key_type, self.server, self.client)).flatten()
    }
}

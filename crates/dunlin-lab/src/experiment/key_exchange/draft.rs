//! The smallest handshakes, flight by flight, beside those of draft-ietf-iotops-security-protocol-comparison.
//!
//! The draft's assumptions apply: one suite, group and signature scheme; identities of one byte; no server
//! name, ALPN, size limit, cookie or ticket; an 8-byte tag (here also a 16-byte one); bytes of records,
//! without transport.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin::auth::RawKeyTrust;
use dunlin::crypto::{CryptoProvider, KeyExchangeGroup, SigningKey, Tls13CipherSuite};
use dunlin::wire::{PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, Credential, DtlsConnection, Migration, NodeIds, Now, Profile,
    ProfileBuilder, ServerAddress, ServerConfig, TlsConnection, Trust,
};
use dunlin_pki::{KeyPair, KeyType};

use super::super::keys::psk;
use super::super::memory::{ADDRESS, End};
use crate::Error;
use crate::error::failed;
use crate::experiment::Progress;
use crate::report::Row;

named! {
    /// How both sides authenticate and agree on a secret.
    enum Mechanism {
        /// Raw public keys on both sides, with (EC)DHE.
        RawKey = "raw_key",
        /// A pre-shared key with (EC)DHE.
        EcdhePsk = "ecdhe_psk",
        /// A pre-shared key without (EC)DHE.
        Psk = "psk",
    }
}

/// A group and its signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    X25519,
    P256,
}

/// The tag of the AEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Short,
    Long,
}

/// The transport of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tls13,
    Dtls13,
}

/// One row.
#[derive(Clone, Copy)]
struct Case {
    protocol: Protocol,
    mechanism: Mechanism,
    curve: Curve,
    tag: Tag,
    /// Whether the records of both sides carry a connection ID of one byte.
    has_ids: bool,
    /// The draft's flights with a short tag.
    short: Flights,
}

/// The bytes of the three flights: the ClientHello, the server's flight, and the client's second flight.
type Flights = [usize; 3];

const FLIGHTS: [&str; 3] = ["flight1_bytes", "flight2_bytes", "flight3_bytes"];

/// The length of connection IDs in the draft.
const CONNECTION_ID_BYTES: usize = 1;

/// The number of handshakes of a row. ECDSA signatures vary by a few bytes, and a quarter of them is longer
/// than the median. The median of 20 would be a byte too long once in 70 runs, that of 101 practically never.
/// An odd number makes the median a length that occurred.
const RUNS: u32 = 101;

/// The rows.
pub(super) fn rows(progress: &Progress) -> Result<Vec<Row>, Error> {
    let rows = cases().into_iter().map(|case| {
        progress.now(format!("{} {}", case.mechanism.name(), case.curve.group()));
        let measured: Vec<_> = (0..RUNS).map(|_| case.handshake()).collect::<Result<_, _>>()?;
        progress.step();
        Ok(case.row(&measured))
    });
    rows.collect()
}

/// The number of rows.
pub(super) fn len() -> usize {
    cases().len()
}

/// The rows by protocol, and for each with both tags.
fn cases() -> Vec<Case> {
    let parts = [(Protocol::Tls13, false), (Protocol::Dtls13, false), (Protocol::Dtls13, true)];
    let of = |(part, tag)| {
        let rows = DRAFT.into_iter().filter(move |case| (case.protocol, case.has_ids) == part);
        rows.map(move |case| Case { tag, ..case })
    };
    parts.into_iter().flat_map(|part| [(part, Tag::Short), (part, Tag::Long)]).flat_map(of).collect()
}

/// The draft's table, equal in versions 06 to 09 of its source, with short tags. The draft gives connection
/// IDs only with P-256. The acknowledgement that ends a DTLS handshake belongs to none of the three flights.
const DRAFT: [Case; 13] = {
    use Curve::{P256, X25519};
    use Mechanism::{EcdhePsk, Psk, RawKey};
    use Protocol::{Dtls13, Tls13};
    const fn case(protocol: Protocol, curve: Curve, mechanism: Mechanism, short: Flights) -> Case {
        Case { protocol, mechanism, curve, tag: Tag::Short, has_ids: false, short }
    }
    const fn with_ids(mechanism: Mechanism, short: Flights) -> Case {
        Case { has_ids: true, ..case(Dtls13, P256, mechanism, short) }
    }
    [
        case(Tls13, X25519, RawKey, [129, 307, 179]),
        case(Tls13, X25519, EcdhePsk, [163, 157, 50]),
        // Without a group there is one case.
        case(Tls13, X25519, Psk, [113, 117, 50]),
        case(Tls13, P256, RawKey, [162, 394, 233]),
        case(Tls13, P256, EcdhePsk, [196, 190, 50]),
        case(Dtls13, X25519, RawKey, [146, 360, 200]),
        case(Dtls13, X25519, EcdhePsk, [180, 186, 55]),
        case(Dtls13, X25519, Psk, [130, 146, 55]),
        case(Dtls13, P256, RawKey, [179, 447, 254]),
        case(Dtls13, P256, EcdhePsk, [213, 219, 55]),
        with_ids(RawKey, [185, 454, 255]),
        with_ids(EcdhePsk, [219, 226, 56]),
        with_ids(Psk, [136, 153, 56]),
    ]
};

impl Curve {
    fn group(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::P256 => "secp256r1",
        }
    }

    const fn credential(self) -> &'static str {
        match self {
            Self::X25519 => "ed25519",
            Self::P256 => "p256",
        }
    }
}

impl Case {
    /// The draft's flights. A longer tag adds to the second and the third one.
    const fn draft(&self) -> Flights {
        let [one, two, three] = self.short;
        match self.tag {
            Tag::Short => self.short,
            Tag::Long => [one, two + 8, three + 8],
        }
    }

    fn row(&self, measured: &[Flights]) -> Row {
        let group = if self.mechanism == Mechanism::Psk { "none" } else { self.curve.group() };
        let credential = if self.mechanism == Mechanism::RawKey { self.curve.credential() } else { "psk" };
        let has_datagrams = self.protocol == Protocol::Dtls13;
        let id_bytes = if self.has_ids { CONNECTION_ID_BYTES } else { 0 };
        let mut row = Row::new()
            .with("stack", "dunlin")
            .with("protocol", if has_datagrams { "dtls1.3" } else { "tls1.3" })
            .with("mechanism", self.mechanism.name())
            .with("credential", credential)
            .with("group", group)
            .with("authentication", "mutual")
            .with("tag_bytes", if self.tag == Tag::Short { 8 } else { 16 })
            .with_some("connection_id_bytes", has_datagrams.then_some(id_bytes));
        let draft = self.draft();
        for (flight, name) in FLIGHTS.into_iter().enumerate() {
            let bytes: Vec<_> = measured.iter().map(|flights| flights[flight] as f64).collect();
            row = row.figure(name, &bytes).paper(name, draft[flight] as f64);
        }
        let total: Vec<_> = measured.iter().map(|flights| flights.iter().sum::<usize>() as f64).collect();
        row.figure("handshake_bytes", &total).paper("handshake_bytes", draft.iter().sum::<usize>() as f64)
    }

    fn handshake(&self) -> Result<Flights, Error> {
        // The draft counts no cookie.
        let (client, server) = self.configs().map(|(client, server)| (client, server.with_cookies(false)))?;
        let (client, server) = if self.has_ids {
            // The draft has no return routability checks.
            (
                client.with_connection_ids(ids()?).with_migration(Migration::never()),
                server.with_connection_ids(ids()?).with_migration(Migration::never()),
            )
        } else {
            (client, server)
        };
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as u64);
        let now = Now::from_unix_ms(unix_ms);
        let client = Arc::new(client);
        let server = Arc::new(server);
        let address = ServerAddress::parse("127.0.0.1", 0).map_err(failed)?;
        match self.protocol {
            Protocol::Tls13 => {
                let client = TlsConnection::client(&client, address, now).map_err(failed)?;
                flights(client, TlsConnection::server(&server, now), now)
            }
            Protocol::Dtls13 => {
                let client = DtlsConnection::client(&client, address, ADDRESS, now).map_err(failed)?;
                flights(client, DtlsConnection::server(&server, ADDRESS, now), now)
            }
        }
    }

    fn configs(&self) -> Result<(ClientConfig, ServerConfig), Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let suite = match self.tag {
            Tag::Short => &dunlin_awslc::TLS13_AES_128_CCM_8_SHA256,
            Tag::Long => &dunlin_awslc::TLS13_AES_128_CCM_SHA256,
        };
        if self.mechanism == Mechanism::RawKey {
            let key_type = if self.curve == Curve::X25519 { KeyType::Ed25519 } else { KeyType::P256 };
            let client = KeyPair::generate(key_type)?.signing_key(&provider)?;
            let server = KeyPair::generate(key_type)?.signing_key(&provider)?;
            let profile = |own: &Arc<dyn SigningKey>, peer: &Arc<dyn SigningKey>| {
                let trust = RawKeyTrust::Keys(vec![peer.public_key().clone()]);
                self.lean(&provider, suite)
                    .trust(Trust { x509: None, raw_key: Some(trust) })
                    .credentials(vec![Credential::raw_key(own.clone())])
                    .build()
                    .map_err(failed)
            };
            let server_config = ServerConfig::new(profile(&server, &client)?).map_err(failed)?;
            let server_config = server_config.with_client_auth(ClientAuth::Required).map_err(failed)?;
            return Ok((ClientConfig::new(profile(&client, &server)?), server_config));
        }
        let profile = || match self.mechanism {
            Mechanism::Psk => {
                self.lean(&provider, suite).groups(vec![]).psk_modes(vec![PskKeyExchangeMode::PSK_KE])
            }
            _ => self.lean(&provider, suite),
        };
        let build = |profile: ProfileBuilder| profile.build().map_err(failed);
        let (of_client, of_server) = psk("1", &[7; 16])?;
        let client = ClientConfig::new(build(profile())?).with_psks(vec![of_client]);
        Ok((client, ServerConfig::psk_only(build(profile())?, of_server).map_err(failed)?))
    }

    fn lean(&self, provider: &Arc<CryptoProvider>, suite: &'static Tls13CipherSuite) -> ProfileBuilder {
        let (group, scheme): (&'static dyn KeyExchangeGroup, _) = match self.curve {
            Curve::X25519 => (dunlin_awslc::X25519, SignatureScheme::ED25519),
            Curve::P256 => (dunlin_awslc::SECP256R1, SignatureScheme::ECDSA_SECP256R1_SHA256),
        };
        Profile::lean(provider.clone(), suite, group, scheme)
    }
}

fn ids() -> Result<Arc<dyn ConnectionIds>, Error> {
    let ids = NodeIds::new(&[], CONNECTION_ID_BYTES, dunlin_awslc::provider().random).map_err(failed)?;
    Ok(Arc::new(ids))
}

/// Returns the flights between two sides.
fn flights<E: End>(mut client: E, mut server: E, now: Now) -> Result<Flights, Error> {
    let mut flights = [0; 3];
    for (i, flight) in flights.iter_mut().enumerate() {
        let (from, to) = if i % 2 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
        for piece in from.flight(now) {
            *flight += piece.len();
            to.receive(now, &piece).map_err(failed)?;
        }
    }
    if client.is_connected() && server.is_connected() {
        Ok(flights)
    } else {
        Err(failed("it takes more than three flights"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bar: no flight is larger than the draft's. P-256 signatures vary by a few bytes, so their median
    /// counts.
    #[test]
    fn no_flight_is_larger_than_in_the_draft() {
        let rows = rows(&Progress::hidden()).unwrap();
        assert_eq!(rows.len(), 26);
        for row in rows {
            for name in FLIGHTS.into_iter().chain(["handshake_bytes"]) {
                let get = |name: &str| row.get(name).and_then(serde_json::Value::as_f64).unwrap();
                let ours = get(name);
                let draft = get(&format!("paper_{name}"));
                assert!(ours <= draft, "{name}: {ours} > {draft} in {row:?}");
            }
        }
    }
}

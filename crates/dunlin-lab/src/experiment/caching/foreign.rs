//! The foreign peers of this experiment.

use std::ffi::OsString;

use dunlin::Side;
use dunlin_pki::{Identity, KeyPair, KeyType};

use super::super::foreign::{Foreign, Library, MemoryFile};
use super::super::keys::{self, certificates_in, key_in, pem_file};
use super::SMALLEST_MTU;
use super::case::{Case, Credential, End, Handshake, Keys, Mode, Protocol};
use crate::Error;
use crate::error::failed;
use crate::net::{Ground, Pair};

const PEER: &str = include_str!("peer.c");
const OPENSSL: &[&str] = &[PEER, include_str!("openssl.c")];
const WOLFSSL: &[&str] = &[PEER, include_str!("wolfssl.c")];
const GNUTLS: &[&str] = &[PEER, include_str!("gnutls.c")];

/// The compared libraries, each with its options for small hellos, and as it is shipped.
pub(super) const LIBRARIES: [Library; 6] = [
    Library::openssl(OPENSSL, false),
    Library::openssl(OPENSSL, true),
    Library::wolfssl(WOLFSSL, false),
    Library::wolfssl(WOLFSSL, true),
    Library::gnutls(GNUTLS, false),
    Library::gnutls(GNUTLS, true),
];

/// The trust anchor and the credential of one side, in files.
pub(super) struct Files {
    anchor: MemoryFile,
    own: keys::Files,
}

impl Files {
    pub(super) fn new(own: &End, peer: &End) -> Result<Self, Error> {
        Ok(Self { anchor: pem_file(&peer.root)?, own: keys::Files::pem(&own.identity)? })
    }

    /// Reads the keys of both sides from files, the client's first.
    pub(super) fn read(credential: Credential, files: &[OsString; 6]) -> Result<Keys, Error> {
        let side = |[anchor, chain, key]: [&OsString; 3]| {
            let key = KeyPair::from_der(&key_in(key)?)?;
            let anchor = certificates_in(anchor)?.pop().ok_or_else(|| failed("a file has no certificate"))?;
            Ok::<_, Error>((anchor, Identity { chain: certificates_in(chain)?, key }))
        };
        let [client_files @ .., a, b, c] = files.each_ref();
        let (of_server, client) = side(client_files)?;
        let (of_client, server) = side([a, b, c])?;
        Ok(Keys {
            credential,
            chain_length: client.chain.len() + 1,
            client: End { identity: client, root: of_client },
            server: End { identity: server, root: of_server },
        })
    }

    /// The arguments of a program.
    fn arguments(&self, role: &str, case: &Case<'_>, mtu: u16) -> Vec<OsString> {
        let mtu = mtu.to_string();
        let words = [role, case.protocol.name(), suite(case), case.mode.name(), &mtu].map(OsString::from);
        words.into_iter().chain(self.paths()).collect()
    }

    /// The paths of the trust anchor, the chain and the key.
    pub(super) fn paths(&self) -> [OsString; 3] {
        let [chain, key] = self.own.paths();
        [self.anchor.path().into(), chain, key]
    }
}

/// The name of the suite for both libraries; in TLS 1.3 the programs use one suite for all keys.
fn suite(case: &Case<'_>) -> &'static str {
    match case.keys.credential.key_type(Side::Server) {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => "ECDHE-RSA-AES256-GCM-SHA384",
        _ => "ECDHE-ECDSA-AES256-GCM-SHA384",
    }
}

/// Only Dunlin has the cache, and Debian's libraries support neither raw public keys, ML-DSA nor DTLS
/// 1.3. GnuTLS is only compared over datagrams.
pub(super) fn has(foreign: &Foreign, case: &Case<'_>, mtu: u16) -> bool {
    let is = |library| foreign.name.starts_with(library);
    let has_protocol = match case.protocol {
        Protocol::Tls12 | Protocol::Tls13 => !is("gnutls"),
        Protocol::Dtls12 => true,
        Protocol::Dtls13 => false,
    };
    // Over DTLS, OpenSSL 3.0's server finds no suite for an Ed25519 key, and GnuTLS's client sends no
    // certificate with one. GnuTLS finds no cookie in a fragmented ClientHello, which one with a session
    // ID is at MTU 127. And it sends no flight of more than 32 datagrams ("GnuTLS internal error"), which
    // a chain of RSA-4096 takes there.
    let key = case.keys.credential.key_type(Side::Server);
    let is_too_long = mtu == SMALLEST_MTU && key == KeyType::Rsa4096;
    let refuses = case.protocol.is_over_datagrams()
        && (key == KeyType::Ed25519 && (is("openssl") || is("gnutls"))
            || is("gnutls") && (case.mode == Mode::Resumption || is_too_long));
    let has_keys = !matches!(
        case.keys.credential,
        Credential::RawKey(_) | Credential::X509(KeyType::MlDsa44 | KeyType::MlDsa65)
    );
    matches!(case.mode, Mode::Vanilla | Mode::Resumption) && has_protocol && has_keys && !refuses
}

/// Connects twice, as the case says.
pub(super) fn connect(
    foreign: &Foreign,
    ground: &Ground,
    pair: &Pair,
    case: &Case<'_>,
    mtu: u16,
) -> Result<(), Error> {
    let client = &case.keys.client;
    let server = &case.keys.server;
    let files = [Files::new(server, client)?, Files::new(client, server)?];
    let (server, ports) = foreign.serve(ground, &pair.server, files[0].arguments("server", case, mtu))?;
    let to = [Pair::SERVER.to_string(), ports].map(OsString::from);
    let arguments = [&files[1].arguments("client", case, mtu)[..], &to].concat();
    let client = ground.spawn(&pair.client, &mut foreign.command(arguments))?;
    let printed = foreign.finished(client)?;
    foreign.finished(server)?;
    let expected = case.mode.handshakes().map(|handshake| match handshake {
        Handshake::Resumed => "resumed",
        Handshake::Full | Handshake::ServerCached | Handshake::Cached => "full",
    });
    let seen: Vec<_> = printed.lines().collect();
    if seen != expected {
        return Err(foreign.failed(format_args!(
            "{} connections instead of {}",
            seen.join(", "),
            expected.join(", ")
        )));
    }
    Ok(())
}

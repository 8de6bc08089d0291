//! The foreign peers of this experiment.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;

use dunlin::Side;
use dunlin_pki::{Identity, Item, KeyType, certificates_to_pem};
use pki_types::CertificateDer;

use super::super::foreign::{AS_SHIPPED, Foreign, Library, MemoryFile};
use super::case::{Case, Credential, End, Handshake, Keys, Mode, Protocol};
use super::{SMALLEST_MTU, Stack};
use crate::Error;
use crate::net::{Ground, Pair};

/// The sources after the line that says how a library is configured.
const OPENSSL: [&str; 3] =
    [include_str!("../openssl.c"), include_str!("arguments.c"), include_str!("openssl.c")];
const WOLFSSL: [&str; 2] = [include_str!("arguments.c"), include_str!("wolfssl.c")];
const GNUTLS: [&str; 3] =
    [include_str!("../gnutls.c"), include_str!("arguments.c"), include_str!("gnutls.c")];

/// The compared libraries, each with its options for small hellos, and as it is shipped.
pub(super) const LIBRARIES: [Library; 6] = [
    openssl("openssl", &OPENSSL),
    openssl(OPENSSL_AS_SHIPPED, &[AS_SHIPPED, OPENSSL[0], OPENSSL[1], OPENSSL[2]]),
    wolfssl("wolfssl", &WOLFSSL),
    wolfssl("wolfssl as shipped", &[AS_SHIPPED, WOLFSSL[0], WOLFSSL[1]]),
    gnutls("gnutls", &GNUTLS),
    gnutls("gnutls as shipped", &[AS_SHIPPED, GNUTLS[0], GNUTLS[1], GNUTLS[2]]),
];

/// The stack whose full handshake the paper's percentages apply to.
pub(super) const OPENSSL_AS_SHIPPED: &str = "openssl as shipped";

const fn openssl(name: &'static str, source: &'static [&'static str]) -> Library {
    Library { name, source, link: &["-lssl", "-lcrypto"], package: "libssl-dev" }
}

const fn wolfssl(name: &'static str, source: &'static [&'static str]) -> Library {
    Library { name, source, link: &["-lwolfssl"], package: "libwolfssl-dev" }
}

const fn gnutls(name: &'static str, source: &'static [&'static str]) -> Library {
    Library { name, source, link: &["-lgnutls"], package: "libgnutls28-dev" }
}

/// The credentials and trust anchors of one side, in files.
pub(super) struct Files([MemoryFile; 3]);

impl Files {
    pub(super) fn new(own: &End, peer: &End) -> Result<Self, Error> {
        let failed = |error| Error::new("keys of the lab", error, "report this as a bug");
        let pem = |chain: &[CertificateDer<'_>]| certificates_to_pem(chain).map_err(failed);
        let root = pem(std::slice::from_ref(&peer.root))?;
        let chain = pem(&own.identity.chain)?;
        let key = own.identity.key.to_pem().map_err(failed)?;
        let file = |content: &str| MemoryFile::new(content.as_bytes());
        Ok(Self([file(&root)?, file(&chain)?, file(&key)?]))
    }

    /// Writes the keys of both sides to files, the client's first.
    pub(super) fn read(credential: Credential, files: &[OsString; 6]) -> Result<Keys, Error> {
        let failed = |why: &dyn Display| Error::new("keys of the lab", why, "this is for the lab itself");
        let mut items = files.iter().map(|file| {
            let content = fs::read(file).map_err(|error| failed(&error))?;
            dunlin_pki::parse(&content).map_err(|error| failed(&error))
        });
        let mut next = || items.next().unwrap_or_else(|| Ok(Vec::new()));
        let mut side = || {
            let trusted = next()?;
            let chain = next()?;
            let key = next()?;
            let certificates = |items: Vec<Item>| {
                items
                    .into_iter()
                    .filter_map(|item| match item {
                        Item::Certificate(certificate) => Some(certificate),
                        _ => None,
                    })
                    .collect::<Vec<_>>()
            };
            match (certificates(trusted).pop(), key.into_iter().next()) {
                (Some(trusted), Some(Item::PrivateKey(key))) => {
                    Ok((trusted, Identity { chain: certificates(chain), key }))
                }
                _ => Err(failed(&"a file has something else")),
            }
        };
        let ((of_server, client), (of_client, server)) = (side()?, side()?);
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
        self.0.each_ref().map(|file| file.path().into())
    }
}

/// The name of the suite for both libraries; in TLS 1.3 the programs use one suite for all keys.
fn suite(case: &Case<'_>) -> &'static str {
    match case.keys.credential.key_type(Side::Server) {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => "ECDHE-RSA-AES256-GCM-SHA384",
        _ => "ECDHE-ECDSA-AES256-GCM-SHA384",
    }
}

impl Stack for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Only Dunlin has the cache, and Debian's libraries support neither raw public keys, ML-DSA nor DTLS
    /// 1.3. GnuTLS is only compared over datagrams.
    fn has(&self, case: &Case<'_>, mtu: u16) -> bool {
        let is = |library| self.name.starts_with(library);
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

    fn connect(&self, ground: &Ground, pair: &Pair, case: &Case<'_>, mtu: u16) -> Result<(), Error> {
        let client = &case.keys.client;
        let server = &case.keys.server;
        let files = [Files::new(server, client)?, Files::new(client, server)?];
        let (server, ports) = self.serve(ground, &pair.server, files[0].arguments("server", case, mtu))?;
        let to = [Pair::SERVER.to_string(), ports].map(OsString::from);
        let arguments = [&files[1].arguments("client", case, mtu)[..], &to].concat();
        let client = ground.spawn(&pair.client, &mut self.command(arguments))?;
        let printed = self.finished(client)?;
        self.finished(server)?;
        let expected = case.mode.handshakes().map(|handshake| match handshake {
            Handshake::Resumed => "resumed",
            Handshake::Full | Handshake::ServerCached | Handshake::Cached => "full",
        });
        let seen: Vec<_> = printed.lines().collect();
        if seen != expected {
            return Err(self.failed(format_args!(
                "{} connections instead of {}",
                seen.join(", "),
                expected.join(", ")
            )));
        }
        Ok(())
    }
}

//! OpenSSL and GnuTLS as other stacks, with the same keys.

use std::ffi::OsString;

use dunlin::wire::{NamedGroup, SignatureScheme};

use super::super::datagrams::IP_AND_UDP;
use super::super::foreign::{Foreign, Library, MemoryFile};
use super::super::keys::Files;
use super::suites::{AllKeys, Case, Crypto, End};
use crate::Error;
use crate::net::{Ground, MTU, Pair};

const OPENSSL: &[&str] = &[include_str!("openssl.c")];
const GNUTLS: &[&str] = &[include_str!("gnutls.c")];

/// OpenSSL and GnuTLS with their options for small hellos, and as they are shipped. GnuTLS's configurations
/// differ only in [`gnutls_words`].
pub(super) const LIBRARIES: [Library; 4] = [
    Library::openssl(OPENSSL, false),
    Library::openssl(OPENSSL, true),
    Library::gnutls(GNUTLS, false),
    Library::gnutls(GNUTLS, true),
];

/// An empty argument of the program.
const NOTHING: &str = "-";

/// The paths of a certificate and its key, or nothing.
fn paths(files: Option<&Files>) -> [OsString; 2] {
    files.map_or_else(|| [NOTHING, NOTHING].map(OsString::from), Files::paths)
}

/// The files of a case.
struct Prepared {
    words: Vec<OsString>,
    root: Option<MemoryFile>,
    server: Option<Files>,
    client: Option<Files>,
}

/// The arguments that describe a case to a program.
fn openssl_words(case: &Case, crypto: &Crypto) -> Vec<String> {
    vec![
        case.protocol().to_owned(),
        case.openssl.unwrap_or(NOTHING).to_owned(),
        group(case, crypto),
        // Without certificates the program still needs the name of a signature scheme.
        case.certificates.map_or("RSA+SHA256", |certificates| certificates.openssl_scheme).to_owned(),
        who(case).to_owned(),
    ]
}

fn gnutls_words(case: &Case, is_as_shipped: bool) -> Vec<String> {
    let hello = if is_as_shipped { "" } else { ":%NO_ETM" };
    let exchange = case.mechanism.replace('_', "-").to_uppercase();
    let cipher = case.cipher().replace("_SHA256", "").replace('_', "-");
    let group = match case.group {
        Some(NamedGroup::X25519) => ":+GROUP-X25519",
        Some(NamedGroup::SECP256R1) => ":+GROUP-SECP256R1",
        Some(_) => ":+GROUP-FFDHE2048",
        None => "",
    };
    let scheme = match case.certificates.map(|certificates| certificates.scheme) {
        Some(SignatureScheme::ECDSA_SECP256R1_SHA256) => "ECDSA-SHA256",
        // Without certificates GnuTLS still needs a scheme.
        _ => "RSA-SHA256",
    };
    let priority = format!(
        "NONE:+VERS-DTLS1.2:+{exchange}:+{cipher}:+AEAD:+SIGN-{scheme}{group}:+COMP-NULL:+CTYPE-X509{hello}"
    );
    vec![priority, who(case).to_owned(), (MTU - IP_AND_UDP).to_string()]
}

/// The side that authenticates, in the words of the programs.
fn who(case: &Case) -> &'static str {
    if case.has_psk { "psk" } else { case.authentication() }
}

impl Prepared {
    fn new(case: &Case, keys: &AllKeys, words: Vec<String>) -> Result<Self, Error> {
        let keys = case.keys(keys);
        let files = |end: &End| Files::new(&end.certificate, end.key.secret_der());
        Ok(Self {
            words: words.into_iter().map(OsString::from).collect(),
            root: keys.map(|keys| MemoryFile::new(&keys.root)).transpose()?,
            server: keys.map(|keys| files(&keys.server)).transpose()?,
            client: keys.map(|keys| files(&keys.client)).transpose()?,
        })
    }

    fn arguments(&self, role: &str, own: Option<&Files>) -> Vec<OsString> {
        let root: OsString = self.root.as_ref().map_or_else(|| NOTHING.into(), |file| file.path().into());
        [&[OsString::from(role)][..], &self.words, &[root], &paths(own)].concat()
    }
}

/// OpenSSL's name of the group; a finite field that version 1.2 spells out has only its prime.
fn group(case: &Case, crypto: &Crypto) -> String {
    let field = case.group.and_then(|name| crypto.provider.group(name)?.finite_field());
    match (case.group, field) {
        (None, _) => NOTHING.to_owned(),
        (Some(_), Some(field)) if case.protocol().ends_with("1.2") => {
            field.prime.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        (Some(name), _) => name.to_string(),
    }
}

impl Foreign {
    fn is_gnutls(&self) -> bool {
        self.name.starts_with("gnutls")
    }

    /// Whether it is OpenSSL with small hellos, whose time is measured. OpenSSL 3.0 has no datagrams in memory.
    pub(super) fn has_times(&self, case: &Case) -> bool {
        self.name == LIBRARIES[0].name && !case.over_datagrams
    }

    /// Returns whether it has the case. GnuTLS is compared over datagrams only.
    pub(super) fn has(&self, case: &Case) -> bool {
        // GnuTLS has no suite of RFC 8442.
        let is_missing = case.mechanism == "ecdhe_psk" && case.cipher() == "AES_128_GCM_SHA256";
        if self.is_gnutls() { case.protocol() == "dtls1.2" && !is_missing } else { case.openssl.is_some() }
    }

    fn prepare(&self, case: &Case, (keys, crypto): (&AllKeys, &Crypto)) -> Result<Prepared, Error> {
        let words = if self.is_gnutls() {
            gnutls_words(case, self.name == LIBRARIES[3].name)
        } else {
            openssl_words(case, crypto)
        };
        Prepared::new(case, keys, words)
    }

    /// Makes one connection.
    pub(super) fn connect(
        &self,
        ground: &Ground,
        pair: &Pair,
        case: &Case,
        keys: (&AllKeys, &Crypto),
    ) -> Result<(), Error> {
        let prepared = self.prepare(case, keys)?;
        let (server, port) =
            self.serve(ground, &pair.server, prepared.arguments("server", prepared.server.as_ref()))?;
        let mut arguments = prepared.arguments("client", prepared.client.as_ref());
        arguments.extend([Pair::SERVER.to_string(), port].map(OsString::from));
        let client = ground.spawn(&pair.client, &mut self.command(arguments))?;
        self.finished(client)?;
        self.finished(server).map(drop)
    }

    /// Returns the microseconds of client and server for `times` handshakes in memory.
    pub(super) fn times(
        &self,
        case: &Case,
        keys: (&AllKeys, &Crypto),
        times: usize,
    ) -> Result<Vec<[f64; 2]>, Error> {
        let prepared = self.prepare(case, keys)?;
        let mut arguments = prepared.arguments("memory", prepared.server.as_ref());
        arguments.push(times.to_string().into());
        arguments.extend(paths(prepared.client.as_ref()));
        let output = self.command(arguments).output().map_err(|error| self.failed(error))?;
        if let Some(line) = String::from_utf8_lossy(&output.stderr).lines().next() {
            return Err(self.failed(line));
        }
        let both = |line: &str| {
            let (client, server) = line.split_once(' ')?;
            Some([client.parse().ok()?, server.parse().ok()?])
        };
        let all: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().filter_map(both).collect();
        if all.len() == times { Ok(all) } else { Err(self.failed("it prints something else")) }
    }
}

//! Files of keys and certificates: the identities of this side, and its trust settings.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::auth::{Psk, RawKeyTrust, X509Trust};
use dunlin::crypto::{CryptoProvider, HashAlgorithm};
use dunlin::wire::SignatureScheme;
use dunlin::{ClientAuth, Credential, Side, TransportKind, Trust};
use dunlin_command::error::{Error, reason, warn};
use dunlin_command::faults::{checked, warned};
use dunlin_command::files;
use dunlin_pki::LoadedCredential;
use dunlin_setup::files::signing_key;
use dunlin_setup::place::{Field, FileField, options};
use dunlin_setup::psk::{Psks, choose, no_key};
use dunlin_setup::trust::{self, own_certificate, refusal};
use dunlin_store::psk::{Identity, PskError, PskRecord, PskRecords, PskSet, ShortKeys, State};
use zeroize::Zeroizing;

use crate::psk;
use crate::tls::lists::{self, List};
use crate::tls::options::TlsOptions;

/// OpenSSL's default identity of a client.
const DEFAULT_IDENTITY: &str = "Client_identity";

impl TlsOptions {
    /// The credentials of this side. Verifiable credentials come first, then raw keys, because they are
    /// smaller.
    pub(super) fn credentials(
        &self,
        side: Side,
        provider: &CryptoProvider,
    ) -> Result<Vec<Credential>, Error> {
        let (raw, option) = match side {
            Side::Client => (self.enable_client_rpk, "--enable-client-rpk"),
            Side::Server => (self.enable_server_rpk, "--enable-server-rpk"),
        };
        if raw && self.key.is_empty() && self.cert.is_empty() {
            return Err(Error::usage(option, "this side has no key", "give it with --key"));
        }
        if self.cert.is_empty() && !self.key.is_empty() && !raw {
            let advice = format!("give it with --chain, or use the key alone with {option}");
            return Err(Error::usage("--key", "no certificate belongs to it", advice));
        }
        if !self.cert.is_empty() && !self.key.is_empty() && self.cert.len() != self.key.len() {
            let why = format!("{} keys for {} certificates", self.key.len(), self.cert.len());
            return Err(Error::usage("--key", why, "give one for each --chain, in the same order"));
        }
        let mut raw_keys = vec![];
        let mut chains = vec![];
        for i in 0..self.cert.len().max(self.key.len()) {
            let key = match self.cert.get(i) {
                Some(cert) => {
                    let loaded = load(cert, self.key.get(i), side, provider)?;
                    chains.push(loaded.credential);
                    loaded.key
                }
                None => {
                    let Some(path) = self.key.get(i) else { continue };
                    signing_key(&Field::option("key", path.clone()), provider)?
                }
            };
            if raw {
                raw_keys.push(Credential::raw_key(key));
            }
        }
        let mut all = self.verifiable.credentials(&self.registry, provider)?;
        if !all.is_empty() {
            self.check_verifiable(if self.verifiable.vc.is_empty() { "--did" } else { "--vc" })?;
        }
        all.append(&mut raw_keys);
        all.append(&mut chains);
        Ok(all)
    }

    /// A client's trust settings without CRLs: the given ones, or else the authorities of this
    /// machine.
    pub(super) fn client_trust(&self, insecure: bool) -> Result<Trust, Error> {
        let raw = self.enable_server_rpk || self.rpk_file.is_some();
        if insecure {
            let raw_key = raw.then_some(RawKeyTrust::DangerAnyone);
            let trust = self.with_depth(Trust { x509: Some(X509Trust::DangerAnyone), raw_key })?;
            anstream::eprintln!(
                "dunlin: warning: --insecure: the client accepts every server, even an attacker's"
            );
            return Ok(trust);
        }
        let raw_key = raw.then(|| self.trusted_keys("--enable-server-rpk")).transpose()?;
        let none = || Error::usage("trust", "this machine has no CA certificates", "give --ca");
        let x509 = match &self.ca_file {
            Some(_) => self.anchors()?,
            None if raw || self.has_psk() || self.verifiable.trusts() => None,
            None => Some(trust::system_anchors().ok_or_else(none)?),
        };
        self.with_depth(Trust { x509, raw_key })
    }

    /// The trust anchors of --ca.
    fn anchors(&self) -> Result<Option<X509Trust>, Error> {
        let ca: Vec<_> = options("ca", &self.ca_file).collect();
        checked(|faults| trust::anchors(&ca, &self.lists_to_check(), faults))
    }

    /// The files of --crl.
    pub(super) fn lists_to_check(&self) -> Vec<FileField> {
        options("crl", &self.crl).collect()
    }

    /// Limits the trust to chains within --verify-depth.
    fn with_depth(&self, trust: Trust) -> Result<Trust, Error> {
        let Some(depth) = self.verify_depth else { return Ok(trust) };
        let advice = "leave it out, or give trusted authorities with --ca";
        let Some(x509) = trust.x509 else {
            return Err(Error::usage("--verify-depth", "no certificates are verified", advice));
        };
        let x509 = x509.with_max_depth(depth);
        let x509 = x509.map_err(|_| Error::usage("--verify-depth", "no chain is verified", advice))?;
        Ok(Trust { x509: Some(x509), raw_key: trust.raw_key })
    }

    /// A server's trust settings for clients, without CRLs.
    pub(super) fn server_trust(&self, client_auth: ClientAuth) -> Result<Trust, Error> {
        let raw_key = self.enable_client_rpk.then(|| self.trusted_keys("--enable-client-rpk")).transpose()?;
        let x509 = self.anchors()?;
        let verifies = raw_key.is_some() || x509.is_some() || self.verifiable.trusts();
        if client_auth != ClientAuth::None && !verifies {
            let advice = "give --ca, --vc-issuers, --dids, or --enable-client-rpk with --raw-keys";
            let option = if client_auth == ClientAuth::Required { "--Verify" } else { "--verify" };
            return Err(Error::usage(option, "no trusted authorities or keys for clients", advice));
        }
        if self.rpk_file.is_some() && !self.enable_client_rpk {
            let why = "clients are not asked for raw keys";
            return Err(Error::usage("--raw-keys", why, "add --enable-client-rpk and --verify or --Verify"));
        }
        if self.cert.is_empty() && self.key.is_empty() && self.verifiable.did.is_none() && !self.has_psk() {
            let advice = "give --chain and --key, --enable-server-rpk and --key, --did with or without --vc, or --psk-file";
            return Err(Error::usage("server", "no certificate, key or PSK", advice));
        }
        self.with_depth(Trust { x509, raw_key })
    }

    /// Warns of options about clients that have no effect, because the server requests no certificate.
    pub(super) fn warn_of_unused_trust(&self, client_auth: ClientAuth) {
        let unused = [
            ("--ca", self.ca_file.is_some()),
            ("--enable-client-rpk", self.enable_client_rpk),
            (self.verifiable.trust_option(), self.verifiable.trusts()),
        ];
        for (option, _) in unused.iter().filter(|(_, given)| *given && client_auth == ClientAuth::None) {
            anstream::eprintln!(
                "dunlin: warning: {option}: the server requests no client certificates; add --verify or --Verify"
            );
        }
    }

    /// The files of this side's keys, with the types of those that can still be read.
    pub(super) fn own_keys(&self) -> String {
        let files = if self.key.is_empty() { &self.cert } else { &self.key };
        let typed = |path: &PathBuf| match files::private_key(path) {
            Ok(key) => format!("{} ({})", path.display(), key.key_type()),
            Err(_) => path.display().to_string(),
        };
        files.iter().map(typed).collect::<Vec<_>>().join(" or ")
    }

    /// The signature schemes of each of this side's keys that can still be read.
    pub(super) fn own_schemes(&self) -> Vec<Vec<SignatureScheme>> {
        let files = if self.key.is_empty() { &self.cert } else { &self.key };
        let schemes = |path: &PathBuf| {
            let key = signing_key(&Field::option("key", path.clone()), &lists::provider());
            Some(key.ok()?.schemes().to_vec())
        };
        files.iter().filter_map(schemes).collect()
    }

    /// Warns that --psk-ke has little effect without a key.
    pub(super) fn warn_of_psk_ke(&self) {
        if self.psk_ke && !self.has_psk() {
            let why = "without a pre-shared key it affects only resumed sessions";
            warn(&format!("--psk-ke: {why}; add --psk-file, or leave it out"));
        }
    }

    /// Whether pre-shared keys are used.
    pub(super) const fn has_psk(&self) -> bool {
        self.psk.is_some() || self.psk_file.is_some()
    }

    /// The pre-shared keys that a client offers: a single key, or the keys imported from it.
    pub(super) fn client_psks(&self, provider: &CryptoProvider) -> Result<Vec<Psk>, Error> {
        let Some(path) = &self.psk_file else {
            let record = self.psk_of_command_line()?;
            return record.map_or(Ok(vec![]), |record| self.psks_of("--psk", &record, provider));
        };
        let set = psk::read(path, self.short_keys())?;
        let wanted = self.psk_identity.as_ref().map(|wanted| Field::option("psk_identity", wanted.clone()));
        let record = choose(&Field::option("psk_file", path.clone()), &set, wanted.as_ref())?;
        self.check_imported(path, [&record])?;
        self.psks_of(path.display(), &record, provider)
    }

    /// Checks that the enabled versions can use one of the keys: imported keys are for TLS 1.3 (RFC 9258 §4).
    fn check_imported<'a>(
        &self,
        path: &Path,
        records: impl IntoIterator<Item = &'a PskRecord>,
    ) -> Result<(), Error> {
        let mut records = records.into_iter().peekable();
        let Some(first) = records.peek().filter(|_| !self.has_tls13()).map(|r| r.identity.to_string()) else {
            return Ok(());
        };
        if records.all(|record| record.import.is_some()) {
            let why = format!("the key of {first} is imported, so it is for TLS 1.3 only (RFC 9258)");
            let what = format!("--psk-file {}", path.display());
            Err(Error::usage(what, why, "add --tls1-3, or use a key that is not imported"))
        } else {
            Ok(())
        }
    }

    /// A server's source of pre-shared keys. Changes of a file or database apply to the next handshake.
    pub(super) fn server_psks(&self, provider: &Arc<CryptoProvider>) -> Result<Option<Psks>, Error> {
        if self.psk_file.is_some() && self.psk_identity.is_some() {
            let why = "a server accepts every key of --psk-file";
            return Err(Error::usage(
                "--psk-identity",
                why,
                "leave it out, or give a file with only that key",
            ));
        }
        let Some(path) = &self.psk_file else {
            let Some(record) = self.psk_of_command_line()? else { return Ok(None) };
            self.psks_of("--psk", &record, provider)?;
            let mut set = PskSet::default();
            set.put(record).map_err(|e| Error::usage("--psk", &e, e.fault.advice()))?;
            return Ok(Some(Psks::Fixed(set, provider.clone())));
        };
        let file = Field::option("psk_file", path.clone());
        let shown = path.display().to_string();
        let report = move |error: &PskError, then: &str| warn(&format!("{shown}: {error}; {then}"));
        let (psks, keys) = Psks::open(&file, self.short_keys(), provider, report)?;
        let keys = keys?;
        files::warn_of_access(path, "the keys");
        if !matches!(psks, Psks::Database(_)) {
            // At least one key, and each suits a suite.
            for record in keys.iter() {
                self.psks_of(path.display(), record, provider)?;
            }
            if keys.is_empty() {
                return Err(no_key(&file).into());
            }
            self.check_imported(path, keys.iter())?;
        }
        self.warn_of_keys(path, &keys);
        Ok(Some(psks))
    }

    /// Warns of problems of a key file with which a server can continue, because the file may change.
    fn warn_of_keys(&self, path: &Path, set: &PskSet) {
        let now_s = psk::now_s();
        let is_over = |record: &PskRecord| matches!(record.state(now_s), State::Expired | State::Revoked);
        if !set.is_empty() && set.iter().all(is_over) {
            let why = "every key in it has expired or is revoked, so no client can use one";
            warn(&format!("{}: {why}; add one with `dunlin psk`", path.display()));
        }
        let hint = set.hint().map_or(0, <[u8]>::len);
        if self.tls1_2 && hint > MAX_COMMON_HINT {
            let why = format!(
                "its identity_hint has {hint} bytes, and not every client takes more than {MAX_COMMON_HINT}"
            );
            warn(&format!("{}: {why}; shorten it", path.display()));
        }
    }

    const fn short_keys(&self) -> ShortKeys {
        if self.allow_short { ShortKeys::Allow } else { ShortKeys::Refuse }
    }

    fn psk_of_command_line(&self) -> Result<Option<PskRecord>, Error> {
        let Some(hex) = &self.psk else {
            return match self.psk_identity {
                Some(_) => Err(Error::usage("--psk-identity", "there is no key", "add --psk-file or --psk")),
                None => Ok(None),
            };
        };
        let key = base16ct::mixed::decode_vec(hex).map(Zeroizing::new);
        let key = key.map_err(|_| Error::usage("--psk", "not hexadecimal", "write two digits a byte"))?;
        let identity = identity(self.psk_identity.as_deref().unwrap_or(DEFAULT_IDENTITY))?;
        let record = PskRecord { allow_short: self.allow_short, ..PskRecord::new(identity, key) };
        record.check().map_err(|fault| Error::usage("--psk", &fault, fault.advice()))?;
        Ok(Some(record))
    }

    fn psks_of(
        &self,
        source: impl Display,
        record: &PskRecord,
        provider: &CryptoProvider,
    ) -> Result<Vec<Psk>, Error> {
        let psks = record.psks(provider, TransportKind::Stream);
        let psks = psks.map_err(|e| Error::failed(source, reason(&e), "use another key"))?;
        self.check_suites(&psks)?;
        Ok(psks)
    }

    /// Checks that a remaining suite suits one of the keys (RFC 8446 §4.2.11).
    fn check_suites(&self, psks: &[Psk]) -> Result<(), Error> {
        let Some(List(suites)) = &self.ciphersuites else { return Ok(()) };
        let fits = |psk: &Psk| suites.iter().any(|s| s.hash.algorithm() == psk.hash());
        let (own, other, suite) = match psks.first().map(Psk::hash) {
            Some(HashAlgorithm::Sha384) => ("SHA-384", "SHA-256", "TLS_AES_256_GCM_SHA384"),
            _ => ("SHA-256", "SHA-384", "TLS_AES_128_GCM_SHA256"),
        };
        if psks.iter().any(fits) {
            Ok(())
        } else {
            let why = format!("the pre-shared key suits only {own}, and the suites use {other}");
            Err(Error::usage("--ciphersuites", why, format!("add {suite}")))
        }
    }

    /// The trusted raw public keys.
    fn trusted_keys(&self, option: &str) -> Result<RawKeyTrust, Error> {
        let Some(path) = &self.rpk_file else {
            return Err(Error::usage(option, "no trusted keys", "give them with --raw-keys"));
        };
        Ok(RawKeyTrust::Keys(trust::raw_keys(&Field::option("raw_keys", path.clone()))?))
    }
}

fn identity(text: &str) -> Result<Identity, Error> {
    psk::identity(text, "--psk-identity")
}

/// Loads the chain of a file and its key, which may be in the same file. Warns if every peer with a correct
/// clock will refuse it.
pub(crate) fn load(
    cert: &Path,
    key: Option<&PathBuf>,
    side: Side,
    provider: &CryptoProvider,
) -> Result<LoadedCredential, Error> {
    let chain = Field::option("chain", cert.to_owned());
    let key = key.map(|key| Field::option("key", key.clone()));
    warned(|warnings| {
        let loaded = own_certificate(&chain, key.as_ref(), side, provider, warnings)?;
        warnings.extend(refusal(&chain, &loaded, side));
        Ok(loaded)
    })
}

/// The maximum length in bytes of a hint that every client accepts: BoringSSL and older versions of OpenSSL
/// refuse longer ones.
const MAX_COMMON_HINT: usize = 128;

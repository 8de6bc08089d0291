//! The TLS 1.2 cipher suites of a side, and whether they suit its keys and trust settings.

use dunlin::crypto::Tls12CipherSuite;
use dunlin::wire::{CipherSuite, SignatureScheme};
use dunlin::{Credential, Side};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_command::error::Error;

use crate::tls::lists::{self, List};
use crate::tls::options::TlsOptions;

impl TlsOptions {
    /// The enabled suites. A client with --psk-ke offers only its key, as in TLS 1.3. A server with
    /// pre-shared keys prefers suites with one, also as in TLS 1.3: they authenticate the client, which would
    /// be anonymous in other suites.
    pub(super) fn tls12_suites(&self, side: Side) -> Vec<&'static Tls12CipherSuite> {
        let mut suites = match (&self.cipher, self.psk_ke, self.allow_no_dhe_kex) {
            (Some(List(suites)), ..) => return suites.clone(),
            (None, true, _) if side == Side::Client => TLS12_PSK_CIPHER_SUITES.to_vec(),
            (None, false, false) => TLS12_CIPHER_SUITES.to_vec(),
            (None, ..) => [TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat(),
        };
        if side == Side::Server && self.has_psk() {
            suites.sort_by_key(|suite| !suite.has_psk());
        }
        suites
    }

    /// Checks that a client without trusted authorities was not given a suite with a certificate.
    pub(super) fn check_tls12_trust(&self) -> Result<(), Error> {
        let with_certificate = |suite: &&&Tls12CipherSuite| suite.has_certificate();
        let named = self.cipher.iter().flat_map(|List(suites)| suites).find(with_certificate);
        let Some(suite) = named else { return Ok(()) };
        let why = format!("{} uses a server certificate, and no trusted authority is given", suite.id);
        Err(Error::usage("--cipher", why, "give --ca, or leave this suite out"))
    }

    /// Checks that a server has the credentials for one of the suites of --cipher.
    pub(super) fn check_tls12_keys(&self, credentials: &[Credential]) -> Result<(), Error> {
        let Some(List(suites)) = &self.cipher else { return Ok(()) };
        let keys: Vec<_> = credentials.iter().map(|credential| credential.key().schemes().to_vec()).collect();
        if suites.iter().any(|suite| self.serves(suite, &keys)) {
            return Ok(());
        }
        let own = match self.own_keys() {
            own if own.is_empty() => "a pre-shared key".to_owned(),
            own => own,
        };
        let why = format!("none of its suites suits {own}");
        Err(Error::usage("--cipher", why, "add a suitable one, or give a key of another type"))
    }

    /// Returns the first suite that the client offered and for which this server has a key, but which this
    /// server has not enabled.
    pub(super) fn left_out(&self, offered: &[CipherSuite]) -> Option<&'static Tls12CipherSuite> {
        let own = self.tls12_suites(Side::Server);
        let keys = self.own_schemes();
        let mut offered = lists::tls12_of_use().into_iter().filter(|suite| offered.contains(&suite.id));
        offered.find(|suite| own.iter().all(|own| own.id != suite.id) && self.serves(suite, &keys))
    }

    /// Returns whether a server whose keys have these schemes has the credentials for the suite.
    fn serves(&self, suite: &Tls12CipherSuite, keys: &[Vec<SignatureScheme>]) -> bool {
        (!suite.has_certificate() || keys.iter().any(|schemes| suite.takes_key(schemes)))
            && (!suite.has_psk() || self.has_psk())
    }
}

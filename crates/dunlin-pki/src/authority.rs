//! Authorities, and the identities that they issue.

use std::time::SystemTime;

use der::asn1::OctetString;
use der::{Decode, Encode};
use pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::Certificate;
use x509_cert::ext::pkix::{BasicConstraints, SubjectKeyIdentifier};
use x509_cert::name::Name;

use crate::encode::{self, Signer};
use crate::{CaSpec, CrlSpec, Error, Form, KeyPair, LeafSpec, Purpose, crl};

/// A certificate that may issue others, its private key, and the certificates above it.
#[derive(Debug)]
pub struct Authority {
    /// Its own certificate first, then each one's issuer; a root at the end only if it is the root's own.
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
    name: Name,
    key_id: Option<OctetString>,
    not_after: SystemTime,
    is_root: bool,
    /// How many further authorities may stand between it and a leaf, by its chain as far as that is known; negative if
    /// there are too many above the leaf already; `None`: any number.
    path_len: Option<i64>,
}

/// What a client or server presents.
#[derive(Debug)]
pub struct Identity {
    /// Its certificate, then the intermediate ones in order; without the root, which the peer has to have.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: KeyPair,
}

impl Authority {
    /// A new authority that signs its own certificate.
    ///
    /// # Errors
    /// [`Error::BadSubject`] if its name is empty.
    pub fn root(spec: &CaSpec, key: KeyPair) -> Result<Self, Error> {
        let key_id = encode::key_identifier(key.public_key())?;
        // A root names no other key as its issuer's: it is its own (RFC 5280 §4.2.1.1).
        let signer = Signer { name: spec.subject.name(), key: &key, key_id: None };
        let certificate = ca_certificate(spec, &signer, &key, key_id)?;
        Self::load(vec![certificate], key)
    }

    /// The authority whose certificate comes first in `chain`, followed by those above it, and whose key is `key`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::MalformedCertificate`], [`Error::NotAnAuthority`], [`Error::KeyMismatch`].
    pub fn load(mut chain: Vec<CertificateDer<'static>>, key: KeyPair) -> Result<Self, Error> {
        let malformed = |error: der::Error| Error::MalformedCertificate(error.to_string());
        let first = chain.first().ok_or(Error::Missing("certificate"))?;
        let certificate = Certificate::from_der(first).map_err(malformed)?;
        let tbs = certificate.tbs_certificate();
        match tbs.get_extension::<BasicConstraints>().map_err(malformed)? {
            Some((_, constraints)) if constraints.ca => {}
            _ => return Err(Error::NotAnAuthority),
        }
        if tbs.subject_public_key_info().to_der().map_err(malformed)? != key.public_key().as_ref() {
            return Err(Error::KeyMismatch);
        }
        let key_id = tbs.get_extension::<SubjectKeyIdentifier>().map_err(malformed)?.map(|(_, id)| id.0);
        let name = tbs.subject().clone();
        let not_after = tbs.validity().not_after.to_system_time();
        let is_root = is_self_issued(&certificate);

        let path_len = path_len(&chain);

        // A peer trusts a root because it has it, so nobody sends it (RFC 8446 §4.4.2).
        let mut above = chain.split_off(1);
        above.retain(|der| !Certificate::from_der(der).is_ok_and(|certificate| is_self_issued(&certificate)));
        chain.append(&mut above);
        Ok(Self { chain, key, name, key_id, not_after, is_root, path_len })
    }

    /// A new authority under this one. Where this one limits the path, the new one does, too.
    ///
    /// # Errors
    /// [`Error::BadSubject`] if its name is empty; [`Error::PathTooLong`].
    pub fn intermediate(&self, spec: &CaSpec, key: KeyPair) -> Result<Self, Error> {
        let room = self.path_len.map(|len| u8::try_from(len - 1).map_err(|_| Error::PathTooLong));
        let spec = &CaSpec { path_len: spec.path_len.or(room.transpose()?), ..spec.clone() };
        let key_id = encode::key_identifier(key.public_key())?;
        let mut chain = vec![ca_certificate(spec, &self.signer(spec.form), &key, key_id)?];
        chain.extend_from_slice(self.chain_below());
        Self::load(chain, key)
    }

    /// A new certificate for a server or client.
    ///
    /// # Errors
    /// [`Error::Nameless`], [`Error::ServerWithoutName`], [`Error::PathTooLong`].
    pub fn issue(&self, spec: &LeafSpec, key: KeyPair) -> Result<Identity, Error> {
        if self.path_len.is_some_and(|len| len < 0) {
            return Err(Error::PathTooLong);
        }
        if spec.names.is_empty() && spec.subject.is_empty() {
            return Err(Error::Nameless);
        }
        if spec.names.is_empty() && spec.purposes.contains(&Purpose::Server) {
            // The subject is no longer looked at (RFC 9525 §2).
            return Err(Error::ServerWithoutName);
        }
        let signer = self.signer(spec.form);
        let extensions = encode::leaf_extensions(spec, key.key_type(), signer.key_id)?;
        let certificate = encode::certificate(
            &signer,
            spec.subject.name(),
            key.public_key(),
            &spec.validity,
            spec.form,
            extensions,
        )?;
        let mut chain = vec![certificate];
        chain.extend_from_slice(self.chain_below());
        Ok(Identity { chain, key })
    }

    /// A new list of the certificates of this authority that are revoked, as of now.
    ///
    /// # Errors
    /// [`Error::NotIssued`] for a certificate of another authority; [`Error::OtherIssuer`] for a list of another;
    /// [`Error::MalformedList`]; [`Error::MalformedCertificate`].
    pub fn revocation_list(
        &self,
        spec: &CrlSpec<'_>,
    ) -> Result<CertificateRevocationListDer<'static>, Error> {
        crl::revocation_list(&self.signer(Form::Full), spec, SystemTime::now())
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.chain[0]
    }

    /// Its certificate and those above it, in order; without the root unless it is one.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// What those below it have to send besides their own certificate: [`Authority::chain`], nothing for a root.
    pub fn chain_below(&self) -> &[CertificateDer<'static>] {
        if self.is_root { &[] } else { &self.chain }
    }

    /// Its key.
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The last moment at which it may be used. What it issues is of no use later.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    fn signer(&self, form: Form) -> Signer<'_> {
        let key_id = if form == Form::Full { self.key_id.as_ref() } else { None };
        Signer { name: &self.name, key: &self.key, key_id }
    }
}

fn ca_certificate(
    spec: &CaSpec,
    signer: &Signer<'_>,
    key: &KeyPair,
    key_id: OctetString,
) -> Result<CertificateDer<'static>, Error> {
    if spec.subject.is_empty() {
        return Err(Error::BadSubject(String::new()));
    }
    let extensions = encode::ca_extensions(spec, signer.key_id, key_id)?;
    encode::certificate(signer, spec.subject.name(), key.public_key(), &spec.validity, spec.form, extensions)
}

fn is_self_issued(certificate: &Certificate) -> bool {
    certificate.tbs_certificate().subject() == certificate.tbs_certificate().issuer()
}

/// How many further authorities the certificates of `chain` allow below its first (RFC 5280 §4.2.1.9). Those that do not
/// belong to it are not looked at.
fn path_len(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let mut least: Option<i64> = None;
    let mut below: Option<Certificate> = None;
    for (depth, der) in (0..).zip(chain) {
        let Ok(certificate) = Certificate::from_der(der) else { break };
        let tbs = certificate.tbs_certificate();
        if below.is_some_and(|below| below.tbs_certificate().issuer() != tbs.subject()) {
            break;
        }
        let constraints = tbs.get_extension::<BasicConstraints>().ok().flatten();
        let limit = constraints.and_then(|(_, c)| c.path_len_constraint).map(|len| i64::from(len) - depth);
        least = least.into_iter().chain(limit).min();
        below = Some(certificate);
    }
    least
}

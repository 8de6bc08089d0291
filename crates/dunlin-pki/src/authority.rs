//! Certificate authorities and the identities they issue.

use std::time::SystemTime;

use der::Decode;
use der::asn1::OctetString;
use pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::ext::pkix::{BasicConstraints, SubjectKeyIdentifier};
use x509_cert::name::Name;

use crate::encode::{self, Signer};
use crate::{CaSpec, Certificate, CrlSpec, Error, Form, KeyPair, LeafSpec, Purpose, crl};

/// A certificate that may issue others, its private key, and the certificates above it.
#[derive(Debug)]
pub struct Authority {
    /// The authority's own certificate, followed by each issuer. The root is included only if this authority
    /// is it.
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
    name: Name,
    key_id: Option<OctetString>,
    not_after: SystemTime,
    is_root: bool,
    /// How many further authorities the known part of the chain allows between this one and a leaf. Negative:
    /// the chain is too long already. `None`: any number.
    path_len: Option<i64>,
}

/// The certificate chain that a client or server presents, and its private key.
#[derive(Debug)]
pub struct Identity {
    /// The end-entity certificate, then the intermediates in order. The root is left out: the peer must have
    /// it already.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: KeyPair,
}

impl Authority {
    /// Creates an authority that signs its own certificate.
    ///
    /// # Errors
    /// [`Error::BadSubject`] if its name is empty.
    pub fn root(spec: &CaSpec, key: KeyPair) -> Result<Self, Error> {
        let key_id = encode::key_identifier(key.public_key())?;
        // A self-signed certificate may omit the authority key identifier (RFC 5280 §4.2.1.1).
        let signer = Signer { name: spec.subject.name(), key: &key, key_id: None };
        let certificate = ca_certificate(spec, &signer, &key, key_id)?;
        Self::load(vec![certificate], key)
    }

    /// Loads the authority with the private key `key`. Its certificate comes first in `chain`, then those
    /// above it.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::MalformedCertificate`], [`Error::NotAnAuthority`],
    /// [`Error::KeyMismatch`].
    pub fn load(mut chain: Vec<CertificateDer<'static>>, key: KeyPair) -> Result<Self, Error> {
        let malformed = |error: der::Error| Error::MalformedCertificate(error.to_string());
        let first = chain.first().ok_or(Error::missing("certificate"))?;
        let certificate = Certificate::from_der(first)?;
        match certificate.extension::<BasicConstraints>().map_err(malformed)? {
            Some(constraints) if constraints.ca => {}
            _ => return Err(Error::NotAnAuthority),
        }
        if certificate.public_key() != key.public_key() {
            return Err(Error::KeyMismatch);
        }
        let key_id = certificate.extension::<SubjectKeyIdentifier>().map_err(malformed)?.map(|id| id.0);
        let name = Name::from_der(certificate.subject().as_der()).map_err(malformed)?;
        let not_after = certificate.not_after();
        let is_root = certificate.is_self_issued();

        let path_len = path_len(&chain);

        // A peer that trusts the root has it already, so the chain omits it (RFC 8446 §4.4.2).
        let mut above = chain.split_off(1);
        above.retain(|der| !Certificate::from_der(der).is_ok_and(|certificate| certificate.is_self_issued()));
        chain.append(&mut above);
        Ok(Self { chain, key, name, key_id, not_after, is_root, path_len })
    }

    /// Creates an authority under this one. The new one inherits this one's path limit, less one, unless
    /// `spec` sets it.
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

    /// Issues a certificate for a server or client.
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
            // Clients no longer look for a host name in the subject (RFC 9525 §2).
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

    /// Makes a CRL of this authority, as of now.
    ///
    /// # Errors
    /// [`Error::NotIssued`] for another authority's certificate; [`Error::OtherIssuer`] for another
    /// authority's CRL; [`Error::OtherSigner`]; [`Error::UnlikeList`]; [`Error::MalformedList`];
    /// [`Error::MalformedCertificate`].
    pub fn revocation_list(
        &self,
        spec: &CrlSpec<'_>,
    ) -> Result<CertificateRevocationListDer<'static>, Error> {
        crl::revocation_list(&self.signer(Form::Full), spec, SystemTime::now())
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.chain[0]
    }

    /// The authority's own certificate and those above it, in order. The root is included only if this
    /// authority is it.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The certificates that a peer below this authority sends after its own: [`Authority::chain`], or none
    /// for a root.
    pub fn chain_below(&self) -> &[CertificateDer<'static>] {
        if self.is_root { &[] } else { &self.chain }
    }

    /// The authority's key.
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The end of its validity. Certificates below it cannot be used after that.
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

/// How many further authorities `chain` allows below its first certificate (RFC 5280 §4.2.1.9). The walk
/// stops at the first certificate that did not issue the one before it.
fn path_len(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let mut least: Option<i64> = None;
    let mut below: Option<Certificate> = None;
    for (depth, der) in (0..).zip(chain) {
        let Ok(certificate) = Certificate::from_der(der) else { break };
        if below.is_some_and(|below| below.issuer() != certificate.subject()) {
            break;
        }
        let constraints = certificate.extension::<BasicConstraints>().ok().flatten();
        let limit = constraints.and_then(|c| c.path_len_constraint).map(|len| i64::from(len) - depth);
        least = least.into_iter().chain(limit).min();
        below = Some(certificate);
    }
    least
}

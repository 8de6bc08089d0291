//! Makes, reads and describes keys, certificates and certificate revocation lists (CRLs).
//!
//! An [`Authority`] is an issuing certificate with its key. An [`Identity`] is the chain and key that a
//! client or server presents. Certificates come in two forms. [`Form::Full`] follows RFC 5280 to the letter.
//! [`Form::Lean`] is the smallest that webpki, OpenSSL and GnuTLS accept, for links where each byte costs
//! airtime.
//!
//! ```
//! use dunlin_pki::{Authority, CaSpec, KeyPair, KeyType, LeafSpec, Validity};
//!
//! # fn main() -> Result<(), dunlin_pki::Error> {
//! let year = Validity::from_now_days(365)?;
//! let spec = CaSpec::new("Example root".parse()?, year);
//! let root = Authority::root(&spec, KeyPair::generate(KeyType::P256)?)?;
//! let server = LeafSpec::server(["localhost".parse()?, "127.0.0.1".parse()?], year);
//! let identity = root.issue(&server, KeyPair::generate(KeyType::Ed25519)?)?;
//! assert_eq!(identity.chain.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`Authority::revocation_list`] makes a CRL, which revokes certificates of the authority.
//!
//! [`LoadedCredential::load`] reads a certificate chain and its key from PEM files for a client or a server,
//! and checks that they belong together.
//!
//! This crate validates no chain: the engine does that, with webpki.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules           what they contain
//! 5    tree credential | whole trees of certificates; a chain and its key from files
//! 4    authority inspect | issues certificates and CRLs; describes them
//! 3    crl encode pem  | the content of CRLs and certificates; the files that hold them
//! 2    certificate key spec | certificates, parsed; key pairs; specifications of certificates
//! 1    error other_key time | errors, also of unsupported keys; the validity
//! 0    key_type name reason | types of keys and reasons for a revocation, by name; names of subjects
//! ```
//! <!-- end of layers -->

mod authority;
mod certificate;
mod credential;
mod crl;
mod encode;
mod error;
mod inspect;
mod key;
mod key_type;
mod name;
mod other_key;
mod pem;
mod reason;
mod spec;
mod time;
mod tree;

/// CRLs with serial numbers of any length: some authorities issue longer ones than the 20 bytes of RFC 5280
/// §4.1.2.2.
type CertificateList = x509_cert::crl::CertificateList<x509_cert::certificate::Raw>;
type TbsCertList = x509_cert::crl::TbsCertList<x509_cert::certificate::Raw>;
type RevokedCert = x509_cert::crl::RevokedCert<x509_cert::certificate::Raw>;

pub use authority::{Authority, Identity};
pub use certificate::{AlternativeName, Certificate};
pub use credential::{CredentialFault, LoadError, LoadedCredential, Refusal};
pub use crl::CrlSpec;
pub use error::{Error, Unread};
pub use inspect::{CertificateInfo, Part, PublicKeyInfo, RevocationListInfo, RevokedInfo};
pub use key::KeyPair;
pub use key_type::KeyType;
pub use name::DistinguishedName;
pub use pem::{Item, certificates_to_pem, parse, parse_anchors, parse_for, revocation_list_to_pem};
pub use reason::RevocationReason;
pub use spec::{AltName, CaSpec, Form, LeafSpec, Purpose, Subject};
pub use time::{Validity, format_time, parse_time};
pub use tree::{Tree, TreeSpec};

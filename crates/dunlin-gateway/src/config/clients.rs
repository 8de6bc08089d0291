//! The table `[listener.clients]`: how clients authenticate themselves.

use super::{CredentialTrust, FileField, OwnCredential, Place, Section, credential_trust};

/// Whether clients must authenticate themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The gateway requests no certificate or raw key. Clients may use a pre-shared key.
    None,
    /// The gateway accepts clients without a certificate or raw key.
    Optional,
    /// The gateway refuses clients that prove no identity.
    Required,
}

/// The table `[listener.clients]`: how clients authenticate themselves.
#[derive(Clone, Debug)]
pub struct ClientsConfig {
    /// Whether they must.
    pub verify: Verify,
    /// Files with the certificates of trusted authorities.
    pub ca: Vec<FileField>,
    /// Files with CRLs, which each issuer of a client's certificate must then have.
    pub crl: Vec<FileField>,
    /// Files with trusted raw public keys.
    pub raw_keys: Vec<FileField>,
    /// Trust in verifiable credentials.
    pub credentials: CredentialTrust,
    /// The file or database of pre-shared keys.
    pub psk: Option<FileField>,
    /// Whether pre-shared keys also work without (EC)DHE, and so without forward secrecy.
    pub psk_without_dhe: bool,
    /// The place of the table.
    pub place: Place,
}

impl ClientsConfig {
    pub(super) fn none(place: Place) -> Self {
        Self {
            verify: Verify::None,
            ca: vec![],
            crl: vec![],
            raw_keys: vec![],
            credentials: CredentialTrust::default(),
            psk: None,
            psk_without_dhe: false,
            place,
        }
    }

    /// Whether certificates, raw keys or credentials of clients are trusted.
    pub(crate) const fn trusts(&self) -> bool {
        !self.ca.is_empty() || !self.raw_keys.is_empty() || self.credentials.trusts()
    }

    /// Whether a pre-shared key is the only way to authenticate, and clients must.
    pub(crate) const fn needs_psk(&self) -> bool {
        matches!(self.verify, Verify::Required) && self.psk.is_some() && !self.trusts()
    }

    pub(super) fn read(mut section: Section<'_>, has_policy: bool, own: &[&OwnCredential]) -> Self {
        let place = section.place().clone();
        let verify = section.one_of(
            "verify",
            &[("none", Verify::None), ("optional", Verify::Optional), ("required", Verify::Required)],
        );
        if has_policy && section.has("verify") {
            let what = "the profiles of the policy say how clients authenticate";
            section.fault(place.fault(what, "leave verify out, or the key policy"));
        }
        let ca = section.files("ca");
        let crl = section.files("crl");
        let raw_keys = section.files("raw_keys");
        let credentials = credential_trust(&mut section, own);
        let psk = section.file("psk");
        let psk_without_dhe = section.switch("psk_without_dhe").unwrap_or(false);
        let trusts = !ca.is_empty() || !raw_keys.is_empty() || credentials.trusts();
        // Trust that nothing demands must not look like protection.
        let verify = if has_policy {
            // Each profile states its own demand.
            Verify::Optional
        } else {
            verify.unwrap_or(if trusts || psk.is_some() { Verify::Required } else { Verify::None })
        };
        if !has_policy && verify != Verify::None && !trusts && psk.is_none() {
            let what = "verify demands an identity, but no ca, raw_keys, vc_issuers, dids or psk is given";
            section.fault(place.fault(what, "add one of them"));
        }
        if verify == Verify::None && trusts {
            let what =
                "clients are not asked for certificates, but ca, raw_keys, vc_issuers or dids trusts some";
            section
                .fault(place.fault(what, "write verify = \"required\" or \"optional\", or leave them out"));
        }
        if !crl.is_empty() && ca.is_empty() {
            section.fault(place.fault("crl has no effect without ca", "add ca, or leave crl out"));
        }
        section.end();
        Self { verify, ca, crl, raw_keys, credentials, psk, psk_without_dhe, place }
    }
}

//! Decentralised identities for settings with ssi_parameters: a verifier that knows the two sides by their
//! names.

use std::sync::Arc;

use dunlin::auth::{
    Claim, DidProofs, Identifier, KnownRegistry, OtherIdentity, PrivateKey, Validity, Verdict,
    VerifiableCredential, Verified, Verifier, Verifiers,
};
use dunlin::error::AuthenticationFailure;
use dunlin::wire::{CertificateType, DidMethod};
use dunlin::{Credential, PeerIdentity, Side};

const REGISTRY: KnownRegistry = KnownRegistry { key_id: *b"registry", oldest_size: 1 };

const fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "did:dunlin:client",
        Side::Server => "did:dunlin:server",
    }
}

const fn typ(is_bare: bool) -> CertificateType {
    if is_bare { CertificateType::DECENTRALISED_IDENTIFIER } else { CertificateType::VERIFIABLE_CREDENTIAL }
}

/// The same proof for every peer.
#[derive(Debug)]
struct Proof;

impl DidProofs for Proof {
    fn latest(&self, _: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(b"a proof".to_vec())
    }
}

/// The identity of a side, whose key is `key`.
pub(crate) fn credential(is_bare: bool, side: Side, key: PrivateKey) -> Credential {
    let did_method = DidMethod::DUNLIN;
    let proofs = Some(Arc::new(Proof) as Arc<dyn DidProofs>);
    if is_bare {
        Credential::Identifier {
            identifier: Identifier { proofs, ..Identifier::new(name(side), did_method) },
            key,
        }
    } else {
        let credential = VerifiableCredential::new(name(side).as_bytes().to_vec(), did_method);
        let status = b"status lists".to_vec();
        Credential::Verifiable { credential: VerifiableCredential { proofs, status, ..credential }, key }
    }
}

/// Trust in the identities of both sides, which have these keys: the client's and the server's.
pub(crate) fn trust(is_bare: bool, asks: bool, proofs: bool, keys: [&'static [u8]; 2]) -> Verifiers {
    Verifiers::default().with(Arc::new(Wallet { is_bare, asks, proofs, keys }))
}

#[derive(Debug)]
struct Wallet {
    is_bare: bool,
    asks: bool,
    proofs: bool,
    keys: [&'static [u8]; 2],
}

impl Verifier for Wallet {
    fn certificate_type(&self) -> CertificateType {
        typ(self.is_bare)
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.keys.iter().for_each(|key| add(key));
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::KEY, DidMethod::DUNLIN]
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        if self.proofs { vec![REGISTRY] } else { Vec::new() }
    }

    fn accepts_status(&self) -> bool {
        self.proofs
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        if self.asks { Ok(Verdict::Ask) } else { self.read(claim).map(Verdict::Accepted) }
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        let [entry] = claim.entries else { return Err(AuthenticationFailure::BadEncoding) };
        if **entry != *name(claim.peer).as_bytes() {
            return Err(AuthenticationFailure::UnknownIssuer);
        }
        let key = self.keys[usize::from(claim.peer == Side::Server)];
        let identity = OtherIdentity::new(typ(self.is_bare), entry.to_vec(), name(claim.peer));
        let identity = identity.map_err(|_| AuthenticationFailure::BadEncoding)?;
        Ok(Verified::new(key.to_vec().into(), PeerIdentity::Other(identity), Validity::ALWAYS))
    }
}

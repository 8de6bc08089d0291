//! Handshakes of both sides with [`SsiMessages::Links`], and credentials and DIDs as the paper's public
//! implementation has them.

use std::sync::Arc;

use dunlin::auth::{PrivateKey, VerifiableCredential, Verifiers};
use dunlin::error::AuthenticationFailure;
use dunlin::wire::{AlertDescription as Alert, DidMethod};
use dunlin::{ClientAuth, ClientConfig, Credential, Error, ProfileBuilder, ServerConfig, SsiMessages};
use dunlin_identity::Did;
use dunlin_identity::handshake::{CredentialIdentity, DocumentCache};
use dunlin_identity::key::PublicKey;
use dunlin_identity_interop::ott::{self, OttDid};
use dunlin_identity_interop::{LinksCredential, LinksIssuer, LinksVerifier};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc};

use crate::wallet::{TRANSPORTS, VC, client, negotiated_over, profile, server, types};

const ISSUER: &str = "did:ott:3CAB78B6026447E93026D41FAD68222741A432BABE5483EEAB6B62CEF05C0791";
const CREATED: &str = "2025-06-01T00:00:00Z";

fn public(leaf: &Leaf) -> PublicKey {
    PublicKey::from_spki(leaf.signing_key(&awslc()).public_key()).unwrap()
}

/// An issuer, a device and a hub with keys of one type.
struct Cast {
    pki: &'static Pki,
    issuer: Leaf,
    known: Arc<DocumentCache>,
    dids: [Did; 2],
}

impl Cast {
    fn new(typ: KeyType) -> Self {
        let pki = Pki::shared(typ);
        let now_s = i64::try_from(NOW.unix_ms / 1000).unwrap();
        let known = Arc::new(DocumentCache::new(awslc(), vec![DidMethod::OTT], 3600));
        let dids = [(&pki.client, "AB"), (&pki.server, "EF")].map(|(leaf, address)| {
            let did = format!("did:ott:{}:{}", address.repeat(32), "cd".repeat(32)).parse().unwrap();
            let ott = OttDid::read(&did).unwrap();
            let key = public(leaf);
            let document = ott::document(&ott.address, CREATED, &key, &key).unwrap();
            known.insert(ott::read_document(document.as_bytes(), &ott).unwrap(), 0, now_s).unwrap();
            did
        });
        Self { pki, issuer: Pki::new(typ).server, known, dids }
    }

    /// The credential of the device or of the hub, changed before its issuer signs it.
    fn shows(&self, is_hub: bool, change: fn(&mut LinksCredential)) -> Credential {
        let mut credential = LinksCredential {
            id: "urn:credential".to_owned(),
            issuer: ISSUER.to_owned(),
            issuance_date: CREATED.to_owned(),
            expiration_date: "2026-06-01T00:00:00Z".to_owned(),
            subject: self.dids[usize::from(is_hub)].to_string(),
        };
        change(&mut credential);
        let provider = awslc();
        let method = format!("{ISSUER}#keys-1");
        let signer = self.issuer.signing_key(&provider);
        let text = credential.issue(&provider, &*signer, &method, CREATED).unwrap();
        let leaf = if is_hub { &self.pki.server } else { &self.pki.client };
        let credential = VerifiableCredential::new(text.into_bytes(), DidMethod::OTT);
        Credential::Verifiable { credential, key: PrivateKey::Here(leaf.signing_key(&provider)) }
    }

    /// A side that trusts the issuer with this key.
    fn side(&self, issuer: &Leaf, own: Credential) -> ProfileBuilder {
        let issuer = LinksIssuer { method: format!("{ISSUER}#keys-1"), key: public(issuer) };
        let verifier = LinksVerifier::new(awslc(), vec![issuer]).with_resolver(self.known.clone());
        profile(Verifiers::default().with(Arc::new(verifier)), vec![own]).ssi_messages(SsiMessages::Links)
    }

    fn ends(&self, device: Credential, hub: Credential) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let of_client = self.side(&self.issuer, device);
        let of_server = self.side(&self.issuer, hub);
        (client(of_client), server(of_server, ClientAuth::Required))
    }
}

const KEYS: [KeyType; 3] = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519];

#[test]
fn both_sides_authenticate_by_credentials_with_every_type_of_key() {
    for typ in KEYS {
        let cast = Cast::new(typ);
        let (client, server) = cast.ends(cast.shows(false, |_| ()), cast.shows(true, |_| ()));
        for over in TRANSPORTS {
            let ends = negotiated_over(over, &client, &server, NOW);
            assert_eq!(types(&ends), [Some(VC); 2], "{typ:?}, {over:?}");
            for (end, did) in ends.iter().zip(cast.dids.iter().rev()) {
                let peer = end.peer.as_ref().and_then(CredentialIdentity::of).unwrap();
                assert_eq!((&peer.did, peer.issuer.as_str()), (did, ISSUER), "{typ:?}, {over:?}");
            }
        }
    }
}

/// Both sides report this alert, and the side that refuses this reason.
#[track_caller]
fn refused(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, by_hub: bool, alert: Alert, why: &str) {
    let mut pair = Pair::new(client, server);
    let error = pair.run().unwrap_err();
    let (judge, peer) = if by_hub { (&pair.server, &pair.client) } else { (&pair.client, &pair.server) };
    assert_eq!(judge.error(), Some(&error));
    assert_eq!(error.alert(), Some(alert), "{error}");
    let Error::Authentication(AuthenticationFailure::RejectedWith(_, text)) = &error else {
        panic!("{error}");
    };
    assert!(text.contains(why), "{text}");
    assert_eq!(peer.error(), Some(&Error::AlertReceived(alert)));
}

#[test]
fn both_sides_refuse_credentials_that_do_not_count() {
    for typ in KEYS {
        let cast = Cast::new(typ);
        let right = |is_hub| cast.shows(is_hub, |_| ());
        let expired: fn(&mut _) = |credential: &mut LinksCredential| {
            credential.expiration_date = "2025-12-31T23:59:59Z".to_owned();
        };
        let early: fn(&mut _) = |credential: &mut LinksCredential| {
            credential.issuance_date = "2026-01-01T00:00:01Z".to_owned();
        };
        let foreign: fn(&mut _) = |credential: &mut LinksCredential| {
            credential.issuer = "did:ott:another".to_owned();
        };
        for (change, alert, why) in [
            (expired, Alert::CERTIFICATE_EXPIRED, "expired"),
            (early, Alert::CERTIFICATE_EXPIRED, "not valid yet"),
            (foreign, Alert::UNKNOWN_CA, "trusted"),
        ] {
            let (client, server) = cast.ends(cast.shows(false, change), right(true));
            refused(&client, &server, true, alert, why);
            let (client, server) = cast.ends(right(false), cast.shows(true, change));
            refused(&client, &server, false, alert, why);
        }
        // Each trusts a key that has not signed the other's credential.
        let other = |own| cast.side(&cast.pki.client, own);
        let (device, hub) = cast.ends(right(false), right(true));
        let judge = server(other(right(true)), ClientAuth::Required);
        refused(&device, &judge, true, Alert::BAD_CERTIFICATE, "signature");
        refused(&client(other(right(false))), &hub, false, Alert::BAD_CERTIFICATE, "signature");
    }
}

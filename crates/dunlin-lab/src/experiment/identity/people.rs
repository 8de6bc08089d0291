//! The identities of a run. Each holder has one key, and shows it in a certificate chain, by a DID, or in a
//! credential about the DID.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use dunlin::auth::{DidProofs, Verified, Verifier, X509Trust};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::DidMethod;
use dunlin::{Credential, Now};
use dunlin_identity::credential::status::{Bitstring, StatusEntry, StatusList, StatusLists, StatusPurpose};
use dunlin_identity::credential::{CREDENTIALS_V2, Context, Contexts, Issuer, Seconds, Verifier as Issuers};
use dunlin_identity::handshake::{
    CredentialVerifier, DocumentCache, Holding, IdentifierVerifier, Refusal, Resolver, Stapled,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::first_document;
use dunlin_identity::{DidDocument, DidUrl, Relationship, Sha256Hash, TrustList};
use dunlin_pki::{Form as CertificateForm, KeyPair, KeyType, format_time};
use fastrand::Rng;
use pki_types::CertificateDer;
use serde_json::{Value, json};

use super::super::keys::{self, CHAIN_LENGTH, SERVER_NAME};
use super::case::Form;
use super::kind::Kind;
use crate::Error;
use crate::error::failed;

/// The validity of credentials and status lists.
const VALIDITY: Seconds = 30 * DAY_S;
const DAY_S: Seconds = 24 * 3600;
/// The registry that the DIDs name.
pub(super) const REGISTRY: &str = "registry.example/1";
/// The second context in credentials, with the type that it defines: those in the paper's example.
const CONTEXT: &str = "https://address/credentials/1";
const CONTEXT_TEXT: &str = r#"{"@context":{"IoTCredential":"https://address/credentials/1#IoTCredential"}}"#;
/// The issuer's status list.
const STATUS_LIST: &str = "https://issuer.example/status/1";

/// The identities of one type of keys, and what a verifier of them needs.
pub(super) struct People {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) holders: Vec<Holder>,
    root: CertificateDer<'static>,
    issuer: DidDocument,
    contexts: Contexts,
    status: StatusLists,
    now: Seconds,
}

/// One holder.
pub(super) struct Holder {
    pub(super) key: Arc<dyn SigningKey>,
    /// The leaf and the intermediate authority.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) document: DidDocument,
    credentials: Vec<(Form, Vec<u8>)>,
}

/// A party with a key and a DID.
struct Party {
    pair: KeyPair,
    key: Arc<dyn SigningKey>,
    document: DidDocument,
    method: DidUrl,
}

impl Party {
    fn new(provider: &CryptoProvider, key_type: KeyType, random: &mut Rng) -> Result<Self, Error> {
        let pair = KeyPair::generate(key_type)?;
        let key = pair.signing_key(provider)?;
        let public = PublicKey::from_spki(key.public_key()).map_err(failed)?;
        let [next, recovery] = [(); 2].map(|()| random_hash(random));
        let document = first_document(provider, REGISTRY, &public, next, recovery).map_err(failed)?;
        let first = document.keys(Relationship::Authentication).next();
        let method = first.map(|(method, _)| method.clone()).ok_or_else(|| failed("a DID has no key"))?;
        Ok(Self { pair, key, document, method })
    }
}

impl People {
    /// Makes `count` holders of keys of this type.
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        key_type: KeyType,
        count: usize,
        random: &mut Rng,
    ) -> Result<Self, Error> {
        let now = seconds(dunlin_tokio::now());
        let issuer = Party::new(&provider, key_type, random)?;
        let mut hash = String::new();
        for byte in provider.sha256.hash(&[CONTEXT_TEXT.as_bytes()]).as_ref() {
            hash.push_str(&format!("{byte:02x}"));
        }
        let contexts = Contexts::default().with(Context { url: CONTEXT.to_owned(), sha256: hash });
        let authorities = keys::Issuer::new(CertificateForm::Lean, key_type, CHAIN_LENGTH)?;
        let status = status_list(&provider, &issuer, now)?;
        let holders = (0..count).map(|_| {
            let holder = Party::new(&provider, key_type, random)?;
            let credentials = Form::ALL.map(|form| {
                Ok::<_, Error>((form, issue(&provider, &issuer, &holder, &contexts, form, now, random)?))
            });
            let credentials = credentials.into_iter().collect::<Result<_, _>>()?;
            let Party { pair, key, document, .. } = holder;
            Ok(Holder { key, chain: authorities.server(&[SERVER_NAME], pair)?.chain, document, credentials })
        });
        let holders = holders.collect::<Result<_, Error>>()?;
        let root = authorities.root;
        Ok(Self { provider, holders, root, issuer: issuer.document, contexts, status, now })
    }

    /// The credential that a holder shows.
    pub(super) fn credential(
        &self,
        holder: &Holder,
        kind: Kind,
        form: Form,
        proofs: Option<Arc<dyn DidProofs>>,
    ) -> Result<Credential, Error> {
        let first = holder.document.keys(Relationship::Authentication).next();
        let method = first.map(|(method, _)| method.clone()).ok_or_else(|| failed("a DID has no key"))?;
        let key = holder.key.clone();
        let holding = match kind {
            Kind::X509 => return Ok(Credential::x509(holder.chain.clone(), key)),
            Kind::Did => Holding::of_did(key, method),
            Kind::Vc => {
                let found = holder.credentials.iter().find(|(of, _)| *of == form);
                let bytes = found.map(|(_, bytes)| bytes.clone()).unwrap_or_default();
                Holding::of_credential(key, method, bytes, &self.contexts).map_err(failed)?
            }
        };
        let holding = match proofs {
            Some(proofs) => holding.with_proofs(proofs),
            None => holding,
        };
        holding.to_tls(&self.provider).ok_or_else(|| failed("a DID method has no number"))
    }

    /// The verifier of all holders. It asks for documents that are not at hand.
    pub(super) fn verifier(&self, kind: Kind, resolver: &Arc<dyn Resolver>) -> Result<Judge, Error> {
        let provider = self.provider.clone();
        Ok(match kind {
            Kind::X509 => Judge::X509(Arc::new(X509Trust::anchors([self.root.clone()]).map_err(failed)?)),
            Kind::Vc => {
                let issuers = Issuers::new([self.issuer.clone()]).with_contexts(self.contexts.clone());
                let verifier = CredentialVerifier::of(provider, issuers).with_status(self.status.clone());
                // In every case, the verifier has looked up the issuer's document before, as the paper's has.
                let verifier = verifier.with_resolver(self.at_hand([&self.issuer])?);
                Judge::Vc(Arc::new(verifier.with_resolver(resolver.clone()).asking()))
            }
            Kind::Did => {
                let dids = self.holders.iter().map(|holder| holder.document.id().clone());
                let verifier = IdentifierVerifier::new(provider, TrustList::new(dids));
                Judge::Did(Arc::new(verifier.with_resolver(resolver.clone()).asking()))
            }
        })
    }

    /// A resolver that knows every holder's document already.
    pub(super) fn cached(&self) -> Result<Arc<dyn Resolver>, Error> {
        self.at_hand(self.holders.iter().map(|holder| &holder.document))
    }

    /// A resolver that has looked up these documents.
    fn at_hand<'d>(
        &self,
        documents: impl IntoIterator<Item = &'d DidDocument>,
    ) -> Result<Arc<dyn Resolver>, Error> {
        let cache = DocumentCache::new(self.provider.clone(), vec![DidMethod::DUNLIN], DAY_S);
        for document in documents {
            cache.insert(document.clone(), 0, self.now).map_err(failed)?;
        }
        Ok(Arc::new(cache))
    }
}

/// A verifier, which also judges again after a look-up.
#[derive(Clone)]
pub(super) enum Judge {
    X509(Arc<X509Trust>),
    Vc(Arc<CredentialVerifier>),
    Did(Arc<IdentifierVerifier>),
}

impl Judge {
    pub(super) fn verifier(&self) -> Arc<dyn Verifier> {
        match self {
            Self::X509(verifier) => verifier.clone(),
            Self::Vc(verifier) => verifier.clone(),
            Self::Did(verifier) => verifier.clone(),
        }
    }

    /// The verdict on what a peer has shown.
    pub(super) fn judge(
        &self,
        provider: &CryptoProvider,
        entries: &[CertificateDer<'_>],
        stapled: Stapled<'_>,
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        match self {
            Self::X509(_) => Err(Refusal::Entries),
            Self::Vc(verifier) => verifier.judge(entries, stapled, provider.signatures.all, now),
            Self::Did(verifier) => verifier.judge(entries, stapled.did_proof, now),
        }
    }
}

/// A credential with the fields of the paper's example, and one claim.
fn issue(
    provider: &CryptoProvider,
    issuer: &Party,
    holder: &Party,
    contexts: &Contexts,
    form: Form,
    now: Seconds,
    random: &mut Rng,
) -> Result<Vec<u8>, Error> {
    let mut credential = json!({
        "@context": [CREDENTIALS_V2, CONTEXT],
        "type": ["VerifiableCredential", "IoTCredential"],
        "issuer": issuer.document.id().as_str(),
        "validFrom": time(now)?,
        "validUntil": time(now + VALIDITY)?,
        "credentialSubject": {"id": holder.document.id().as_str(), "role": "sensor"},
    });
    if form == Form::JsonStatus {
        let index = random.u64(..Bitstring::default().entries());
        let entry = StatusEntry { list: STATUS_LIST.to_owned(), index, purpose: StatusPurpose::Revocation };
        credential["credentialStatus"] = entry.to_value();
    }
    let issuer = Issuer { provider, signer: &*issuer.key, method: &issuer.method };
    match form {
        Form::Json | Form::JsonStatus => {
            issuer.issue(&credential, contexts, now).map(String::into_bytes).map_err(failed)
        }
        Form::Compact => issuer.issue_compact(&credential, contexts).map_err(failed),
    }
}

/// The issuer's status list, without a revocation.
fn status_list(provider: &CryptoProvider, issuer: &Party, now: Seconds) -> Result<StatusLists, Error> {
    let bits = Bitstring::default();
    let did = issuer.document.id();
    let until = now + VALIDITY;
    let list: Value =
        bits.credential(did, STATUS_LIST, StatusPurpose::Revocation, now, until).map_err(failed)?;
    let signing = Issuer { provider, signer: &*issuer.key, method: &issuer.method };
    let signed = signing.issue_jwt(&list, &Contexts::default()).map_err(failed)?;
    let issuers = Issuers::new([issuer.document.clone()]);
    let list = StatusList::verify(&issuers, provider, signed.as_bytes(), STATUS_LIST, now).map_err(failed)?;
    let mut lists = StatusLists::default();
    lists.insert(list).map_err(failed)?;
    Ok(lists)
}

fn time(seconds: Seconds) -> Result<String, Error> {
    let seconds = u64::try_from(seconds).map_err(failed)?;
    Ok(format_time(UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// The time of a handshake, in seconds since 1970.
pub(super) fn seconds(now: Now) -> Seconds {
    Seconds::try_from(now.unix_ms / 1000).unwrap_or(Seconds::MAX)
}

/// The hash of something that nothing else needs.
pub(super) fn random_hash(random: &mut Rng) -> Sha256Hash {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    Sha256Hash::from_bytes(bytes)
}

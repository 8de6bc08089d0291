//! Looks up the documents of peers while their handshakes wait: documents of `did:dunlin` in registries, and
//! of `did:web` on web servers.
//!
//! Only the handshake that asks waits, and for a limited time. A verifier asks last: after the proof that the
//! peer sends along, and after what this side has learnt before. About one DID, one request at a time is
//! under way, however many handshakes wait for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use dunlin::auth::{Acceptance, Belief};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::wire::DidMethod;
use dunlin::{Answer, Negotiated, PeerIdentity, Question};
use dunlin_identity::credential::Seconds;
use dunlin_identity::encoding::json::MAX_JSON;
use dunlin_identity::handshake::{
    CredentialIdentity, CredentialVerifier, DocumentCache, IdentifierIdentity, Judge, LOOK_UP_AGE, Refusal,
    ResolveError, Resolver, Stapled,
};
use dunlin_identity::method::web::{self, WebError};
use dunlin_identity::{Did, DidDocument};
use dunlin_tokio::Answers;
use dunlin_tokio::https::{HttpsClient, HttpsError};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use crate::client::{ClientError, RegistryClient};

/// How long a look-up may take, unless the program says otherwise: half of a handshake's usual time.
pub const LOOK_UP_TIME: Duration = Duration::from_secs(5);

/// How long the look-ups of the issuer and of the peer may take together, for one handshake.
const ALL_LOOK_UPS: Duration = Duration::from_secs(6);

/// How long a failure serves those who ask again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The most DIDs about which failures are remembered.
const MAX_REMEMBERED: usize = 1024;

/// How often the issuers of `did:dunlin` and `did:web` are looked up: the longest that a verifier misses the
/// rotation or deactivation of one, while the registry answers.
pub const WATCH_TIME: Duration = Duration::from_secs(3600);

/// The most look-ups at the same time. Each has a connection.
pub const MAX_LOOK_UPS: usize = 64;

/// The most look-ups at the same time that no handshake waits for, beside the others.
const MAX_RECHECKS: usize = 8;

/// The pause before a peer is asked about again whose look-up has failed, and the longest one: each is twice
/// the one before.
const RECHECK_PAUSE: Duration = Duration::from_secs(5);
const MAX_RECHECK_PAUSE: Duration = Duration::from_secs(320);

/// How often a program asks whether a registry still answers.
pub const PING_TIME: Duration = Duration::from_secs(10);

/// Why a DID cannot be looked up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookUpError {
    /// The registry has no right answer.
    #[error("{0}")]
    Registry(#[from] ClientError),
    /// The web server cannot be reached over HTTPS.
    #[error("{0}")]
    Https(#[from] HttpsError),
    /// The web server does not have the document.
    #[error("{url}: status {status}")]
    Status {
        /// The place of the document.
        url: String,
        /// The status of HTTP.
        status: u16,
    },
    /// The document is refused.
    #[error("{url}: {error}")]
    Web {
        /// The place of the document, or the DID that names none.
        url: String,
        /// The reason.
        error: WebError,
    },
    /// The document contradicts what this side knows.
    #[error("{0}")]
    Document(#[from] ResolveError),
    /// Too many other handshakes wait for look-ups.
    #[error("{MAX_LOOK_UPS} look-ups are under way already")]
    Busy,
    /// The look-up of the issuer has taken the time.
    #[error("the look-up of its issuer has left no time")]
    Late,
    /// There is no registry and no web client for DIDs of this method.
    #[error("no registry or web server is configured for DIDs of its method")]
    Method,
}

/// Looks documents of `did:web` up over HTTPS, and keeps each for [`LOOK_UP_AGE`].
#[derive(Clone, Debug)]
pub struct WebDocuments {
    https: HttpsClient,
    known: Arc<DocumentCache>,
}

impl WebDocuments {
    /// A client of web servers, which its connector authenticates. Its deadline applies to each look-up.
    pub fn new(provider: Arc<CryptoProvider>, https: HttpsClient) -> Self {
        let known = DocumentCache::new(provider, vec![DidMethod::WEB], LOOK_UP_AGE);
        Self { https: https.with_max_content(MAX_JSON), known: Arc::new(known) }
    }

    /// The document that the DID's web server has now. It is kept for later handshakes, too.
    ///
    /// # Errors
    /// [`LookUpError`].
    pub async fn resolve(&self, did: &Did) -> Result<DidDocument, LookUpError> {
        let of_did = |error| LookUpError::Web { url: did.to_string(), error };
        let url = web::locate(did).map_err(of_did)?.to_string();
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = url.parse().map_err(|_| HttpsError::Url(url.clone()))?;
        let answer = self.https.send(request).await?;
        // did:web demands no redirection to another host; this client follows none.
        if answer.status() != StatusCode::OK {
            return Err(LookUpError::Status { url, status: answer.status().as_u16() });
        }
        let document = web::read(answer.body(), did).map_err(|error| LookUpError::Web { url, error })?;
        self.known.insert(document.clone(), 0, now_s())?;
        Ok(document)
    }
}

/// Everything that a program can look up.
#[derive(Clone)]
pub struct LookUps {
    registries: Vec<RegistryClient>,
    web: Option<WebDocuments>,
    places: Arc<Semaphore>,
    rechecks: Arc<Semaphore>,
    recent: Arc<Mutex<HashMap<Did, Arc<Recent>>>>,
}

/// The look-up of one DID that was made last. Who makes one holds the lock.
type Recent = tokio::sync::Mutex<Option<(Instant, Result<(), LookUpError>)>>;

impl LookUps {
    /// Asks these registries, all at once, and web servers if there is a client for them.
    pub fn new(registries: Vec<RegistryClient>, web: Option<WebDocuments>) -> Self {
        let [places, rechecks] = [MAX_LOOK_UPS, MAX_RECHECKS].map(|places| Arc::new(Semaphore::new(places)));
        Self { registries, web, places, rechecks, recent: Arc::default() }
    }

    /// The resolvers that know what was looked up. A verifier asks with them ([`Judge::asking_with`]).
    pub fn resolvers(&self) -> Vec<Arc<dyn Resolver>> {
        let registries =
            self.registries.iter().map(|client| Arc::clone(client.documents()) as Arc<dyn Resolver>);
        let web = self.web.iter().map(|web| Arc::clone(&web.known) as Arc<dyn Resolver>);
        registries.chain(web).collect()
    }

    /// Looks a DID up. The resolvers know the result.
    ///
    /// # Errors
    /// [`LookUpError`]; with several registries, the error of the last one to answer.
    pub async fn look_up(&self, did: &Did) -> Result<(), LookUpError> {
        self.shared(did, async || {
            let _place = self.places.try_acquire().map_err(|_| LookUpError::Busy)?;
            self.ask(did).await
        })
        .await
    }

    /// Shares a look-up with all that wait for it.
    async fn shared(
        &self,
        did: &Did,
        ask: impl AsyncFnOnce() -> Result<(), LookUpError>,
    ) -> Result<(), LookUpError> {
        let begin = Instant::now();
        let recent = self.recent_of(did);
        let mut recent = recent.lock().await;
        if let Some((at, result)) = &*recent
            && (*at >= begin || (result.is_err() && at.elapsed() < RETRY_PAUSE))
        {
            return result.clone();
        }
        let result = ask().await;
        *recent = Some((Instant::now(), result.clone()));
        result
    }

    fn recent_of(&self, did: &Did) -> Arc<Recent> {
        let mut all = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_REMEMBERED {
            all.retain(|_, recent| Arc::strong_count(recent) > 1);
        }
        all.entry(did.clone()).or_default().clone()
    }

    async fn ask(&self, did: &Did) -> Result<(), LookUpError> {
        if let (Some(web), "web") = (&self.web, did.method()) {
            return web.resolve(did).await.map(drop);
        }
        // One after the other, the deadlines of silent registries would add up, and the handshake would end
        // first.
        let mut asked = JoinSet::new();
        for registry in self.registries.iter().filter(|_| did.method() == "dunlin") {
            let registry = registry.clone();
            let did = did.clone();
            asked.spawn(async move { registry.resolve(&did).await.map(drop) });
        }
        let mut refusal = LookUpError::Method;
        while let Some(Ok(resolved)) = asked.join_next().await {
            match resolved {
                Ok(()) => return Ok(()),
                Err(error) => refusal = error.into(),
            }
        }
        Err(refusal)
    }

    /// Looks a DID up, and returns its document.
    ///
    /// # Errors
    /// [`LookUpError`].
    pub async fn resolve(&self, did: &Did) -> Result<DidDocument, LookUpError> {
        self.look_up(did).await?;
        let mut resolved = self.resolvers().into_iter().map(|resolver| resolver.resolve(did, None, now_s()));
        let found = resolved.find(|resolved| !matches!(resolved, Err(ResolveError::NotAtHand(_))));
        Ok(found.ok_or(LookUpError::Method)??.document)
    }

    /// Looks up the issuers that a verifier with [`Self::resolvers`] trusts, so that it has their documents,
    /// and learns when one has another document or has ended its DID. Failures are logged.
    pub async fn look_up_issuers(&self, verifier: &CredentialVerifier) {
        for did in verifier.issuers().filter(|did| self.can_ask(did)) {
            // Handshakes may have taken all places, which must not keep this side from what it has to know.
            if let Err(error) = self.shared(did, async || self.ask(did).await).await {
                tracing::warn!(%did, %error, "a trusted issuer cannot be looked up: its credentials count as long as its document does");
            }
        }
    }

    /// Whether there is a registry or web client for DIDs of this method.
    fn can_ask(&self, did: &Did) -> bool {
        match did.method() {
            "dunlin" => !self.registries.is_empty(),
            "web" => self.web.is_some(),
            _ => false,
        }
    }

    /// Asks the registries every [`PING_TIME`] whether they answer, as long as the verifier exists. One that
    /// has not for [`SILENT_TIME`](dunlin_identity::handshake::SILENT_TIME) counts as silent
    /// ([`RegistryDocuments::watch`](dunlin_identity::handshake::RegistryDocuments::watch)).
    pub async fn watch_registries(&self, verifier: Weak<dyn Judge>) {
        let mut watched = JoinSet::new();
        for client in &self.registries {
            watched.spawn(watch(client.clone(), verifier.clone()));
        }
        while watched.join_next().await.is_some() {}
    }

    /// As [`Self::look_up_issuers`], now and every [`WATCH_TIME`], until the verifier is dropped.
    pub async fn watch_issuers(&self, verifier: Weak<CredentialVerifier>) {
        while let Some(verifier) = verifier.upgrade() {
            self.look_up_issuers(&verifier).await;
            drop(verifier);
            sleep(WATCH_TIME).await;
        }
    }

    /// The answers to the questions of these verifiers with [`Self::resolvers`], one of each type.
    pub fn answers(&self, verifiers: Vec<Arc<dyn Judge>>) -> LookUpAnswers {
        LookUpAnswers { look_ups: self.clone(), verifiers }
    }
}

impl fmt::Debug for LookUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUps").field("registries", &self.registries).finish_non_exhaustive()
    }
}

/// Watches a registry as long as the verifier exists.
async fn watch(client: RegistryClient, verifier: Weak<dyn Judge>) {
    let now = || tokio::time::Instant::now().into_std();
    let watch = client.documents().watch(now());
    while verifier.strong_count() > 0 {
        let answer = client.answers().await;
        let url = client.url();
        match answer {
            Ok(()) => {
                if watch.answered(now()) {
                    tracing::info!(url, "the registry answers again");
                }
            }
            Err(error) => {
                if watch.unanswered(now()) {
                    tracing::error!(url, %error, "the registry does not answer: older proofs count for a while, where outage_age allows it");
                }
            }
        }
        sleep(PING_TIME).await;
    }
}

/// Answers whether a peer is trusted whose document the verifier did not have at hand.
#[derive(Clone, Debug)]
pub struct LookUpAnswers {
    look_ups: LookUps,
    verifiers: Vec<Arc<dyn Judge>>,
}

impl LookUpAnswers {
    /// Whether an earlier verdict on this peer still holds, as far as the verifiers know.
    pub fn belief(&self, peer: &PeerIdentity) -> Belief {
        let of_type =
            |verifier: &&Arc<dyn Judge>| peer.certificate_type() == Some(verifier.certificate_type());
        let verifier = self.verifiers.iter().find(of_type);
        verifier.map_or(Belief::Holds, |verifier| verifier.still_believes(peer, dunlin_tokio::now()))
    }

    /// Asks about a connected peer without a current verdict, such as the peer of a thawed association.
    /// Returns when the verdict on one of its identities no longer holds, and never otherwise: drop it when
    /// the connection ends. Failed look-ups are repeated.
    pub async fn ended(&self, negotiated: &Negotiated) {
        tokio::select! {
            () = self.identity_ended(negotiated.peer.as_ref()) => {}
            () = self.identity_ended(negotiated.peer_certified.as_deref()) => {}
        }
    }

    async fn identity_ended(&self, peer: Option<&PeerIdentity>) {
        let Some(peer) = peer else { return std::future::pending().await };
        let of_credential = CredentialIdentity::of(peer).map(|peer| [Some(peer.did), Some(peer.issuer)]);
        let of_identifier = || Some([Some(IdentifierIdentity::of(peer)?.did), None]);
        let dids = of_credential.or_else(of_identifier).into_iter().flatten().flatten();
        let dids: Vec<_> = dids.filter(|did| self.look_ups.can_ask(did)).collect();
        let mut pause = RECHECK_PAUSE;
        loop {
            match self.belief(peer) {
                Belief::Ended => return,
                Belief::Holds => return std::future::pending().await,
                Belief::Unknown => {}
            }
            for did in &dids {
                // No handshake waits, so none loses a place. It fails only if the semaphore is closed.
                let Ok(_place) = self.look_ups.rechecks.acquire().await else { return };
                // The verifier knows the result.
                let _ = self.look_ups.shared(did, async || self.look_ups.ask(did).await).await;
            }
            if self.belief(peer) == Belief::Unknown {
                sleep(pause).await;
                pause = (pause * 2).min(MAX_RECHECK_PAUSE);
            }
        }
    }
}

impl Answers for LookUpAnswers {
    async fn answer(&self, question: Question) -> Answer {
        let Question::Verify {
            certificates, certificate_type, did_proof, credential_status, algorithms, ..
        } = question
        else {
            return Answer::Failed;
        };
        let mut verifiers = self.verifiers.iter();
        let Some(verifier) = verifiers.find(|verifier| verifier.certificate_type() == certificate_type)
        else {
            return Answer::Failed;
        };
        let stapled =
            Stapled { did_proof: did_proof.as_deref(), credential_status: credential_status.as_deref() };
        let judge = || verifier.judge(&certificates, stapled, &algorithms, now_s());
        let mut judged = judge();
        let end = tokio::time::Instant::now() + ALL_LOOK_UPS;
        // The issuer's document first, then the peer's.
        for is_second in [false, true] {
            let Some(did) = judged.as_ref().err().and_then(Refusal::wanted).cloned() else { break };
            let asked = self.look_ups.look_up(&did);
            let looked_up = if is_second {
                timeout_at(end, asked).await.unwrap_or(Err(LookUpError::Late))
            } else {
                asked.await
            };
            judged = judge().map_err(|refusal| match looked_up {
                // Only a refusal for want of the document has to do with the look-up. It may also have told
                // that the DID has ended.
                Err(error) if refusal.wanted() == Some(&did) => {
                    ResolveError::LookUp(did, error.to_string()).into()
                }
                _ => refusal,
            });
        }
        let accepted = judged.map(|peer| Acceptance::within(peer.validity).with_peer(peer));
        Answer::Verified(accepted.map_err(AuthenticationFailure::from))
    }
}

/// Why a peer about which [`LookUpAnswers::ended`] asks has lost its identity.
pub const ENDED: &str = "its DID has another document by now or has ended, or its credential is revoked";

/// As [`LookUpAnswers::ended`]. Without answers, no verdict ends.
pub async fn ended(answers: Option<&LookUpAnswers>, negotiated: &Negotiated) {
    match answers {
        Some(answers) => answers.ended(negotiated).await,
        None => std::future::pending().await,
    }
}

/// The time, in seconds since 1970.
fn now_s() -> Seconds {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Seconds::try_from(now.as_secs()).unwrap_or(Seconds::MAX)
}

//! A server that judges its clients by a registry, and the identities that clients show to it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::RegistryDirectory;
use dunlin::auth::{DidProofs, KnownRegistry, Trust, Verifiers, X509Trust};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::error::{AuthenticationFailure, PeerMisbehaved};
use dunlin::wire::AlertDescription as Alert;
use dunlin::{
    ClientAuth, ClientConfig, Credential, Error, PeerIdentity, Profile, ProfileBuilder, ServerAddress,
    ServerConfig, SsiMessages,
};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer};
use dunlin_identity::handshake::{
    CredentialIdentity, CredentialVerifier, Holding, IdentifierIdentity, IdentifierVerifier, Judge,
    RegistryDocuments,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::transparency::{DEFAULT_CHECKPOINT_AGE, NoteKeyKind, NoteSigner, RegistryTrust, Staple};
use dunlin_identity::{Did, DidDocument, Relationship, TrustList};
use dunlin_pki::{KeyPair, KeyType, Tree, TreeSpec};
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::{LookUpAnswers, LookUps, WebDocuments};
use dunlin_tokio::https::HttpsClient;
use dunlin_tokio::{DtlsEndpoint, DtlsOptions, HandshakeError, TlsAcceptor, TlsConnector};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(dunlin_awslc::provider())
}

/// An issuer of credentials.
pub(crate) struct Operator {
    pub(crate) key: Arc<dyn SigningKey>,
    pub(crate) document: DidDocument,
}

impl Operator {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate(KeyType::P256).unwrap().signing_key(&provider()).unwrap();
        let did = KEY.create(&PublicKey::from_spki(key.public_key()).unwrap()).unwrap();
        Self { key, document: KEY.resolve(&did).unwrap() }
    }

    pub(crate) fn issue(&self, subject: &Did) -> Vec<u8> {
        let credential = json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.document.id().as_str(),
            "credentialSubject": {"id": subject.as_str(), "role": "sensor"},
        });
        let provider = provider();
        let method = self.document.keys(Relationship::AssertionMethod).next().unwrap().0;
        let issuer = Issuer { provider: &provider, signer: &*self.key, method };
        issuer.issue_compact(&credential, &Contexts::default()).unwrap()
    }

    /// A credential about the DID of this document, shown with this key and these proofs.
    pub(crate) fn shown(
        &self,
        document: &DidDocument,
        key: Arc<dyn SigningKey>,
        proofs: Option<Arc<dyn DidProofs>>,
    ) -> Credential {
        let method = document.keys(Relationship::Authentication).next().unwrap().0.clone();
        let credential = self.issue(document.id());
        let holding = Holding::of_credential(key, method, credential, &Contexts::default()).unwrap();
        let holding = match proofs {
            Some(proofs) => holding.with_proofs(proofs),
            None => holding,
        };
        holding.to_tls(&provider()).unwrap()
    }
}

/// A proof that never changes, whatever the peer accepts.
#[derive(Debug)]
pub(crate) struct Fixed(pub(crate) Vec<u8>);

impl DidProofs for Fixed {
    fn latest(&self, _: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// The DID of this document alone, shown with this key and these proofs.
pub(crate) fn bare(
    document: &DidDocument,
    key: Arc<dyn SigningKey>,
    proofs: Option<Arc<dyn DidProofs>>,
) -> Credential {
    let method = document.keys(Relationship::Authentication).next().unwrap().0.clone();
    let holding = Holding::of_did(key, method);
    let holding = match proofs {
        Some(proofs) => holding.with_proofs(proofs),
        None => holding,
    };
    holding.to_tls(&provider()).unwrap()
}

pub(crate) fn fixed(staple: &Staple) -> Option<Arc<dyn DidProofs>> {
    Some(Arc::new(Fixed(staple.write().unwrap())))
}

pub(crate) fn trust(place: &RegistryDirectory, max_age_s: u64) -> RegistryTrust {
    let settings = place.settings();
    let key = |kind| {
        let signer = NoteSigner::new(&place.provider, &settings.origin, kind, settings.key.clone());
        signer.unwrap().key().clone()
    };
    let trust = RegistryTrust::new(key(NoteKeyKind::Note), vec![key(NoteKeyKind::Cosignature)]);
    trust.unwrap().with_max_age(max_age_s)
}

/// A client of a registry at this URL that knows nothing yet.
pub(crate) fn registry_client(
    place: &RegistryDirectory,
    url: &str,
    connector: TlsConnector,
) -> RegistryClient {
    let trust = trust(place, DEFAULT_CHECKPOINT_AGE);
    let documents = Arc::new(RegistryDocuments::new(provider(), trust));
    let https = HttpsClient::new(connector).with_deadline(Duration::from_secs(5));
    RegistryClient::new(provider(), url, https, documents).unwrap()
}

/// A server that judges clients by a registry, and clients that trust its certificate.
pub(crate) struct Hub {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) answers: Option<LookUpAnswers>,
    pub(crate) trust: Trust,
    pub(crate) messages: SsiMessages,
}

/// The client's identity, as the server has learnt it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) did: Did,
    pub(crate) sequence: u64,
}

impl Peer {
    pub(crate) fn of(identity: &PeerIdentity) -> Self {
        if let Some(CredentialIdentity { did, sequence, .. }) = CredentialIdentity::of(identity) {
            return Self { did, sequence };
        }
        let IdentifierIdentity { did, sequence, .. } = IdentifierIdentity::of(identity).unwrap();
        Self { did, sequence }
    }
}

/// How a handshake has ended at the server and at the client.
pub(crate) type Ends = (Result<Peer, HandshakeError>, std::io::Result<()>);

impl Hub {
    /// With look-ups the verifier asks; otherwise it knows only what is proven.
    pub(crate) fn new(
        operator: &Operator,
        documents: &Arc<RegistryDocuments>,
        look_ups: Option<&LookUps>,
    ) -> Self {
        let verifier = CredentialVerifier::new(provider(), [operator.document.clone()]);
        match look_ups {
            None => Self::of(verifier.with_resolver(documents.clone()), SsiMessages::Off, None),
            Some(look_ups) => {
                Self::of(verifier.asking_with(look_ups.resolvers()), SsiMessages::Off, Some(look_ups))
            }
        }
    }

    /// Clients show one of these DIDs alone.
    pub(crate) fn of_dids(dids: &[&Did], client: &RegistryClient) -> Self {
        let verifier = IdentifierVerifier::new(provider(), TrustList::new(dids.iter().copied().cloned()));
        let look_ups = LookUps::new(vec![client.clone()], None);
        Self::of(verifier.asking_with(look_ups.resolvers()), SsiMessages::Alone, Some(&look_ups))
    }

    pub(crate) fn of(
        verifier: impl Judge + 'static,
        messages: SsiMessages,
        look_ups: Option<&LookUps>,
    ) -> Self {
        Self::with(verifier, messages, look_ups, |profile| profile)
    }

    /// As [`Self::of`], with further settings.
    pub(crate) fn with(
        verifier: impl Judge + 'static,
        messages: SsiMessages,
        look_ups: Option<&LookUps>,
        change: impl FnOnce(ProfileBuilder) -> ProfileBuilder,
    ) -> Self {
        let verifier = Arc::new(verifier);
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1).unwrap()).unwrap();
        let key = tree.server.key.signing_key(&provider()).unwrap();
        let profile = Profile::builder(provider())
            .credentials(vec![Credential::x509(tree.server.chain.clone(), key)])
            .trust(Verifiers::default().with(verifier.clone()))
            .ssi_messages(messages);
        let config = ServerConfig::new(change(profile).build().unwrap()).unwrap();
        let config = Arc::new(config.with_client_auth(ClientAuth::Required).unwrap());
        let answers = look_ups.map(|look_ups| look_ups.answers(vec![verifier]));
        let x509 = Some(X509Trust::anchors(tree.root.chain().to_vec()).unwrap());
        Self { config, answers, trust: Trust { x509, raw_key: None }, messages }
    }

    pub(crate) fn offline(place: &RegistryDirectory, operator: &Operator) -> Self {
        let documents = RegistryDocuments::new(provider(), trust(place, DEFAULT_CHECKPOINT_AGE));
        Self::new(operator, &Arc::new(documents), None)
    }

    pub(crate) fn asking(operator: &Operator, client: &RegistryClient) -> Self {
        let look_ups = LookUps::new(vec![client.clone()], None);
        Self::new(operator, client.documents(), Some(&look_ups))
    }

    /// Asks web servers.
    pub(crate) fn of_web(operator: &Operator, connector: TlsConnector) -> Self {
        let web = WebDocuments::new(provider(), HttpsClient::new(connector));
        let unused = Arc::new(RegistryDocuments::new(provider(), trust(&RegistryDirectory::new(), 1)));
        Self::new(operator, &unused, Some(&LookUps::new(Vec::new(), Some(web))))
    }

    pub(crate) fn client(&self, own: Credential) -> Arc<ClientConfig> {
        let profile = Profile::builder(provider())
            .credentials(vec![own])
            .trust(self.trust.clone())
            .ssi_messages(self.messages);
        Arc::new(ClientConfig::new(profile.build().unwrap()))
    }

    /// A handshake with a client that shows this credential.
    pub(crate) async fn meet(&self, own: Credential) -> Ends {
        let connector = TlsConnector::new(self.client(own));
        let mut acceptor = TlsAcceptor::new(self.config.clone()).with_timeout(2 * PATIENCE);
        if let Some(answers) = &self.answers {
            acceptor = acceptor.with_answers(answers.clone());
        }
        let (client, server) = tokio::io::duplex(1 << 16);
        let name = ServerAddress::parse("localhost", 1).unwrap();
        let client = async {
            let mut tls = connector.connect(client, name).await?;
            // The server refuses a client of TLS 1.3 after the client's handshake.
            let mut byte = [0];
            tls.read_exact(&mut byte).await?;
            Ok(())
        };
        let server = async {
            let mut tls = acceptor.accept(server).await?;
            let peer = Peer::of(tls.negotiated().peer.as_ref().unwrap());
            tls.write_all(b"x").await.unwrap();
            tls.flush().await.unwrap();
            Ok(peer)
        };
        tokio::join!(server, client)
    }

    /// The same over datagrams, with a client that has a socket of its own.
    pub(crate) async fn meet_at(&self, endpoint: &DtlsEndpoint, own: Credential) -> Ends {
        let options = || DtlsOptions::new().with_timeout(2 * PATIENCE);
        let here = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let name = ServerAddress::parse("localhost", 1).unwrap();
        let client = async {
            let peer = endpoint.local_addr();
            let association = here.connect_with(&self.client(own), name, peer, &options()).await?;
            association.recv().await.map(drop)
        };
        let server = async {
            let options = options().with_answers(self.answers.clone().unwrap());
            let association = endpoint.accept().await.accept_with(&options).await?;
            let peer = Peer::of(association.negotiated().peer.as_ref().unwrap());
            association.send(b"x").await.unwrap();
            Ok(peer)
        };
        tokio::join!(server, client)
    }

    pub(crate) async fn accepts(&self, own: Credential) -> Peer {
        let (server, client) = self.meet(own).await;
        client.unwrap();
        server.unwrap()
    }

    pub(crate) async fn refuses(&self, own: Credential, alert: Alert, why: &str) {
        Self::is_refusal(self.meet(own).await, alert, why);
    }

    /// Both sides report this alert, and the server this reason.
    pub(crate) fn is_refusal((server, client): Ends, alert: Alert, why: &str) {
        let error = match server {
            Err(HandshakeError::Tls(error)) => error,
            Err(other) => panic!("{other}"),
            Ok(peer) => panic!("accepted {}", peer.did),
        };
        assert_eq!(error.alert(), Some(alert), "{error}");
        let text = match &error {
            Error::Authentication(AuthenticationFailure::RejectedWith(_, text)) => text.to_string(),
            Error::PeerMisbehaved(PeerMisbehaved::BadSignature) => error.to_string(),
            other => panic!("{other}"),
        };
        assert!(text.contains(why) && !text.contains('\n'), "{text}");
        let told = client.unwrap_err();
        let told = told.get_ref().and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(told, Some(&Error::AlertReceived(alert)));
    }
}

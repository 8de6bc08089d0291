//! Decentralised identities in messages of their own, by ssi_parameters (docs/identity.md): which side shows
//! which identity in which messages, choices, fallbacks, proofs, questions, sessions and the public
//! implementation's variant.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dunlin::auth::{
    Acceptance, AskAgain, DidProofs, Identifier, PrivateKey, Validity, VerifiableCredential, Verifiers,
};
use dunlin::cache::{CacheMode, CacheOutcome, DEFAULT_MAX_AGE, Known};
use dunlin::error::{AuthenticationFailure, PeerIncompatible};
use dunlin::resume::Tickets;
use dunlin::wire::{
    AlertDescription, CertificateType, DidMethod, ExtensionType, Field, HandshakeType as H, SignatureScheme,
};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, DtlsConnection, MessageSize, Negotiated, Now, PeerIdentity,
    ProfileBuilder, Question, ServerConfig, SsiMessages,
};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};
use dunlin_tests::tamper::{Secrets, extension, records, rewrite};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, localhost};

use crate::wallet::{
    DID, PROOF, Prover, REGISTRY, TRANSPORTS, VC, Wallet, client, credential, did, failure, identifier,
    negotiated, negotiated_over, own, pki, profile, server, stapled, take, trust, types, vc, x509,
};

const X509: CertificateType = CertificateType::X509;
const DUNLIN: DidMethod = DidMethod::DUNLIN;

fn wallet(typ: CertificateType) -> Arc<Wallet> {
    Arc::new(Wallet::of(&[DUNLIN]).for_type(typ))
}

/// Trust in identities of this type.
fn believer(typ: CertificateType) -> Verifiers {
    trust(&wallet(typ))
}

/// Trust in identities of this type, and in certificates.
fn believer_in_both(typ: CertificateType) -> Verifiers {
    x509().with(wallet(typ))
}

fn of_client(typ: CertificateType) -> Credential {
    match typ {
        VC => vc("did:dunlin:device", &pki().client),
        DID => did(DUNLIN, &pki().client),
        _ => pki().client.x509(&awslc()),
    }
}

fn of_server(typ: CertificateType) -> Credential {
    match typ {
        VC => vc("did:dunlin:hub", &pki().server),
        DID => did(DUNLIN, &pki().server),
        _ => pki().server.x509(&awslc()),
    }
}

/// A profile that uses ssi_parameters in place of the certificate type.
fn alone(trust: Verifiers, own: Vec<Credential>) -> ProfileBuilder {
    profile(trust, own).ssi_messages(SsiMessages::Alone)
}

fn links(trust: Verifiers, own: Vec<Credential>) -> ProfileBuilder {
    profile(trust, own).ssi_messages(SsiMessages::Links)
}

/// The messages after the hellos and before Finished: those that the client has received, and those that it
/// has sent.
fn between(messages: &[MessageSize]) -> [Vec<H>; 2] {
    let others =
        [H::CLIENT_HELLO, H::SERVER_HELLO, H::ENCRYPTED_EXTENSIONS, H::FINISHED, H::NEW_SESSION_TICKET];
    [false, true].map(|sent| {
        let these = messages.iter().filter(|message| message.sent == sent && !others.contains(&message.typ));
        these.map(|message| message.typ).collect()
    })
}

/// The ways to the same handshake.
#[derive(Clone, Copy, Debug)]
enum Over {
    Stream,
    StreamAfterRetry,
    Datagrams,
}

fn flights(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    over: Over,
) -> ([Negotiated; 2], [Vec<H>; 2]) {
    if let Over::Datagrams = over {
        let client = DtlsConnection::client(client, localhost(), SERVER_ADDRESS, NOW).unwrap();
        let server = DtlsConnection::server(server, CLIENT_ADDRESS, NOW);
        let mut pair = dunlin_sim::Pair::new(client, server, NOW, Duration::from_millis(20));
        pair.run().unwrap();
        let ends = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
        return (ends, between(pair.client.messages()));
    }
    let config = (**client).clone();
    let client = match over {
        Over::StreamAfterRetry => Arc::new(config.with_key_shares(vec![]).unwrap()),
        _ => Arc::new(config),
    };
    let mut pair = Pair::new(&client, server);
    pair.connect().unwrap();
    let messages = between(pair.client.messages());
    pair.echo(b"hello").unwrap();
    ([&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone()), messages)
}

/// The identities that the sides show: the server's flight, the client's, and the types of identity that the
/// client and the server learn.
struct Case {
    what: &'static str,
    client: ProfileBuilder,
    server: ProfileBuilder,
    auth: ClientAuth,
    flights: [&'static [H]; 2],
    learnt: [Option<CertificateType>; 2],
}

const BY_VC: &[H] = &[H::VC, H::DID_VERIFY];
const BY_DID: &[H] = &[H::DID, H::DID_VERIFY];
const BY_X509: &[H] = &[H::CERTIFICATE, H::CERTIFICATE_VERIFY];

fn check(case: Case) {
    let Case { what, client: of_client, server: of_server, auth, flights: expected, learnt } = case;
    let client = client(of_client);
    let server = server(of_server, auth);
    for over in [Over::Stream, Over::StreamAfterRetry, Over::Datagrams] {
        let (ends, messages) = flights(&client, &server, over);
        assert_eq!(messages, expected.map(<[H]>::to_vec), "{what}, {over:?}");
        assert_eq!(types(&ends), learnt, "{what}, {over:?}");
        assert_eq!(ends[0].retried, !matches!(over, Over::Stream), "{what}, {over:?}");
    }
}

/// The flows of the paper's figures 1b and 2, and DID mode.
#[test]
fn shows_decentralised_identities_in_messages_of_their_own() {
    for (typ, by) in [(VC, BY_VC), (DID, BY_DID)] {
        check(Case {
            what: "the server alone",
            client: alone(believer(typ), vec![]),
            server: alone(Verifiers::default(), vec![of_server(typ)]),
            auth: ClientAuth::None,
            flights: [by, &[]],
            learnt: [Some(typ), None],
        });
        check(Case {
            what: "both",
            client: alone(believer(typ), vec![of_client(typ)]),
            server: alone(believer(typ), vec![of_server(typ)]),
            auth: ClientAuth::Required,
            flights: [&[&[H::SSI_REQUEST], by].concat().leak()[..], by],
            learnt: [Some(typ); 2],
        });
        check(Case {
            what: "a server with an identity, a client with a certificate",
            client: alone(believer(typ), vec![of_client(X509)]),
            server: alone(x509(), vec![of_server(typ)]),
            auth: ClientAuth::Required,
            flights: [&[&[H::CERTIFICATE_REQUEST], by].concat().leak()[..], BY_X509],
            learnt: [Some(typ), Some(X509)],
        });
        check(Case {
            what: "a server with a certificate, a client with an identity",
            client: alone(x509(), vec![of_client(typ)]),
            server: alone(believer(typ), vec![of_server(X509)]),
            auth: ClientAuth::Required,
            flights: [&[H::SSI_REQUEST, H::CERTIFICATE, H::CERTIFICATE_VERIFY], by],
            learnt: [Some(X509), Some(typ)],
        });
    }
    check(Case {
        what: "a server with a credential, a client with a bare identifier",
        client: alone(believer(VC), vec![of_client(DID)]),
        server: alone(believer(DID), vec![of_server(VC)]),
        auth: ClientAuth::Required,
        flights: [&[H::SSI_REQUEST, H::VC, H::DID_VERIFY], BY_DID],
        learnt: [Some(VC), Some(DID)],
    });
}

/// §III.D of the paper.
#[test]
fn falls_back_to_certificates() {
    let both = |of: fn(CertificateType) -> Credential, typ| vec![of(typ), of(X509)];
    let plain: [&[H]; 2] = [&[H::CERTIFICATE_REQUEST, H::CERTIFICATE, H::CERTIFICATE_VERIFY], BY_X509];
    for typ in [VC, DID] {
        check(Case {
            what: "a server without ssi_parameters",
            client: alone(believer_in_both(typ), both(of_client, typ)),
            server: profile(x509(), vec![of_server(X509)]),
            auth: ClientAuth::Required,
            flights: plain,
            learnt: [Some(X509); 2],
        });
        check(Case {
            what: "a client without ssi_parameters",
            client: profile(x509(), vec![of_client(X509)]),
            server: alone(believer_in_both(typ), both(of_server, typ)),
            auth: ClientAuth::Required,
            flights: plain,
            learnt: [Some(X509); 2],
        });
        let of_web = || Arc::new(Wallet::of(&[DidMethod::WEB]).for_type(typ));
        check(Case {
            what: "no common method",
            client: alone(x509().with(of_web()), both(of_client, typ)),
            server: alone(believer_in_both(typ), both(of_server, typ)),
            auth: ClientAuth::Required,
            flights: plain,
            learnt: [Some(X509); 2],
        });
        let by = if typ == VC { BY_VC } else { BY_DID };
        check(Case {
            what: "a server without an identity of its own",
            client: alone(believer_in_both(typ), both(of_client, typ)),
            server: alone(believer(typ), vec![of_server(X509)]),
            auth: ClientAuth::Required,
            flights: [&[H::SSI_REQUEST, H::CERTIFICATE, H::CERTIFICATE_VERIFY], by],
            learnt: [Some(X509), Some(typ)],
        });
        let asks = [&[H::SSI_REQUEST], by].concat().leak();
        check(Case {
            what: "a client without an identity, but with a certificate that the server trusts",
            client: alone(believer(typ), vec![of_client(X509)]),
            server: alone(believer_in_both(typ), vec![of_server(typ)]),
            auth: ClientAuth::Required,
            flights: [asks, BY_X509],
            learnt: [Some(typ), Some(X509)],
        });
        check(Case {
            what: "a client that has nothing to show",
            client: alone(believer(typ), vec![]),
            server: alone(believer(typ), vec![of_server(typ)]),
            auth: ClientAuth::Optional,
            flights: [asks, &[H::CERTIFICATE]],
            learnt: [Some(typ), None],
        });
    }
}

/// Where both sides know the certificate type, it wins for credentials. Bare identifiers have only the
/// messages.
#[test]
fn the_certificate_type_wins_for_credentials_where_both_sides_know_it() {
    let case = |what, modes: [SsiMessages; 2], typ, flights| Case {
        what,
        client: profile(believer(typ), vec![of_client(typ)]).ssi_messages(modes[0]),
        server: profile(believer(typ), vec![of_server(typ)]).ssi_messages(modes[1]),
        auth: ClientAuth::Required,
        flights,
        learnt: [Some(typ); 2],
    };
    use SsiMessages::{Alone, Beside, Off};
    let certificates: [&[H]; 2] = [&[H::CERTIFICATE_REQUEST, H::CERTIFICATE, H::CERTIFICATE_VERIFY], BY_X509];
    let messages: [&[H]; 2] = [&[H::SSI_REQUEST, H::VC, H::DID_VERIFY], BY_VC];
    check(case("both have both", [Beside, Beside], VC, certificates));
    check(case("the server has the type alone", [Beside, Off], VC, certificates));
    check(case("the client has the type alone", [Off, Beside], VC, certificates));
    check(case("the server has the messages alone", [Beside, Alone], VC, messages));
    check(case("the client has the messages alone", [Alone, Beside], VC, messages));
    let bare: [&[H]; 2] = [&[H::SSI_REQUEST, H::DID, H::DID_VERIFY], BY_DID];
    check(case("a bare identifier", [Beside, Beside], DID, bare));
}

/// A server that accepts both asks a client that has both for the first, in whatever messages it travels.
#[test]
fn asks_for_the_first_of_its_types_whether_by_certificate_or_by_messages() {
    let both = |first: CertificateType, second: CertificateType| {
        Verifiers::default().with(wallet(second)).with(wallet(first))
    };
    let certificates: [&[H]; 2] = [&[H::CERTIFICATE_REQUEST, H::CERTIFICATE, H::CERTIFICATE_VERIFY], BY_X509];
    let bare: [&[H]; 2] = [&[H::SSI_REQUEST, H::CERTIFICATE, H::CERTIFICATE_VERIFY], BY_DID];
    let web = || Arc::new(Wallet::of(&[DidMethod::WEB]));
    for (what, trust, flights, learnt) in [
        ("a credential first", both(VC, DID), certificates, VC),
        ("a bare identifier first", both(DID, VC), bare, DID),
        ("no common method of credentials", Verifiers::default().with(wallet(DID)).with(web()), bare, DID),
    ] {
        check(Case {
            what,
            client: profile(believer_in_both(VC), vec![of_client(VC), of_client(DID)])
                .ssi_messages(SsiMessages::Beside),
            server: profile(trust, vec![of_server(X509)]).ssi_messages(SsiMessages::Beside),
            auth: ClientAuth::Required,
            flights,
            learnt: [Some(X509), Some(learnt)],
        });
    }
}

/// A side accepts only the types that it asks for: a certificate takes the place of an identity only if the
/// profile trusts it.
#[test]
fn accepts_no_certificate_without_trust_in_it() {
    for typ in [VC, DID] {
        let unsupported = AuthenticationFailure::UnsupportedType(X509);
        // The server has no identity, and falls back.
        let x509_server = server(alone(Verifiers::default(), vec![of_server(X509)]), ClientAuth::None);
        let error = failure(&client(alone(believer(typ), vec![])), &x509_server);
        assert_eq!(error, unsupported.clone().into());
        assert_eq!(error.alert(), Some(AlertDescription::UNSUPPORTED_CERTIFICATE));
        // The client has no identity, and falls back.
        let x509_client = client(alone(believer(typ), vec![of_client(X509)]));
        let asks = alone(believer(typ), vec![of_server(typ)]);
        assert_eq!(failure(&x509_client, &server(asks, ClientAuth::Required)), unsupported.clone().into());
        // The profile could verify certificates, but does not let the peer send them.
        let asks = alone(believer_in_both(typ), vec![of_server(typ)]).peer_certificate_types(Some(vec![typ]));
        assert_eq!(failure(&x509_client, &server(asks, ClientAuth::Required)), unsupported.into());
        // The client has nothing.
        let asks = alone(believer(typ), vec![of_server(typ)]);
        let error = failure(&client(alone(believer(typ), vec![])), &server(asks, ClientAuth::Required));
        assert_eq!(error, AuthenticationFailure::NoCertificate.into());
        assert_eq!(error.alert(), Some(AlertDescription::CERTIFICATE_REQUIRED));
    }
}

/// Without a certificate to fall back to, the error says why no identity suits.
#[test]
fn says_why_no_identity_suits() {
    let of_web = Arc::new(Wallet::of(&[DidMethod::WEB]));
    let alone_server = server(alone(Verifiers::default(), vec![of_server(VC)]), ClientAuth::None);
    let error = failure(&client(alone(trust(&of_web), vec![])), &alone_server);
    assert_eq!(error, PeerIncompatible::NoCredential(Field::NoneOfDidMethod).into());
    let ed25519 = alone(believer(VC), vec![]).signature_schemes(vec![SignatureScheme::ED25519]);
    let error = failure(&client(ed25519), &alone_server);
    assert_eq!(error, PeerIncompatible::SignatureScheme.into());
    assert_eq!(error.alert(), Some(AlertDescription::HANDSHAKE_FAILURE));
}

/// The name of the server's credential that a client with this profile gets.
fn chosen(client_profile: ProfileBuilder, own: &[Credential]) -> String {
    let server = server(alone(Verifiers::default(), own.to_vec()), ClientAuth::None);
    let [end, _] = negotiated(&client(client_profile), &server);
    end.peer.unwrap().to_string()
}

/// Of several identities, a side shows the first of a common method whose key has a common scheme.
#[test]
fn chooses_an_identity_by_method_scheme_and_order() {
    let ed25519 = &Pki::shared(KeyType::Ed25519).server;
    let issued = |name: &str, method, issuer: &[u8], leaf| {
        let issuer = Some(issuer.to_vec());
        own(VerifiableCredential { did_method: method, issuer, ..credential(name, leaf) }, leaf)
    };
    let all = [
        issued("first", DUNLIN, b"issuer 1", &pki().server),
        issued("second", DidMethod::WEB, b"issuer 2", &pki().server),
        issued("third", DUNLIN, b"issuer 3", ed25519),
    ];
    let resolving = |methods: &[DidMethod]| Arc::new(Wallet::of(methods));
    let asks = |methods: &[DidMethod]| alone(trust(&resolving(methods)), vec![]);
    assert_eq!(chosen(asks(&[DidMethod::WEB]), &all), "VC second");
    let schemes = vec![SignatureScheme::ED25519];
    assert_eq!(chosen(asks(&[DUNLIN, DidMethod::WEB]).signature_schemes(schemes), &all), "VC third");
    assert_eq!(chosen(asks(&[DidMethod::WEB, DUNLIN]), &all), "VC first");
    // ssi_parameters names no issuers.
    let names = Wallet { issuers: vec![b"issuer 3".to_vec()], ..Wallet::of(&[DUNLIN]) };
    assert_eq!(chosen(alone(trust(&Arc::new(names)), vec![]).send_authorities(true), &all), "VC first");
}

/// The server's flight in plaintext, from EncryptedExtensions on, and both hellos.
fn server_flight(
    client: ProfileBuilder,
    of_server: ProfileBuilder,
    auth: ClientAuth,
) -> (Vec<Vec<u8>>, [Vec<u8>; 2]) {
    let secrets = Arc::new(Secrets::default());
    let log = Some(secrets.clone() as Arc<dyn dunlin::KeyLog>);
    let mut pair = Pair::new(&crate::wallet::client(client.key_log(log)), &server(of_server, auth));
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    pair.client.receive(NOW, &flight).unwrap();
    let mut seen = Vec::new();
    let secret = secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    rewrite(&awslc(), awslc().cipher_suites[0].id, &secret, &flight, |messages| {
        seen.clone_from(&messages);
        messages
    });
    (seen, [hello, records(&flight)[0].clone()].map(|record| record[5..].to_vec()))
}

/// The extensions of an SSIRequest, each with its type.
fn requested(request: &[u8]) -> Vec<(u16, Vec<u8>)> {
    assert_eq!((request[0], request[4]), (H::SSI_REQUEST.0, 0));
    let mut rest = &request[7..];
    let mut all = Vec::new();
    while let [a, b, c, d, more @ ..] = rest {
        let (body, more) = more.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        all.push((u16::from_be_bytes([*a, *b]), body.to_vec()));
        rest = more;
    }
    all
}

#[test]
fn asks_for_an_identity_of_a_common_method() {
    use DidMethod as M;
    let both = |methods: &[M]| trust(&Arc::new(Wallet { registries: vec![REGISTRY], ..Wallet::of(methods) }));
    let client = alone(both(&[M::DUNLIN, M::KEY, M::WEB]), vec![of_client(VC)]);
    let server = alone(both(&[M::WEB, M::JWK, M::DUNLIN, M::IOTA]), vec![of_server(VC)]);
    let (messages, _) = server_flight(client, server, ClientAuth::Required);
    let asked = requested(&messages[1]);
    let types: Vec<_> = asked.iter().map(|(typ, _)| *typ).collect();
    let expected =
        [ExtensionType::SIGNATURE_ALGORITHMS, ExtensionType::SSI_PARAMETERS, ExtensionType::DID_PROOF];
    assert_eq!(types, expected.map(|typ| typ.0));
    assert_eq!(asked[1].1, [2, 2, 0xe3, 0xe0]);
    assert_eq!(asked[2].1, [&[0, 16][..], b"registry", &7_u64.to_be_bytes()].concat());
    // A client that resolves nothing has not named methods, so the server names all that have a number.
    let client = alone(x509(), vec![of_client(VC)]);
    let server = alone(both(&[M::WEB, M::IOTA, M::DUNLIN]), vec![of_server(X509)]);
    let (messages, _) = server_flight(client, server, ClientAuth::Required);
    assert_eq!(requested(&messages[1])[1].1, [2, 2, 0xe3, 0xe0]);
}

/// Computed without the engine: DIDVerify signs the transcript up to the message before it.
#[test]
fn did_verify_signs_the_transcript_up_to_the_message_before_it() {
    let asking = || trust(&Arc::new(Wallet::asking_for_proofs()));
    let own = stapled("did:dunlin:hub", &pki().server, PROOF);
    let (messages, [client_hello, server_hello]) =
        server_flight(alone(asking(), vec![]), alone(Verifiers::default(), vec![own]), ClientAuth::None);
    let types: Vec<u8> = messages.iter().map(|message| message[0]).collect();
    assert_eq!(
        types,
        [H::ENCRYPTED_EXTENSIONS, H::VC, H::DID_PROOF, H::DID_VERIFY, H::FINISHED].map(|typ| typ.0)
    );
    assert_eq!(messages[2][4..], *PROOF);
    let hash = awslc().cipher_suites[0].hash.hash(&[&client_hello, &server_hello, &messages[..3].concat()]);
    let input = [&[0x20; 64][..], b"TLS 1.3, server DidVerify\0", hash.as_ref()].concat();
    let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
    assert_eq!(messages[3][4..6], scheme.0.to_be_bytes());
    let schemes = awslc().signatures.schemes;
    let (_, algorithms) = schemes.iter().find(|(known, _)| *known == scheme).unwrap();
    let point = &pki().server.public_key[pki().server.public_key.len() - 65..];
    algorithms[0].verify_signature(point, &input, &messages[3][8..]).unwrap();
}

#[test]
fn sends_a_proof_to_those_who_accept_it() {
    for typ in [VC, DID] {
        for (proof, accepts, arrives) in [
            (PROOF.to_vec(), true, true),
            (PROOF.to_vec(), false, false),
            (vec![1; 16 * 1024], true, true),
            // A longer one would end the handshake at the peer.
            (vec![1; 16 * 1024 + 1], true, false),
        ] {
            let wallets = [(); 2].map(|()| {
                if accepts { Arc::new(Wallet::asking_for_proofs().for_type(typ)) } else { wallet(typ) }
            });
            let holders = [("did:dunlin:device", &pki().client), ("did:dunlin:hub", &pki().server)];
            let [own_client, own_server] = holders.map(|(name, leaf)| match typ {
                VC => stapled(name, leaf, &proof),
                _ => {
                    let proofs: Option<Arc<dyn DidProofs>> = Some(Arc::new(Prover(proof.clone())));
                    let identifier = Identifier { proofs, ..identifier(DUNLIN, leaf) };
                    Credential::Identifier { identifier, key: PrivateKey::Here(leaf.signing_key(&awslc())) }
                }
            });
            let client = client(alone(trust(&wallets[0]), vec![own_client]));
            let server = server(alone(trust(&wallets[1]), vec![own_server]), ClientAuth::Required);
            for over in [Over::Stream, Over::StreamAfterRetry, Over::Datagrams] {
                let (_, messages) = flights(&client, &server, over);
                for (wallet, messages) in wallets.iter().zip(messages) {
                    let seen = std::mem::take(&mut *wallet.seen.lock().unwrap());
                    assert_eq!(seen, [arrives.then(|| proof.clone())], "{over:?}");
                    assert_eq!(messages.contains(&H::DID_PROOF), arrives, "{over:?}");
                }
            }
        }
    }
}

/// The caller resolves, and a key elsewhere signs.
#[test]
fn asks_the_caller_for_the_verdict_and_for_the_signature() {
    for typ in [VC, DID] {
        let asking = Arc::new(Wallet { asks: true, ..Wallet::of(&[DUNLIN]) }.for_type(typ));
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        let key = PrivateKey::Elsewhere { schemes: vec![scheme], label: "token".into() };
        let own = match typ {
            VC => Credential::Verifiable { credential: credential("did:dunlin:hub", &pki().server), key },
            _ => Credential::Identifier { identifier: identifier(DUNLIN, &pki().server), key },
        };
        let server = server(alone(Verifiers::default(), vec![own]), ClientAuth::None);
        let mut pair = Pair::new(&client(alone(trust(&asking), vec![])), &server);
        pair.run().unwrap();
        let Some((id, Question::Sign { label, scheme: asked, message })) = pair.server_question() else {
            panic!()
        };
        assert_eq!((&*label, asked), ("token", scheme));
        assert!(message[64..].starts_with(b"TLS 1.3, server DidVerify\0"));
        let signature = pki().server.signing_key(&awslc()).sign(scheme, &message, &*awslc().random).unwrap();
        pair.server.answer(NOW, id, Answer::Signature(signature)).unwrap();
        pair.run().unwrap();
        let Some((id, Question::Verify { certificate_type, name, .. })) = pair.client_question() else {
            panic!()
        };
        assert!(certificate_type == typ && name.is_some() && pair.client.negotiated().is_none());
        pair.client.answer(NOW, id, Answer::Verified(Ok(Acceptance::once()))).unwrap();
        pair.connect().unwrap();
        assert_eq!(pair.client.negotiated().unwrap().peer.as_ref().unwrap().certificate_type(), Some(typ));
    }
}

/// A session keeps what the verifier knows of the identity, and ends when the verifier knows better or the
/// verdict's time is over.
#[test]
fn resumes_only_while_the_verdict_holds() {
    for (typ, over) in [VC, DID].into_iter().flat_map(|typ| TRANSPORTS.map(|over| (typ, over))) {
        let until = NOW.unix_ms / 1000 + 600;
        let validity = Validity::ALWAYS.limited(AskAgain::Resolution, until);
        let wallets = [(); 2].map(|()| Arc::new(Wallet { validity, ..Wallet::of(&[DUNLIN]) }.for_type(typ)));
        let sessions = Arc::new(MemoryClientSessions::new(8, 8));
        let client =
            (*client(alone(trust(&wallets[0]), vec![of_client(typ)]))).clone().with_sessions(sessions);
        let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
        let server = (*server(alone(trust(&wallets[1]), vec![of_server(typ)]), ClientAuth::Required)).clone();
        let client = Arc::new(client);
        let server = Arc::new(server.with_tickets(tickets));
        let resumes = |now: Now| {
            let ends = negotiated_over(over, &client, &server, now);
            assert!(ends.iter().all(
                |end| matches!(&end.peer, Some(PeerIdentity::Other(id)) if id.details() == b"sequence 3")
            ));
            ends[0].is_resumed()
        };
        assert!(!resumes(NOW) && resumes(NOW) && resumes(NOW));
        for wallet in &wallets {
            wallet.believes.store(false, Ordering::Relaxed);
            assert!(!resumes(NOW), "the document has changed");
            wallet.believes.store(true, Ordering::Relaxed);
            assert!(resumes(NOW));
        }
        let mut later = NOW;
        later.unix_ms += 599_000;
        assert!(resumes(later));
        later.unix_ms += 2_000;
        assert!(!resumes(later), "the resolution is too old");
    }
}

/// docs/handshake-cache.md knows Certificate messages only.
#[test]
fn the_handshake_cache_keeps_no_identity_of_these_messages() {
    // In the second round the server shows a certificate, which the client keeps.
    for of_server_shown in [VC, X509] {
        let believed = || x509().with(wallet(VC));
        let clients = Arc::new(MemoryClientCache::default());
        let servers = Arc::new(MemoryServerCache::new(8));
        let client = (*client(alone(believed(), vec![of_client(VC)]))).clone();
        let of_server = alone(believed(), vec![of_server(of_server_shown)]);
        let server = (*server(of_server, ClientAuth::Required)).clone();
        let client = client.with_handshake_cache(CacheMode::Compact, clients, DEFAULT_MAX_AGE);
        let server = server.with_handshake_cache(CacheMode::Compact, servers.clone(), DEFAULT_MAX_AGE);
        let client = Arc::new(client);
        let server = Arc::new(server.unwrap());
        for is_first in [true, false] {
            let ([client_end, server_end], messages) = flights(&client, &server, Over::Stream);
            let keeps_server = of_server_shown == X509 && !is_first;
            assert_eq!(client_end.is_peer_cached(), keeps_server);
            assert_eq!(client_end.known_server == Known::Usable, keeps_server);
            // Both sides say that nothing can be cached.
            let nothing_fits = |end: &Negotiated| end.cache == CacheOutcome::NotUsable;
            assert_eq!(nothing_fits(&client_end), of_server_shown == VC);
            assert_eq!(nothing_fits(&server_end), of_server_shown == VC);
            assert!(!client_end.is_own_cached() && !client_end.ticket_shown && !server_end.is_peer_cached());
            assert_eq!(messages[1], BY_VC);
        }
        assert!(servers.is_empty());
    }
}

/// A verifier may be more lenient towards the public implementation, so sessions of the two do not mix.
#[test]
fn sessions_with_the_public_implementation_stay_apart() {
    let ends = [alone, links].map(|profile| {
        let server = server(profile(believer(VC), vec![of_server(VC)]), ClientAuth::Required);
        let client = client(profile(believer(VC), vec![]));
        (*client.session_settings().as_bytes(), *server.session_settings().as_bytes())
    });
    assert!(ends[0].0 != ends[1].0 && ends[0].1 != ends[1].1);
}

#[test]
fn refuses_profiles_that_no_peer_could_answer() {
    let refused = |profile: ProfileBuilder| profile.build().unwrap_err().to_string();
    let bare = |did: &str, did_method| {
        let key = PrivateKey::Here(pki().server.signing_key(&awslc()));
        Credential::Identifier { identifier: Identifier::new(did, did_method), key }
    };
    let with = |own| alone(Verifiers::default(), vec![own]);
    assert!(refused(profile(Verifiers::default(), vec![of_server(DID)])).contains("set ssi_messages"));
    assert!(refused(profile(believer(DID), vec![])).contains("set ssi_messages"));
    let long = format!("did:web:{}", "a".repeat(2041));
    assert!(refused(with(bare(&long, DidMethod::WEB))).contains("1 to 2048 bytes, one here has 2049"));
    for (did, method) in
        [("did:web:a", DidMethod::KEY), ("did:iota:a", DidMethod::IOTA), ("did:webs:a", DidMethod::WEB)]
    {
        assert!(refused(with(bare(did, method))).contains("is no identifier of a method"), "{did}");
    }
    with(bare("did:web:a", DidMethod::WEB)).build().unwrap();
    let of_iota = trust(&Arc::new(Wallet::of(&[DidMethod::IOTA])));
    assert!(refused(alone(of_iota, vec![])).contains("has a number in ssi_parameters"));
    let tls12 = alone(believer(VC), vec![]).cipher_suites(vec![]);
    let tls12 = tls12.tls12_cipher_suites(dunlin_awslc::tls12::TLS12_CIPHER_SUITES.to_vec());
    assert!(refused(tls12).contains("needs a suite of TLS 1.3"));
}

/// As the public implementation: the extension has the number 60, and nothing is stapled.
#[test]
fn links_uses_the_number_of_the_public_implementation() {
    let resolves = |methods: &[DidMethod]| {
        trust(&Arc::new(Wallet { registries: vec![REGISTRY], ..Wallet::of(methods) }))
    };
    use DidMethod as M;
    let ott =
        |name: &str, leaf| own(VerifiableCredential { did_method: M::OTT, ..credential(name, leaf) }, leaf);
    let of_client = links(resolves(&[M::OTT, M::BTC, M::ETH]), vec![ott("device", &pki().client)]);
    let of_server = links(resolves(&[M::OTT, M::ETH]), vec![ott("hub", &pki().server)]);
    let hello =
        take(&mut Pair::new(&client(of_client.clone()), &server(of_server.clone(), ClientAuth::None)).client);
    assert_eq!(extension(&hello, 60), Some(&[2, 3, 1, 2, 3][..]));
    for absent in [ExtensionType::SSI_PARAMETERS, ExtensionType::DID_PROOF, ExtensionType::DID_METHODS] {
        assert_eq!(extension(&hello, absent.0), None, "{absent}");
    }
    // The methods of the public implementation come first.
    let mixed = links(resolves(&[M::KEY, M::ETH, M::OTT]), vec![]);
    let hello = take(&mut Pair::new(&client(mixed), &server(of_server.clone(), ClientAuth::None)).client);
    assert_eq!(extension(&hello, 60), Some(&[2, 3, 1, 3, 0xe1][..]));
    let (messages, _) = server_flight(of_client.clone(), of_server.clone(), ClientAuth::Required);
    // The public server would send the methods 1 and 2 here, which are not common.
    assert!(messages[1].ends_with(&[0, 60, 0, 4, 2, 2, 1, 3]));
    assert_eq!(requested(&messages[1]).len(), 2);
    check(Case {
        what: "links",
        client: of_client.clone(),
        server: of_server,
        auth: ClientAuth::Required,
        flights: [&[H::SSI_REQUEST, H::VC, H::DID_VERIFY], BY_VC],
        learnt: [Some(VC); 2],
    });
    // Another number is another extension.
    check(Case {
        what: "links and not",
        client: links(believer_in_both(VC), vec![]),
        server: alone(Verifiers::default(), vec![vc("hub", &pki().server), pki().server.x509(&awslc())]),
        auth: ClientAuth::None,
        flights: [BY_X509, &[]],
        learnt: [Some(X509), None],
    });
}

/// §IV.B of the paper: the server asks for what the client asks for, and a client that cannot answer aborts.
#[test]
fn links_asks_for_what_the_client_asks_for() {
    // The server prefers bare identifiers.
    let both = believer(VC).with(wallet(DID));
    let a_server = |profile: fn(Verifiers, Vec<Credential>) -> ProfileBuilder| {
        profile(both.clone(), vec![of_server(VC)])
    };
    let a_client = |profile: fn(Verifiers, Vec<Credential>) -> ProfileBuilder| {
        profile(believer(VC), vec![of_client(VC), of_client(DID)])
    };
    for (profile, asked) in [(links as fn(_, _) -> _, VC), (alone, DID)] {
        let ends = negotiated(&client(a_client(profile)), &server(a_server(profile), ClientAuth::Required));
        assert_eq!(types(&ends), [Some(VC), Some(asked)]);
    }
    let nobody = client(links(believer(VC), vec![pki().client.x509(&awslc())]));
    let error = failure(&nobody, &server(a_server(links), ClientAuth::Optional));
    assert!(matches!(error, dunlin::Error::PeerIncompatible(_)), "{error}");
    assert_eq!(error.alert(), Some(AlertDescription::HANDSHAKE_FAILURE));
}

/// A server that trusts both asks a client for what it can have: no field says so.
#[test]
fn a_server_that_trusts_both_accepts_both() {
    let both = || believer(DID).with(wallet(VC));
    let beside = |trust, own| profile(trust, own).ssi_messages(SsiMessages::Beside);
    let a_server = server(beside(both(), vec![pki().server.x509(&awslc())]), ClientAuth::Required);
    for (own, mode, shown) in [
        (of_client(DID), SsiMessages::Beside, DID),
        (of_client(DID), SsiMessages::Alone, DID),
        (of_client(VC), SsiMessages::Beside, VC),
        (of_client(VC), SsiMessages::Off, VC),
    ] {
        let a_client = client(profile(x509(), vec![own]).ssi_messages(mode));
        let ends = negotiated(&a_client, &a_server);
        assert_eq!(types(&ends), [Some(X509), Some(shown)], "{mode:?}");
    }
    // A client that asks for a DID itself.
    let a_server = server(beside(both(), vec![of_server(DID)]), ClientAuth::Required);
    let a_client = client(beside(believer(DID), vec![of_client(DID)]));
    assert_eq!(types(&negotiated(&a_client, &a_server)), [Some(DID); 2]);
    // The public implementation's servers ask for the first of their types.
    let a_server = server(links(both(), vec![pki().server.x509(&awslc())]), ClientAuth::Required);
    let a_client = client(links(x509(), vec![of_client(VC)]));
    assert_eq!(types(&negotiated(&a_client, &a_server)), [Some(X509), Some(VC)]);
}

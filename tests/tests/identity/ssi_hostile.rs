//! Hostile peers in handshakes with ssi_parameters (docs/identity.md): other identities than those asked for,
//! changed, missing, repeated and reordered messages.

use std::sync::Arc;

use dunlin::auth::Verifiers;
use dunlin::compression::ZLIB_DECOMPRESSOR;
use dunlin::error::{Malformed, PeerIncompatible, PeerMisbehaved};
use dunlin::wire::{
    AlertDescription, CertificateType, DidMethod, ExtensionType, Field, HandshakeType as H, Unit,
};
use dunlin::{ClientAuth, Credential, Error, ProfileBuilder, Side, SsiMessages};
use dunlin_tests::tamper::{Secrets, extension_at, message, rewrite};
use dunlin_tests::{Leaf, NOW, Pair, awslc};

use crate::wallet::{
    DID, PROOF, VC, Wallet, client, credential, did, identifier, pki, profile, server, stapled, take, trust,
    vc, x509,
};

/// Both sides, which show these types of identity and trust those of the other.
pub(crate) fn ends(mode: SsiMessages, [of_client, of_server]: [CertificateType; 2]) -> [ProfileBuilder; 2] {
    let own = |typ, name, leaf: &Leaf| match typ {
        VC => vc(name, leaf),
        _ => did(DidMethod::DUNLIN, leaf),
    };
    let end = |trusted, own: Credential| {
        let trusted = trust(&Arc::new(Wallet::of(&[DidMethod::DUNLIN]).for_type(trusted)));
        profile(trusted, vec![own]).ssi_messages(mode)
    };
    [
        end(of_server, own(of_client, "did:dunlin:device", &pki().client)),
        end(of_client, own(of_server, "did:dunlin:hub", &pki().server)),
    ]
}

/// The result of the other side when the flight of side `by` is edited.
pub(crate) fn edited(
    ends: [ProfileBuilder; 2],
    by: Side,
    edit: impl FnOnce(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
) -> Result<(), Error> {
    let secrets = Arc::new(Secrets::default());
    let [of_client, of_server] = ends;
    let client = client(of_client.key_log(Some(secrets.clone())));
    let server = server(of_server.key_log(Some(secrets.clone())), ClientAuth::Required);
    let mut pair = Pair::new(&client, &server);
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    let suite = awslc().cipher_suites[0].id;
    if by == Side::Server {
        let secret = secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
        let flight = rewrite(&awslc(), suite, &secret, &flight, edit);
        return pair.client.receive(NOW, &flight).map(|_| ());
    }
    pair.client.receive(NOW, &flight).unwrap();
    let flight = take(&mut pair.client);
    let secret = secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET");
    let flight = rewrite(&awslc(), suite, &secret, &flight, edit);
    pair.server.receive(NOW, &flight).map(|_| ())
}

/// The position of the server's identity in its flight, after EncryptedExtensions and SSIRequest, and of the
/// client's.
pub(crate) fn place(by: Side) -> usize {
    if by == Side::Server { 2 } else { 0 }
}

pub(crate) const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn vector(size: usize, body: &[u8]) -> Vec<u8> {
    [&body.len().to_be_bytes()[8 - size..], body].concat()
}

fn leaf(by: Side) -> &'static Leaf {
    if by == Side::Server { &pki().server } else { &pki().client }
}

/// A genuine VC or DID of the peer.
fn identity(typ: CertificateType, by: Side) -> Vec<u8> {
    match typ {
        VC => message(H::VC.0, &[&[0], &*vector(2, &credential("did:dunlin:x", leaf(by)).bytes)].concat()),
        _ => {
            let did = identifier(DidMethod::DUNLIN, leaf(by)).did;
            message(H::DID.0, &[&[0, 0xe0], &*vector(2, did.as_bytes())].concat())
        }
    }
}

pub(crate) fn unexpected(got: H, expected: H) -> Result<(), Error> {
    Err(PeerMisbehaved::UnexpectedMessage { got, expected: Field::Message(expected) }.into())
}

/// A bare identifier proves less than a credential. The public implementation's server accepts one in place
/// of the other.
#[test]
fn refuses_another_kind_of_identity_than_it_has_asked_for() {
    let sent = "the peer broke the protocol: it sent a";
    let bare = "bare DID";
    let credential = "verifiable credential";
    for (typ, other, error, text) in [
        (
            VC,
            DID,
            PeerMisbehaved::DidForCredential,
            format!("{sent} {bare}, but this side has asked for a {credential}"),
        ),
        (
            DID,
            VC,
            PeerMisbehaved::CredentialForDid,
            format!("{sent} {credential}, but this side has asked for a {bare}"),
        ),
    ] {
        let refused = Err(Error::from(error));
        let result = edited(ends(SsiMessages::Alone, [typ; 2]), Side::Client, |mut messages| {
            messages[0] = identity(other, Side::Client);
            messages
        });
        assert_eq!(result, refused);
        // The profile could verify the other kind, too, but has not asked for it.
        let [a_client, a_server] = ends(SsiMessages::Alone, [typ; 2]);
        let both = trust(&Arc::new(Wallet::of(&[DidMethod::DUNLIN]).for_type(other)))
            .with(Arc::new(Wallet::of(&[DidMethod::DUNLIN]).for_type(typ)));
        let result = edited([a_client, a_server.trust(both)], Side::Client, |mut messages| {
            messages[0] = identity(other, Side::Client);
            messages
        });
        assert_eq!(result, refused);
        let result = edited(ends(SsiMessages::Alone, [typ; 2]), Side::Server, |mut messages| {
            messages[2] = identity(other, Side::Server);
            messages
        });
        assert_eq!(result, refused);
        let error = result.unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(error.alert(), Some(AlertDescription::UNEXPECTED_MESSAGE));
    }
}

/// RFC 8879 §4: an SSIRequest offers no decompression, although the server could decompress.
#[test]
fn refuses_a_compressed_certificate_in_place_of_the_identity() {
    let [a_client, a_server] = ends(SsiMessages::Alone, [VC; 2]);
    let a_client = a_client.credentials(vec![pki().client.x509(&awslc())]);
    let both = x509().with(Arc::new(Wallet::of(&[DidMethod::DUNLIN])));
    let a_server = a_server.trust(both).certificate_decompressors(vec![ZLIB_DECOMPRESSOR]);
    assert_eq!(edited([a_client.clone(), a_server.clone()], Side::Client, |messages| messages), Ok(()));
    let result = edited([a_client, a_server], Side::Client, |mut messages| {
        messages[0][0] = H::COMPRESSED_CERTIFICATE.0;
        messages
    });
    assert_eq!(result, unexpected(H::COMPRESSED_CERTIFICATE, H::CERTIFICATE));
}

#[test]
fn refuses_an_identifier_of_a_method_that_it_has_not_named() {
    for by in SIDES {
        let result = edited(ends(SsiMessages::Alone, [DID; 2]), by, |mut messages| {
            let did = identifier(DidMethod::WEB, leaf(by)).did;
            messages[place(by)] = message(H::DID.0, &[&[0, 0xe3], &*vector(2, did.as_bytes())].concat());
            messages
        });
        assert_eq!(result, Err(PeerMisbehaved::NotOffered(Field::DidMethod).into()));
        assert_eq!(result.unwrap_err().alert(), Some(AlertDescription::ILLEGAL_PARAMETER));
    }
}

/// The signature covers the identity, the request and everything before.
#[test]
fn the_signature_covers_what_comes_before_it() {
    for by in SIDES {
        for typ in [VC, DID] {
            let changed = |edit: fn(&mut Vec<Vec<u8>>, usize)| {
                edited(ends(SsiMessages::Alone, [typ; 2]), by, |mut messages| {
                    edit(&mut messages, place(by));
                    messages
                })
            };
            let result = changed(|messages, at| {
                // A name, or a part of the method that the verifier of the tests ignores.
                let last = messages[at].iter().rposition(|byte| *byte == b':').unwrap();
                messages[at][last - 1] ^= 1;
            });
            // A bare identifier shows the change by its method.
            let is_method = typ == DID;
            let bad = if is_method {
                PeerMisbehaved::IllegalParameter(Field::DidMethod)
            } else {
                PeerMisbehaved::BadSignature
            };
            assert_eq!(result, Err(bad.into()), "{typ} of {by:?}");
            let result = changed(|messages, at| {
                let last = messages[at + 1].len() - 1;
                messages[at + 1][last] ^= 1;
            });
            assert_eq!(result, Err(PeerMisbehaved::BadSignature.into()));
            assert_eq!(result.unwrap_err().alert(), Some(AlertDescription::DECRYPT_ERROR));
            // CertificateVerify has the same form, but another preamble.
            let result = changed(|messages, at| messages[at + 1][0] = H::CERTIFICATE_VERIFY.0);
            assert_eq!(result, unexpected(H::CERTIFICATE_VERIFY, H::DID_VERIFY));
            let result = changed(|messages, at| messages[at + 1][4..6].copy_from_slice(&[0x02, 0x03]));
            assert_eq!(result, Err(PeerMisbehaved::NotOffered(Field::SignatureScheme).into()));
        }
    }
    let result = edited(ends(SsiMessages::Alone, [VC; 2]), Side::Server, |mut messages| {
        // The first scheme of signature_algorithms.
        messages[1][13] ^= 1;
        messages
    });
    assert_eq!(result, Err(PeerMisbehaved::BadSignature.into()));
}

#[test]
fn takes_a_proof_only_if_it_has_requested_one_and_only_once() {
    let proof = || message(H::DID_PROOF.0, PROOF);
    let asking = |by| {
        let mut both = ends(SsiMessages::Alone, [VC; 2]);
        let other = usize::from(by == Side::Client);
        both[other] = both[other].clone().trust(trust(&Arc::new(Wallet::asking_for_proofs())));
        both
    };
    for by in SIDES {
        let insert = |mut messages: Vec<Vec<u8>>| {
            messages.insert(place(by) + 1, proof());
            messages
        };
        let result = edited(ends(SsiMessages::Alone, [VC; 2]), by, insert);
        assert_eq!(result, unexpected(H::DID_PROOF, H::DID_VERIFY));
        assert_eq!(edited(asking(by), by, insert), Err(PeerMisbehaved::BadSignature.into()));
        assert_eq!(
            edited(asking(by), by, |messages| insert(insert(messages))),
            unexpected(H::DID_PROOF, H::DID_VERIFY)
        );
        let empty = edited(asking(by), by, |mut messages| {
            messages.insert(place(by) + 1, message(H::DID_PROOF.0, &[]));
            messages
        });
        assert_eq!(empty, Err(Malformed::Length(Field::Message(H::DID_PROOF)).into()));
        let long = edited(asking(by), by, |mut messages| {
            messages.insert(place(by) + 1, message(H::DID_PROOF.0, &[0; 16 * 1024 + 1]));
            messages
        });
        let above =
            Malformed::AboveLimit { what: Field::Message(H::DID_PROOF), max: 16 * 1024, unit: Unit::Bytes };
        assert_eq!(long, Err(above.into()));
    }
    // A proof without the identity before it.
    let [a_client, a_server] = asking(Side::Server);
    let own = stapled("did:dunlin:hub", &pki().server, PROOF);
    let result = edited([a_client, a_server.credentials(vec![own])], Side::Server, |mut messages| {
        assert_eq!(messages.remove(2)[0], H::VC.0);
        messages
    });
    assert_eq!(result, unexpected(H::DID_PROOF, H::CERTIFICATE));
}

/// Every message that is missing, repeated, swapped, truncated or longer ends the handshake.
#[test]
fn rejects_missing_repeated_reordered_and_damaged_messages() {
    type Edit = fn(&mut Vec<Vec<u8>>, usize);
    let edits: [(&str, Edit); 5] = [
        ("missing", |messages, at| drop(messages.remove(at))),
        ("repeated", |messages, at| messages.insert(at, messages[at].clone())),
        ("swapped", |messages, at| messages.swap(at, at + 1)),
        ("truncated", |messages, at| {
            let body = &messages[at][4..messages[at].len() - 1];
            messages[at] = message(messages[at][0], body);
        }),
        ("longer", |messages, at| {
            let body = [&messages[at][4..], &[0]].concat();
            messages[at] = message(messages[at][0], &body);
        }),
    ];
    for typ in [VC, DID] {
        for (by, count) in [(Side::Server, 4), (Side::Client, 2)] {
            for at in 0..count {
                for (name, edit) in edits {
                    let result = edited(ends(SsiMessages::Alone, [typ; 2]), by, |mut messages| {
                        edit(&mut messages, at);
                        messages
                    });
                    let why = format!("{typ}: message {at} of {by:?} {name}: {result:?}");
                    // Without SSIRequest the signature does not match the transcript.
                    let is_request = by == Side::Server && at == 1 && name == "missing";
                    let alert = match name {
                        "truncated" | "longer" => AlertDescription::DECODE_ERROR,
                        _ if is_request => AlertDescription::DECRYPT_ERROR,
                        _ => AlertDescription::UNEXPECTED_MESSAGE,
                    };
                    assert_eq!(result.err().and_then(|error| error.alert()), Some(alert), "{why}");
                }
            }
        }
    }
}

/// The client's result for an SSIRequest with this body, after the length of its extensions.
fn after_request(mode: SsiMessages, extensions: &[&[u8]]) -> Result<(), Error> {
    let body = [&[0], &*vector(2, &extensions.concat())].concat();
    edited(ends(mode, [VC; 2]), Side::Server, |mut messages| {
        messages[1] = message(H::SSI_REQUEST.0, &body);
        messages
    })
}

#[test]
fn refuses_a_request_that_is_incomplete_or_asks_for_no_identity() {
    let schemes: &[u8] = &[0, 13, 0, 4, 0, 2, 4, 3];
    let asks = |number: &[u8], body: &[u8]| [number, &vector(2, body)].concat();
    let ours = |body: &[u8]| asks(&[0xff, 0x21], body);
    let after = |extensions: &[&[u8]]| after_request(SsiMessages::Alone, extensions);
    let missing = |typ| Err(PeerMisbehaved::MissingExtension(typ).into());
    // An honest one, which only the signature does not cover.
    assert_eq!(after(&[schemes, &ours(&[2, 1, 0xe0])]), Err(PeerMisbehaved::BadSignature.into()));
    assert_eq!(after(&[&ours(&[2, 1, 0xe0])]), missing(ExtensionType::SIGNATURE_ALGORITHMS));
    assert_eq!(after(&[schemes]), missing(ExtensionType::SSI_PARAMETERS));
    // The number of the public implementation is not ours.
    let theirs = |body: &[u8]| asks(&[0, 60], body);
    assert_eq!(after(&[schemes, &theirs(&[2, 1, 1])]), missing(ExtensionType::SSI_PARAMETERS));
    let what = Field::Extension(ExtensionType::SSI_PARAMETERS);
    let illegal = |what| Err(PeerMisbehaved::IllegalParameter(what).into());
    assert_eq!(after(&[schemes, &ours(&[0, 0])]), illegal(what));
    assert_eq!(after(&[schemes, &ours(&[3, 1, 0xe0])]), illegal(what));
    assert_eq!(after(&[schemes, &ours(&[2, 0])]), Err(Malformed::Length(what).into()));
    // The paper's server must ask for what the client asks for.
    let links = |extensions: &[&[u8]]| after_request(SsiMessages::Links, extensions);
    let what = Field::Extension(ExtensionType::SSI_PARAMETERS_LINKS);
    assert_eq!(links(&[schemes, &theirs(&[2, 1, 0xe0])]), Err(PeerMisbehaved::BadSignature.into()));
    assert_eq!(links(&[schemes, &theirs(&[1, 1, 0xe0])]), illegal(what));
    assert_eq!(links(&[schemes, &ours(&[2, 1, 0xe0])]), missing(ExtensionType::SSI_PARAMETERS_LINKS));
    assert_eq!(links(&[schemes, &theirs(&[2, 3, 1])]), Err(Malformed::Truncated(what).into()));
}

/// A client that has not sent ssi_parameters expects none of its messages, nor one that asks for a
/// certificate an identity.
#[test]
fn expects_the_messages_only_after_it_has_offered_them() {
    let certificates = || {
        let x509_end = |leaf: &Leaf| profile(x509(), vec![leaf.x509(&awslc())]);
        [x509_end(&pki().client), x509_end(&pki().server)]
    };
    let expected = Field::CertificateOrRequest;
    let request = edited(certificates(), Side::Server, |mut messages| {
        messages[1][0] = H::SSI_REQUEST.0;
        messages
    });
    let got = |got| Err(PeerMisbehaved::UnexpectedMessage { got, expected }.into());
    assert_eq!(request, got(H::SSI_REQUEST));
    for typ in [VC, DID] {
        let identity = |mut messages: Vec<Vec<u8>>| {
            messages[1] = identity(typ, Side::Server);
            messages
        };
        let sent = if typ == VC { H::VC } else { H::DID };
        assert_eq!(edited(certificates(), Side::Server, identity), got(sent));
        // This client only has an identity of its own.
        let [a_client, a_server] = certificates();
        let a_client = a_client.credentials(vec![vc("did:dunlin:device", &pki().client)]);
        let ends = [a_client.ssi_messages(SsiMessages::Alone), a_server];
        assert_eq!(edited(ends, Side::Server, identity), got(sent));
    }
    // A server that has answered server_certificate_type sends a Certificate.
    let wallet = || Verifiers::default().with(Arc::new(Wallet::of(&[DidMethod::DUNLIN])));
    let own = |name, leaf: &Leaf| vec![vc(name, leaf)];
    let ends = [
        profile(wallet(), own("did:dunlin:device", &pki().client)).ssi_messages(SsiMessages::Beside),
        profile(wallet(), own("did:dunlin:hub", &pki().server)),
    ];
    let result = edited(ends, Side::Server, |mut messages| {
        messages[1] = identity(VC, Side::Server);
        messages
    });
    assert_eq!(result, got(H::VC));
}

/// A bare identifier has no certificate type, whatever the peer offers.
#[test]
fn never_negotiates_the_type_of_bare_identifiers() {
    let wallet = |typ| Arc::new(Wallet::of(&[DidMethod::DUNLIN]).for_type(typ));
    let both = || trust(&wallet(VC)).with(wallet(DID));
    let beside = |own| profile(both(), own).ssi_messages(SsiMessages::Beside);
    let of_client = client(beside(vec![vc("did:dunlin:device", &pki().client)]));
    let own = vec![did(DidMethod::DUNLIN, &pki().server)];
    let credential = vc("did:dunlin:hub", &pki().server);
    for (typ, own, auth) in [
        (ExtensionType::SERVER_CERTIFICATE_TYPE, own, ClientAuth::None),
        (ExtensionType::CLIENT_CERTIFICATE_TYPE, vec![credential], ClientAuth::Required),
    ] {
        let trusted = if auth == ClientAuth::Required { trust(&wallet(DID)) } else { Verifiers::default() };
        let of_server = server(profile(trusted, own).ssi_messages(SsiMessages::Beside), auth);
        let mut pair = Pair::new(&of_client, &of_server);
        let mut hello = take(&mut pair.client);
        let body = extension_at(&hello, typ.0).unwrap();
        hello[body.end - 1] = DID.0;
        // Nor by messages: GREASE takes the place of ssi_parameters (RFC 8701).
        let body = extension_at(&hello, ExtensionType::SSI_PARAMETERS.0).unwrap();
        hello[body.start - 4..body.start - 2].copy_from_slice(&[0x0a, 0x0a]);
        let error = pair.server.receive(NOW, &hello).unwrap_err();
        assert!(
            matches!(error, Error::PeerIncompatible(PeerIncompatible::CertificateType { .. })),
            "{typ}: {error}"
        );
    }
}

/// Nor does a server choose it.
#[test]
fn refuses_the_type_of_bare_identifiers_as_an_answer() {
    let both = trust(&Arc::new(Wallet::of(&[DidMethod::DUNLIN]).for_type(DID)))
        .with(Arc::new(Wallet::of(&[DidMethod::DUNLIN])));
    let own = did(DidMethod::DUNLIN, &pki().client);
    let all = vec![vc("did:dunlin:device", &pki().client), own];
    let of_client = profile(both, all).ssi_messages(SsiMessages::Beside);
    for (typ, what) in [
        (ExtensionType::SERVER_CERTIFICATE_TYPE, Field::ServerCertificateType),
        (ExtensionType::CLIENT_CERTIFICATE_TYPE, Field::ClientCertificateType),
    ] {
        let of_server = trust(&Arc::new(Wallet::of(&[DidMethod::DUNLIN])));
        let of_server = profile(of_server, vec![vc("did:dunlin:hub", &pki().server)]);
        let result = edited([of_client.clone(), of_server], Side::Server, |mut messages| {
            let answer = [&typ.0.to_be_bytes()[..], &[0, 1, DID.0]].concat();
            messages[0] = message(H::ENCRYPTED_EXTENSIONS.0, &vector(2, &answer));
            messages
        });
        assert_eq!(result, Err(PeerMisbehaved::NotOffered(what).into()));
    }
}

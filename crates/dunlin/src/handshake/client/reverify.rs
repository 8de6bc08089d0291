//! Verifying the server of a resumed session again.

use crate::sync::Arc;
use alloc::boxed::Box;

use pki_types::CertificateDer;

use crate::address::ServerAddress;
use crate::auth::{KeyUse, PeerIdentity};
use crate::crypto::Hash;
use crate::error::{AuthenticationFailure, Error, Misuse};
use crate::handshake::question::Answer;
use crate::handshake::verify::Subject;
use crate::handshake::{AwaitAnswer, Cx, Step};
use crate::protocol::Side;
use crate::settings::ProfileSettings;

/// The continuation of the handshake.
pub(crate) type Then = Box<dyn FnOnce(&mut Cx<'_>) -> Result<Step, Error> + Send + Sync>;

/// Verifies `peer`, the identity in the session, against today's trust settings.
pub(super) fn reverify(
    cx: &mut Cx<'_>,
    profile: &Arc<ProfileSettings>,
    server: &ServerAddress,
    peer: Option<&PeerIdentity>,
    then: Then,
) -> Result<Step, Error> {
    // Without a certificate type the session stems from a pre-shared key, and the client checks that key before it offers the
    // session.
    let Some((peer, certificate_type)) = peer.and_then(|peer| Some((peer, peer.certificate_type()?))) else {
        return then(cx);
    };
    let chain = match peer {
        PeerIdentity::RawKey(key) => [CertificateDer::from(key.to_vec())].to_vec(),
        peer => peer.entries().to_vec(),
    };
    let subject = Subject {
        profile: Arc::clone(profile),
        certificate_type,
        chain,
        peer: Side::Server,
        name: Some(server.name.clone()),
        ocsp_response: None,
        usage: KeyUse::Sign,
    };
    let known = subject.judge(cx)?;
    let fingerprint = match peer {
        PeerIdentity::Other(id) => Some(*id.key_fingerprint()),
        _ => None,
    };
    cx.ask(known, Box::new(AwaitReverification { sha256: profile.provider.sha256, fingerprint, then }))
}

/// Waits for the caller's verdict.
struct AwaitReverification {
    sha256: &'static dyn Hash,
    /// The fingerprint of the session's key. `None` if the key is part of the certificate that was verified again.
    fingerprint: Option<[u8; 32]>,
    then: Then,
}

impl AwaitAnswer for AwaitReverification {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Answer::Verified(verdict) = answer else { return Err(Misuse::WrongAnswer.into()) };
        let (peer, _) = verdict?.into_parts();
        // The peer's key may have been replaced since the session, without a new certificate.
        if let (Some(peer), Some(fingerprint)) = (peer, self.fingerprint)
            && self.sha256.hash(&[&peer.public_key]).as_ref() != fingerprint
        {
            return Err(
                AuthenticationFailure::Rejected("it has another key than in the session".into()).into()
            );
        }
        (self.then)(cx)
    }
}

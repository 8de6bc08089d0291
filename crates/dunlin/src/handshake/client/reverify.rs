//! Verifying the server of a resumed session again.

use crate::sync::Arc;
use alloc::boxed::Box;

use pki_types::CertificateDer;

use crate::address::ServerAddress;
use crate::auth::{KeyUse, PeerIdentity};
use crate::error::{AuthenticationFailure, Error};
use crate::handshake::question::Answer;
use crate::handshake::verify::Subject;
use crate::handshake::{AwaitAnswer, Cx, Step};
use crate::message::Staples;
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
    // Without a certificate type the session stems from a pre-shared key, and the client checks that key
    // before it offers the session.
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
        staples: Staples::default(),
        usage: KeyUse::Sign,
        is_cacheable: true,
    };
    let known = subject.judge(cx)?;
    cx.ask(known, Box::new(AwaitReverification { subject, peer: peer.clone(), then }))
}

/// Waits for the verdict.
struct AwaitReverification {
    subject: Subject,
    /// The identity in the session.
    peer: PeerIdentity,
    then: Then,
}

impl AwaitAnswer for AwaitReverification {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { subject, peer, then } = *self;
        let now = subject.accepted(cx.now, answer)?;
        // The credential may name another key today than in the session, as a DID can.
        if !now.identity.is_same(&peer) {
            let why = "its key or identity is not the session's";
            return Err(AuthenticationFailure::Rejected(why.into()).into());
        }
        cx.draft.limit_validity(now.validity);
        then(cx)
    }
}

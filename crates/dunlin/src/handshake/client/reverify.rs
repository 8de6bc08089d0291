//! Verifying the server of a resumed session again.

use crate::sync::Arc;
use alloc::boxed::Box;

use pki_types::CertificateDer;

use crate::address::ServerAddress;
use crate::auth::PeerIdentity;
use crate::error::{Error, Misuse};
use crate::handshake::question::Answer;
use crate::handshake::verify::Subject;
use crate::handshake::{AwaitAnswer, Cx, Step};
use crate::protocol::Side;
use crate::settings::ProfileSettings;
use crate::wire::CertificateType;

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
    let (chain, certificate_type) = match peer {
        Some(PeerIdentity::X509(id)) => (id.chain.clone(), CertificateType::X509),
        Some(PeerIdentity::RawKey(key)) => {
            ([CertificateDer::from(key.to_vec())].to_vec(), CertificateType::RAW_PUBLIC_KEY)
        }
        // The session stems from a pre-shared key, and the client checks that key before it offers the session.
        Some(PeerIdentity::Psk(_)) | None => return then(cx),
    };
    let subject = Subject {
        profile,
        certificate_type,
        chain: &chain,
        peer: Side::Server,
        name: Some(&server.name),
        ocsp_response: None,
    };
    let known = subject.judge(cx)?;
    cx.ask(known, Box::new(AwaitReverification { then }))
}

/// Waits for the caller's verdict.
struct AwaitReverification {
    then: Then,
}

impl AwaitAnswer for AwaitReverification {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Answer::Verified(verdict) = answer else { return Err(Misuse::WrongAnswer.into()) };
        verdict?;
        (self.then)(cx)
    }
}

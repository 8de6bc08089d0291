//! Answers the engine's questions as the options say.

use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::resume::UseOnce;
use dunlin::wire::{AlertDescription, CertificateType};
use dunlin::{Answer, ClientHelloInfo, Question, ServerConfig};
use pki_types::CertificateDer;

use crate::Failure;
use crate::options::Options;
use crate::setup::{Setup, Shared};

/// The sources of the answers.
pub(crate) struct Answers<'a> {
    pub(crate) options: &'a Options,
    pub(crate) setup: &'a Setup,
    pub(crate) provider: &'a CryptoProvider,
}

impl Answers<'_> {
    pub(crate) fn answer(&self, question: Question, shared: &mut Shared) -> Result<Answer, Failure> {
        Ok(match question {
            Question::ChooseProfile(_) if self.fails_to_choose() => Answer::Failed,
            Question::ChooseProfile(info) => Answer::Profile(Some(self.choose(&info, shared)?)),
            Question::FindSession { id } => Answer::Session(shared.asked.get(&id).cloned().map(Box::new)),
            Question::FindPsk { identity } => {
                let psks = &self.setup.credentials.psks;
                Answer::Psk(psks.iter().find(|psk| psk.identity() == identity).cloned())
            }
            Question::FirstUse { id, until_ms } => {
                Answer::FirstUse(shared.used.first_use(shared.now(), &id, until_ms))
            }
            Question::Verify { certificates, certificate_type, ocsp_response, .. } => {
                shared.ocsp_response = ocsp_response;
                let verdict = self.verify(&certificates, certificate_type)?;
                Answer::Verified(verdict.map(|()| dunlin::auth::Acceptance::once()))
            }
            Question::Sign { label, scheme, message } => {
                self.setup.credentials.sign(&label, scheme, &message, &*self.provider.random)
            }
            other => return Err(Failure::Unimplemented(format!("an answer to {other:?}"))),
        })
    }

    /// Whether the options make one of the server's callbacks fail.
    const fn fails_to_choose(&self) -> bool {
        self.options.fail_credential_callback || self.options.ocsp_callback && self.options.fail_ocsp_callback
    }

    /// Checks the ClientHello, and makes a configuration for it.
    fn choose(&self, info: &ClientHelloInfo, shared: &mut Shared) -> Result<Arc<ServerConfig>, Failure> {
        let expect = &self.options.expect;
        if expect.server_name.is_some() && info.server_name != expect.server_name
            || expect.no_server_name && info.server_name.is_some()
        {
            return Err(Failure::Unexpected(format!(
                "the client sent the server name {:?}",
                info.server_name
            )));
        }
        if expect.advertised_alpn.as_ref().is_some_and(|expected| *expected != info.alpn) {
            return Err(Failure::Unexpected(format!("the client sent the protocols {:?}", info.alpn)));
        }
        let expected = &expect.peer_verify_schemes;
        if !expected.is_empty() && *expected != info.signature_schemes {
            let sent = &info.signature_schemes;
            return Err(Failure::Unexpected(format!("the client sent the signature_algorithms {sent:?}")));
        }
        self.setup.server_for(self.options, shared, info)
    }

    fn verify(
        &self,
        certificates: &[CertificateDer<'_>],
        typ: CertificateType,
    ) -> Result<Result<(), AuthenticationFailure>, Failure> {
        let options = self.options;
        if let Some(expected) = &options.expect.peer_raw_key_sha256 {
            let key: &[u8] = certificates.first().map_or(&[], |c| c);
            let digest = self.provider.sha256.hash(&[key]);
            if typ != CertificateType::RAW_PUBLIC_KEY || digest.as_ref() != expected {
                return Err(Failure::Unexpected("the peer sent another raw public key".into()));
            }
        }
        // BoringSSL ignores the result of its older callback in a client that does not verify.
        let heard = options.custom_verify
            || options.verify_peer
            || options.require_client_certificate
            || typ == CertificateType::RAW_PUBLIC_KEY;
        // BoringSSL calls its OCSP callback after the chain was accepted.
        let fails_ocsp = options.request_ocsp && options.ocsp_callback && options.fail_ocsp_callback;
        let why = || "the options say so".into();
        Ok(match (options.verify_fail && heard, options.custom_verify) {
            (false, _) if fails_ocsp => Err(AuthenticationFailure::RejectedWith(
                AlertDescription::BAD_CERTIFICATE_STATUS_RESPONSE,
                why(),
            )),
            (false, _) => Ok(()),
            (true, true) => Err(AuthenticationFailure::Rejected(why())),
            // BoringSSL sends this alert if the failure has no X.509 reason.
            (true, false) => {
                Err(AuthenticationFailure::RejectedWith(AlertDescription::HANDSHAKE_FAILURE, why()))
            }
        })
    }
}

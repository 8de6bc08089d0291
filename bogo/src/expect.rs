//! Compares a finished handshake with the expectations of the options.

use dunlin::auth::PeerIdentity;
use dunlin::wire::ProtocolVersion;
use dunlin::{EarlyDataOutcome, Negotiated};

use crate::Failure;
use crate::options::{Options, as_tls};
use crate::setup::Shared;
use crate::{keys, reasons};

/// Checks the negotiated parameters. `used` is the credential that signed; `shared` has the data that
/// BoringSSL keeps with the session.
pub(crate) fn check(
    options: &Options,
    negotiated: &Negotiated,
    used: i32,
    shared: &mut Shared,
    is_resume: bool,
) -> Result<(), Failure> {
    let expect = &options.expect;
    same("the version", expect.version, negotiated.version.map(as_tls))?;
    if !negotiated.is_resumed() {
        shared.peer_signature = negotiated.peer_signature;
    }
    // In TLS 1.3 a resumption negotiates a group, too; in TLS 1.2 it does not.
    shared.group = negotiated.group.or(shared.group);
    same("the group", expect.group, shared.group)?;
    same("the peer's signature", expect.peer_signature, shared.peer_signature)?;
    same("the use of HelloRetryRequest", expect.hello_retry_request, Some(negotiated.retried))?;
    same("the credential", expect.selected_credential, Some(used))?;
    same("the cipher suite", expect.cipher_suite, negotiated.cipher_suite)?;
    if options.server && expect.server_name.is_some() && expect.server_name != negotiated.server_name {
        return Err(unexpected("the server name", &negotiated.server_name));
    }
    early_data(options, negotiated)?;
    let resumed = is_resume && !expect.session_miss;
    same("resumption", Some(resumed), Some(negotiated.is_resumed()))?;
    let alpn = if options.server { &options.select_alpn } else { &expect.alpn };
    let alpn = alpn.as_ref().map(|p| p.as_bytes());
    if alpn != negotiated.alpn.as_deref() {
        return Err(unexpected("the application protocol", &negotiated.alpn));
    }
    peer(options, negotiated)
}

fn early_data(options: &Options, negotiated: &Negotiated) -> Result<(), Failure> {
    let expect = &options.expect;
    let outcome = negotiated.early_data;
    // The runner demands early data over DTLS, too, and expects that there is none.
    let is_expected = expect.early_data.map(|is_expected| is_expected && !options.dtls);
    same("the use of early data", is_expected, Some(outcome == EarlyDataOutcome::Accepted))?;
    // A client reports the HelloRetryRequest as the reason, even if the session is not resumed.
    let resumed = negotiated.is_resumed() || !options.server;
    let reason = match negotiated.version.map(as_tls) {
        Some(ProtocolVersion::TLS1_2) => "protocol_version",
        _ => reasons::early_data(outcome, resumed),
    };
    same("the reason for early data", expect.early_data_reason.as_deref(), Some(reason))?;
    let skew = negotiated.ticket_age_skew_ms.map(|ms| ms / 1000);
    let expected = expect.ticket_age_skew_s.filter(|_| negotiated.is_resumed());
    same("the skew of the ticket's age", expected, skew)
}

/// Checks the identity of the peer.
fn peer(options: &Options, negotiated: &Negotiated) -> Result<(), Failure> {
    let expect = &options.expect;
    let peer = &negotiated.peer;
    let (is_x509, typ) = match peer {
        Some(PeerIdentity::X509(_)) => (true, Some(0)),
        Some(PeerIdentity::RawKey(_)) => (false, Some(2)),
        _ => (false, None),
    };
    let by_psk = matches!(peer, Some(PeerIdentity::Psk(_)));
    if expect.no_peer_certificate || expect.peer_raw_key_sha256.is_some() || by_psk {
        if is_x509 {
            return Err(unexpected("the peer", peer));
        }
    } else if (!options.server || options.require_client_certificate) && peer.is_none() {
        return Err(unexpected("the peer", peer));
    }
    same("the type of the peer's certificate", expect.peer_certificate_type, typ)?;
    if let (Some(file), Some(PeerIdentity::X509(id))) = (&expect.peer_certificate_file, peer)
        && keys::chain(file)? != id.chain
    {
        return Err(unexpected("the peer's chain", peer));
    }
    Ok(())
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: Option<T>,
    found: Option<T>,
) -> Result<(), Failure> {
    if expected.is_none() || expected == found { Ok(()) } else { Err(unexpected(what, &found)) }
}

fn unexpected(what: &str, found: &impl std::fmt::Debug) -> Failure {
    Failure::Unexpected(format!("{what} is not as expected: {found:?}"))
}

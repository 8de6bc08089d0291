//! Names the options for each kind of credential, if the sides have none in common.

use dunlin::wire::CertificateType;

use crate::tls::options::TlsOptions;

/// Advice to a server that finds no common certificate type: `ours` of this server, `theirs` of the client.
pub(super) fn of_server(
    options: &TlsOptions,
    ours: &[CertificateType],
    theirs: &[CertificateType],
) -> String {
    // The engine does not say whose credential it is about. A server accepts what it requests.
    if ours.iter().all(|typ| accepts(options, *typ)) {
        format!("give the client {}, or let this server accept {}", given(ours, false), taken(theirs))
    } else {
        format!("give this server {}, or let the client accept {}", given(theirs, true), taken(ours))
    }
}

/// The credentials that a server accepts from its clients.
pub(super) fn accepted(options: &TlsOptions) -> String {
    let all = [
        CertificateType::X509,
        CertificateType::RAW_PUBLIC_KEY,
        CertificateType::VERIFIABLE_CREDENTIAL,
        CertificateType::DECENTRALISED_IDENTIFIER,
    ];
    let accepted: Vec<_> = all.into_iter().filter(|typ| accepts(options, *typ)).collect();
    if accepted.is_empty() { given(&all[..1], false) } else { given(&accepted, false) }
}

/// Advice to a side that refuses the type of the peer's certificate.
pub(super) fn of_refused(options: &TlsOptions, peer: &str, typ: CertificateType) -> String {
    let wanted = accepted(options);
    format!("accept {} here, or give the {peer} {wanted}", taken(&[typ]))
}

/// Advice to a client whose ClientHello has no certificate type of the server.
pub(super) fn of_client(options: &TlsOptions) -> String {
    let raw = options.enable_server_rpk || options.enable_client_rpk || options.rpk_file.is_some();
    let has_did = options.verifiable.did.is_some();
    let mut shown = vec![];
    if has_did || raw {
        shown.push("--chain with --key");
    }
    if !has_did {
        shown.push("--did (with --vc if it accepts only verifiable credentials)");
    }
    if !raw {
        shown.push("--enable-client-rpk with --key");
    }
    let mut accepted = vec![];
    if options.verifiable.trusts() || raw {
        accepted.push("--ca");
    }
    if !options.verifiable.trusts() {
        accepted.push("--vc-issuers or --dids");
    }
    if !raw {
        accepted.push("--raw-keys");
    }
    format!(
        "show the server another kind of credential: {}; or accept another kind of it: {}",
        shown.join(", or "),
        accepted.join(", or ")
    )
}

/// Whether these options accept peers with a certificate of this type.
fn accepts(options: &TlsOptions, typ: CertificateType) -> bool {
    let verifiable = &options.verifiable;
    match typ {
        CertificateType::X509 => options.ca_file.is_some(),
        CertificateType::RAW_PUBLIC_KEY => options.rpk_file.is_some(),
        CertificateType::VERIFIABLE_CREDENTIAL => verifiable.trust.is_some(),
        CertificateType::DECENTRALISED_IDENTIFIER => verifiable.trusts_dids(),
        _ => false,
    }
}

/// The options that give a server or a client a credential of one of these types.
fn given(types: &[CertificateType], is_server: bool) -> String {
    either(types, |typ| match typ {
        CertificateType::X509 => "a certificate (--chain, --key)",
        CertificateType::RAW_PUBLIC_KEY if is_server => "a raw key (--enable-server-rpk, --key)",
        CertificateType::RAW_PUBLIC_KEY => "a raw key (--enable-client-rpk, --key)",
        CertificateType::VERIFIABLE_CREDENTIAL => "a verifiable credential (--did, --vc)",
        CertificateType::DECENTRALISED_IDENTIFIER => "a DID (--did)",
        _ => "a credential of another type",
    })
}

/// The options that accept credentials of one of these types.
fn taken(types: &[CertificateType]) -> String {
    either(types, |typ| match typ {
        CertificateType::X509 => "certificates (--ca)",
        CertificateType::RAW_PUBLIC_KEY => "raw keys (--raw-keys)",
        CertificateType::VERIFIABLE_CREDENTIAL => "verifiable credentials (--vc-issuers)",
        CertificateType::DECENTRALISED_IDENTIFIER => "DIDs (--dids)",
        _ => "credentials of another type",
    })
}

fn either(types: &[CertificateType], words: impl Fn(CertificateType) -> &'static str) -> String {
    types.iter().map(|typ| words(*typ)).collect::<Vec<_>>().join(" or ")
}

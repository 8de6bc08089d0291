//! The options of the command line, as far as the engine supports them.

use base64ct::{Base64, Encoding};
use dunlin::crypto::HashAlgorithm;
use dunlin::wire::{CertificateType, CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use crate::Failure;

/// The options for one connection.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) port: u16,
    pub(crate) ipv6: bool,
    pub(crate) shim_id: u64,
    pub(crate) server: bool,
    pub(crate) dtls: bool,
    /// The largest datagram.
    pub(crate) mtu: Option<usize>,
    /// The first timeout of retransmissions, in milliseconds.
    pub(crate) initial_timeout_ms: Option<u64>,
    /// How long a signature takes, in milliseconds.
    pub(crate) signature_ms: u64,
    pub(crate) resume_count: u32,
    pub(crate) resumption_delay_s: u64,
    /// Configure questions instead of answers, and give the engine one byte at a time.
    pub(crate) is_async: bool,

    pub(crate) min_version: Option<ProtocolVersion>,
    pub(crate) max_version: Option<ProtocolVersion>,
    pub(crate) excluded_versions: Vec<ProtocolVersion>,
    /// The TLS 1.2 suites as a cipher string of BoringSSL; `None`: all.
    pub(crate) cipher_suites: Option<String>,
    pub(crate) server_preference: bool,
    pub(crate) fallback: bool,
    pub(crate) groups: Vec<NamedGroup>,
    pub(crate) key_shares: Option<Vec<NamedGroup>>,
    /// The groups that the client expects the server to support.
    pub(crate) hinted_groups: Vec<NamedGroup>,
    /// For each group, whether its preference equals the preference of the next group.
    pub(crate) groups_as_the_next: Vec<bool>,
    pub(crate) verify_schemes: Vec<SignatureScheme>,
    pub(crate) host_name: Option<String>,
    pub(crate) advertise_alpn: Vec<Vec<u8>>,
    pub(crate) select_alpn: Option<String>,
    pub(crate) reject_alpn: bool,
    pub(crate) no_server_name_ack: bool,

    /// The credential of options before the first `-new-…-credential`.
    pub(crate) default_credential: CredentialOptions,
    pub(crate) credentials: Vec<CredentialOptions>,
    pub(crate) peer_certificate_types: Vec<CertificateType>,
    pub(crate) client_certificate_types: Vec<CertificateType>,
    pub(crate) verify_peer: bool,
    pub(crate) verify_fail: bool,
    pub(crate) custom_verify: bool,
    pub(crate) require_client_certificate: bool,
    pub(crate) reverify_on_resume: bool,
    pub(crate) request_ocsp: bool,
    pub(crate) ocsp_callback: bool,
    pub(crate) fail_ocsp_callback: bool,
    pub(crate) decline_ocsp_callback: bool,
    pub(crate) fail_credential_callback: bool,

    /// The names for certificate_authorities in a server's CertificateRequest.
    pub(crate) authorities: Vec<Vec<u8>>,
    pub(crate) max_sent_record: Option<u16>,
    /// The algorithms for compressed certificates.
    pub(crate) compression: Vec<u16>,

    pub(crate) psk: String,
    pub(crate) psk_identity: String,

    /// How to handle the peer's requests for a renegotiation.
    pub(crate) renegotiation: Renegotiation,
    pub(crate) no_ticket: bool,
    pub(crate) sealed_tickets: bool,
    pub(crate) skip_ticket: bool,
    pub(crate) fail_early_callback: bool,
    pub(crate) early_data: bool,
    /// Write early data once this message has arrived.
    pub(crate) early_write_after: Option<u8>,

    pub(crate) export: usize,
    pub(crate) export_label: String,
    pub(crate) export_context: String,
    pub(crate) use_export_context: bool,
    pub(crate) export_between_reads: bool,
    pub(crate) export_traffic_secrets: bool,
    pub(crate) tls_unique: bool,
    pub(crate) shim_writes_first: bool,
    pub(crate) initial_write: Option<String>,
    pub(crate) repeat_initial_write: Option<usize>,
    pub(crate) unfinished_write: bool,
    pub(crate) read_size: Option<usize>,
    pub(crate) key_update: bool,
    pub(crate) key_update_before_read: bool,
    pub(crate) shim_shuts_down: bool,
    pub(crate) check_close_notify: bool,
    pub(crate) send_alert: bool,

    pub(crate) expect: Expectations,
}

/// The expectations of a finished handshake.
#[derive(Clone, Default)]
pub(crate) struct Expectations {
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) cipher_suite: Option<CipherSuite>,
    pub(crate) group: Option<NamedGroup>,
    pub(crate) alpn: Option<String>,
    pub(crate) advertised_alpn: Option<Vec<Vec<u8>>>,
    pub(crate) server_name: Option<String>,
    pub(crate) no_server_name: bool,
    pub(crate) peer_verify_schemes: Vec<SignatureScheme>,
    pub(crate) peer_signature: Option<SignatureScheme>,
    pub(crate) peer_certificate_file: Option<String>,
    pub(crate) no_peer_certificate: bool,
    pub(crate) ocsp_response: Option<Vec<u8>>,
    pub(crate) peer_certificate_type: Option<u8>,
    pub(crate) peer_raw_key_sha256: Option<Vec<u8>>,
    pub(crate) selected_credential: Option<i32>,
    pub(crate) hello_retry_request: Option<bool>,
    /// Whether early data is accepted.
    pub(crate) early_data: Option<bool>,
    pub(crate) early_data_reason: Option<String>,
    pub(crate) no_early_data_offer: bool,
    pub(crate) session_with_early_data: bool,
    pub(crate) ticket_age_skew_s: Option<i64>,
    pub(crate) session_miss: bool,
    pub(crate) no_session: bool,
    /// Whether a TLS 1.2 session has an ID instead of a ticket.
    pub(crate) session_id: Option<bool>,
    pub(crate) ticket_renewal: bool,
    pub(crate) extended_master_secret: bool,
    pub(crate) renegotiations: u32,
}

/// How to handle the peer's requests for a renegotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Renegotiation {
    /// A request ends the connection.
    #[default]
    Fatal,
    /// Requests are refused, and the connection continues.
    Ignored,
    Once,
    Free,
}

/// The kind of a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    #[default]
    X509,
    RawKey,
    Psk,
}

/// One credential.
#[derive(Clone, Default)]
pub(crate) struct CredentialOptions {
    pub(crate) kind: CredentialKind,
    pub(crate) certificate_file: Option<String>,
    pub(crate) key_file: Option<String>,
    pub(crate) signing_schemes: Vec<SignatureScheme>,
    pub(crate) must_match_issuer: bool,
    pub(crate) ocsp_response: Option<Vec<u8>>,
    pub(crate) psk_key: Vec<u8>,
    pub(crate) psk_identity: Vec<u8>,
    pub(crate) psk_context: Vec<u8>,
    pub(crate) psk_hash: Option<HashAlgorithm>,
}

/// The arguments after an option, among them its values.
type Values<'a> = std::slice::Iter<'a, String>;

impl Options {
    /// Parses the options for the first connection, for resumptions, and for retries after refused early
    /// data. A prefix of the name restricts an option to one of the three.
    pub(crate) fn parse(arguments: &[String]) -> Result<[Self; 3], Failure> {
        const PREFIXES: [&str; 3] = ["-on-initial", "-on-resume", "-on-retry"];
        let mut all: [Self; 3] = Default::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let argument = argument.strip_prefix("-on-shim").unwrap_or(argument);
            let mut after = rest.clone();
            for (options, prefix) in all.iter_mut().zip(PREFIXES) {
                let of_this = argument.strip_prefix(prefix).filter(|name| name.starts_with('-'));
                let of_another = PREFIXES.iter().any(|p| argument.starts_with(&format!("{p}-")));
                let name = match of_this {
                    Some(name) => name,
                    None if of_another => continue,
                    None => argument,
                };
                after = rest.clone();
                options.set(name, &mut after)?;
            }
            rest = after;
        }
        Ok(all)
    }

    fn set(&mut self, name: &str, values: &mut Values<'_>) -> Result<(), Failure> {
        let known = self.set_connection(name, values)?
            || self.set_parameters(name, values)?
            || self.set_credential(name, values)?
            || self.set_exchange(name, values)?
            || self.expect.set(name, values)?
            || has_no_counterpart(name, values)?;
        if known { Ok(()) } else { Err(Failure::Unimplemented(format!("the option {name}"))) }
    }

    /// Options about the port, the number of connections and the role.
    fn set_connection(&mut self, name: &str, values: &mut Values<'_>) -> Result<bool, Failure> {
        match name {
            "-port" => self.port = number(values)?,
            "-ipv6" => self.ipv6 = true,
            "-shim-id" => self.shim_id = number(values)?,
            "-server" => self.server = true,
            "-resume-count" => self.resume_count = number(values)?,
            "-resumption-delay" => self.resumption_delay_s = number(values)?,
            "-async" => self.is_async = true,
            "-dtls" => self.dtls = true,
            "-mtu" => self.mtu = Some(number(values)?),
            "-initial-timeout-duration-ms" => self.initial_timeout_ms = Some(number(values)?),
            "-private-key-delay-ms" => self.signature_ms = number(values)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_parameters(&mut self, name: &str, values: &mut Values<'_>) -> Result<bool, Failure> {
        match name {
            "-min-version" => self.min_version = Some(version(values)?),
            "-max-version" => self.max_version = Some(version(values)?),
            "-no-tls13" => self.excluded_versions.push(ProtocolVersion::TLS1_3),
            "-no-tls12" => self.excluded_versions.push(ProtocolVersion::TLS1_2),
            "-no-tls11" => self.excluded_versions.push(ProtocolVersion::TLS1_1),
            "-no-tls1" => self.excluded_versions.push(ProtocolVersion::TLS1_0),
            "-server-preference" => self.server_preference = true,
            "-fallback-scsv" => self.fallback = true,
            "-cipher" => self.cipher_suites = Some(text(values)?),
            "-curves" => self.groups.push(NamedGroup(number(values)?)),
            "-key-shares" => {
                self.key_shares.get_or_insert_default().push(NamedGroup(number(values)?));
            }
            "-curves-flags" => self.groups_as_the_next.push(number::<u32>(values)? == 1),
            "-server-supported-groups-hint" => self.hinted_groups.push(NamedGroup(number(values)?)),
            "-no-key-shares" => self.key_shares = Some(Vec::new()),
            "-verify-prefs" => self.verify_schemes.push(SignatureScheme(number(values)?)),
            "-host-name" => self.host_name = Some(text(values)?),
            "-advertise-alpn" => self.advertise_alpn = protocols(values)?,
            "-select-alpn" => self.select_alpn = Some(text(values)?).filter(|p| !p.is_empty()),
            "-decline-alpn" => self.select_alpn = None,
            "-no-server-name-ack" => self.no_server_name_ack = true,
            "-reject-alpn" => self.reject_alpn = true,
            // "Explicit" only changes how the caller of BoringSSL starts the renegotiation.
            "-renegotiate-freely" | "-renegotiate-explicit" => self.renegotiation = Renegotiation::Free,
            "-install-cert-compression-algs" => self.compression = crate::compression::all(),
            "-install-one-cert-compression-alg" => self.compression = vec![number(values)?],
            "-max-send-fragment" => self.max_sent_record = Some(number(values)?),
            "-use-client-ca-list" => self.authorities = names(values)?,
            "-renegotiate-once" => self.renegotiation = Renegotiation::Once,
            "-renegotiate-ignore" => self.renegotiation = Renegotiation::Ignored,
            "-no-ticket" => self.no_ticket = true,
            // Every resumption brings a new ticket anyway.
            "-use-ticket-callback" | "-use-ticket-aead-callback" | "-renew-ticket" => {
                self.sealed_tickets = true;
            }
            "-skip-ticket" => self.skip_ticket = true,
            "-fail-early-callback" => self.fail_early_callback = true,
            "-enable-early-data" => self.early_data = true,
            "-early-write-after-message" => self.early_write_after = Some(number(values)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_credential(&mut self, name: &str, values: &mut Values<'_>) -> Result<bool, Failure> {
        let open = |kind| CredentialOptions { kind, ..CredentialOptions::default() };
        match name {
            "-new-x509-credential" => self.credentials.push(open(CredentialKind::X509)),
            "-new-psk-credential" => self.credentials.push(open(CredentialKind::Psk)),
            "-new-rpk-credential" => self.credentials.push(open(CredentialKind::RawKey)),
            "-accepted-peer-cert-types" => self.peer_certificate_types.push(CertificateType(number(values)?)),
            "-available-client-cert-types" => {
                self.client_certificate_types.push(CertificateType(number(values)?));
            }
            "-verify-peer" => self.verify_peer = true,
            "-verify-fail" => self.verify_fail = true,
            "-use-custom-verify-callback" => self.custom_verify = true,
            "-require-any-client-certificate" => self.require_client_certificate = true,
            "-enable-ocsp-stapling" => self.request_ocsp = true,
            "-use-ocsp-callback" => self.ocsp_callback = true,
            "-fail-ocsp-callback" => self.fail_ocsp_callback = true,
            "-decline-ocsp-callback" => self.decline_ocsp_callback = true,
            "-fail-cert-callback" => self.fail_credential_callback = true,
            "-reverify-on-resume" => self.reverify_on_resume = true,
            "-psk" => self.psk = text(values)?,
            "-psk-identity" => self.psk_identity = text(values)?,
            _ => {
                let credential = self.credentials.last_mut().unwrap_or(&mut self.default_credential);
                match name {
                    "-cert-file" => credential.certificate_file = Some(text(values)?),
                    "-key-file" => credential.key_file = Some(text(values)?),
                    "-must-match-issuer" => credential.must_match_issuer = true,
                    "-ocsp-response" => credential.ocsp_response = Some(base64(values)?),
                    "-psk-importer-key" => credential.psk_key = base64(values)?,
                    "-psk-importer-identity" => credential.psk_identity = base64(values)?,
                    "-psk-importer-context" => credential.psk_context = base64(values)?,
                    "-psk-importer-sha256" => credential.psk_hash = Some(HashAlgorithm::Sha256),
                    "-psk-importer-sha384" => credential.psk_hash = Some(HashAlgorithm::Sha384),
                    "-signing-prefs" => {
                        credential.signing_schemes.push(SignatureScheme(number(values)?));
                    }
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Options about the exchange after the handshake.
    fn set_exchange(&mut self, name: &str, values: &mut Values<'_>) -> Result<bool, Failure> {
        match name {
            "-export-keying-material" => self.export = number(values)?,
            "-export-label" => self.export_label = text(values)?,
            "-export-context" => self.export_context = text(values)?,
            "-use-export-context" => self.use_export_context = true,
            "-use-exporter-between-reads" => self.export_between_reads = true,
            "-tls-unique" => self.tls_unique = true,
            "-export-traffic-secrets" => self.export_traffic_secrets = true,
            "-shim-writes-first" => self.shim_writes_first = true,
            "-shim-initial-write" => self.initial_write = Some(text(values)?),
            "-repeat-shim-initial-write" => self.repeat_initial_write = Some(number(values)?),
            "-read-with-unfinished-write" => self.unfinished_write = true,
            "-read-size" => self.read_size = Some(number(values)?),
            "-key-update" => self.key_update = true,
            "-key-update-before-read" => self.key_update_before_read = true,
            "-shim-shuts-down" => self.shim_shuts_down = true,
            "-send-alert" => self.send_alert = true,
            "-check-close-notify" => self.check_close_notify = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the options allow this version of TLS.
    pub(crate) fn allows(&self, version: ProtocolVersion) -> bool {
        self.min_version.is_none_or(|min| min <= version)
            && self.max_version.is_none_or(|max| version <= max)
            && !self.excluded_versions.contains(&version)
    }
}

impl Expectations {
    fn set(&mut self, name: &str, values: &mut Values<'_>) -> Result<bool, Failure> {
        match name {
            "-expect-version" => self.version = Some(version(values)?),
            // The engine's preference does not depend on the machine: AES is always first.
            "-expect-cipher" | "-expect-cipher-aes" => {
                self.cipher_suite = Some(CipherSuite(number(values)?));
            }
            "-expect-cipher-no-aes" => drop(text(values)?),
            "-expect-curve-id" => self.group = Some(NamedGroup(number(values)?)),
            // An empty name means that no protocol is expected.
            "-expect-alpn" => self.alpn = Some(text(values)?).filter(|p| !p.is_empty()),
            "-expect-advertised-alpn" => self.advertised_alpn = Some(protocols(values)?),
            "-expect-server-name" => self.server_name = Some(text(values)?),
            "-expect-no-server-name" => self.no_server_name = true,
            "-expect-peer-verify-pref" => self.peer_verify_schemes.push(SignatureScheme(number(values)?)),
            "-expect-peer-signature-algorithm" => {
                self.peer_signature = Some(SignatureScheme(number(values)?));
            }
            "-expect-peer-cert-file" => self.peer_certificate_file = Some(text(values)?),
            "-expect-ocsp-response" => self.ocsp_response = Some(base64(values)?),
            "-expect-no-peer-cert" => self.no_peer_certificate = true,
            "-expect-peer-certificate-type" => self.peer_certificate_type = Some(number(values)?),
            "-expect-peer-rpk-sha256" => self.peer_raw_key_sha256 = Some(base64(values)?),
            "-expect-selected-credential" => self.selected_credential = Some(number(values)?),
            "-expect-hrr" => self.hello_retry_request = Some(true),
            "-expect-no-hrr" => self.hello_retry_request = Some(false),
            "-expect-accept-early-data" => self.early_data = Some(true),
            "-expect-reject-early-data" => self.early_data = Some(false),
            "-expect-early-data-reason" => self.early_data_reason = Some(text(values)?),
            "-expect-no-offer-early-data" => self.no_early_data_offer = true,
            "-expect-ticket-supports-early-data" => self.session_with_early_data = true,
            "-expect-ticket-age-skew" => self.ticket_age_skew_s = Some(number(values)?),
            "-expect-session-miss" => self.session_miss = true,
            "-expect-no-session" => self.no_session = true,
            "-expect-session-id" => self.session_id = Some(true),
            "-expect-no-session-id" => self.session_id = Some(false),
            "-expect-ticket-renewal" => self.ticket_renewal = true,
            "-expect-extended-master-secret" => self.extended_master_secret = true,
            "-expect-total-renegotiations" => self.renegotiations = number(values)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Options that select a way of calling BoringSSL, or a behaviour that the engine always or never has.
fn has_no_counterpart(name: &str, values: &mut Values<'_>) -> Result<bool, Failure> {
    match name {
        // The trust anchor of the runner's certificates. These tests verify by a callback instead.
        "-trust-cert" => drop(text(values)?),
        "-implicit-handshake"
        | "-no-op-extra-handshake"
        | "-use-early-callback"
        | "-set-ocsp-in-callback"
        | "-use-old-client-cert-callback"
        | "-expect-verify-result"
        | "-forbid-renegotiation-after-handshake"
        // The engine's client requires secure renegotiation anyway.
        | "-expect-secure-renegotiation"
        | "-no-legacy-server-connect" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn text(values: &mut Values<'_>) -> Result<String, Failure> {
    values.next().cloned().ok_or_else(|| Failure::Unexpected("an option has no value".into()))
}

fn number<T: std::str::FromStr>(values: &mut Values<'_>) -> Result<T, Failure> {
    let value = text(values)?;
    value.parse().map_err(|_| Failure::Unexpected(format!("{value:?} is not a valid number for this option")))
}

fn version(values: &mut Values<'_>) -> Result<ProtocolVersion, Failure> {
    Ok(as_tls(ProtocolVersion(number(values)?)))
}

/// The version of TLS that a version of DTLS is based on.
pub(crate) const fn as_tls(version: ProtocolVersion) -> ProtocolVersion {
    match version {
        ProtocolVersion::DTLS1_0 => ProtocolVersion::TLS1_1,
        ProtocolVersion::DTLS1_2 => ProtocolVersion::TLS1_2,
        ProtocolVersion::DTLS1_3 => ProtocolVersion::TLS1_3,
        other => other,
    }
}

fn base64(values: &mut Values<'_>) -> Result<Vec<u8>, Failure> {
    let value = text(values)?;
    Base64::decode_vec(&value).map_err(|_| Failure::Unexpected(format!("{value:?} is not base64")))
}

/// Reads DER names in hexadecimal, separated by commas.
fn names(values: &mut Values<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let value = text(values)?;
    if matches!(value.as_str(), "<EMPTY>" | "<NULL>") {
        return Ok(Vec::new());
    }
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let name = |digits: &str| digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>();
    let names = value.split(',').map(name).collect::<Option<_>>();
    names.ok_or_else(|| Failure::Unexpected(format!("{value:?} is not a list of names")))
}

/// Reads a list of protocols in ALPN's wire format: each has a length of one byte (RFC 7301 §3.1).
fn protocols(values: &mut Values<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let value = text(values)?;
    let mut rest = value.as_bytes();
    let mut protocols = Vec::new();
    while let Some((len, tail)) = rest.split_first() {
        let Some((protocol, tail)) = tail.split_at_checked((*len).into()) else {
            return Err(Failure::Unexpected(format!("{value:?} is not a list of protocols")));
        };
        protocols.push(protocol.to_vec());
        rest = tail;
    }
    Ok(protocols)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<[Options; 3], Failure> {
        let arguments: Vec<String> = line.split(' ').map(Into::into).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn a_prefix_selects_the_connection() {
        let [initial, resume, retry] =
            parse("-port 7 -on-resume-verify-fail -on-initial-expect-curve-id 29 -server").unwrap();
        assert_eq!((initial.port, resume.port, retry.port), (7, 7, 7));
        assert_eq!((initial.verify_fail, resume.verify_fail, retry.verify_fail), (false, true, false));
        assert_eq!(initial.expect.group, Some(NamedGroup::X25519));
        assert_eq!(resume.expect.group, None);
        assert!(initial.server && resume.server && retry.server);
    }

    #[test]
    fn files_belong_to_the_latest_credential() {
        let [options, ..] = parse(
            "-cert-file a -key-file b -new-x509-credential -cert-file c -new-rpk-credential -key-file d \
             -signing-prefs 2055",
        )
        .unwrap();
        assert_eq!(options.default_credential.certificate_file.as_deref(), Some("a"));
        let [x509, raw_key] = &options.credentials[..] else { panic!() };
        assert_eq!((x509.kind, x509.certificate_file.as_deref()), (CredentialKind::X509, Some("c")));
        assert_eq!((raw_key.kind, raw_key.key_file.as_deref()), (CredentialKind::RawKey, Some("d")));
        assert_eq!(raw_key.signing_schemes, [SignatureScheme::ED25519]);
    }

    #[test]
    fn unsupported_options_are_reported_as_unimplemented() {
        for line in ["-quic", "-nonsense", "-on-retry-nonsense"] {
            assert!(matches!(parse(line), Err(Failure::Unimplemented(_))), "{line}");
        }
        for line in ["-port", "-port x", "-expect-peer-rpk-sha256 ?", "-advertise-alpn \u{5}abc"] {
            assert!(matches!(parse(line), Err(Failure::Unexpected(_))), "{line}");
        }
    }

    #[test]
    fn versions_are_a_range_with_exceptions() {
        let [options, ..] = parse("-max-version 771 -no-tls1").unwrap();
        let allowed = [0x0301, 0x0302, 0x0303, 0x0304].map(|v| options.allows(ProtocolVersion(v)));
        assert_eq!(allowed, [false, true, true, false]);
        let [options, ..] = parse("-min-version 771 -no-tls13").unwrap();
        let allowed = [0x0301, 0x0302, 0x0303, 0x0304].map(|v| options.allows(ProtocolVersion(v)));
        assert_eq!(allowed, [false, false, true, false]);
    }

    #[test]
    fn reads_protocols_in_wire_format() {
        let [options, ..] = parse("-advertise-alpn \u{3}foo\u{1}b").unwrap();
        assert_eq!(options.advertise_alpn, [b"foo".to_vec(), b"b".to_vec()]);
    }
}

//! The messages that may carry each extension: the table of RFC 8446 §4.2 and of the IANA registry, and the
//! extensions of a TLS 1.2 ServerHello.
//!
//! An extension without a row here is unknown, and readers skip it. Readers reject a known extension in the
//! wrong message, trailing bytes, and a body that does not parse, even if the engine does not use the
//! extension. The offer and the selection of an extension are different forms in its row.

#[cfg(feature = "association-ports")]
use super::association_port;
use super::{
    Context, Extension, alpn, cached_info, certificate_authorities, certificate_type, compress_certificate,
    connection_id, cookie, credential_status, did_methods, did_proof, early_data, ec_point_formats,
    extended_master_secret, handshake_cache, key_share, max_fragment_length, pre_shared_key,
    psk_key_exchange_modes, record_size_limit, renegotiation_info, rrc, server_name, session_ticket,
    signature_algorithms, ssi_parameters, status_request, supported_groups, supported_versions,
    tls_cert_with_extern_psk,
};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, Reader};
#[cfg(feature = "fuzzing")]
use alloc::vec::Vec;

type Check = fn(&[u8], Field) -> Result<(), Error>;

struct Row {
    typ: ExtensionType,
    forms: &'static [Form],
}

struct Form {
    contexts: &'static [Context],
    check: Check,
    /// Reads a body and writes it again.
    #[cfg(feature = "fuzzing")]
    rewrite: fn(&[u8]) -> Result<Vec<u8>, Error>,
}

/// A form that the engine reads.
const fn form<T: Extension>() -> Form {
    Form {
        contexts: T::IN,
        check: |body, what| Reader::all(body, what, |r| T::read(r)).map(drop),
        #[cfg(feature = "fuzzing")]
        rewrite: |body| {
            let mut w = crate::wire::Writer::new();
            Reader::all(body, Field::Extension(T::TYPE), |r| T::read(r))?.write(&mut w);
            Ok(w.finish()?)
        },
    }
}

/// A form that the engine knows but does not read: the reader only checks that the message may carry it.
const fn placed(contexts: &'static [Context]) -> Form {
    Form {
        contexts,
        check: |_, _| Ok(()),
        #[cfg(feature = "fuzzing")]
        rewrite: |body| Ok(body.to_vec()),
    }
}

use Context as C;
use ExtensionType as E;

const REGISTRY: &[Row] = &[
    Row {
        typ: E::SERVER_NAME,
        forms: &[form::<server_name::HostName>(), form::<server_name::Acknowledged>()],
    },
    Row { typ: E::MAX_FRAGMENT_LENGTH, forms: &[form::<max_fragment_length::MaxFragmentLength>()] },
    Row {
        typ: E::STATUS_REQUEST,
        forms: &[
            form::<status_request::StatusRequest>(),
            form::<status_request::Acknowledged>(),
            form::<status_request::CertificateStatus>(),
            placed(&[C::CertificateRequest]),
        ],
    },
    // Some TLS 1.2 servers send it in their ServerHello, where it has no meaning.
    Row {
        typ: E::SUPPORTED_GROUPS,
        forms: &[form::<supported_groups::SupportedGroups>(), placed(&[C::Tls12ServerHello])],
    },
    Row { typ: E::EC_POINT_FORMATS, forms: &[form::<ec_point_formats::EcPointFormats>()] },
    Row { typ: E::SIGNATURE_ALGORITHMS, forms: &[form::<signature_algorithms::SignatureAlgorithms>()] },
    Row {
        typ: E::USE_SRTP,
        forms: &[placed(&[C::ClientHello, C::EncryptedExtensions, C::Tls12ServerHello])],
    },
    Row {
        typ: E::HEARTBEAT,
        forms: &[placed(&[C::ClientHello, C::EncryptedExtensions, C::Tls12ServerHello])],
    },
    Row {
        typ: E::APPLICATION_LAYER_PROTOCOL_NEGOTIATION,
        forms: &[form::<alpn::Protocols>(), form::<alpn::Selected>()],
    },
    Row {
        typ: E::SIGNED_CERTIFICATE_TIMESTAMP,
        forms: &[placed(&[C::ClientHello, C::CertificateRequest, C::Certificate, C::Tls12ServerHello])],
    },
    Row {
        typ: E::CLIENT_CERTIFICATE_TYPE,
        forms: &[form::<certificate_type::ClientTypes>(), form::<certificate_type::ClientType>()],
    },
    Row {
        typ: E::SERVER_CERTIFICATE_TYPE,
        forms: &[form::<certificate_type::ServerTypes>(), form::<certificate_type::ServerType>()],
    },
    Row { typ: E::PADDING, forms: &[placed(&[C::ClientHello])] },
    Row { typ: E::EXTENDED_MASTER_SECRET, forms: &[form::<extended_master_secret::ExtendedMasterSecret>()] },
    Row { typ: E::CACHED_INFO, forms: &[form::<cached_info::Offer>(), form::<cached_info::Confirmed>()] },
    Row { typ: E::COMPRESS_CERTIFICATE, forms: &[form::<compress_certificate::CompressCertificate>()] },
    Row { typ: E::RECORD_SIZE_LIMIT, forms: &[form::<record_size_limit::RecordSizeLimit>()] },
    Row {
        typ: E::TLS_CERT_WITH_EXTERN_PSK,
        forms: &[form::<tls_cert_with_extern_psk::TlsCertWithExternPsk>()],
    },
    Row {
        typ: E::SESSION_TICKET,
        forms: &[form::<session_ticket::Ticket>(), form::<session_ticket::Promised>()],
    },
    Row {
        typ: E::PRE_SHARED_KEY,
        forms: &[form::<pre_shared_key::Offer>(), form::<pre_shared_key::Selected>()],
    },
    Row {
        typ: E::EARLY_DATA,
        forms: &[form::<early_data::EarlyData>(), form::<early_data::MaxEarlyDataSize>()],
    },
    Row {
        typ: E::SUPPORTED_VERSIONS,
        forms: &[form::<supported_versions::Offer>(), form::<supported_versions::Selected>()],
    },
    Row { typ: E::COOKIE, forms: &[form::<cookie::Cookie>()] },
    Row { typ: E::PSK_KEY_EXCHANGE_MODES, forms: &[form::<psk_key_exchange_modes::PskKeyExchangeModes>()] },
    Row {
        typ: E::CERTIFICATE_AUTHORITIES,
        forms: &[form::<certificate_authorities::CertificateAuthorities>()],
    },
    Row { typ: E::OID_FILTERS, forms: &[placed(&[C::CertificateRequest])] },
    Row { typ: E::POST_HANDSHAKE_AUTH, forms: &[placed(&[C::ClientHello])] },
    Row {
        typ: E::SIGNATURE_ALGORITHMS_CERT,
        forms: &[form::<signature_algorithms::SignatureAlgorithmsCert>()],
    },
    Row {
        typ: E::KEY_SHARE,
        forms: &[form::<key_share::Offer>(), form::<key_share::Selected>(), form::<key_share::Retry>()],
    },
    Row { typ: E::CONNECTION_ID, forms: &[form::<connection_id::ConnectionId>()] },
    // To all but the peers of [`crate::SsiMessages::Links`] it is IANA's extension of this number, of another
    // form.
    Row { typ: E::SSI_PARAMETERS_LINKS, forms: &[placed(&[C::ClientHello, C::SsiRequest])] },
    Row { typ: E::RRC, forms: &[form::<rrc::Rrc>()] },
    Row {
        typ: E::HANDSHAKE_CACHE,
        forms: &[form::<handshake_cache::Offer>(), form::<handshake_cache::Answer>()],
    },
    #[cfg(feature = "association-ports")]
    Row {
        typ: E::ASSOCIATION_PORT,
        forms: &[form::<association_port::Offer>(), form::<association_port::Answer>()],
    },
    Row { typ: E::DID_METHODS, forms: &[form::<did_methods::DidMethods>()] },
    Row { typ: E::SSI_PARAMETERS, forms: &[form::<ssi_parameters::SsiParameters>()] },
    Row { typ: E::DID_PROOF, forms: &[form::<did_proof::Registries>(), form::<did_proof::DidProof>()] },
    Row {
        typ: E::CREDENTIAL_STATUS,
        forms: &[form::<credential_status::Accepted>(), form::<credential_status::Lists>()],
    },
    Row { typ: E::RENEGOTIATION_INFO, forms: &[form::<renegotiation_info::RenegotiationInfo>()] },
];

/// Whether the extension has a row. Evaluated at compile time, so that a missing row is a build error.
pub(super) const fn has_row(typ: ExtensionType) -> bool {
    let mut i = 0;
    while i < REGISTRY.len() {
        #[allow(clippy::indexing_slicing, reason = "bounded by the loop, evaluated while compiling")]
        if REGISTRY[i].typ.0 == typ.0 {
            return true;
        }
        i += 1;
    }
    false
}

/// The numbers of the rows.
static TYPES: [ExtensionType; REGISTRY.len()] = {
    let mut types = [E::SERVER_NAME; REGISTRY.len()];
    let mut i = 0;
    while i < REGISTRY.len() {
        #[allow(clippy::indexing_slicing, reason = "bounded by the loop, evaluated while compiling")]
        {
            types[i] = REGISTRY[i].typ;
        }
        i += 1;
    }
    types
};

/// The forms that one kind of message may carry, one entry a row. The reader of a message names its rules as
/// a constant. A program therefore links no form of a message that it never receives.
pub(crate) struct Rules([Option<Check>; REGISTRY.len()]);

/// The rules for one kind of message.
#[allow(clippy::indexing_slicing, reason = "bounded by the loops, evaluated while compiling")]
pub(crate) const fn rules(context: Context) -> Rules {
    let mut checks: [Option<Check>; REGISTRY.len()] = [None; REGISTRY.len()];
    let mut i = 0;
    while i < REGISTRY.len() {
        let forms = REGISTRY[i].forms;
        let mut j = 0;
        while j < forms.len() {
            let mut k = 0;
            while k < forms[j].contexts.len() {
                if forms[j].contexts[k] as u8 == context as u8 {
                    checks[i] = Some(forms[j].check);
                }
                k += 1;
            }
            j += 1;
        }
        i += 1;
    }
    Rules(checks)
}

/// Checks that the message may carry the extension and that the body parses. An unknown extension passes.
pub(super) fn check(typ: ExtensionType, rules: &Rules, body: &[u8]) -> Result<(), Error> {
    match TYPES.iter().zip(&rules.0).find(|(t, _)| **t == typ) {
        None => Ok(()),
        Some((_, Some(check))) => check(body, Field::Extension(typ)),
        // RFC 8446 §4.2: a recognised extension that is not specified for the message is illegal_parameter.
        Some((_, None)) => Err(PeerMisbehaved::MisplacedExtension(typ).into()),
    }
}

/// Reads the body of an extension and writes it again; returns an unknown body unchanged.
#[cfg(feature = "fuzzing")]
pub(crate) fn rewrite(typ: ExtensionType, context: Context, body: &[u8]) -> Result<Vec<u8>, Error> {
    let forms = REGISTRY.iter().find(|row| row.typ == typ).map_or(&[][..], |row| row.forms);
    match forms.iter().find(|form| form.contexts.contains(&context)) {
        Some(form) => (form.rewrite)(body),
        None => Ok(body.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Malformed, Unit};
    use crate::extension::Extensions;
    use alloc::vec::Vec;

    const CONTEXTS: [Context; 9] = [
        C::ClientHello,
        C::ServerHello,
        C::Tls12ServerHello,
        C::HelloRetryRequest,
        C::EncryptedExtensions,
        C::CertificateRequest,
        C::SsiRequest,
        C::Certificate,
        C::NewSessionTicket,
    ];

    /// The column "TLS 1.3" of the IANA registry for every named extension, in the order CH, SH, HRR, EE, CR,
    /// CT, NST. "SR" is SSIRequest (docs/identity.md). "12" marks those that their RFC allows in a TLS 1.2
    /// ServerHello. The table is a second, independent copy of the registry's rules on purpose.
    const IANA: &[(u16, &str)] = &[
        (0, "CH EE 12"),
        (1, "CH EE 12"),
        (5, "CH CR CT 12"),
        (10, "CH EE 12"),
        (11, "CH 12"),
        (13, "CH CR SR"),
        (14, "CH EE 12"),
        (15, "CH EE 12"),
        (16, "CH EE 12"),
        (18, "CH CR CT 12"),
        (19, "CH EE 12"),
        (20, "CH EE 12"),
        (21, "CH"),
        (23, "CH 12"),
        // In TLS 1.3 since RFC 9846 §11.1: docs/handshake-cache.md §3.2.
        (25, "CH EE 12"),
        (27, "CH CR"),
        (28, "CH EE 12"),
        (33, "CH SH"),
        (35, "CH 12"),
        (41, "CH SH"),
        (42, "CH EE NST"),
        (43, "CH SH HRR"),
        (44, "CH HRR"),
        (45, "CH"),
        (47, "CH CR"),
        (48, "CR"),
        (49, "CH"),
        (50, "CH CR"),
        (51, "CH SH HRR"),
        (54, "CH SH 12"),
        // The number of the public implementation of ssi_parameters.
        (60, "CH SR"),
        (61, "CH SH 12"),
        // A number for private use, defined in docs/handshake-cache.md.
        (0xff20, "CH EE 12"),
        // A number for private use, defined in docs/association-ports.md.
        (0xff23, "CH EE 12"),
        (0xff01, "CH 12"),
        // draft-vesco-vcauthtls.
        (0xff02, "CH CR"),
        // Numbers for private use, defined in docs/identity.md.
        (0xff21, "CH SR"),
        (0xff22, "CH CR SR CT"),
        (0xff24, "CH CR SR CT"),
    ];

    fn short(context: Context) -> &'static str {
        match context {
            C::ClientHello => "CH",
            C::ServerHello => "SH",
            C::Tls12ServerHello => "12",
            C::HelloRetryRequest => "HRR",
            C::EncryptedExtensions => "EE",
            C::CertificateRequest => "CR",
            C::SsiRequest => "SR",
            C::Certificate => "CT",
            C::NewSessionTicket => "NST",
        }
    }

    #[test]
    fn accepts_each_extension_only_in_the_messages_of_the_iana_table() {
        assert_eq!(IANA.len(), ExtensionType::ALL.len(), "an extension without a line in this test");
        assert_eq!(REGISTRY.len(), ExtensionType::ALL.len(), "an extension without a row");
        for typ in ExtensionType::ALL {
            let (_, places) = IANA.iter().find(|(n, _)| *n == typ.0).expect("no line in this test");
            for context in CONTEXTS {
                let allowed = places.split(' ').any(|p| p == short(context));
                // No form that the engine reads accepts the body 0xff, so this tests the placement alone.
                let refused = matches!(
                    check(*typ, &rules(context), &[0xff]),
                    Err(Error::PeerMisbehaved(PeerMisbehaved::MisplacedExtension(_)))
                );
                assert_eq!(allowed, !refused, "{typ} in {context:?}");
            }
        }
    }

    #[test]
    fn has_at_most_one_form_for_each_message() {
        for row in REGISTRY {
            let all: Vec<Context> = row.forms.iter().flat_map(|f| f.contexts.iter().copied()).collect();
            for context in CONTEXTS {
                assert!(all.iter().filter(|c| **c == context).count() <= 1, "{} in {context:?}", row.typ);
            }
        }
    }

    fn one(typ: u16, body: &[u8]) -> Vec<u8> {
        let mut out = typ.to_be_bytes().to_vec();
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn rejects_trailing_bytes_truncated_bodies_and_duplicates() {
        // The smallest valid body of each form that the engine reads.
        let valid: &[(u16, Context, &[u8])] = &[
            (0, C::ClientHello, &[0, 4, 0, 0, 1, b'a']),
            (0, C::EncryptedExtensions, &[]),
            (0, C::Tls12ServerHello, &[]),
            (1, C::ClientHello, &[1]),
            (1, C::Tls12ServerHello, &[4]),
            (5, C::Tls12ServerHello, &[]),
            (11, C::ClientHello, &[1, 0]),
            (11, C::Tls12ServerHello, &[1, 0]),
            (16, C::Tls12ServerHello, &[0, 2, 1, b'h']),
            (19, C::Tls12ServerHello, &[2]),
            (23, C::ClientHello, &[]),
            (23, C::Tls12ServerHello, &[]),
            (28, C::Tls12ServerHello, &[0x40, 1]),
            (35, C::Tls12ServerHello, &[]),
            (0xff01, C::ClientHello, &[2, 8, 9]),
            (0xff01, C::Tls12ServerHello, &[2, 8, 9]),
            (10, C::ClientHello, &[0, 2, 0, 29]),
            (10, C::EncryptedExtensions, &[0, 2, 0, 29]),
            (13, C::ClientHello, &[0, 2, 4, 3]),
            (13, C::CertificateRequest, &[0, 2, 4, 3]),
            (16, C::ClientHello, &[0, 2, 1, b'h']),
            (16, C::EncryptedExtensions, &[0, 2, 1, b'h']),
            (19, C::ClientHello, &[1, 2]),
            (19, C::EncryptedExtensions, &[2]),
            (20, C::ClientHello, &[1, 2]),
            (20, C::EncryptedExtensions, &[2]),
            (25, C::ClientHello, &[0, 3, 1, 1, 9]),
            (25, C::EncryptedExtensions, &[0, 1, 1]),
            (25, C::Tls12ServerHello, &[0, 1, 1]),
            (27, C::ClientHello, &[2, 0, 1]),
            (27, C::CertificateRequest, &[2, 0, 1]),
            (28, C::ClientHello, &[0x40, 1]),
            (28, C::EncryptedExtensions, &[0x40, 1]),
            (33, C::ClientHello, &[]),
            (33, C::ServerHello, &[]),
            (41, C::ServerHello, &[0, 0]),
            (42, C::ClientHello, &[]),
            (42, C::EncryptedExtensions, &[]),
            (42, C::NewSessionTicket, &[0, 0, 0, 0]),
            (43, C::ClientHello, &[2, 3, 4]),
            (43, C::ServerHello, &[3, 4]),
            (43, C::HelloRetryRequest, &[3, 4]),
            (44, C::ClientHello, &[0, 1, 9]),
            (44, C::HelloRetryRequest, &[0, 1, 9]),
            (45, C::ClientHello, &[1, 1]),
            (47, C::ClientHello, &[0, 3, 0, 1, 9]),
            (47, C::CertificateRequest, &[0, 3, 0, 1, 9]),
            (50, C::ClientHello, &[0, 2, 4, 3]),
            (50, C::CertificateRequest, &[0, 2, 4, 3]),
            (0xff21, C::ClientHello, &[2, 1, 0xe0]),
            (0xff21, C::SsiRequest, &[1, 1, 0xe1]),
            (51, C::ClientHello, &[0, 5, 0, 29, 0, 1, 7]),
            (51, C::ServerHello, &[0, 29, 0, 1, 7]),
            (51, C::HelloRetryRequest, &[0, 29]),
        ];
        for (typ, context, body) in valid {
            let typ_name = ExtensionType(*typ);
            Extensions::parse(&one(*typ, body), &rules(*context))
                .unwrap_or_else(|e| panic!("{typ_name}: {e}"));
            let mut long = body.to_vec();
            long.push(0);
            let bytes = one(*typ, &long);
            let result = Extensions::parse(&bytes, &rules(*context));
            assert!(matches!(result, Err(Error::Malformed(_))), "{typ_name} in {context:?}: {result:?}");
            for cut in 0..body.len() {
                let bytes = one(*typ, &body[..cut]);
                let result = Extensions::parse(&bytes, &rules(*context));
                assert!(matches!(result, Err(Error::Malformed(_))), "{typ_name} cut at {cut}: {result:?}");
            }
            let twice = [one(*typ, body), one(*typ, body)].concat();
            assert_eq!(
                Extensions::parse(&twice, &rules(*context)).err(),
                Some(PeerMisbehaved::DuplicateExtension(typ_name).into())
            );
        }
    }

    #[test]
    fn accepts_unknown_extensions_once_and_up_to_the_limit() {
        let unknown = one(0x7a7a, &[1, 2, 3]);
        assert!(Extensions::parse(&unknown, &rules(C::ClientHello)).is_ok());
        assert_eq!(
            Extensions::parse(&[unknown.clone(), unknown].concat(), &rules(C::ClientHello)).err(),
            Some(PeerMisbehaved::DuplicateExtension(ExtensionType(0x7a7a)).into())
        );
        let count = |count| {
            let many: Vec<u8> = (0..count).flat_map(|i| one(0x7000 + i, &[])).collect();
            Extensions::parse(&many, &rules(C::ClientHello)).map(drop)
        };
        assert_eq!(count(256), Ok(()));
        let above = Malformed::AboveLimit { what: Field::ExtensionList, max: 256, unit: Unit::Entries };
        assert_eq!(count(257), Err(above.into()));
    }
}

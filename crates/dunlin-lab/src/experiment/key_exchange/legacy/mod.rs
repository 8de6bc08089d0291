//! The paper's obsolete mechanisms, for measurements only: static RSA, anonymous Diffie-Hellman, DSA, keys of
//! 512 and 1024 bits.
//!
//! The paper's suites use CBC; these use AES-GCM with the same key exchange. dunlin-legacy verifies no DSA
//! keys below 1024 bits, so the rows with 512 bits combine a finite field of 512 bits with DSA keys of 1024
//! bits, which send and compute more.

use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin::wire::{NamedGroup, SignatureScheme};
use dunlin_awslc::tls12;
use pki_types::PrivateKeyDer;

use super::suites::{Case, Certificates, Crypto, End, Keys, RSA, Suite};

/// Committed certificates and keys, because few tools still make such keys (README.md).
macro_rules! keys {
    ($kind:literal) => {
        (
            $kind,
            Keys {
                root: include_bytes!(concat!($kind, "-root.der")).as_slice().into(),
                client: keys!($kind, "client"),
                server: keys!($kind, "server"),
            },
        )
    };
    ($kind:literal, $side:literal) => {
        End {
            certificate: include_bytes!(concat!($kind, "-", $side, ".der")).as_slice().into(),
            key: PrivateKeyDer::Pkcs8(
                include_bytes!(concat!($kind, "-", $side, "-key.der")).as_slice().into(),
            ),
        }
    };
}

/// The keys that are not made anew.
pub(super) fn keys() -> [(&'static str, Keys); 4] {
    [keys!("rsa512"), keys!("rsa1024"), keys!("dsa1024"), keys!("dsa2048")]
}

/// The cryptography that accepts them.
pub(super) fn crypto() -> Crypto {
    let groups =
        vec![dunlin_legacy::lab::LAB_512, dunlin_legacy::lab::LAB_1024, dunlin_legacy::ffdhe::FFDHE2048];
    let provider = CryptoProvider { groups, ..dunlin_legacy::lab::provider() };
    Crypto { provider: Arc::new(provider), rsa: dunlin_legacy::lab::ENCRYPTION }
}

const LAB_512: NamedGroup = NamedGroup::FFDHE_PRIVATE_USE_0;
const LAB_1024: NamedGroup = NamedGroup::FFDHE_PRIVATE_USE_1;

const DSA: Certificates =
    Certificates { scheme: SignatureScheme::DSA_SHA256, openssl_scheme: "DSA+SHA256", ..RSA };

/// All cases, in the order of rows.
pub(super) fn cases() -> Vec<Case> {
    let sizes = [(512, LAB_512), (1024, LAB_1024), (2048, NamedGroup::FFDHE2048)];
    sizes.into_iter().zip(0..).flat_map(|((bits, group), column)| of_size(bits, group, column)).collect()
}

/// The cases with keys of this many bits, a column of the paper's Table I.
fn of_size(bits: u32, group: NamedGroup, column: usize) -> Vec<Case> {
    // OpenSSL accepts no finite field below 1024 bits at any security level.
    let openssl_with_field = |suite| (bits >= 1024).then_some(suite);
    let dh_anon = Case {
        mechanism: "dh_anon",
        suite: Suite::Tls12(&dunlin_legacy::lab::TLS12_DH_ANON_WITH_AES_128_GCM_SHA256),
        group: Some(group),
        key_bits: Some(bits),
        openssl: openssl_with_field("ADH-AES128-GCM-SHA256"),
        paper: Some([719.0, 911.0, 1295.0][column]),
        is_legacy: true,
        ..Case::BARE
    };
    let dhe_psk = Case {
        mechanism: "dhe_psk",
        suite: Suite::Tls12(&tls12::TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256),
        has_psk: true,
        openssl: openssl_with_field("DHE-PSK-AES128-GCM-SHA256"),
        paper: Some([791.0, 983.0, 1367.0][column]),
        ..dh_anon
    };
    let rsa = Case {
        mechanism: "rsa",
        suite: Suite::Tls12(&dunlin_legacy::lab::TLS12_RSA_WITH_AES_128_GCM_SHA256),
        group: None,
        certificates: Some(Certificates { keys: ["rsa512", "rsa1024", "rsa2048"][column], ..RSA }),
        openssl: Some("AES128-GCM-SHA256"),
        paper: Some([1242.0, 1439.0, 1861.0][column]),
        ..dh_anon
    };
    let rsa_psk = Case {
        mechanism: "rsa_psk",
        suite: Suite::Tls12(&dunlin_legacy::rsa::TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256),
        has_psk: true,
        openssl: Some("RSA-PSK-AES128-GCM-SHA256"),
        paper: None,
        ..rsa
    };
    let dhe_dss = Case {
        mechanism: "dhe_dss",
        suite: Suite::Tls12(&dunlin_legacy::lab::TLS12_DHE_DSS_WITH_AES_128_GCM_SHA256),
        certificates: Some(Certificates { keys: ["dsa1024", "dsa1024", "dsa2048"][column], ..DSA }),
        openssl: openssl_with_field("DHE-DSS-AES128-GCM-SHA256"),
        paper: Some([1558.0, 1950.0, 2821.0][column]),
        ..dh_anon
    };
    let rsa_mutual = Case { paper: Some([1994.0, 2388.0, 3298.0][column]), ..rsa.mutual() };
    let dhe_dss_mutual = Case { paper: Some([2417.0, 3009.0, 4260.0][column]), ..dhe_dss.mutual() };
    let all = [dh_anon, dhe_psk, rsa, rsa_mutual, rsa_psk, dhe_dss, dhe_dss_mutual];
    // Cases with 2048 bits are measured without the laboratory.
    let is_new = |case: &Case| bits < 2048 || !case.has_psk;
    all.into_iter().filter(is_new).collect()
}

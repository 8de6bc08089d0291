//! One test suite for every crypto provider.
//!
//! [`suite!`] turns every test function of the modules into a `#[test]` for the given provider. A new
//! provider needs a test file of a few lines, such as `tests/awslc.rs`.
//!
//! The expected answers come from the standard named at each vector, from OpenSSL (`fixtures/`, made by
//! `make.sh` there) and from Project Wycheproof.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules               what they contain
//! 2    wycheproof          | the vectors of Project Wycheproof, for all algorithms
//! 1    kem key p521 record_number | tests that need another algorithm's helpers
//! 0    aead fixture group hash random tables verify | tests of one algorithm; keys and random sources of all tests
//! ```
//! <!-- end of layers -->
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these functions are tests, but the macro adds #[test] elsewhere"
)]

pub mod aead;
pub mod fixture;
pub mod group;
pub mod hash;
pub mod kem;
pub mod key;
pub mod p521;
pub mod random;
pub mod record_number;
pub mod tables;
pub mod verify;
pub mod wycheproof;

/// Tests the provider that the expression makes. It must have every suite, group and key type.
#[macro_export]
macro_rules! suite {
    ($provider:expr) => {
        $crate::suite! {
            @module $provider, aead,
            ccm_answers_of_nist,
            chacha20_poly1305_answer_of_rfc_8439,
            gcm_answers_of_its_specification,
            opens_its_own_ciphertexts_at_every_length,
            refuses_every_damaged_byte,
            refuses_tags_of_other_lengths,
            refuses_the_wrong_key,
            refuses_keys_of_other_lengths,
        }
        $crate::suite! {
            @module $provider, group,
            ecdh_answers_of_rfc_5903,
            x25519_answers_of_rfc_7748,
            x25519_refuses_points_of_small_order,
            refuses_points_that_are_not_on_the_curve,
            refuses_other_forms_of_a_share,
            draws_again_when_a_key_is_out_of_range,
            both_sides_agree,
            fails_with_its_random_source,
        }
        $crate::suite! {
            @module $provider, hash,
            answers_of_fips_180_4,
            million_times_a,
            hmac_answers_of_rfc_4231,
            hkdf_answers_of_rfc_5869,
            hmac_pads_short_keys_and_hashes_long_ones,
            a_fork_is_independent_of_its_origin,
        }
        $crate::suite! {
            @module $provider, kem,
            both_sides_agree,
            the_parts_of_a_hybrid_are_in_order,
            refuses_other_lengths,
            refuses_keys_with_coefficients_out_of_range,
            a_damaged_ciphertext_gives_another_secret,
            a_hybrid_refuses_bad_points,
            a_hybrid_fails_with_its_random_source,
        }
        $crate::suite! {
            @module $provider, key,
            loads_every_form,
            loads_the_ed25519_keys_of_rfc_8410,
            refuses_unusable_keys,
            refuses_damaged_encodings,
            never_loads_an_inconsistent_key,
            signatures_verify_with_the_public_key,
            signs_with_its_own_schemes_only,
            shows_no_secret,
        }
        $crate::suite! {
            @module $provider, p521,
            answers_of_rfc_5903,
            refuses_bad_shares,
        }
        $crate::suite! {
            @module $provider, record_number,
            answers_of_rfc_9001,
            answers_of_fips_197,
            last_block_of_chacha20,
            refuses_keys_of_other_lengths,
        }
        $crate::suite! {
            @module $provider, tables,
            check_passes,
            schemes_bind_curve_to_hash,
            chain_algorithms,
            random_fills_the_whole_buffer,
        }
        $crate::suite! {
            @module $provider, verify,
            ed25519_answers_of_rfc_8032,
            ecdsa_answers_of_rfc_6979,
            rsa_signatures_of_openssl,
            rsa_pss_keys_of_openssl,
            refuses_another_salt_length,
            refuses_short_rsa_keys,
            refuses_every_damaged_byte,
            refuses_damaged_ml_dsa,
            refuses_signatures_outside_their_range,
        }
        $crate::suite! {
            @module $provider, wycheproof,
            aead,
            x25519,
            ecdh,
            ecdsa,
            ed25519,
            rsa,
            ml_dsa,
            ml_kem,
            hmac_and_hkdf,
        }
    };
    (@module $provider:expr, $module:ident, $($test:ident,)*) => {
        mod $module {
            #[allow(unused_imports, reason = "the provider's expression may need them")]
            use super::*;

            $(
                #[test]
                fn $test() {
                    $crate::$module::$test(&$provider);
                }
            )*
        }
    };
}

/// Decodes hexadecimal digits; white space is ignored.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "odd number of digits in {text}");
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
}

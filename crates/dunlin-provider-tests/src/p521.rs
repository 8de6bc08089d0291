//! P-521, whose order does not fill whole bytes.

use dunlin::crypto::CryptoProvider;
use dunlin::wire::NamedGroup;

use crate::random::{Reproducible, Script};
use crate::{group, hex};

const PUBLIC: &[u8] = include_bytes!("../fixtures/p521.spki.der");

/// The length of a coordinate, in bytes.
const LEN: usize = 66;

/// RFC 5903 §8.3. The RFC's shares lack the leading byte.
pub fn answers_of_rfc_5903(provider: &CryptoProvider) {
    group::both_sides(
        group::find(provider, NamedGroup::SECP521R1),
        [
            (
                "0037ADE9319A89F4DABDB3EF411AACCCA5123C61ACAB57B5393DCE47608172A0
                 95AA85A30FE1C2952C6771D937BA9777F5957B2639BAB072462F68C27A57382D
                 4A52",
                "04
                 0015417E84DBF28C0AD3C278713349DC7DF153C897A1891BD98BAB4357C9ECBE
                 E1E3BF42E00B8E380AEAE57C2D107564941885942AF5A7F4601723C4195D176C
                 ED3E
                 017CAE20B6641D2EEB695786D8C946146239D099E18E1D5A514C739D7CB4A10A
                 D8A788015AC405D7799DC75E7B7D5B6CF2261A6A7F1507438BF01BEB6CA3926F
                 9582",
            ),
            (
                "0145BA99A847AF43793FDD0E872E7CDFA16BE30FDC780F97BCCC3F078380201E
                 9C677D600B343757A3BDBF2A3163E4C2F869CCA7458AA4A4EFFC311F5CB15168
                 5EB9",
                "04
                 00D0B3975AC4B799F5BEA16D5E13E9AF971D5E9B984C9F39728B5E5739735A21
                 9B97C356436ADC6E95BB0352F6BE64A6C2912D4EF2D0433CED2B6171640012D9
                 460F
                 015C68226383956E3BD066E797B623C27CE0EAC2F551A10C2C724D9852077B87
                 220B6536C5C408A1D2AEBB8E86D678AE49CB57091F4732296579AB44FCD17F0F
                 C56A",
            ),
        ],
        "01144C7D79AE6956BC8EDB8E7C787C4521CB086FA64407F97894E5E6B2D79B04
         D1427E73CA4BAA240A34786859810C06B3C715A3A8CC3151F2BEE417996D19F3
         DDEA",
    );
}

/// Points off the curve, other encodings of a share, and private keys not below the order.
pub fn refuses_bad_shares(provider: &CryptoProvider) {
    let group = group::find(provider, NamedGroup::SECP521R1);
    let random = Reproducible::new(4);
    let good = group.start(&random).unwrap().share().to_vec();
    assert_eq!(good.len(), 1 + 2 * LEN);
    assert!(group.respond(&random, &good).is_ok());
    let compressed = [&[2 + (good[2 * LEN] & 1)][..], &good[1..=LEN]].concat();
    let longer = [&good[..], &[0]].concat();
    let mut bad = vec![compressed, longer, good[..2 * LEN].to_vec(), vec![0], vec![], PUBLIC.to_vec()];
    bad.extend((1..good.len()).map(|i| {
        let mut share = good.clone();
        share[i] ^= 1;
        share
    }));
    for share in bad {
        assert!(group.respond(&random, &share).is_err(), "{share:02x?}");
    }
    let order = hex("01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff
                     fa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409");
    let mut last = order.clone();
    last[LEN - 1] -= 1;
    let starts = |draw: &[u8]| group.start(&Script::new(&[draw])).is_ok();
    assert!(starts(&last) && !starts(&order) && !starts(&[0; LEN]) && !starts(&[0xff; LEN]));
}

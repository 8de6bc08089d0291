//! Key exchange.

use dunlin::crypto::{CryptoProvider, KeyExchangeGroup};
use dunlin::wire::NamedGroup;

use crate::hex;
use crate::random::{Broken, Reproducible, Script};

/// The provider's group `name`.
pub fn find(provider: &CryptoProvider, name: NamedGroup) -> &'static dyn KeyExchangeGroup {
    provider.group(name).unwrap_or_else(|| panic!("the provider has no {name}"))
}

/// Every group.
pub const ALL: [NamedGroup; 4] =
    [NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1, NamedGroup::SECP521R1];

/// The shared secret of the private key `private` and the peer's share `peer`.
fn agree(group: &dyn KeyExchangeGroup, private: &[u8], peer: &[u8]) -> Option<Vec<u8>> {
    let exchange = group.start(&Script::new(&[private])).unwrap();
    exchange.complete(peer).ok().map(|secret| secret.as_bytes().to_vec())
}

/// RFC 7748 §5.2 (whose second vector sets the unused bit of the coordinate) and §6.1.
pub fn x25519_answers_of_rfc_7748(provider: &CryptoProvider) {
    let group = find(provider, NamedGroup::X25519);
    for (private, peer, secret) in [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ] {
        assert_eq!(agree(group, &hex(private), &hex(peer)).unwrap(), hex(secret));
    }
    both_sides(
        group,
        [
            (
                "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
                "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            ),
            (
                "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
                "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            ),
        ],
        "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
    );
}

/// RFC 5903 §8.1 and §8.2. The RFC's shares lack the leading byte.
pub fn ecdh_answers_of_rfc_5903(provider: &CryptoProvider) {
    both_sides(
        find(provider, NamedGroup::SECP256R1),
        [
            (
                "C88F01F510D9AC3F70A292DAA2316DE544E9AAB8AFE84049C62A9C57862D1433",
                "04 DAD0B65394221CF9B051E1FECA5787D098DFE637FC90B9EF945D0C3772581180
                    5271A0461CDB8252D61F1C456FA3E59AB1F45B33ACCF5F58389E0577B8990BB3",
            ),
            (
                "C6EF9C5D78AE012A011164ACB397CE2088685D8F06BF9BE0B283AB46476BEE53",
                "04 D12DFB5289C8D4F81208B70270398C342296970A0BCCB74C736FC7554494BF63
                    56FBF3CA366CC23E8157854C13C58D6AAC23F046ADA30F8353E74F33039872AB",
            ),
        ],
        "D6840F6B42F6EDAFD13116E0E12565202FEF8E9ECE7DCE03812464D04B9442DE",
    );
    both_sides(
        find(provider, NamedGroup::SECP384R1),
        [
            (
                "099F3C7034D4A2C699884D73A375A67F7624EF7C6B3C0F160647B67414DCE655
                 E35B538041E649EE3FAEF896783AB194",
                "04 667842D7D180AC2CDE6F74F37551F55755C7645C20EF73E31634FE72B4C55EE6
                    DE3AC808ACB4BDB4C88732AEE95F41AA
                    9482ED1FC0EEB9CAFC4984625CCFC23F65032149E0E144ADA024181535A0F38E
                    EB9FCFF3C2C947DAE69B4C634573A81C",
            ),
            (
                "41CB0779B4BDB85D47846725FBEC3C9430FAB46CC8DC5060855CC9BDA0AA2942
                 E0308312916B8ED2960E4BD55A7448FC",
                "04 E558DBEF53EECDE3D3FCCFC1AEA08A89A987475D12FD950D83CFA41732BC509D
                    0D1AC43A0336DEF96FDA41D0774A3571
                    DCFBEC7AACF3196472169E838430367F66EEBE3C6E70C416DD5F0C68759DD1FF
                    F83FA40142209DFF5EAAD96DB9E6386C",
            ),
        ],
        "11187331C279962D93D604243FD592CB9D0A926F422E47187521287E7156C5C4
         D603135569B9E9D09CF5D4A270F59746",
    );
}

/// Checks that both sides, each a private key and a share, derive the same known secret.
pub(crate) fn both_sides(group: &dyn KeyExchangeGroup, sides: [(&str, &str); 2], secret: &str) {
    let [(private_a, share_a), (private_b, share_b)] =
        sides.map(|(private, share)| (hex(private), hex(share)));
    let a = group.start(&Script::new(&[&private_a])).unwrap();
    assert_eq!(a.share(), share_a);
    let (answer, secret_b) = group.respond(&Script::new(&[&private_b]), &share_a).unwrap();
    assert_eq!(answer, share_b);
    assert_eq!(secret_b.as_bytes(), hex(secret));
    assert_eq!(a.complete(&answer).unwrap().as_bytes(), hex(secret));
}

/// The points of order 1, 2, 4 and 8 of the curve and its twist, in all their encodings. With any private key
/// they give zero (RFC 7748 §6.1, RFC 8446 §7.4.2).
pub fn x25519_refuses_points_of_small_order(provider: &CryptoProvider) {
    let group = find(provider, NamedGroup::X25519);
    let private = Reproducible::new(3).bytes(32);
    for point in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ] {
        let mut point = hex(point);
        for _ in 0..2 {
            assert_eq!(agree(group, &private, &point), None, "{point:02x?}");
            // X25519 ignores the highest bit (RFC 7748 §5).
            point[31] ^= 0x80;
        }
    }
}

/// Uncompressed points with wrong coordinates (RFC 8446 §4.2.8.2).
pub fn refuses_points_that_are_not_on_the_curve(provider: &CryptoProvider) {
    for (name, len) in [(NamedGroup::SECP256R1, 32), (NamedGroup::SECP384R1, 48)] {
        let group = find(provider, name);
        let random = Reproducible::new(4);
        let private = random.bytes(len);
        let good = group.start(&random).unwrap().share().to_vec();
        assert!(agree(group, &private, &good).is_some());
        for i in 1..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1;
            assert_eq!(agree(group, &private, &bad), None, "{name}, byte {i}");
        }
        for fill in [0x00, 0xff] {
            let bad = [&[4][..], &vec![fill; 2 * len]].concat();
            assert_eq!(agree(group, &private, &bad), None, "{name}, all {fill:#04x}");
        }
    }
}

/// Compressed and hybrid points, the point at infinity, whole SubjectPublicKeyInfos, other lengths, other
/// groups.
pub fn refuses_other_forms_of_a_share(provider: &CryptoProvider) {
    for name in ALL {
        let group = find(provider, name);
        let random = Reproducible::new(5);
        let share = group.start(&random).unwrap().share().to_vec();
        let mut forms = vec![vec![], vec![0], vec![4], [&share[..], &[0]].concat(), share[1..].to_vec()];
        forms.push(share[..share.len() - 1].to_vec());
        forms.push(include_bytes!("../fixtures/x25519.spki.der").to_vec());
        forms.push(include_bytes!("../fixtures/p256.spki.der").to_vec());
        forms.push(include_bytes!("../fixtures/p384.spki.der").to_vec());
        if name != NamedGroup::X25519 {
            let parity = share[share.len() - 1] & 1;
            let x = &share[1..=share.len() / 2];
            forms.push([&[2 + parity][..], x].concat());
            forms.push([&[6 + parity][..], &share[1..]].concat());
            forms.push(vec![0; share.len()]);
        }
        for other in ALL.into_iter().filter(|other| *other != name) {
            forms.push(find(provider, other).start(&random).unwrap().share().to_vec());
        }
        for form in forms {
            assert!(group.respond(&random, &form).is_err(), "{name} took {form:02x?}");
        }
    }
}

/// A private key lies between 1 and the order minus 1. Other values are drawn again, a limited number of
/// times.
pub fn draws_again_when_a_key_is_out_of_range(provider: &CryptoProvider) {
    for (name, len, order) in [
        (NamedGroup::SECP256R1, 32, "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
        (
            NamedGroup::SECP384R1,
            48,
            "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        ),
    ] {
        let group = find(provider, name);
        let order = hex(order);
        let zero = vec![0; len];
        let top = vec![0xff; len];
        let mut last = order.clone();
        last[len - 1] -= 1;
        let share = |draws: &[&[u8]]| group.start(&Script::new(draws)).map(|e| e.share().to_vec()).ok();
        assert!(share(&[&last]).is_some());
        for refused in [&order, &zero, &top] {
            assert_eq!(share(&[refused]), None);
            assert_eq!(share(&[refused, &last]), share(&[&last]));
            assert_eq!(share(&[&refused.repeat(1000), &last]), None);
        }
    }
}

/// Equal randomness gives equal shares, different randomness different ones. Both sides derive the same
/// secret.
pub fn both_sides_agree(provider: &CryptoProvider) {
    for name in ALL {
        let group = find(provider, name);
        let share = |seed| group.start(&Reproducible::new(seed)).unwrap().share().to_vec();
        assert_eq!(share(6), share(6));
        assert_ne!(share(6), share(7));
        for seed in 0..20 {
            let initiator = group.start(&Reproducible::new(seed)).unwrap();
            let (answer, secret) = group.respond(&Reproducible::new(seed + 100), initiator.share()).unwrap();
            assert_eq!(initiator.complete(&answer).unwrap().as_bytes(), secret.as_bytes());
        }
    }
}

/// No key is made if the random source fails.
pub fn fails_with_its_random_source(provider: &CryptoProvider) {
    for name in ALL {
        let group = find(provider, name);
        let share = group.start(&Reproducible::new(8)).unwrap().share().to_vec();
        assert!(group.start(&Broken).is_err());
        assert!(group.respond(&Broken, &share).is_err());
    }
}

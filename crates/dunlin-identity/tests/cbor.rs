//! Deterministic CBOR: the examples of RFC 8949 §A, and every refusal with its position.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use dunlin_identity::encoding::cbor::{self, Cbor, CborError, CborFault, MAX_CBOR, MAX_CBOR_DEPTH};

/// The examples of RFC 8949 §A that are deterministic, with their diagnostic notation. Floats are written as
/// Rust does.
const DETERMINISTIC: [(&str, &str); 53] = [
    ("00", "0"),
    ("01", "1"),
    ("0a", "10"),
    ("17", "23"),
    ("1818", "24"),
    ("1819", "25"),
    ("1864", "100"),
    ("1903e8", "1000"),
    ("1a000f4240", "1000000"),
    ("1b000000e8d4a51000", "1000000000000"),
    ("1bffffffffffffffff", "18446744073709551615"),
    ("c249010000000000000000", "2(h'010000000000000000')"),
    ("3bffffffffffffffff", "-18446744073709551616"),
    ("c349010000000000000000", "3(h'010000000000000000')"),
    ("20", "-1"),
    ("29", "-10"),
    ("3863", "-100"),
    ("3903e7", "-1000"),
    ("f90000", "0.0"),
    ("f98000", "-0.0"),
    ("f93c00", "1.0"),
    ("fb3ff199999999999a", "1.1"),
    ("f93e00", "1.5"),
    ("f97bff", "65504.0"),
    ("fa47c35000", "100000.0"),
    ("fa7f7fffff", "3.4028234663852886e38"),
    ("fb7e37e43c8800759c", "1e300"),
    ("f90001", "5.960464477539063e-8"),
    ("f90400", "6.103515625e-5"),
    ("f9c400", "-4.0"),
    ("fbc010666666666666", "-4.1"),
    ("f4", "false"),
    ("f5", "true"),
    ("f6", "null"),
    ("c074323031332d30332d32315432303a30343a30305a", "0(\"2013-03-21T20:04:00Z\")"),
    ("c11a514b67b0", "1(1363896240)"),
    ("c1fb41d452d9ec200000", "1(1363896240.5)"),
    ("d74401020304", "23(h'01020304')"),
    ("d818456449455446", "24(h'6449455446')"),
    ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", "32(\"http://www.example.com\")"),
    ("40", "h''"),
    ("4401020304", "h'01020304'"),
    ("60", "\"\""),
    ("6161", "\"a\""),
    ("62225c", "\"\\\"\\\\\""),
    ("62c3bc", "\"ü\""),
    ("64f0908591", "\"𐅑\""),
    ("80", "[]"),
    ("8301820203820405", "[1, [2, 3], [4, 5]]"),
    ("a0", "{}"),
    ("a201020304", "{1: 2, 3: 4}"),
    ("a26161016162820203", "{\"a\": 1, \"b\": [2, 3]}"),
    ("826161a161626163", "[\"a\", {\"b\": \"c\"}]"),
];

fn bytes(hex: &str) -> Vec<u8> {
    base16ct::lower::decode_vec(hex).unwrap()
}

fn fault(hex: &str) -> (CborFault, usize) {
    let CborError { fault, at } = cbor::read(&bytes(hex)).unwrap_err();
    (fault, at)
}

#[test]
fn the_examples_of_the_rfc_are_read_and_written() {
    for (hex, text) in DETERMINISTIC {
        let item = cbor::read(&bytes(hex)).unwrap();
        assert_eq!(item.to_string(), text);
        assert_eq!(cbor::write(&item), bytes(hex), "{text}");
    }
}

#[test]
fn refuses_everything_that_has_another_form() {
    // RFC 8949 §A: no length.
    for hex in ["5f42010243030405ff", "7f657374726561646d696e67ff", "9fff", "bf61610161629f0203ffff"] {
        assert_eq!(fault(hex), (CborFault::Indefinite, 0), "{hex}");
    }
    assert_eq!(fault("83018202039f0405ff"), (CborFault::Indefinite, 5));
    assert_eq!(fault("ff"), (CborFault::Indefinite, 0));
    for hex in ["1800", "1817", "190017", "1900ff", "1a0000ffff", "1b00000000ffffffff", "3817", "5801ff"] {
        assert_eq!(fault(hex), (CborFault::NotShortest, 0), "{hex}");
    }
    for hex in ["7801", "9800", "b800", "d817f6"] {
        assert_eq!(fault(&format!("81{hex}61")), (CborFault::NotShortest, 1), "{hex}");
    }
    for hex in ["fa3fc00000", "fb3ff0000000000000", "fb40f86a0000000000", "fa00000000", "fb8000000000000000"]
    {
        assert_eq!(fault(hex), (CborFault::NotShortest, 0), "{hex}");
    }
    assert_eq!(fault("a203040102"), (CborFault::Order, 3));
    // A shorter encoding comes first: 10, then "a", then 100 as two bytes would be out of order.
    assert_eq!(fault("a2616100186400"), (CborFault::Order, 4));
    assert_eq!(fault("a201020103"), (CborFault::Duplicate, 3));
    assert_eq!(fault("0000"), (CborFault::Trailing, 1));
}

#[test]
fn refuses_what_json_does_not_have() {
    for hex in ["f97c00", "f97e00", "f9fc00", "fa7f800000", "fb7ff8000000000000"] {
        assert_eq!(fault(hex), (CborFault::NotFinite, 0), "{hex}");
    }
    for hex in ["f7", "f0", "f818", "f8ff"] {
        assert_eq!(fault(hex), (CborFault::Simple, 0), "{hex}");
    }
    assert_eq!(fault("61ff"), (CborFault::Utf8, 0));
    assert_eq!(fault("8163efbfbf"), (CborFault::Noncharacter, 1));
    for hex in ["1c", "5d", "9e"] {
        assert_eq!(fault(hex), (CborFault::Reserved, 0), "{hex}");
    }
}

#[test]
fn a_length_costs_no_memory_before_its_content() {
    for hex in ["5bffffffffffffffff", "7b7fffffffffffffff", "5a7fffffff00", "19", "1bffffff", ""] {
        assert_eq!(fault(hex).0, CborFault::Truncated, "{hex}");
    }
    for hex in ["9bffffffffffffffff00", "bbffffffffffffffff0000", "9affffffff80"] {
        assert_eq!(fault(hex).0, CborFault::Truncated, "{hex}");
    }
    let long = cbor::write(&Cbor::Bytes(vec![0; MAX_CBOR]));
    assert_eq!(cbor::read(&long), Err(CborError { fault: CborFault::TooLong(MAX_CBOR), at: 0 }));
}

#[test]
fn bounds_the_depth() {
    for (opening, innermost) in [("81", "80"), ("a100", "a0"), ("c1", "00")] {
        let nested = |depth: usize| bytes(&(opening.repeat(depth) + innermost));
        // The innermost tag has content that is not nested.
        let most = if opening == "c1" { MAX_CBOR_DEPTH } else { MAX_CBOR_DEPTH - 1 };
        assert!(cbor::read(&nested(most)).is_ok());
        assert_eq!(cbor::read(&nested(most + 1)).unwrap_err().fault, CborFault::TooDeep);
        assert_eq!(cbor::read(&nested(5000)).unwrap_err().fault, CborFault::TooDeep);
    }
}

#[test]
fn an_error_is_one_line_with_the_position() {
    let error = cbor::read(&bytes("820018ff00")).unwrap_err();
    assert_eq!(error.to_string(), "byte 4: data follows the CBOR item");
}

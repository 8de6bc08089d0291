//! The strict JSON reader, and the canonical form against the vectors of RFC 8785.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use dunlin_identity::encoding::json::{
    JsonError, JsonFault, MAX_JSON, MAX_JSON_DEPTH, Value, canonical, read,
};

fn refused(text: &str) -> (JsonFault, usize, usize) {
    let JsonError { fault, line, column } = read(text.as_bytes()).unwrap_err();
    (fault, line, column)
}

#[test]
fn writes_the_canonical_form_of_the_published_vectors() {
    let vectors = [
        (include_str!("data/jcs/arrays.json"), include_str!("data/jcs/arrays.canonical.json")),
        (include_str!("data/jcs/french.json"), include_str!("data/jcs/french.canonical.json")),
        (include_str!("data/jcs/structures.json"), include_str!("data/jcs/structures.canonical.json")),
        (include_str!("data/jcs/unicode.json"), include_str!("data/jcs/unicode.canonical.json")),
        (include_str!("data/jcs/values.json"), include_str!("data/jcs/values.canonical.json")),
        (include_str!("data/jcs/weird.json"), include_str!("data/jcs/weird.canonical.json")),
    ];
    for (input, expected) in vectors {
        let value = read(input.as_bytes()).unwrap();
        assert_eq!(canonical(&value).unwrap(), expected.trim_end_matches('\n'));
        assert_eq!(canonical(&value).unwrap(), serde_json_canonicalizer::to_string(&value).unwrap());
    }
}

/// RFC 8785, appendix B.
#[test]
fn formats_numbers_as_the_rfc_lists_them() {
    let samples = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in samples {
        let value = serde_json::Number::from_f64(f64::from_bits(bits)).map(Value::Number).unwrap();
        assert_eq!(canonical(&value).unwrap(), expected);
    }
}

#[test]
fn reads_a_number_as_the_nearest_double() {
    for text in
        ["9007199254740991", "-9007199254740991", "-0", "1e300", "0.1", "1.7976931348623157e308", "5e-324"]
    {
        let value = read(text.as_bytes()).unwrap();
        assert_eq!(value.as_f64().unwrap().to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
    }
}

#[test]
fn refuses_numbers_outside_i_json_with_their_position() {
    assert_eq!(refused("[1,\n 9007199254740992]"), (JsonFault::Number, 2, 2));
    assert_eq!(refused("-9007199254740992"), (JsonFault::Number, 1, 1));
    assert_eq!(refused(&format!("{{\"\\\"7\": {}}}", "9".repeat(400))).0, JsonFault::Number);
    assert_eq!(refused(r#"{"a\\": 100000000000000000000}"#), (JsonFault::Number, 1, 9));
    assert_eq!(refused("[1e400]").0, JsonFault::Number);
    // Their canonical form would be an integer that is refused.
    for text in ["1e16", "9007199254740992.0", "-9007199254740992e0", "999999999999999900000e0", "1e20"] {
        assert_eq!(refused(text).0, JsonFault::Number, "{text}");
    }
    assert_eq!(canonical(&Value::from(1_u64 << 53)), Err(JsonFault::Number));
    assert_eq!(canonical(&Value::from(-(1_i64 << 53))), Err(JsonFault::Number));
}

#[test]
fn the_canonical_form_can_be_read_again() {
    for exponent in -30..=40 {
        for number in ["1", "-1", "9.007199254740991", "9.007199254740992", "1.5", "123456789.25"] {
            let text = format!("{{\"a\":[{number}e{exponent}]}}");
            let Ok(value) = read(text.as_bytes()) else { continue };
            let form = canonical(&value).unwrap();
            assert_eq!(canonical(&read(form.as_bytes()).unwrap()).unwrap(), form, "{text}");
        }
    }
    assert!(read(b"1e15").is_ok() && read(b"1e21").is_ok() && read(b"-0.5").is_ok());
}

#[test]
fn accepts_digits_in_strings() {
    assert!(read(br#"["99999999999999999999", "\"99999999999999999999"]"#).is_ok());
}

#[test]
fn refuses_duplicate_members_even_if_escaped() {
    assert_eq!(refused("{\"a\": 1,\n\"\\u0061\": 2}"), (JsonFault::Duplicate("a".into()), 2, 8));
    assert_eq!(refused(r#"[{"b": {"a": 1, "a": 1}}]"#).0, JsonFault::Duplicate("a".into()));
    assert!(read(br#"{"a": {"a": 1}, "b": {"a": 1}}"#).is_ok());
}

#[test]
fn bounds_the_nesting() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deepest = read(nested(MAX_JSON_DEPTH).as_bytes()).unwrap();
    assert_eq!(canonical(&deepest).unwrap(), nested(MAX_JSON_DEPTH));
    assert_eq!(refused(&nested(MAX_JSON_DEPTH + 1)).0, JsonFault::TooDeep);
    assert_eq!(refused(&r#"{"a":"#.repeat(MAX_JSON_DEPTH + 1)).0, JsonFault::TooDeep);
    assert_eq!(refused(&"[".repeat(MAX_JSON)).0, JsonFault::TooDeep);
    assert_eq!(canonical(&Value::Array(vec![deepest])), Err(JsonFault::TooDeep));
}

#[test]
fn bounds_the_length() {
    let padded = |length: usize| format!("{:>length$}", "{}");
    assert!(read(padded(MAX_JSON).as_bytes()).is_ok());
    assert_eq!(refused(&padded(MAX_JSON + 1)), (JsonFault::TooLong(MAX_JSON), 1, 0));
}

#[test]
fn refuses_data_after_the_value() {
    assert_eq!(refused("{} {}"), (JsonFault::Trailing, 1, 4));
    assert_eq!(refused("1\0").0, JsonFault::Trailing);
    assert!(read(b" {}\n").is_ok());
}

#[test]
fn refuses_text_that_is_not_json_or_not_unicode() {
    for text in
        ["", "{", "{'a': 1}", "[1,]", "{\"a\": 1,}", "01", "NaN", "+1", "// a\n1", "\u{feff}{}", "\"\t\""]
    {
        assert!(matches!(refused(text).0, JsonFault::Syntax(_) | JsonFault::Trailing), "{text:?}");
    }
    assert!(matches!(refused(r#""\ud800""#).0, JsonFault::Syntax(_)));
    assert!(matches!(read(b"\"\xff\"").unwrap_err().fault, JsonFault::Syntax(_)));
    assert_eq!(refused(r#"{"\ufffe": 1}"#).0, JsonFault::Noncharacter);
    assert_eq!(refused(r#"["\ufdd0"]"#).0, JsonFault::Noncharacter);
}

#[test]
fn says_where_and_why_in_one_line() {
    let error = read(b"{\"a\": 1,\n \"a\": 2}").unwrap_err().to_string();
    assert_eq!(error, "line 2, column 4: the object has two members \"a\"");
}

//! Files with keys, certificates and CRLs as editors, mail programs and other tools write them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use dunlin_pki::{
    Authority, CaSpec, CrlSpec, Error, Item, KeyPair, KeyType, Subject, Tree, TreeSpec, Unread, Validity,
    certificates_to_pem, parse, parse_anchors, parse_for, revocation_list_to_pem,
};

/// A chain of two certificates, and the key of the first.
fn files() -> (String, String) {
    let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 30).unwrap()).unwrap();
    let chain = certificates_to_pem(&tree.server.chain).unwrap();
    assert_eq!(chain.matches("BEGIN").count(), 2);
    (chain, tree.server.key.to_pem().unwrap().to_string())
}

fn kinds(file: impl AsRef<[u8]>) -> Result<String, Error> {
    let kind = |item: &Item| match item {
        Item::Certificate(_) => 'c',
        Item::PrivateKey(_) => 'k',
        Item::PublicKey(_) => 'p',
        Item::RevocationList(_) => 'r',
    };
    parse(file.as_ref()).map(|items| items.iter().map(kind).collect())
}

#[test]
fn editors_and_mail_programs_change_nothing() {
    let (chain, key) = files();
    let both = format!("{key}{chain}");
    for (file, what) in [
        (both.clone(), "as written"),
        (format!("\u{feff}{both}"), "a byte order mark at the start"),
        (both.replace("-----BEGIN", "\u{feff}-----BEGIN"), "a byte order mark before each section"),
        (both.replace('\n', "\r\n"), "lines of other systems"),
        (both.replace('\n', " \t\n"), "blanks after each line"),
        (both.replace(" CERTIFICATE", " X509 CERTIFICATE"), "the label of an older tool"),
        (format!("Subject: ENCRYPTED\n{both}\nnotes"), "text around the sections"),
        (
            format!("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{both}"),
            "parameters",
        ),
        (
            both.replacen(
                "-----BEGIN C",
                "-----BEGIN DH PARAMETERS-----\nAA==\n-----END DH PARAMETERS-----\n-----BEGIN C",
                1,
            ),
            "parameters between",
        ),
        (both.trim_end().into(), "no end of the last line"),
        (both.replace('\n', "\r"), "lines of old systems"),
    ] {
        assert_eq!(kinds(file), Ok("kcc".into()), "{what}");
    }
}

#[test]
fn names_what_is_no_pem() {
    let (chain, _) = files();
    let utf16: Vec<u8> = chain.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe][..], &utf16].concat();
    for (file, error) in [
        (vec![], Error::Empty { labels: vec![] }),
        (b" \r\n".to_vec(), Error::Empty { labels: vec![] }),
        (b"\0\0\0".to_vec(), Error::UnknownFormat),
        (utf16, Error::Utf16),
        (marked, Error::Utf16),
    ] {
        assert_eq!(kinds(file), Err(error));
    }
    let lower = chain.replace("BEGIN CERTIFICATE", "BEGIN certificate");
    assert!(kinds(lower.to_ascii_lowercase()).unwrap_err().to_string().contains("line 1: this is no whole"));
    assert!(kinds(lower).unwrap_err().to_string().contains("line 1: this is no whole"));
    let labels = vec!["CERTIFICATE".to_owned(); 2];
    let keys = parse_for(chain.as_bytes(), "private key", |item| match item {
        Item::PrivateKey(key) => Some(key),
        _ => None,
    });
    assert_eq!(keys.map(|_| ()), Err(Error::Missing { wanted: "private key", labels }));
}

/// A CRL or a root in a skipped section would let in the peers that it refuses.
#[test]
fn what_could_count_is_never_skipped_in_silence() {
    let (chain, _) = files();
    let relabelled = |label: &str| {
        let second = chain.rfind("-----BEGIN").unwrap();
        let (first, second) = chain.split_at(second);
        (format!("{first}{}", second.replace("CERTIFICATE", label)), first.lines().count() + 1)
    };
    for (label, why, mends) in [
        ("TRUSTED CERTIFICATE", Unread::Trusted, "openssl x509"),
        ("CRL", Unread::Label("X509 CRL"), "-----BEGIN X509 CRL-----"),
        ("PKCS7", Unread::Envelope, "openssl pkcs7"),
        ("CERT", Unread::Label("CERTIFICATE"), "-----BEGIN CERTIFICATE-----"),
        ("X509", Unread::Label("CERTIFICATE"), "-----BEGIN CERTIFICATE-----"),
        ("X509 REVOCATION LIST", Unread::Label("X509 CRL"), "-----BEGIN X509 CRL-----"),
        ("PRIVATE", Unread::Label("PRIVATE KEY"), "-----BEGIN PRIVATE KEY-----"),
        ("PKCS12", Unread::Pkcs12, "openssl pkcs12"),
        ("PKCS #12", Unread::Pkcs12, "openssl pkcs12"),
        ("OPENSSH PRIVATE KEY", Unread::Kind, "remove"),
        ("OPENSSL TRUSTED CERT", Unread::Kind, "remove"),
        ("ROOTS", Unread::Kind, "remove"),
    ] {
        let (file, line) = relabelled(label);
        let error = kinds(file).unwrap_err();
        assert_eq!(error, Error::Unread { line, label: label.into(), why });
        assert!(
            error.to_string().contains(label) && error.advice().contains(mends),
            "{error}: {}",
            error.advice()
        );
    }
    let indented: String = chain.lines().map(|line| format!("    {line}\n")).collect();
    let error = kinds(format!("root:\n{indented}")).unwrap_err();
    assert_eq!(error, Error::Unread { line: 2, label: "CERTIFICATE".into(), why: Unread::NotAtStart });
}

/// Also if other programs would not see a section.
#[test]
fn what_looks_like_a_section_is_never_skipped_in_silence() {
    let (chain, _) = files();
    let second = chain.rfind("-----BEGIN").unwrap();
    let (first, rest) = chain.split_at(second);
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----";
    for changed in [
        format!("{first}{parameters}{rest}"),
        format!("{first}# root: {rest}"),
        format!("{first}> {}", rest.replace('\n', "\n> ")),
        format!("{first}\u{feff}\u{feff}{rest}"),
        format!("{first}\u{a0}{rest}"),
        format!("{first}{}", rest.replacen("BEGIN ", "BEGIN\t", 1)),
        format!("{first}{}", rest.replacen("-----BEGIN", "----BEGIN", 1)),
        format!("{first}{}", rest.replacen("BEGIN CERTIFICATE", "Begin Certificate", 1)),
        format!("{first}{}", rest.replacen("CERTIFICATE", "Certificate", 2)),
        format!("{first}{}", rest.replace("CERTIFICATE", "PKCS #7")),
    ] {
        let error = kinds(&changed).unwrap_err();
        let line = first.lines().count() + if changed.contains("PARAMETERS") { 3 } else { 1 };
        assert!(error.to_string().contains(&format!("line {line}")), "{error}\n{changed}");
    }
}

/// A line that is almost the first or last one of a section, in the spelling of editors and web pages.
#[test]
fn names_the_line_that_mends_a_section() {
    let (chain, _) = files();
    let second = chain.rfind("-----BEGIN").unwrap();
    let (first, rest) = chain.split_at(second);
    let list = rest.replace("CERTIFICATE", "X509 CRL");
    let begins = "write -----BEGIN X509 CRL-----";
    for (rest, says) in [
        (list.replace("-----BEGIN", "----- BEGIN"), begins),
        (list.replace("-----BEGIN", "- - - - -BEGIN"), begins),
        (list.replace("-----", "\u{2014}\u{2013}"), begins),
        (list.replace("-----", "\u{2014}"), begins),
        (list.replace("-----", "\u{2010}\u{200b}\u{2010}"), begins),
        (list.replace("BEGIN X509 CRL", "begin x509 crl"), begins),
        (list.replace("-----BEGIN X509 CRL-----", "--BEGIN X509 CRL"), begins),
        (list.replacen("-----BEGIN X509 CRL-----\n", "", 1), begins),
        (list.replacen("BEGIN", "BEGN", 1), begins),
        (list.replace("X509 CRL-----", "X509 CRL -----"), begins),
        (list.replace("X509 CRL-----", " X509  CRL-----"), begins),
        ("-----END X509 CRL-----\n".into(), begins),
        ("----- END X509 CRL-----\n".into(), "write -----END X509 CRL-----"),
        (
            list.lines().skip(1).take(2).map(|line| format!("{line}\n")).collect(),
            "-----BEGIN CERTIFICATE-----",
        ),
        (list.lines().skip(1).take(1).map(|line| format!("    {line}\n")).collect(), "-----BEGIN"),
        (list.lines().skip(1).take(1).map(|line| format!("> \"{line}\"\n")).collect(), "-----BEGIN"),
        (format!("{}\n{first}", rest.lines().nth(1).unwrap()), "-----BEGIN"),
    ] {
        for file in [format!("{first}{rest}"), format!("{rest}{first}")] {
            let error = kinds(&file).unwrap_err();
            assert!(error.advice().contains(says), "{error}: {}\n{file}", error.advice());
        }
    }
    for dashes in ["\u{2014}", "--", "----- "] {
        let error = kinds(list.replace("-----", dashes)).unwrap_err();
        assert!(error.advice().contains(begins), "{error}");
    }
    let latin: Vec<u8> =
        list.replace("-----", "@").bytes().map(|b| if b == b'@' { 0x97 } else { b }).collect();
    let error = kinds([first.as_bytes(), &latin].concat()).unwrap_err();
    assert!(error.advice().contains(begins), "{error}");
}

/// As `openssl x509 -text`, certtool and lists of roots have it.
#[test]
fn text_between_sections_is_free() {
    let (chain, _) = files();
    let digest = "3f9c".repeat(16);
    for text in [
        "Certificate:\n    Data:\n        Version: 3 (0x2)\n        Subject Public Key Info:",
        "                pub:\n                    04:61:9d:ab:c9:1d:5d:4b:b0:24:09:00:56:b9:76:74:39:15:45",
        "GlobalSign Root CA\n==================",
        "#\n# ---- Begin of the list ----\n#",
        "--- end of certificates ---",
        "Public key pin:\n    pin-sha256:n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFBDwCgg=",
        "Donaudampfschifffahrtsgesellschaftskapitaenswitwe",
        "////////////////////////////////////////////////////////////////////",
        "see https://example.org/roots/2026-11/index.html#The-Root-of-Dunlin-and-its-Neighbours-2026",
        &digest,
        &digest.to_uppercase(),
    ] {
        assert_eq!(kinds(format!("{text}\n{chain}\n{text}\n")), Ok("cc".into()), "{text}");
        assert_eq!(
            kinds(chain.replacen("\n-----BEGIN", &format!("\n{text}\n-----BEGIN"), 1)),
            Ok("cc".into())
        );
    }
}

/// A client that the CRL revokes would get in.
#[test]
fn a_list_beside_anchors_must_count() {
    let subject = Subject::common_name("root").unwrap();
    let key = KeyPair::generate(KeyType::P256).unwrap();
    let validity = Validity::from_now_days(30).unwrap();
    let root = Authority::root(&CaSpec::new(subject, validity), key).unwrap();
    let list = CrlSpec { previous: None, revoke: vec![], reason: None, validity };
    let list = revocation_list_to_pem(&root.revocation_list(&list).unwrap()).unwrap();
    let certificate = certificates_to_pem(std::slice::from_ref(root.certificate())).unwrap();
    assert_eq!(parse_anchors(certificate.as_bytes(), false).unwrap().len(), 1);
    let both = format!("{certificate}{list}");
    assert_eq!(parse_anchors(both.as_bytes(), true).unwrap().len(), 1);
    let error = parse_anchors(both.as_bytes(), false).unwrap_err();
    assert_eq!(error, Error::ListBesideAnchors);
    assert!(error.advice().contains("--CRL"));
}

/// A key in a variable or a YAML file loses its newlines easily. No message shows it.
#[test]
fn a_key_on_one_line_is_in_no_message() {
    let (_, key) = files();
    let secret = key.lines().nth(1).unwrap();
    for newline in [" ", "", "\\n", "\t"] {
        let error = kinds(key.replace('\n', newline)).unwrap_err();
        for text in [error.to_string(), error.advice(), format!("{error:?}")] {
            assert!(!text.contains(&secret[..8]) && text.len() < 200, "{text}");
        }
    }
}

#[test]
fn encrypted_counts_in_a_label_or_in_a_header_of_a_section() {
    let (chain, key) = files();
    let body = "AAAA\n-----END";
    for file in [
        format!("{chain}-----BEGIN ENCRYPTED PRIVATE KEY-----\n{body} ENCRYPTED PRIVATE KEY-----\n"),
        format!(
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{body} RSA PRIVATE KEY-----\n"
        ),
        format!("-----BEGIN RSA PRIVATE KEY-----\nproc-type : 4,ENCRYPTED\n\n{body} RSA PRIVATE KEY-----\n"),
    ] {
        assert_eq!(kinds(file), Err(Error::EncryptedKey));
    }
    assert_eq!(kinds(format!("The key is not ENCRYPTED.\nProc-Type: 4,ENCRYPTED\n{key}")), Ok("k".into()));
}

#[test]
fn damaged_sections_are_refused() {
    let (chain, _) = files();
    for (file, says) in [
        (chain.replacen("-----END CERTIFICATE-----\n", "", 1), "-----END CERTIFICATE----- is missing"),
        (
            chain.trim_end().strip_suffix("-----END CERTIFICATE-----").unwrap().into(),
            "-----END CERTIFICATE----- is missing",
        ),
        (
            chain.replacen("-----END CERTIFICATE", "-----END X509 CRL", 1),
            "-----END CERTIFICATE----- is missing",
        ),
        (chain.replacen("-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE", 1), "line 1"),
        (chain.replacen("\nMII", "\nM!I", 1), "not base64"),
    ] {
        match kinds(file) {
            Err(error @ (Error::MalformedPem(_) | Error::Unread { .. })) => {
                assert!(error.to_string().contains(says), "{error}");
            }
            other => panic!("{says}: {other:?}"),
        }
    }
}

/// The base64 of these bytes, on one line.
fn base64(bytes: &[u8]) -> String {
    let pem = certificates_to_pem(&[bytes.to_vec().into()]).unwrap();
    pem.lines().filter(|line| !line.starts_with('-')).collect()
}

#[test]
fn other_files_are_named() {
    let (chain, _) = files();
    let utf16: Vec<u8> =
        "\u{feff}".encode_utf16().chain(chain.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(kinds(utf16), Err(Error::Utf16));
    // The beginning of a PFX (RFC 7292 §4), with the forms of length that OpenSSL and others write.
    for start in [&[0x30, 0x82, 0x0a, 0x00][..], &[0x30, 0x80], &[0x30, 0x20]] {
        assert_eq!(kinds([start, &[0x02, 0x01, 0x03, 0x30, 0x00]].concat()), Err(Error::Pkcs12));
    }
    let body: Vec<u8> = (0..80).collect();
    let pfx =
        base64(&[&[0x30, 0x82, 0x0a, 0x00, 0x02, 0x01, 0x03, 0x30, 0x82, 0x09, 0xc6][..], &body].concat());
    let error = kinds(pfx).unwrap_err();
    assert_eq!(error, Error::Unread { line: 1, label: "base64".into(), why: Unread::Pkcs12 });
    let error = kinds(base64(&body) + "\n").unwrap_err();
    assert!(matches!(error, Error::Unread { line: 1, why: Unread::Base64, .. }), "{error:?}");
    // RFC 2315 §14 and RFC 5958 §3, the latter with PBES2.
    for start in [&[0x30, 0x82, 0x0a, 0x00][..], &[0x30, 0x80], &[0x30, 0x20]] {
        let signed = [start, b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02\xa0\x00"].concat();
        assert_eq!(kinds(signed), Err(Error::Pkcs7));
    }
    let encrypted = b"\x30\x12\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d\x30\x00\x04\x01\x00";
    assert_eq!(kinds(encrypted), Err(Error::EncryptedKey));
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let error = kinds(parameters).unwrap_err();
    assert_eq!(error.to_string(), "no certificate, key or CRL in it, only EC PARAMETERS");
    assert_eq!(kinds("no PEM"), Err(Error::UnknownFormat));
}

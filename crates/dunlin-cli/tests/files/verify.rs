//! `dunlin pki verify` gives the verdict of a handshake, whatever certificates and CRLs OpenSSL makes.

use dunlin_tests::place::Place;

const P256: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";

/// A root of OpenSSL and the certificates that it issues.
struct Root(Place);

impl Root {
    fn new(key: &str) -> Self {
        let place = Place::new();
        place.tool("openssl", &format!("genpkey {key} -out root.key"));
        place.write("root.ext", "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n");
        place.tool("openssl", "req -new -key root.key -subj /CN=Root -out root.csr");
        place.tool("openssl", "x509 -req -in root.csr -key root.key -days 9 -extfile root.ext -out root.pem");
        place.write("index", "");
        place.write("number", "07\n");
        place.write(
            "ca.conf",
            "[ca]\ndefault_ca = a\n[a]\ndatabase = index\ncrlnumber = number\ndefault_md = sha256\n\
             default_crl_days = 9\ncertificate = root.pem\nprivate_key = root.key\n\
             [plain]\nauthorityKeyIdentifier = keyid\n[delta]\n2.5.29.27 = critical,ASN1:INTEGER:5\n\
             [indirect]\nissuingDistributionPoint = critical,@i\n[i]\nfullname = URI:http://a\nindirectCRL = TRUE\n\
             [reasons]\nissuingDistributionPoint = critical,@r\n[r]\nfullname = URI:http://a\n\
             onlysomereasons = keyCompromise\n\
             [users]\nissuingDistributionPoint = critical,@u\n[u]\nonlyuser = TRUE\n\
             [point]\nissuingDistributionPoint = critical,@p\n[p]\nfullname = URI:http://a\n\
             [unknown]\n1.2.3.4 = critical,ASN1:NULL\n",
        );
        Self(place)
    }

    /// Issues `NAME.pem` for a new key.
    fn issue(&self, name: &str, key: &str, extensions: Option<&str>, options: &str) {
        let Self(place) = self;
        match key.strip_prefix("DSA") {
            Some(_) => {
                place.tool("openssl", &format!("dsaparam -genkey -noout -out {name}.key 1024"));
            }
            None => {
                place.tool("openssl", &format!("genpkey {key} -out {name}.key"));
            }
        }
        place.tool("openssl", &format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        let file = extensions.map_or("", |text| {
            place.write("extensions", text);
            "-extfile extensions"
        });
        place.tool(
            "openssl",
            &format!(
                "x509 -req -in {name}.csr -CA root.pem -CAkey root.key -CAcreateserial -days 2 {file} {options} -out {name}.pem"
            ),
        );
    }

    /// Makes `NAME.crl` with the extensions of a section of the configuration.
    fn list(&self, name: &str, section: Option<&str>) {
        let section = section.map_or(String::new(), |section| format!("-crlexts {section}"));
        self.0.tool("openssl", &format!("ca -config ca.conf -gencrl {section} -out {name}.crl"));
    }

    fn verify(&self, arguments: &str) -> String {
        self.0.dunlin(&format!("pki verify --ca root.pem {arguments}"))
    }

    fn refuse(&self, arguments: &str) -> String {
        self.0.dunlin_fails(&format!("pki verify --ca root.pem {arguments}"), 1)
    }
}

#[test]
fn refuses_keys_that_no_handshake_can_use() {
    let root = Root::new(P256);
    let named = "subjectAltName=DNS:localhost";
    for (name, key) in [
        ("p192", "-algorithm EC -pkeyopt ec_paramgen_curve:P-192"),
        ("k256", "-algorithm EC -pkeyopt ec_paramgen_curve:secp256k1"),
        ("ed448", "-algorithm ED448"),
        ("dsa", "DSA"),
    ] {
        root.issue(name, key, Some(named), "");
        let line = root.refuse(&format!("{name}.pem"));
        assert!(
            line.contains("the type or size of its certificate's key is not supported; issue it"),
            "{line}"
        );
    }
    for (name, key, is_usual) in [
        ("p256", P256, true),
        ("ed25519", "-algorithm ED25519", true),
        ("pss", "-algorithm RSA-PSS", false),
        ("p521", "-algorithm EC -pkeyopt ec_paramgen_curve:P-521", false),
    ] {
        root.issue(name, key, Some(named), "");
        let output = root.0.command(&format!("pki verify --ca root.pem {name}.pem")).output().unwrap();
        let [told, warned] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(told.contains("valid for server and client"), "{told}");
        let says = "peers refuse it with their default signature schemes";
        assert_eq!((warned.contains(says), warned.is_empty()), (!is_usual, is_usual), "{name}: {warned}");
    }
}

#[test]
fn names_what_is_wrong_with_a_certificate() {
    let root = Root::new("-algorithm RSA -pkeyopt rsa_keygen_bits:2048");
    let named = "subjectAltName=DNS:localhost";
    root.issue("first", P256, None, "");
    root.issue("critical", P256, Some("1.2.3.4=critical,ASN1:NULL"), "");
    root.issue("nameless", P256, Some("keyUsage=digitalSignature"), "");
    let pss = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:20";
    root.issue("salt", P256, Some(named), pss);
    root.issue("sha1", P256, Some(named), "-sha1");
    root.issue("good", P256, Some(named), "");
    let serial = format!("-set_serial 0x7f{}", "01".repeat(24));
    root.issue("long", P256, Some(named), &serial);
    root.verify("good.pem --name localhost");
    root.verify("long.pem --name localhost");
    for (arguments, says) in [
        ("first.pem", "a certificate of its chain is not of X.509 version 3; issue it with"),
        ("critical.pem", "has a critical extension that is not supported; issue it without"),
        ("nameless.pem --name localhost", "is not for localhost: it has no subjectAltName; issue one with"),
        (
            "salt.pem",
            "a signature that is not supported: RSASSA-PSS with these parameters; issue its certificates again",
        ),
        ("sha1.pem", "a signature that is not supported: RSA with SHA-1; issue its certificates again"),
        ("good.pem --name example.org", "is not for example.org but for localhost; give a name"),
    ] {
        let line = root.refuse(arguments);
        assert!(line.contains(says), "{line}");
    }
}

#[test]
fn names_a_key_that_is_not_supported() {
    let root = Root::new(P256);
    let Root(place) = &root;
    root.issue("leaf", P256, Some("subjectAltName=DNS:localhost"), "");
    place.tool("openssl", "pkcs12 -export -in leaf.pem -inkey leaf.key -passout pass: -out leaf.p12");
    place.tool("openssl", "ecparam -genkey -noout -name brainpoolP256r1 -out brainpool.key");
    for (name, key) in [
        ("k256.key", "-algorithm EC -pkeyopt ec_paramgen_curve:secp256k1"),
        ("x25519.key", "-algorithm X25519"),
        ("ed448.key", "-algorithm ED448"),
        ("rsa.key", "-algorithm RSA -pkeyopt rsa_keygen_bits:2304"),
    ] {
        place.tool("openssl", &format!("genpkey {key} -out {name}"));
    }
    // The parameters of a supported curve do as well as its name.
    place.tool("openssl", "ec -in leaf.key -param_enc explicit -out written-out.key");
    assert!(place.dunlin("pki show written-out.key").contains("P-256"));
    place.tool("openssl", "ec -in k256.key -param_enc explicit -out explicit.key");
    place.tool("openssl", "pkcs8 -topk8 -nocrypt -in explicit.key -out explicit8.key");
    let wide: Vec<u8> = place.read("leaf.key").encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.write("wide.key", wide);
    for (key, says) in [
        (
            "explicit.key",
            "an EC key with explicit parameters instead of a named curve; name its curve: `openssl ec ",
        ),
        ("explicit8.key", "an EC key with explicit parameters instead of a named curve; "),
        ("leaf.p12", "a PKCS #12 file; make PEM of it: "),
        ("brainpool.key", "an EC key on the curve brainpoolP256r1, which is not supported; "),
        ("k256.key", "an EC key on the curve secp256k1, which is not supported; give a key of type rsa2048"),
        ("x25519.key", "a key of the type "),
        ("ed448.key", "a key of the type "),
        ("rsa.key", "an RSA key of 2304 bits, which is not supported; "),
        ("wide.key", "the text is in UTF-16; save it as ASCII or UTF-8"),
        ("leaf.pem", "no private key in it, only CERTIFICATE; "),
    ] {
        let issue = format!(
            "pki leaf --issuer root.pem --client --name x --cert x.pem --key x.key --issuer-key {key}"
        );
        let line = place.dunlin_fails(&issue, 1);
        assert!(line.contains(&format!("{key}: {says}")), "{line}");
    }
}

#[test]
fn names_the_older_of_two_crls() {
    let root = Root::new(P256);
    root.issue("leaf", P256, Some("subjectAltName=DNS:localhost"), "");
    let Root(place) = &root;
    let times = |from: &str| format!("-crl_lastupdate {from}000000Z -crl_nextupdate 20991231000000Z");
    place.tool(
        "openssl",
        &format!("ca -config ca.conf -gencrl -crlexts plain {} -out old.crl", times("20250101")),
    );
    place.tool("openssl", "ca -config ca.conf -revoke leaf.pem");
    place.tool(
        "openssl",
        &format!("ca -config ca.conf -gencrl -crlexts plain {} -out new.crl", times("20250202")),
    );
    place.write("both.crl", place.read("old.crl") + &place.read("new.crl"));
    for (lists, says) in [
        ("--CRL new.crl", "its certificate is revoked; "),
        (
            "--CRL old.crl --CRL new.crl",
            "CRL 2: it is of the same issuer as CRL 1 and covers the same certificates: drop CRL 1, which is older; ",
        ),
        ("--CRL new.crl --CRL old.crl", "covers the same certificates: drop it, because it is older; "),
        ("--CRL both.crl", "both.crl: CRL 2: it is of the same issuer as CRL 1"),
        ("--CRL old.crl --CRL old.crl", "keep one of them; "),
    ] {
        let line = root.refuse(&format!("leaf.pem {lists}"));
        assert!(line.contains(says), "{line}");
    }
    root.verify("leaf.pem --CRL old.crl");
    let line = root.refuse("leaf.pem --CRL old.crl --time 2024-12-31");
    assert!(!line.contains("revoked"), "{line}");
}

#[test]
fn names_what_is_wrong_with_a_crl() {
    let root = Root::new(P256);
    let named = "subjectAltName=DNS:localhost";
    root.issue("leaf", P256, Some(named), "");
    root.issue("a", P256, Some(&format!("{named}\ncrlDistributionPoints=URI:http://a")), "");
    root.issue("b", P256, Some(&format!("{named}\ncrlDistributionPoints=URI:http://b")), "");
    let other = "crlDistributionPoints=d\n[d]\nfullname=URI:http://a\nCRLissuer=dirName:n\n[n]\nCN=Other";
    root.issue("other", P256, Some(&format!("{named}\n{other}")), "");
    for section in ["plain", "delta", "indirect", "reasons", "users", "point", "unknown"] {
        root.list(section, Some(section));
    }
    root.0.write("number", "");
    root.0.write("plain.conf", root.0.read("ca.conf").replace("crlnumber = number\n", ""));
    root.0.tool("openssl", "ca -config plain.conf -gencrl -out first.crl");
    root.0.tool("openssl", "ca -config plain.conf -gencrl -crlexts plain -out unnumbered.crl");
    for (list, says) in [
        ("delta", "it is a delta CRL, which Dunlin does not support: give the complete CRL; "),
        ("indirect", "it is an indirect CRL, which Dunlin does not support: give the CRL of each issuer; "),
        ("reasons", "it covers only some reasons (onlySomeReasons)"),
        ("users", "its issuingDistributionPoint has no full name"),
        ("unknown", "it has a critical extension that Dunlin does not support; "),
        ("first", "it is of version 1: give one of version 2"),
    ] {
        let line = root.refuse(&format!("leaf.pem --CRL {list}.crl"));
        assert!(line.contains(&format!("{list}.crl: CRL 1: {says}")), "{line}");
    }
    root.verify("leaf.pem --CRL plain.crl");
    root.verify("a.pem --CRL plain.crl");
    root.verify("leaf.pem --CRL unnumbered.crl");
    root.verify("a.pem --CRL point.crl");
    for leaf in ["leaf", "b", "other"] {
        let line = root.refuse(&format!("{leaf}.pem --CRL point.crl"));
        assert!(
            line.contains("there is no CRL of an issuer of its chain that covers the certificate; "),
            "{line}"
        );
    }
}

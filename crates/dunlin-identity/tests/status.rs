//! Status lists: made, read, kept and checked; and every refusal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use std::sync::Arc;

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin::crypto::SigningKey;
use dunlin_identity::credential::proof;
use dunlin_identity::credential::status::{
    Bitstring, DEFAULT_STATUS_AGE, MAX_STATUS_CREDENTIAL, MAX_STATUS_ENTRIES, MAX_STATUSES,
    MIN_STATUS_ENTRIES, StatusEntry, StatusError, StatusList, StatusLists, StatusPurpose,
};
use dunlin_identity::credential::{Contexts, CredentialError, Issuer, Seconds, VerifiedCredential, Verifier};
use dunlin_identity::encoding::gzip::GzipError;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{Did, DidUrl};
use keys::{ed25519, provider, public};
use serde_json::{Value, json};

/// 2023-02-24T23:36:38Z.
const NOW: Seconds = 1_677_281_798;
const LIST: &str = "https://issuer.example/status/3";

/// The list of the examples in W3C Bitstring Status List 1.0: 131,072 clear bits.
const EMPTY: &str = "uH4sIAAAAAAAAA-3BMQEAAADCoPVPbQwfoAAAAAAAAAAAAAAAAAAAAIC3AYbSVKsAQAAA";

/// From @digitalbazaar/bitstring 3.1.0: 131,072 bits, of which these are set.
const THEIRS: &str = "uH4sIAAAAAAAAA-3OQREAAAQAMJqLJpoMXu7clmBdAQAAAAAAAAAAAADAM3kdAAAAAGArB6H8WaYAQAAA";
const SET: [u64; 5] = [0, 1, 8, 94_567, 131_071];

#[test]
fn reads_the_lists_of_others() {
    assert_eq!(Bitstring::decode(EMPTY), Ok(Bitstring::default()));
    let theirs = Bitstring::decode(THEIRS).unwrap();
    let mut ours = Bitstring::default();
    for index in SET {
        assert!(theirs.get(index).unwrap());
        ours.set(index, true).unwrap();
    }
    assert_eq!(ours, theirs);
    assert_eq!(Bitstring::decode(&ours.encode()), Ok(ours.clone()));
    for index in SET {
        ours.set(index, false).unwrap();
    }
    assert_eq!(ours, Bitstring::default());
}

#[test]
fn a_list_has_the_entries_that_its_limits_allow() {
    for entries in [0, MIN_STATUS_ENTRIES - 1, MAX_STATUS_ENTRIES + 1, u64::MAX] {
        assert_eq!(Bitstring::new(entries), Err(StatusError::Length(entries)));
    }
    let mut list = Bitstring::new(MAX_STATUS_ENTRIES).unwrap();
    assert_eq!(list.entries(), MAX_STATUS_ENTRIES);
    for index in [MAX_STATUS_ENTRIES, u64::MAX] {
        assert_eq!(list.get(index), Err(StatusError::Index(index)));
        assert_eq!(list.set(index, true), Err(StatusError::Index(index)));
    }
    assert_eq!(Bitstring::decode(&list.encode()), Ok(list));
}

/// A gzip member with this content, made here because the crate's own compressor takes only lists.
fn member(deflated: &[u8], sum: u32, len: u32) -> String {
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let bytes = [&header, deflated, &sum.to_le_bytes(), &len.to_le_bytes()].concat();
    format!("u{}", Base64UrlUnpadded::encode_string(&bytes))
}

#[test]
fn a_compressed_list_never_grows_beyond_the_limit() {
    let bomb = vec![0; 64 << 20];
    let deflated = miniz_oxide::deflate::compress_to_vec(&bomb, 9);
    assert!(deflated.len() < 70_000);
    let limit = usize::try_from(MAX_STATUS_ENTRIES / 8).unwrap();
    let too_long = Err(StatusError::Gzip(GzipError::TooLong(limit)));
    assert_eq!(Bitstring::decode(&member(&deflated, 0, 64 << 20)), too_long);
    assert_eq!(Bitstring::decode(&member(&deflated, 0, u32::MAX)), too_long);
    // A trailer that lies about the length.
    for len in [0, 16_384, 131_072] {
        assert_eq!(Bitstring::decode(&member(&deflated, 0, len)), too_long);
    }
    let short = miniz_oxide::deflate::compress_to_vec(&[0; 16_384], 9);
    assert_eq!(Bitstring::decode(&member(&short, 0, 16_385)), Err(StatusError::Gzip(GzipError::Data)));
}

#[test]
fn refuses_damaged_lists() {
    let bytes = Base64UrlUnpadded::decode_vec(&THEIRS[1..]).unwrap();
    let decode = |bytes: &[u8]| Bitstring::decode(&format!("u{}", Base64UrlUnpadded::encode_string(bytes)));
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        decode(&bytes)
    };
    let gzip = |error| Err(StatusError::Gzip(error));
    // ID1, ID2, the method, flags without their fields, and reserved flags.
    for (at, byte) in [(0, 0), (1, 0), (2, 7), (3, 2), (3, 32), (3, 64), (3, 128)] {
        assert_eq!(changed(at, byte), gzip(GzipError::Header), "{at} {byte}");
    }
    for flag in [4, 8, 16] {
        assert!(changed(3, flag).is_err());
    }
    // Time, level and system say nothing.
    for at in 4..10 {
        assert_eq!(changed(at, 3), Bitstring::decode(THEIRS));
    }
    let sum = bytes.len() - 8;
    assert_eq!(changed(sum, bytes[sum] ^ 1), gzip(GzipError::Checksum));
    assert_eq!(changed(sum + 4, 1), gzip(GzipError::Data));
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err());
    }
    // Data after the end, and half of another member.
    assert!(decode(&[bytes.as_slice(), &[0]].concat()).is_err());
    assert!(decode(&[bytes.as_slice(), &bytes[..bytes.len() - 1]].concat()).is_err());
    // A right but short list.
    let short = member(&[3, 0], 0, 0);
    assert_eq!(Bitstring::decode(&short), Err(StatusError::Length(0)));
    for text in ["", "u=", "zH4sI", &THEIRS[1..], &format!("{THEIRS}=")] {
        assert_eq!(Bitstring::decode(text), Err(StatusError::Member("encodedList")), "{text}");
    }
}

/// RFC 1952 §2.2, §2.3: several members, and headers with all optional fields.
#[test]
fn reads_optional_fields_and_members() {
    let list = Bitstring::new(MIN_STATUS_ENTRIES).unwrap();
    let bits = vec![0; usize::try_from(MIN_STATUS_ENTRIES / 8).unwrap()];
    let crc32 = |bytes: &[u8]| {
        !bytes.iter().fold(u32::MAX, |sum, byte| {
            (0..8).fold(
                sum ^ u32::from(*byte),
                |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
            )
        })
    };
    let member = |flags: u8, content: &[u8], wrong_sum: u16| {
        let mut bytes = vec![0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 255];
        if flags & 4 != 0 {
            bytes.extend([3, 0, 0, 1, 2]);
        }
        if flags & 8 != 0 {
            bytes.extend(b"list\0");
        }
        if flags & 16 != 0 {
            bytes.extend(b"\0");
        }
        if flags & 2 != 0 {
            let sum = crc32(&bytes) as u16 ^ wrong_sum;
            bytes.extend(sum.to_le_bytes());
        }
        bytes.extend(miniz_oxide::deflate::compress_to_vec(content, 6));
        bytes.extend(crc32(content).to_le_bytes());
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes
    };
    let decode = |bytes: &[u8]| Bitstring::decode(&format!("u{}", Base64UrlUnpadded::encode_string(bytes)));
    // FTEXT says nothing.
    for flags in 0..32 {
        assert_eq!(decode(&member(flags, &bits, 0)).as_ref(), Ok(&list), "{flags}");
    }
    assert_eq!(decode(&member(2, &bits, 1)), Err(StatusError::Gzip(GzipError::Header)));
    let halves = bits.split_at(bits.len() / 3);
    let members = [member(8, halves.0, 0), member(0, &[], 0), member(31, halves.1, 0)];
    assert_eq!(decode(&members.concat()).as_ref(), Ok(&list));
    // The limit applies to all members together.
    let most = vec![0; usize::try_from(MAX_STATUS_ENTRIES / 8).unwrap()];
    let limit = most.len();
    assert!(decode(&[member(0, &most, 0), member(0, &[], 0)].concat()).is_ok());
    assert_eq!(
        decode(&[member(0, &most, 0), member(0, &[0], 0)].concat()),
        Err(StatusError::Gzip(GzipError::TooLong(limit)))
    );
}

/// An issuer, a holder, and a verifier that trusts the issuer.
struct Case {
    signer: Arc<dyn SigningKey>,
    method: DidUrl,
    holder: Did,
    verifier: Verifier,
}

fn case(number: u8) -> Case {
    let signer = ed25519(number);
    let did = KEY.create(&public(&*signer)).unwrap();
    let holder = KEY.create(&public(&*ed25519(7))).unwrap();
    let method = did.with_fragment(did.identifier()).unwrap();
    Case { signer, method, holder, verifier: Verifier::new([KEY.resolve(&did).unwrap()]) }
}

fn entry(index: u64) -> StatusEntry {
    StatusEntry { list: LIST.to_owned(), index, purpose: StatusPurpose::Revocation }
}

impl Case {
    /// A credential with this status, signed.
    fn credential(&self, status: &Value) -> Vec<u8> {
        let value = json!({
            "@context": ["https://www.w3.org/ns/credentials/v2"],
            "type": ["VerifiableCredential"],
            "issuer": self.method.did().as_str(),
            "validUntil": "2024-01-01T00:00:00Z",
            "credentialSubject": {"id": self.holder.as_str()},
            "credentialStatus": status,
        });
        proof::sign(&provider(), &*self.signer, &self.method, &value, NOW).unwrap().to_string().into_bytes()
    }

    /// The credential of a list that the issuer made `age` seconds ago and that is valid for another day.
    fn list(&self, bits: &Bitstring, age: Seconds) -> Value {
        let until = NOW + 24 * 3600;
        bits.credential(self.method.did(), LIST, StatusPurpose::Revocation, NOW - age, until).unwrap()
    }

    fn verify_list(&self, list: &Value) -> Result<StatusList, CredentialError> {
        let signed = proof::sign(&provider(), &*self.signer, &self.method, list, NOW).unwrap().to_string();
        StatusList::verify(&self.verifier, &provider(), signed.as_bytes(), LIST, NOW)
    }

    /// The lists that a program has after it took in this one.
    fn lists(&self, list: &Value) -> StatusLists {
        let mut lists = StatusLists::default();
        lists.insert(self.verify_list(list).unwrap()).unwrap();
        lists
    }

    fn verify(&self, status: &Value, lists: &StatusLists) -> Result<VerifiedCredential, CredentialError> {
        self.verify_at(status, lists, NOW)
    }

    fn verify_at(
        &self,
        status: &Value,
        lists: &StatusLists,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        let credential = self.credential(status);
        self.verifier.verify_with_status(&provider(), &credential, &self.holder, lists, now)
    }

    fn refusal(&self, status: &Value) -> StatusError {
        let lists = self.lists(&self.list(&Bitstring::default(), 0));
        match self.verify(status, &lists) {
            Err(CredentialError::Status(error)) => error,
            other => panic!("{other:?}"),
        }
    }
}

fn status(error: StatusError) -> CredentialError {
    CredentialError::Status(error)
}

#[test]
fn a_revoked_credential_is_refused() {
    let case = case(1);
    let mut bits = Bitstring::default();
    bits.set(94_567, true).unwrap();
    let lists = case.lists(&case.list(&bits, 0));
    let verified = case.verify(&entry(94_566).to_value(), &lists).unwrap();
    // The list ends before the credential.
    assert_eq!(verified.status_until, Some(NOW + 24 * 3600));
    assert_eq!(verified.valid_until, Some(1_704_067_200));
    assert_eq!(case.verify(&entry(94_567).to_value(), &lists), Err(status(StatusError::Revoked)));
    // The first status of several that is bad counts.
    let both = json!([entry(1).to_value(), entry(94_567).to_value()]);
    assert_eq!(case.verify(&both, &lists), Err(status(StatusError::Revoked)));
    assert!(case.verify(&json!([entry(1).to_value(), entry(2).to_value()]), &lists).is_ok());
    let index = case.verify(&entry(131_072).to_value(), &lists);
    assert_eq!(index, Err(status(StatusError::Index(131_072))));
}

#[test]
fn a_suspended_credential_returns_with_a_later_list() {
    let case = case(1);
    let mut bits = Bitstring::default();
    bits.set(5, true).unwrap();
    let suspension = StatusEntry { purpose: StatusPurpose::Suspension, ..entry(5) }.to_value();
    let mut list = case.list(&bits, 10);
    list["credentialSubject"]["statusPurpose"] = json!("suspension");
    let mut lists = case.lists(&list);
    assert_eq!(case.verify(&suspension, &lists), Err(status(StatusError::Suspended)));
    let other = case.verify(&entry(5).to_value(), &lists);
    assert_eq!(other, Err(status(StatusError::OtherPurpose(LIST.into()))));

    let mut cleared = case.list(&Bitstring::default(), 9);
    cleared["credentialSubject"]["statusPurpose"] = json!(["suspension", "revocation"]);
    lists.insert(case.verify_list(&cleared).unwrap()).unwrap();
    assert!(case.verify(&suspension, &lists).is_ok());
    // The older list is never taken back.
    let older = lists.insert(case.verify_list(&list).unwrap());
    assert_eq!(older, Err(StatusError::Older(LIST.into())));
    assert!(case.verify(&suspension, &lists).is_ok());
}

/// Times are in seconds: of two lists of one second, only one with all bits of the other replaces it.
#[test]
fn a_list_of_the_same_second_hides_no_revocation() {
    let case = case(1);
    let revoked = |indices: &[u64]| {
        let mut bits = Bitstring::default();
        indices.iter().for_each(|index| bits.set(*index, true).unwrap());
        case.verify_list(&case.list(&bits, 10)).unwrap()
    };
    let mut lists = StatusLists::default();
    lists.insert(revoked(&[5])).unwrap();
    lists.insert(revoked(&[5, 6])).unwrap();
    for older in [&[][..], &[5], &[6], &[5, 7]] {
        assert_eq!(lists.insert(revoked(older)), Err(StatusError::Older(LIST.into())), "{older:?}");
    }
    lists.insert(revoked(&[5, 6])).unwrap();
    let refused = case.verify(&entry(6).to_value(), &lists);
    assert_eq!(refused, Err(status(StatusError::Revoked)));
    // A list without the purpose refuses nothing, whatever its bits are.
    let mut other = case.list(revoked(&[5, 6]).bits(), 10);
    other["credentialSubject"]["statusPurpose"] = json!("suspension");
    let other = lists.insert(case.verify_list(&other).unwrap());
    assert_eq!(other, Err(StatusError::Older(LIST.into())));
}

#[test]
fn a_missing_or_old_list_is_named() {
    let case = case(1);
    let good = entry(5).to_value();
    let missing = Err(status(StatusError::Missing(LIST.into())));
    assert_eq!(case.verify(&good, &StatusLists::default()), missing);
    let plain = case.verifier.verify(&provider(), &case.credential(&good), &case.holder, NOW);
    assert_eq!(plain, missing);

    let stale = Err(status(StatusError::Stale(LIST.into())));
    // The list's own end, then the age that the program allows.
    let lists = case.lists(&case.list(&Bitstring::default(), 0));
    assert!(case.verify_at(&good, &lists, NOW + 24 * 3600).is_ok());
    assert_eq!(case.verify_at(&good, &lists, NOW + 24 * 3600 + 1), stale);
    let lists = case.lists(&case.list(&Bitstring::default(), DEFAULT_STATUS_AGE));
    assert_eq!(case.verify(&good, &lists).unwrap().status_until, Some(NOW));
    assert_eq!(case.verify_at(&good, &lists, NOW + 1), stale);
}

#[test]
fn a_list_is_due_when_its_time_to_live_has_passed() {
    let case = case(1);
    let due = |list: &Value, now| case.lists(list).due(now).count();
    let mut list = case.list(&Bitstring::default(), 0);
    assert_eq!((due(&list, NOW + 299), due(&list, NOW + 300)), (0, 1));
    // JSON has one kind of numbers.
    for ttl in [json!(60_000), json!(60_000.0), json!(6e4), json!(60_000.5)] {
        list["credentialSubject"]["ttl"] = ttl;
        assert_eq!((due(&list, NOW + 59), due(&list, NOW + 60)), (0, 1));
    }
    for (ttl, is_due) in [(json!(0.5), 1), (json!(1e300), 0)] {
        list["credentialSubject"]["ttl"] = ttl;
        assert_eq!(due(&list, NOW), is_due);
    }
}

#[test]
fn a_list_must_be_the_right_one() {
    let case = case(1);
    let list = case.list(&Bitstring::default(), 0);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut list = list.clone();
        change(&mut list);
        case.verify_list(&list).unwrap_err()
    };
    let other = "https://issuer.example/status/4";
    assert_eq!(with(&|list| list["id"] = json!(other)), status(StatusError::OtherList(other.into())));
    assert_eq!(
        with(&|list| drop(list.as_object_mut().unwrap().remove("id"))),
        status(StatusError::Member("id"))
    );
    let plain = StatusError::Type("VerifiableCredential".into());
    assert_eq!(with(&|list| list["type"] = json!("VerifiableCredential")), status(plain));
    let subject =
        |name: &'static str, value: Value| with(&|list| list["credentialSubject"][name] = value.clone());
    assert_eq!(subject("type", json!("StatusList2021")), status(StatusError::Type("StatusList2021".into())));
    for purpose in [json!("message"), json!("refresh"), json!(["revocation", "message"])] {
        assert_eq!(subject("statusPurpose", purpose), status(StatusError::Purpose));
    }
    assert_eq!(subject("statusPurpose", json!(1)), status(StatusError::Member("statusPurpose")));
    assert_eq!(subject("encodedList", json!("uAAAA")), status(StatusError::Gzip(GzipError::Header)));
    assert_eq!(subject("encodedList", json!(1)), status(StatusError::Member("encodedList")));
    assert_eq!(subject("ttl", json!(-1)), status(StatusError::Member("ttl")));
    assert_eq!(subject("ttl", json!("60000")), status(StatusError::Member("ttl")));
    assert_eq!(
        with(&|list| list["credentialSubject"] = json!([])),
        status(StatusError::Member("credentialSubject"))
    );
    let early = with(&|list| list["validFrom"] = json!("2023-02-24T23:36:39Z"));
    assert_eq!(early, CredentialError::NotYetValid);
    let ended = with(&|list| list["validUntil"] = json!("2023-02-24T23:36:37Z"));
    assert_eq!(ended, CredentialError::Expired);
    let undated = with(&|list| drop(list.as_object_mut().unwrap().remove("validFrom")));
    assert_eq!(undated, CredentialError::Member("validFrom"));
    let inner = with(&|list| list["credentialStatus"] = entry(1).to_value());
    assert_eq!(inner, CredentialError::Unchecked("credentialStatus"));
}

#[test]
fn a_list_has_the_issuer_of_the_credential() {
    let own = case(1);
    let other = case(2);
    let both = Verifier::new([&own, &other].map(|case| KEY.resolve(case.method.did()).unwrap()));
    let foreign = other.list(&Bitstring::default(), 0);
    assert!(matches!(
        Case { verifier: own.verifier.clone(), ..case(2) }.verify_list(&foreign),
        Err(CredentialError::UntrustedIssuer(_))
    ));
    let lists = Case { verifier: both.clone(), ..case(2) }.lists(&foreign);
    let credential = own.credential(&entry(5).to_value());
    let refused = both.verify_with_status(&provider(), &credential, &own.holder, &lists, NOW);
    assert_eq!(refused, Err(status(StatusError::OtherIssuer(LIST.into()))));

    // Both issuers may have a list of this name. Neither replaces the other's.
    let mut lists = lists;
    lists.insert(own.verify_list(&own.list(&Bitstring::default(), 50)).unwrap()).unwrap();
    assert!(both.verify_with_status(&provider(), &credential, &own.holder, &lists, NOW).is_ok());
}

#[test]
fn refuses_entries_that_it_does_not_understand() {
    let case = case(1);
    let with = |name: &str, value: Value| {
        let mut status = entry(5).to_value();
        status[name] = value;
        case.refusal(&status)
    };
    assert_eq!(with("type", json!("StatusList2021Entry")), StatusError::Type("StatusList2021Entry".into()));
    assert_eq!(with("statusPurpose", json!("message")), StatusError::Purpose);
    assert_eq!(with("statusSize", json!(2)), StatusError::Purpose);
    for index in ["-1", "+1", "01", " 1", "1.0", "", "18446744073709551616"] {
        assert_eq!(with("statusListIndex", json!(index)), StatusError::Member("statusListIndex"), "{index}");
    }
    assert_eq!(with("statusListIndex", json!(5)), StatusError::Member("statusListIndex"));
    let long = format!("https://issuer.example/{}", "a".repeat(2100));
    assert_eq!(with("statusListCredential", json!(long)), StatusError::Member("statusListCredential"));
    assert_eq!(case.refusal(&json!(vec![entry(5).to_value(); MAX_STATUSES + 1])), StatusError::TooMany);
    assert_eq!(case.refusal(&json!(["x"])), StatusError::Member("type"));
}

/// Of the issuer with the most lists from holders, the first one leaves. The program's own lists stay.
#[test]
fn keeps_a_bounded_number_of_lists_from_holders() {
    let cases = [case(1), case(2)];
    let verified = |issuer: usize, number: u8, age: Seconds| {
        let url = format!("{LIST}/{number}");
        let case = &cases[issuer];
        let mut list = case.list(&Bitstring::default(), age);
        list["id"] = url.as_str().into();
        let signed = proof::sign(&provider(), &*case.signer, &case.method, &list, NOW).unwrap().to_string();
        StatusList::verify(&case.verifier, &provider(), signed.as_bytes(), &url, NOW).unwrap()
    };
    let own = verified(0, 5, 1000);
    let mut lists = StatusLists::new(DEFAULT_STATUS_AGE, 3);
    lists.insert(own).unwrap();
    for (issuer, number, age) in [(0, 1, 50), (0, 2, 60), (1, 3, 100), (0, 4, 10)] {
        let verified = verified(issuer, number, age);
        assert_eq!((verified.url(), verified.made()), (&*format!("{LIST}/{number}"), NOW - age));
        lists.merge([&verified]);
    }
    let kept: Vec<_> = lists.due(Seconds::MAX).collect();
    assert_eq!(kept, [5, 1, 3, 4].map(|number| format!("{LIST}/{number}")));
}

#[test]
fn an_issuer_publishes_lists_in_every_form() {
    let case = case(1);
    let provider = provider();
    let issuer = Issuer { provider: &provider, signer: &*case.signer, method: &case.method };
    // Bits that do not shrink.
    let mut bits = Bitstring::new(MAX_STATUS_ENTRIES).unwrap();
    let mut state = 1_u64;
    for index in 0..MAX_STATUS_ENTRIES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bits.set(index, state >> 63 == 1).unwrap();
    }
    let list = case.list(&bits, 0);
    let contexts = Contexts::default();
    let forms = [
        issuer.issue(&list, &contexts, NOW).unwrap().into_bytes(),
        issuer.issue_jwt(&list, &contexts).unwrap().into_bytes(),
        issuer.issue_compact(&list, &contexts).unwrap(),
    ];
    for form in forms {
        let verified = StatusList::verify(&case.verifier, &provider, &form, LIST, NOW).unwrap();
        assert_eq!(verified.bits(), &bits);
        // It is no credential of a holder.
        assert!(case.verifier.verify(&provider, &form, &case.holder, NOW).is_err());
        let long = [form, vec![b' '; MAX_STATUS_CREDENTIAL]].concat();
        let refused = StatusList::verify(&case.verifier, &provider, &long, LIST, NOW);
        assert_eq!(refused, Err(CredentialError::TooLong));
    }
    let small = issuer.issue_compact(&case.list(&Bitstring::default(), 0), &contexts).unwrap();
    assert!(small.len() < 300, "{}", small.len());
    let refused = case.verifier.verify(&provider, &small, &case.holder, NOW);
    assert_eq!(refused, Err(CredentialError::Subject(format!("{LIST}#list"))));
}

//! Signed notes and checkpoints: a note of another implementation, and a verifier's refusals.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use base64ct::{Base64, Encoding};
use dunlin::auth::KnownRegistry;
use dunlin_identity::key::{self, KeyError};
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, DEFAULT_CHECKPOINT_AGE, FreshCheckpoint, MAX_KEY_NAME, MAX_NOTE,
    MAX_NOTE_SIGNATURES, MAX_WITNESS_CLOCK_SKEW, Note, NoteError, NoteKey, NoteKeyKind, NoteSigner,
    RegistryTrust, Signed, SignedCheckpoint, TrustTextError,
};
use keys::{ed25519, p256, provider, public};

/// The example in the documentation of Go's package golang.org/x/mod/sumdb/note.
const GO_KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const GO_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
    then you don't know what your problem is.\n\n\
    \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

const ORIGIN: &str = "registry.example/1";
const NOW: u64 = 1_800_000_000;

fn signer(name: &str, kind: NoteKeyKind, number: u8) -> NoteSigner {
    NoteSigner::new(&provider(), name, kind, ed25519(number)).unwrap()
}

fn log() -> NoteSigner {
    signer(ORIGIN, NoteKeyKind::Note, 1)
}

fn witness(number: u8) -> NoteSigner {
    signer(&format!("witness.example/{number}"), NoteKeyKind::Cosignature, number)
}

fn checkpoint(size: u64) -> Checkpoint {
    Checkpoint { origin: ORIGIN.to_owned(), size, root: [size.to_be_bytes()[7]; 32] }
}

/// A checkpoint, signed by the log and these witnesses at these times.
fn signed(checkpoint: Checkpoint, witnesses: &[(u8, u64)]) -> SignedCheckpoint {
    let provider = provider();
    let mut signed = SignedCheckpoint::sign(&provider, checkpoint, &[log()], NOW).unwrap();
    let text = signed.note().text().to_owned();
    for (number, time_s) in witnesses {
        signed.note_mut().add(witness(*number).sign(&provider, &text, *time_s).unwrap());
    }
    signed
}

fn trust(witnesses: &[u8]) -> RegistryTrust {
    let witnesses = witnesses.iter().map(|number| witness(*number).key().clone()).collect();
    RegistryTrust::new(log().key().clone(), witnesses).unwrap()
}

fn verify(
    trust: &RegistryTrust,
    signed: &SignedCheckpoint,
    newest: Option<&SignedCheckpoint>,
) -> Result<FreshCheckpoint, CheckpointError> {
    trust.verify(&provider(), signed.to_string().as_bytes(), newest, NOW)
}

#[test]
fn a_note_of_gos_implementation_verifies() {
    let provider = provider();
    let key = NoteKey::read(&provider, GO_KEY).unwrap();
    assert_eq!(
        (key.name(), key.kind(), key.to_string().as_str()),
        ("PeterNeumann", NoteKeyKind::Note, GO_KEY)
    );
    let note = Note::read(GO_NOTE.as_bytes()).unwrap();
    assert_eq!(note.signed_by(&provider, &key), Ok(Signed::Yes));
    assert_eq!(note.to_string(), GO_NOTE);
    let changed = Note::read(GO_NOTE.replace("cryptography", "Cryptography").as_bytes()).unwrap();
    assert_eq!(changed.signed_by(&provider, &key), Err(NoteError::Signature("PeterNeumann".to_owned())));
    assert_eq!(note.signed_by(&provider, log().key()), Ok(Signed::No));
}

#[test]
fn keys_are_read_as_they_are_written() {
    let provider = provider();
    for key in [log().key().clone(), witness(2).key().clone()] {
        assert_eq!(NoteKey::read(&provider, &key.to_string()), Ok(key));
    }
    let refused = |text: &str| NoteKey::read(&provider, text).unwrap_err();
    assert_eq!(refused("PeterNeumann"), NoteError::Vkey);
    assert_eq!(refused(&GO_KEY.replace("c74f20a3", "c74f20a4")), NoteError::Id);
    assert_eq!(refused(&GO_KEY.replace("c74f20a3", "C74F20A3")), NoteError::Id);
    assert_eq!(refused(&GO_KEY.replace("c74f20a3", "c74f20")), NoteError::Vkey);
    assert_eq!(refused(&GO_KEY.replace("+ARpc", "+ARp*")), NoteError::Vkey);
    assert_eq!(refused(&GO_KEY.replace("+ARpc", "+BBpc")), NoteError::Id);
    assert_eq!(refused(&GO_KEY.replace("+ARpc", "+AhpC")), NoteError::Key(KeyError::UnknownType));
    assert_eq!(refused(&GO_KEY.replace("Peter", "Peter ")), NoteError::Name);
    let new = |name: &str| NoteKey::new(&provider, name, NoteKeyKind::Note, &public(&*ed25519(1))).map(drop);
    for name in ["", "a b", "a+b", "a\n", "ä", &"a".repeat(MAX_KEY_NAME + 1)] {
        assert_eq!(new(name), Err(NoteError::Name), "{name:?}");
    }
    assert_eq!(new(&"a".repeat(MAX_KEY_NAME)), Ok(()));
    let other = NoteKey::new(&provider, "a", NoteKeyKind::Note, &public(&*p256(1)));
    assert!(matches!(other, Err(NoteError::Key(KeyError::Scheme(..)))));
}

#[test]
fn a_trust_is_read_from_its_keys() {
    let read = |text: &str| RegistryTrust::read(&provider(), text);
    let [log, one, two] = [log(), witness(2), witness(3)].map(|signer| signer.key().to_string());
    let text = format!("# The registry.\n{log}\n\n  {one}  \n{two}\n");
    assert_eq!(read(&text), Ok(trust(&[2, 3])));
    assert_eq!(read(&format!("needed 2\n{text}")), Ok(trust(&[2, 3]).with_needed(2).unwrap()));
    for (text, error) in [
        (format!("{log}\nneeded two\n"), TrustTextError::Needed(2)),
        (format!("\n{log}\n{one}x\n"), TrustTextError::Key(3, NoteError::Vkey)),
        (one.clone(), TrustTextError::Registry),
        (format!("{log}\n{one}\n{log}\n"), TrustTextError::Trust(CheckpointError::LogKey)),
        (log.clone(), TrustTextError::Trust(CheckpointError::Witnesses)),
        (format!("{log}\n{one}\n{one}\n"), TrustTextError::Trust(CheckpointError::Witnesses)),
        (format!("{log}\n{one}\nneeded 2\n"), TrustTextError::Trust(CheckpointError::Witnesses)),
    ] {
        assert_eq!(read(&text), Err(error), "{text}");
    }
    // Sessions of one trust do not serve another.
    let first = digest(&trust(&[2, 3]));
    for other in [trust(&[2]), trust(&[2, 3]).with_needed(2).unwrap(), trust(&[2, 3]).with_max_age(1)] {
        assert_ne!(digest(&other), first);
    }
}

/// The settings that bind sessions to a trust.
fn digest(trust: &RegistryTrust) -> Vec<u8> {
    let mut all = Vec::new();
    trust.settings(&mut |part| all.extend_from_slice(part));
    all
}

#[test]
fn a_trust_names_those_that_replay_the_log() {
    let read = |text: &str| RegistryTrust::read(&provider(), text);
    let [log, one, two, three] =
        [log(), witness(2), witness(3), witness(4)].map(|signer| signer.key().to_string());
    let base = format!("{log}\n{one}\n");
    let key = |number| witness(number).key().clone();
    assert_eq!(
        read(&format!("{base}watch {two}\n")),
        trust(&[2]).with_watches(vec![key(3)], 1).map_err(Into::into)
    );
    let both = format!("{base}watch {two}\nwatch  {three}\nneeded-watch 2\n");
    let watched = trust(&[2]).with_watches(vec![key(3), key(4)], 2).unwrap();
    assert_eq!(read(&both), Ok(watched.clone()));
    assert_eq!((watched.watches(), watched.needed_watches()), ([key(3), key(4)].as_slice(), 2));
    let own = signer("watch.example", NoteKeyKind::Cosignature, 1).key().to_string();
    for wrong in [
        format!("{base}needed-watch 1\n"),
        format!("{base}watch {two}\nneeded-watch 0\n"),
        format!("{base}watch {two}\nneeded-watch 2\n"),
        format!("{base}watch {two}\nwatch {two}\n"),
        // A witness, the registry itself, and a key for notes.
        format!("{base}watch {one}\n"),
        format!("{base}watch {own}\n"),
        format!("{base}watch {log}\n"),
    ] {
        assert_eq!(read(&wrong), Err(TrustTextError::Trust(CheckpointError::Watches)), "{wrong}");
    }
    assert_eq!(read(&format!("{base}needed-watch x\n")), Err(TrustTextError::Needed(3)));
    assert_eq!(read(&format!("{base}watch x\n")), Err(TrustTextError::Key(3, NoteError::Vkey)));
    // Sessions from before end.
    assert_ne!(digest(&watched), digest(&trust(&[2])));
    assert_ne!(digest(&watched), digest(&watched.clone().with_watches(vec![key(3), key(4)], 1).unwrap()));
}

#[test]
fn watches_count_apart_from_witnesses() {
    let key = |number| witness(number).key().clone();
    let watched = trust(&[2, 3]).with_watches(vec![key(4), key(5)], 1).unwrap();
    let with = |trust: &RegistryTrust, signers: &[(u8, u64)]| {
        verify(trust, &signed(checkpoint(5), signers), None).map(|fresh| fresh.fresh_until_s)
    };
    let unwatched = Err(CheckpointError::Unwatched { found: 0, needed: 1 });
    assert_eq!(with(&watched, &[(2, NOW), (3, NOW)]), unwatched);
    assert_eq!(with(&watched, &[(2, NOW), (4, NOW - DEFAULT_CHECKPOINT_AGE - 1)]), unwatched);
    assert_eq!(with(&watched, &[(4, NOW), (5, NOW)]), Err(CheckpointError::Stale { found: 0, needed: 1 }));
    // The older of both decides.
    assert_eq!(with(&watched, &[(2, NOW), (4, NOW - 7)]), Ok(NOW - 7 + DEFAULT_CHECKPOINT_AGE));
    assert_eq!(with(&watched, &[(2, NOW - 9), (4, NOW - 7)]), Ok(NOW - 9 + DEFAULT_CHECKPOINT_AGE));
    let two = watched.with_watches(vec![key(4), key(5)], 2).unwrap();
    assert_eq!(with(&two, &[(2, NOW), (4, NOW)]), Err(CheckpointError::Unwatched { found: 1, needed: 2 }));
    assert!(with(&two, &[(2, NOW), (4, NOW), (5, NOW)]).is_ok());
    let why = CheckpointError::Unwatched { found: 1, needed: 2 }.to_string();
    assert!(why.contains("1 of 2 trusted keys of `dunlin registry watch`"), "{why}");
}

#[test]
fn a_registry_may_have_an_old_and_a_new_key() {
    let keys =
        |number| [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(|kind| signer(ORIGIN, kind, number));
    let ([old, old_witness], [new, new_witness]) = (keys(1), keys(7));
    let line = |signer: &NoteSigner| format!("{}\n", signer.key());
    let read = |text: &str| RegistryTrust::read(&provider(), text);
    let other = line(&witness(2));
    let before = read(&[line(&old), line(&old_witness), other.clone()].concat()).unwrap();
    let both = [line(&old), line(&old_witness), other.clone(), line(&new), line(&new_witness)].concat();
    let overlap = read(&both).unwrap();
    let after = read(&[line(&new), line(&new_witness), other].concat()).unwrap();
    let sign =
        |signers: &[NoteSigner]| SignedCheckpoint::sign(&provider(), checkpoint(5), signers, NOW).unwrap();
    let verifies =
        |trust: &RegistryTrust, signers: &[NoteSigner]| verify(trust, &sign(signers), None).is_ok();
    let by_old = [old.clone(), old_witness.clone()];
    let by_new = [new.clone(), new_witness.clone()];
    let by_both = [by_old.clone(), by_new.clone()].concat();
    let verdicts = |trust| [verifies(trust, &by_old), verifies(trust, &by_new), verifies(trust, &by_both)];
    assert_eq!(verdicts(&before), [true, false, true]);
    assert_eq!(verdicts(&overlap), [true, true, true]);
    assert_eq!(verdicts(&after), [false, true, true]);
    // Together they are one witness.
    let two = overlap.clone().with_needed(2).unwrap();
    assert_eq!(verify(&two, &sign(&by_both), None), Err(CheckpointError::Stale { found: 1, needed: 2 }));
    let with_other = [by_both.as_slice(), &[witness(2)]].concat();
    assert!(verify(&two, &sign(&with_other), None).is_ok());
    assert_eq!(overlap.clone().with_needed(3), Err(CheckpointError::Witnesses));
    // A wrong signature of either key spoils the checkpoint.
    let mut forged = sign(&by_old);
    forged.note_mut().add(new.sign(&provider(), "other\n", NOW).unwrap());
    assert!(verify(&before, &forged, None).is_ok());
    assert!(matches!(verify(&overlap, &forged, None), Err(CheckpointError::Note(NoteError::Signature(_)))));
    // Sessions go on when the new key comes, and peers may have proofs by either.
    assert_eq!(digest(&before), digest(&overlap));
    assert_ne!(digest(&overlap), digest(&after));
    let names: Vec<_> = overlap.known(None).iter().map(|known| known.key_id).collect();
    assert_eq!(names, [old.key().id(), new.key().id()]);
    // One origin, two keys.
    let elsewhere = signer("other.example", NoteKeyKind::Note, 7);
    for wrong in [line(&elsewhere), line(&old), line(&new) + &line(&signer(ORIGIN, NoteKeyKind::Note, 8))] {
        let refused = read(&[line(&old), line(&old_witness), wrong].concat());
        assert_eq!(refused, Err(TrustTextError::Trust(CheckpointError::LogKey)));
    }
}

#[test]
fn witnesses_that_need_not_sign_are_warned_of() {
    let own = signer(ORIGIN, NoteKeyKind::Cosignature, 1).key().clone();
    let trust = |witnesses: &[&NoteKey]| {
        let witnesses = witnesses.iter().copied().cloned().collect();
        RegistryTrust::new(log().key().clone(), witnesses).unwrap()
    };
    let other = witness(2).key().clone();
    assert_eq!(trust(&[&own]).warning(), None);
    assert!(trust(&[&own, &other]).warning().unwrap().contains("needed 2"));
    assert_eq!(trust(&[&own, &other]).with_needed(2).unwrap().warning(), None);
    // The only witness must sign.
    assert_eq!(trust(&[&other]).warning(), None);
    let new = signer(ORIGIN, NoteKeyKind::Note, 7).key().clone();
    let new_witness = signer(ORIGIN, NoteKeyKind::Cosignature, 7).key().clone();
    assert_eq!(trust(&[&own, &new_witness]).with_other_key(new).unwrap().warning(), None);
}

/// A checkpoint that acknowledges an operation is signed by the registry alone at first.
#[test]
fn an_acknowledging_checkpoint_needs_no_witness() {
    let signed_by_log = |checkpoint, newest| {
        let text = signed(checkpoint, &[]).to_string();
        trust(&[2]).signed(&provider(), text.as_bytes(), newest, NOW).map(|signed| signed.checkpoint().size)
    };
    assert_eq!(signed_by_log(checkpoint(5), None), Ok(5));
    let newest = signed(checkpoint(5), &[]);
    assert_eq!(signed_by_log(checkpoint(5), Some(&newest)), Ok(5));
    assert_eq!(
        signed_by_log(checkpoint(4), Some(&newest)),
        Err(CheckpointError::Rollback { offered: 4, accepted: 5 })
    );
    let other = Checkpoint { root: [8; 32], ..checkpoint(5) };
    assert_eq!(signed_by_log(other, Some(&newest)), Err(CheckpointError::SplitView { size: 5 }));
}

#[test]
fn malformed_notes_are_refused() {
    let refused = |note: &str| Note::read(note.as_bytes()).unwrap_err();
    assert_eq!(refused(GO_NOTE.trim_end()), NoteError::Line(1));
    assert_eq!(refused("text\n"), NoteError::Unsigned);
    assert_eq!(refused("text\n\n"), NoteError::Unsigned);
    assert_eq!(refused(&GO_NOTE.replace("the", "\tthe")), NoteError::Text);
    assert_eq!(refused(&GO_NOTE.replace("\n\u{2014}", "\r\n\u{2014}")), NoteError::Text);
    assert_eq!(Note::read(b"\xff\n\n"), Err(NoteError::Text));
    for (from, to) in [
        ("\u{2014} ", "- "),
        ("mann x", "mann  x"),
        ("mann x", "mannx"),
        ("nAM=", "nAM"),
        ("mann x", "m+n x"),
    ] {
        let (text, lines) = GO_NOTE.split_at(GO_NOTE.find("\n\n").unwrap());
        assert_eq!(refused(&format!("{text}{}", lines.replace(from, to))), NoteError::Line(1), "{from:?}");
    }
    // Four bytes are the key ID, without a signature.
    assert_eq!(refused("text\n\n\u{2014} a AAAAAA==\n"), NoteError::Line(1));
    let line = &GO_NOTE[GO_NOTE.find('\u{2014}').unwrap()..];
    let lines = |count| format!("text\n\n{}", line.repeat(count));
    assert!(Note::read(lines(MAX_NOTE_SIGNATURES).as_bytes()).is_ok());
    assert_eq!(refused(&lines(MAX_NOTE_SIGNATURES + 1)), NoteError::TooManySignatures);
    assert_eq!(refused(&"a".repeat(MAX_NOTE + 1)), NoteError::TooLong);
    // The last empty line ends the text.
    assert_eq!(Note::read(format!("a\n\nb\n\n{line}").as_bytes()).unwrap().text(), "a\n\nb\n");
}

#[test]
fn a_checkpoint_has_one_text() {
    let text = signed(checkpoint(20), &[]).to_string();
    let base64 = "FBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQ=";
    let root_line = format!("{base64}\n");
    assert!(text.starts_with(&format!("{ORIGIN}\n20\n{root_line}\n\u{2014} {ORIGIN} ")));
    assert_eq!(SignedCheckpoint::read(text.as_bytes()), Ok(signed(checkpoint(20), &[])));
    for (from, to) in [
        ("\n20\n", "\n020\n"),
        ("\n20\n", "\n+20\n"),
        ("\n20\n", "\n\n"),
        ("\n20\n", "\n18446744073709551616\n"),
        (root_line.as_str(), ""),
        (root_line.as_str(), &format!("{root_line}{root_line}")),
        (root_line.as_str(), &format!("{root_line}other\n")),
        ("BQ=\n", "BR=\n"),
        ("FBQ=\n", "FA==\n"),
        (ORIGIN, ""),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        assert_eq!(SignedCheckpoint::read(changed.as_bytes()), Err(CheckpointError::Malformed), "{changed}");
    }
    let earlier = text.replacen(&root_line, &format!("{root_line}dunlin-map {root_line}"), 1);
    assert_eq!(SignedCheckpoint::read(earlier.as_bytes()), Err(CheckpointError::Earlier));
    let strange = Checkpoint { origin: "a\n5".to_owned(), ..checkpoint(1) };
    let refused = SignedCheckpoint::sign(&provider(), strange, &[log()], NOW);
    assert_eq!(refused, Err(CheckpointError::Malformed));
}

#[test]
fn a_fresh_checkpoint_is_accepted_until_its_signatures_are_too_old() {
    let good = signed(checkpoint(5), &[(2, NOW - 100)]);
    let fresh = verify(&trust(&[2]), &good, None).unwrap();
    assert_eq!((&fresh.checkpoint, fresh.fresh_until_s), (&good, NOW - 100 + DEFAULT_CHECKPOINT_AGE));

    let stale = CheckpointError::Stale { found: 0, needed: 1 };
    let at = |time_s| verify(&trust(&[2]), &signed(checkpoint(5), &[(2, time_s)]), None).map(drop);
    assert_eq!(at(NOW - DEFAULT_CHECKPOINT_AGE), Ok(()));
    assert_eq!(at(NOW - DEFAULT_CHECKPOINT_AGE - 1), Err(stale.clone()));
    assert_eq!(at(NOW + MAX_WITNESS_CLOCK_SKEW), Ok(()));
    assert_eq!(at(NOW + MAX_WITNESS_CLOCK_SKEW + 1), Err(stale.clone()));
    let strict = trust(&[2]).with_max_age(99);
    assert_eq!(verify(&strict, &good, None), Err(stale.clone()));
    // The log's signature has no time, so it is no cosignature; and a stranger is no witness.
    assert_eq!(verify(&trust(&[2]), &signed(checkpoint(5), &[]), None), Err(stale.clone()));
    assert_eq!(verify(&trust(&[2]), &signed(checkpoint(5), &[(3, NOW)]), None), Err(stale));
}

#[test]
fn a_time_beyond_all_times_is_refused() {
    let provider = provider();
    let bare = signed(checkpoint(5), &[]);
    let text = bare.note().text();
    let key = witness(2).key().clone();
    let with = |time_s: u64| {
        let message = format!("cosignature/v1\ntime {time_s}\n{text}");
        let scheme = dunlin::wire::SignatureScheme::ED25519;
        let signature = key::sign(&*ed25519(2), &provider, scheme, message.as_bytes()).unwrap();
        let bytes = [&key.id::<4>()[..], &time_s.to_be_bytes(), &signature].concat();
        let line = format!("\u{2014} {} {}\n", key.name(), Base64::encode_string(&bytes));
        Note::read(format!("{bare}{line}").as_bytes()).unwrap().signed_by(&provider, &key)
    };
    assert_eq!(with(NOW), Ok(Signed::At(NOW)));
    assert_eq!(with(i64::MAX as u64), Ok(Signed::At(i64::MAX as u64)));
    assert_eq!(with(1 << 63), Err(NoteError::Signature(key.name().to_owned())));
}

#[test]
fn enough_witnesses_must_have_signed() {
    let two = trust(&[2, 3, 4]).with_needed(2).unwrap();
    let with = |witnesses: &[(u8, u64)]| verify(&two, &signed(checkpoint(5), witnesses), None);
    assert_eq!(with(&[(2, NOW)]), Err(CheckpointError::Stale { found: 1, needed: 2 }));
    assert_eq!(with(&[(2, NOW), (2, NOW - 1)]), Err(CheckpointError::Stale { found: 1, needed: 2 }));
    assert_eq!(with(&[(2, NOW), (3, 1)]), Err(CheckpointError::Stale { found: 1, needed: 2 }));
    // The second newest signature decides.
    let fresh = with(&[(2, NOW - 5), (3, NOW - 9), (4, NOW - 7)]).unwrap();
    assert_eq!(fresh.fresh_until_s, NOW - 7 + DEFAULT_CHECKPOINT_AGE);
}

#[test]
fn the_registry_can_be_its_only_witness() {
    let own = signer(ORIGIN, NoteKeyKind::Cosignature, 1);
    let trust = RegistryTrust::new(log().key().clone(), vec![own.key().clone()]).unwrap();
    let signed = SignedCheckpoint::sign(&provider(), checkpoint(5), &[log(), own], NOW - 3).unwrap();
    assert_eq!(verify(&trust, &signed, None).unwrap().fresh_until_s, NOW - 3 + DEFAULT_CHECKPOINT_AGE);
    let known = |oldest_size| KnownRegistry { key_id: log().key().id(), oldest_size };
    assert_eq!(trust.known(Some(&signed)), [known(5)]);
    assert_eq!(trust.known(None), [known(0)]);
}

#[test]
fn forged_checkpoints_are_refused() {
    let good = signed(checkpoint(5), &[(2, NOW)]);
    let text = good.to_string();
    let refused = |note: &str| trust(&[2]).verify(&provider(), note.as_bytes(), None, NOW).unwrap_err();
    let wrong = |name: &str| CheckpointError::Note(NoteError::Signature(name.to_owned()));
    assert_eq!(refused(&text.replacen("\n5\n", "\n6\n", 1)), wrong(ORIGIN));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let without = |number: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != number);
        kept.map(|(_, line)| *line).collect::<String>()
    };
    assert_eq!(refused(&without(4)), CheckpointError::NotTheRegistry(ORIGIN.to_owned()));
    assert_eq!(refused(&without(5)), CheckpointError::Stale { found: 0, needed: 1 });

    // Another key of the registry's name, and another registry.
    let thief = signer(ORIGIN, NoteKeyKind::Note, 9);
    let forged = SignedCheckpoint::sign(&provider(), checkpoint(5), &[thief, witness(2)], NOW).unwrap();
    assert_eq!(refused(&forged.to_string()), CheckpointError::NotTheRegistry(ORIGIN.to_owned()));
    let other = Checkpoint { origin: "other.example".to_owned(), ..checkpoint(5) };
    let other = SignedCheckpoint::sign(&provider(), other, &[log(), witness(2)], NOW).unwrap();
    assert_eq!(refused(&other.to_string()), CheckpointError::OtherRegistry("other.example".to_owned()));

    // A cosignature of another checkpoint, or with another time, is wrong.
    let mut copied = signed(checkpoint(6), &[]);
    copied.note_mut().add(witness(2).sign(&provider(), good.note().text(), NOW).unwrap());
    assert_eq!(verify(&trust(&[2]), &copied, None), Err(wrong("witness.example/2")));
    let at = text.rfind(' ').unwrap() + 1;
    let later = format!("{}{}", &text[..at], text[at..].replacen("AAAABrSdI", "AAAABrSdJ", 1));
    assert_ne!(later, text);
    assert_eq!(refused(&later), wrong("witness.example/2"));
}

#[test]
fn a_note_takes_the_signatures_of_known_witnesses() {
    let provider = provider();
    let bare = signed(checkpoint(5), &[]);
    let line = |number| witness(number).sign(&provider, bare.note().text(), NOW).unwrap().to_string();
    let add = |lines: &str| {
        let mut signed = bare.clone();
        let keys = [2, 3].map(|number| witness(number).key().clone());
        let added = signed.note_mut().add_lines(&provider, lines, &keys);
        (signed, added)
    };
    let (with, added) = add(&[line(2), line(4), line(3)].concat());
    assert_eq!(added, Ok(2));
    assert_eq!(with.to_string(), [bare.to_string(), line(2), line(3)].concat());
    assert_eq!(add(&line(4)), (bare.clone(), Ok(0)));
    // A witness has one signature, the latest.
    let at =
        |number, time_s| witness(number).sign(&provider, bare.note().text(), time_s).unwrap().to_string();
    let (with, added) = add(&[at(2, NOW - 1), at(2, NOW), at(2, NOW), at(2, NOW - 2), line(3)].concat());
    assert_eq!((with.to_string(), added), ([bare.to_string(), line(2), line(3)].concat(), Ok(2)));
    let other = witness(2).sign(&provider, "other\n", NOW).unwrap().to_string();
    let wrong = NoteError::Signature("witness.example/2".to_owned());
    for (lines, error) in [
        (other.as_str(), wrong),
        ("", NoteError::Unsigned),
        ("\n", NoteError::Unsigned),
        ("nonsense\n", NoteError::Line(1)),
        (line(2).trim_end(), NoteError::Line(1)),
        // Another text in place of the signed one.
        (&format!("more\n\n{}", line(2)), NoteError::Unsigned),
        (&line(2).repeat(MAX_NOTE_SIGNATURES + 1), NoteError::TooManySignatures),
    ] {
        assert_eq!(add(lines), (bare.clone(), Err(error)), "{lines}");
    }
}

#[test]
fn a_smaller_log_and_a_second_history_are_refused() {
    let newest = signed(checkpoint(5), &[(2, NOW)]);
    let then = |offered: Checkpoint, time_s| {
        verify(&trust(&[2]), &signed(offered, &[(2, time_s)]), Some(&newest)).map(drop)
    };
    assert_eq!(then(checkpoint(5), NOW - 1), Ok(()));
    assert_eq!(then(checkpoint(6), NOW), Ok(()));
    assert_eq!(then(checkpoint(4), NOW), Err(CheckpointError::Rollback { offered: 4, accepted: 5 }));
    let split = Err(CheckpointError::SplitView { size: 5 });
    assert_eq!(then(Checkpoint { root: [0; 32], ..checkpoint(5) }, NOW), split);
    // Evidence does not age.
    assert_eq!(then(Checkpoint { root: [0; 32], ..checkpoint(5) }, 0), split);
}

#[test]
fn trust_names_enough_witnesses_once() {
    let log = log().key().clone();
    let witness = witness(2).key().clone();
    let refused = |log: &NoteKey, witnesses: &[&NoteKey]| {
        RegistryTrust::new(log.clone(), witnesses.iter().copied().cloned().collect()).unwrap_err()
    };
    assert_eq!(refused(&log, &[]), CheckpointError::Witnesses);
    assert_eq!(refused(&log, &[&witness, &witness]), CheckpointError::Witnesses);
    let renamed = signer("renamed", NoteKeyKind::Cosignature, 2).key().clone();
    assert_eq!(refused(&log, &[&witness, &renamed]), CheckpointError::Witnesses);
    assert_eq!(refused(&log, &[&log]), CheckpointError::Witnesses);
    assert_eq!(refused(&witness, &[&witness]), CheckpointError::LogKey);
    let good = RegistryTrust::new(log, vec![witness]).unwrap();
    assert_eq!(good.clone().with_needed(0), Err(CheckpointError::Witnesses));
    assert_eq!(good.clone().with_needed(2), Err(CheckpointError::Witnesses));
    assert!(good.with_needed(1).is_ok());
}

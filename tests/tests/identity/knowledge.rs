//! Verifiers never forget a known end: of DIDs, of status lists, and of the logs of registries.

mod answers;
mod histories;
pub(crate) mod registered;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dunlin::Now;
use dunlin::auth::{Belief, Verified, Verifier as _};
use dunlin::wire::{AlertDescription as Alert, DidMethod};
use dunlin_identity::credential::Seconds;
use dunlin_identity::handshake::{
    DocumentCache, IdentifierVerifier, Known, KnownStore, LOOK_UP_AGE, MAX_CACHED_DOCUMENTS, PinnedDocuments,
    Refusal, RegistryDocuments, ResolveError, Resolver, SILENT_TIME, Standing,
};
use dunlin_identity::knowledge::{Knowledge, RECORD_LEN, Record};
use dunlin_identity::transparency::{CheckpointError, Staple};
use dunlin_identity::{Did, DidDocument, Members, Sha256Hash, TrustList};
use dunlin_tests::awslc;
use registered::{Holder, Registry, key, public};

const NOW_S: Seconds = 1_767_225_600;

/// The origin of another registry.
const PARTNER: &str = "partner.example/1";

fn at(now: Seconds) -> Now {
    Now::from_unix_ms(u64::try_from(now).unwrap() * 1000)
}

fn known() -> Arc<Known> {
    Arc::new(Known::new(Knowledge::default()))
}

/// A registry's documents, and the permanent knowledge.
struct Side {
    documents: Arc<RegistryDocuments>,
    known: Arc<Known>,
}

impl Side {
    fn new(registry: &Registry) -> Self {
        Self::knowing(registry, known())
    }

    fn knowing(registry: &Registry, known: Arc<Known>) -> Self {
        let documents = RegistryDocuments::new(awslc(), registry.trust()).with_known(known.clone());
        Self { documents: Arc::new(documents), known }
    }

    /// After a restart: the knowledge has been in a store.
    fn restarted(&self, registry: &Registry) -> Self {
        let records = self.known.records().into_iter().map(|record| {
            let bytes: [u8; RECORD_LEN] = record.to_bytes();
            Record::read(&bytes).unwrap()
        });
        let known = known();
        known.merge(records);
        Self::knowing(registry, known)
    }

    fn trusting(&self, list: TrustList) -> IdentifierVerifier {
        IdentifierVerifier::new(awslc(), list).with_resolver(self.documents.clone())
    }
}

fn judged(
    verifier: &IdentifierVerifier,
    holder: &Holder,
    staple: Option<&Staple>,
    now: Seconds,
) -> Result<Box<Verified>, Refusal> {
    let proof = staple.map(|staple| staple.write().unwrap());
    verifier.judge(&[holder.entry()], proof.as_deref(), now)
}

fn list<'h>(holders: impl IntoIterator<Item = &'h Holder>) -> TrustList {
    TrustList::new(holders.into_iter().map(|holder| holder.did().clone()))
}

/// More documents than are at hand at one time do not displace the knowledge of a rotation or an end.
#[test]
fn a_replaced_key_and_an_ended_did_stay_known_however_many_others_follow() {
    let mut registry = Registry::new();
    let mut rotated = Holder::new();
    let mut ended = Holder::new();
    let others: Vec<_> = (0..=MAX_CACHED_DOCUMENTS).map(|_| Holder::new()).collect();
    for holder in others.iter().chain([&rotated, &ended]) {
        registry.put(holder);
    }
    let side = Side::new(&registry);
    let verifier = side.trusting(list(others.iter().chain([&rotated, &ended])));
    let before = [&rotated, &ended].map(|holder| {
        let staple = registry.staple(holder, NOW_S);
        (judged(&verifier, holder, Some(&staple), NOW_S).unwrap(), staple)
    });
    rotated.rotate();
    registry.put(&rotated);
    ended.end();
    registry.put(&ended);
    judged(&verifier, &rotated, Some(&registry.staple(&rotated, NOW_S)), NOW_S).unwrap();
    judged(&verifier, &ended, Some(&registry.staple(&ended, NOW_S)), NOW_S).unwrap_err();
    for other in &others {
        judged(&verifier, other, Some(&registry.staple(other, NOW_S)), NOW_S).unwrap();
    }
    let restarted = side.restarted(&registry);
    let again = restarted.trusting(list(others.iter().chain([&rotated, &ended])));
    for verifier in [&verifier, &again] {
        let beliefs =
            before.each_ref().map(|(verified, _)| verifier.still_believes(&verified.identity, at(NOW_S)));
        assert_eq!(beliefs, [Belief::Ended; 2]);
        for (holder, (first, staple)) in [&rotated, &ended].into_iter().zip(&before) {
            let key = judged(verifier, holder, Some(staple), NOW_S).map(|verified| verified.public_key);
            assert!(key.as_ref() != Ok(&first.public_key), "{key:?}");
        }
    }
    let refusal = judged(&again, &ended, None, NOW_S).unwrap_err();
    assert_eq!(refusal, ResolveError::Deactivated(ended.did().clone()).into());
}

/// Any peer can show the public proof of a DID. It costs no look-up and leaves nothing here, unless the DID
/// is on the list.
#[test]
fn strangers_cost_no_look_up_and_leave_nothing() {
    let mut registry = Registry::new();
    let member = Holder::new();
    let stranger = Holder::new();
    let members = Members::new(&awslc(), [member.did().clone()]);
    registry.put(&member);
    let first = registry.staple(&member, NOW_S);
    registry.put(&stranger);
    let public = registry.staple(&stranger, NOW_S);
    let foreign = Staple { membership: members.proof(&awslc(), member.did()).unwrap(), ..public.clone() };
    for list in [
        TrustList::new([member.did().clone()]),
        TrustList::default().with_members(members.root(&awslc()).unwrap()),
    ] {
        let side = Side::new(&registry);
        let verifier = side.trusting(list);
        for staple in [None, Some(&public), Some(&foreign)] {
            let refusal = judged(&verifier, &stranger, staple, NOW_S).unwrap_err();
            assert_eq!((refusal.alert(), refusal.wanted()), (Alert::UNKNOWN_CA, None), "{refusal}");
        }
        assert!(side.documents.newest().is_none() && side.known.is_empty());
        // So the member's proof of the smaller log still counts.
        let own = Staple { membership: members.proof(&awslc(), member.did()).unwrap(), ..first.clone() };
        judged(&verifier, &member, Some(&own), NOW_S).unwrap();
        assert_eq!(side.known.len(), 2);
    }
}

/// A wrong proof leaves nothing, even of a DID on the list.
#[test]
fn nothing_is_kept_of_a_wrong_proof() {
    let mut registry = Registry::new();
    let member = Holder::new();
    registry.put(&member);
    let right = registry.staple(&member, NOW_S);
    let side = Side::new(&registry);
    let verifier = side.trusting(list([&member]));
    let mut other = Registry::new();
    other.put(&member);
    let mut changed = right.clone();
    changed.proof.clear();
    for wrong in [other.staple(&member, NOW_S), changed, registry.staple(&member, NOW_S - 90_000)] {
        judged(&verifier, &member, Some(&wrong), NOW_S).unwrap_err();
        assert!(side.documents.newest().is_none() && side.known.is_empty());
    }
}

/// At the bound, new DIDs are refused, and the knowledge so far stays.
#[test]
fn at_the_bound_new_dids_are_refused_and_old_knowledge_stays() {
    let mut registry = Registry::new();
    let mut first = Holder::new();
    let second = Holder::new();
    registry.put(&first);
    registry.put(&second);
    let known = Arc::new(Known::new(Knowledge::with_max_dids(1)));
    let side = Side::knowing(&registry, known);
    let verifier = side.trusting(list([&first, &second]));
    judged(&verifier, &first, Some(&registry.staple(&first, NOW_S)), NOW_S).unwrap();
    let refusal = judged(&verifier, &second, Some(&registry.staple(&second, NOW_S)), NOW_S).unwrap_err();
    assert_eq!(refusal, ResolveError::Full(second.did().clone()).into());
    let before = registry.staple(&first, NOW_S);
    first.rotate();
    registry.put(&first);
    let verified = judged(&verifier, &first, Some(&registry.staple(&first, NOW_S)), NOW_S).unwrap();
    // The document at hand counts instead of an older one.
    let again = judged(&verifier, &first, Some(&before), NOW_S).unwrap();
    assert_eq!(again.public_key, verified.public_key);
    assert_eq!(verifier.still_believes(&verified.identity, at(NOW_S)), Belief::Holds);
}

/// Listeners that trust different registries share their knowledge.
#[test]
fn a_registry_ends_and_replaces_no_did_of_another_one() {
    let mut registry = Registry::new();
    let mut other = Registry::at(PARTNER);
    let [ended, mut rotated] = [(); 2].map(|()| Holder::new());
    registry.put(&ended);
    registry.put(&rotated);
    let [of_ended, of_rotated] = [&ended, &rotated].map(|holder| registry.staple(holder, NOW_S));
    let side = Side::new(&registry);
    let elsewhere = Side::knowing(&other, side.known.clone());
    let devices = list([&ended, &rotated]);
    let before = [(&ended, &of_ended), (&rotated, &of_rotated)].map(|(holder, staple)| {
        judged(&side.trusting(devices.clone()), holder, Some(staple), NOW_S).unwrap()
    });
    rotated.rotate();
    let [end, replacement] = [&ended, &rotated].map(|holder| holder.document_at(PARTNER));
    other.put_document(&end, 1, false);
    other.put_document(&replacement, 1, true);
    let there = elsewhere.trusting(devices.clone());
    let refusal = judged(&there, &ended, Some(&other.staple_of(&end, NOW_S)), NOW_S).unwrap_err();
    assert_eq!(refusal, ResolveError::Deactivated(ended.did().clone()).into());
    judged(&there, &rotated, Some(&other.staple_of(&replacement, NOW_S)), NOW_S).unwrap();
    for side in [&side, &side.restarted(&registry)] {
        let here = side.trusting(devices.clone());
        let beliefs = before.each_ref().map(|verified| here.still_believes(&verified.identity, at(NOW_S)));
        assert_eq!(beliefs, [Belief::Holds; 2]);
        for (verified, (holder, staple)) in before.iter().zip([(&ended, &of_ended), (&rotated, &of_rotated)])
        {
            let again = judged(&here, holder, Some(staple), NOW_S).unwrap();
            assert_eq!(again.public_key, verified.public_key);
        }
    }
    // Neither registry vouches for the other one.
    let fresh = Side::knowing(&Registry::at("third.example/1"), side.known.clone());
    let belief =
        |verified: &Verified| fresh.trusting(devices.clone()).still_believes(&verified.identity, at(NOW_S));
    assert_eq!(before.each_ref().map(|verified| belief(verified)), [Belief::Unknown; 2]);
}

/// Each origin has a bound of its own.
#[test]
fn a_registry_takes_no_place_of_the_dids_of_another_one() {
    let mut registry = Registry::new();
    let mut other = Registry::at(PARTNER);
    let [first, second, third] = [(); 3].map(|()| Holder::new());
    registry.put(&first);
    let [of_second, of_third] = [&second, &third].map(|holder| {
        let document = holder.document_at(PARTNER);
        other.put_document(&document, 0, true);
        document
    });
    let known = Arc::new(Known::new(Knowledge::with_max_dids(1)));
    let elsewhere = Side::knowing(&other, known.clone()).trusting(list([&second, &third]));
    judged(&elsewhere, &second, Some(&other.staple_of(&of_second, NOW_S)), NOW_S).unwrap();
    let refusal = judged(&elsewhere, &third, Some(&other.staple_of(&of_third, NOW_S)), NOW_S).unwrap_err();
    assert_eq!(refusal, ResolveError::Full(third.did().clone()).into());
    let here = Side::knowing(&registry, known).trusting(list([&first]));
    judged(&here, &first, Some(&registry.staple(&first, NOW_S)), NOW_S).unwrap();
}

/// How far the registry's log has come is known after a restart, too.
#[test]
fn a_smaller_log_is_refused_after_a_restart() {
    let mut registry = Registry::new();
    let device = Holder::new();
    let mut other = Holder::new();
    registry.put(&device);
    registry.put(&other);
    let before = registry.staple(&device, NOW_S);
    other.rotate();
    registry.put(&other);
    let side = Side::new(&registry);
    let devices = || list([&device, &other]);
    judged(&side.trusting(devices()), &other, Some(&registry.staple(&other, NOW_S)), NOW_S).unwrap();
    let restarted = side.restarted(&registry);
    assert_eq!(restarted.documents.registries()[0].oldest_size, 6);
    let refusal = judged(&restarted.trusting(devices()), &device, Some(&before), NOW_S).unwrap_err();
    assert!(matches!(refusal, Refusal::Resolve(ResolveError::OldProof(..))), "{refusal}");
    judged(&restarted.trusting(devices()), &device, Some(&registry.staple(&device, NOW_S)), NOW_S).unwrap();
    // Another registry with the same origin and size shows another history.
    let split = Side::knowing(&registry, side.known.clone());
    let mut replaced = Registry::new();
    replaced.put(&device);
    let trust = replaced.trust();
    let documents = RegistryDocuments::new(awslc(), trust).with_known(split.known);
    let refused = documents.verify(device.did(), &replaced.staple(&device, NOW_S), None, NOW_S);
    assert!(refused.unwrap_err().is_old());
}

/// The records that a store has received.
#[derive(Debug, Default)]
struct Stored(Mutex<Vec<Record>>);

impl KnownStore for Stored {
    fn add(&self, record: &Record) {
        self.0.lock().unwrap().push(*record);
    }
}

/// Also if it is only a little smaller, and nothing has changed about the DID.
#[test]
fn a_little_smaller_log_is_refused_after_a_restart() {
    let mut registry = Registry::new();
    let device = Holder::new();
    let other = Holder::new();
    registry.put(&device);
    // 200 entries, of which two are one part in a hundred.
    (0..99).for_each(|_| registry.put(&other));
    let stored = Arc::new(Stored::default());
    let side =
        Side::knowing(&registry, Arc::new(Known::new(Knowledge::default()).with_store(stored.clone())));
    let verifier = side.trusting(list([&device]));
    let before = registry.staple(&device, NOW_S);
    judged(&verifier, &device, Some(&before), NOW_S).unwrap();
    registry.put(&other);
    let newest = registry.staple(&device, NOW_S);
    judged(&verifier, &device, Some(&newest), NOW_S).unwrap();
    let restarted = Side::knowing(&registry, known());
    restarted.known.merge(stored.0.lock().unwrap().clone());
    let verifier = restarted.trusting(list([&device]));
    let refusal = judged(&verifier, &device, Some(&before), NOW_S).unwrap_err();
    assert!(matches!(refusal, Refusal::Resolve(ResolveError::OldProof(..))), "{refusal}");
    judged(&verifier, &device, Some(&newest), NOW_S).unwrap();
}

/// The documents of a `did:web` have no numbers, so a store cannot tell which of two was the later one.
#[test]
fn no_replaced_document_without_a_number_counts_again_after_a_restart() {
    let did: Did = "did:web:device.example".parse().unwrap();
    let documents = [(); 2].map(|()| DidDocument::of_key(&did, "key-1", &public(&key())).unwrap());
    let cache = |known: Arc<Known>| DocumentCache::new(awslc(), vec![DidMethod::WEB], 3600).with_known(known);
    let stored = Arc::new(Stored::default());
    let before = cache(Arc::new(Known::new(Knowledge::default()).with_store(stored.clone())));
    documents.iter().for_each(|document| before.insert(document.clone(), 0, NOW_S).unwrap());
    let known = known();
    known.merge(stored.0.lock().unwrap().clone());
    let restarted = cache(known);
    let standings = [&before, &restarted].map(|cache| {
        documents.each_ref().map(|document| {
            let hash = Sha256Hash::of(&awslc(), document.canonical().as_bytes()).unwrap();
            cache.standing(&did, &hash, 0)
        })
    });
    assert_eq!(standings, [[Standing::Outdated, Standing::Latest], [Standing::Unknown; 2]]);
    // An end needs no number.
    before.deactivate(did.clone());
    assert_eq!(stored.0.lock().unwrap().len(), 1);
}

/// Another listener of the program has accepted a larger log since.
#[test]
fn a_checkpoint_with_verified_signatures_is_compared_with_what_is_known_since() {
    let mut registry = Registry::new();
    let device = Holder::new();
    registry.put(&device);
    let note = registry.checkpoint(u64::try_from(NOW_S).unwrap()).to_string();
    let first = Side::new(&registry);
    let sides = [&first, &Side::knowing(&registry, first.known.clone())];
    let offered = |side: &Side| side.documents.checkpoint(note.as_bytes(), None, NOW_S).map(drop);
    assert_eq!(offered(sides[0]), Ok(()));
    registry.put(&device);
    assert!(sides[1].documents.accept(&registry.checkpoint(u64::try_from(NOW_S).unwrap()), None));
    for side in sides {
        assert_eq!(offered(side), Err(CheckpointError::Rollback { offered: 2, accepted: 4 }));
    }
}

#[test]
fn of_too_many_absent_dids_the_first_leaves() {
    let documents = RegistryDocuments::new(awslc(), Registry::new().trust());
    let did = |number: usize| format!("did:dunlin:device-{number}").parse::<Did>().unwrap();
    (0..MAX_CACHED_DOCUMENTS).for_each(|number| documents.set_absent(did(number), NOW_S));
    documents.set_absent(did(0), NOW_S + 1);
    documents.set_absent(did(MAX_CACHED_DOCUMENTS), NOW_S + 2);
    let absent = |now: Seconds| {
        (0..=MAX_CACHED_DOCUMENTS)
            .filter(|number| documents.is_absent(&did(*number), now))
            .collect::<Vec<_>>()
    };
    assert_eq!(absent(NOW_S + 2).len(), MAX_CACHED_DOCUMENTS);
    // The others were proven before.
    assert_eq!(absent(NOW_S + LOOK_UP_AGE + 1), [0, MAX_CACHED_DOCUMENTS]);
}

/// A verifier that has never heard of a DID cannot vouch for an earlier verdict.
#[test]
fn an_earlier_verdict_on_an_unknown_did_is_unknown() {
    let mut registry = Registry::new();
    let device = Holder::new();
    registry.put(&device);
    let staple = registry.staple(&device, NOW_S);
    let [side, fresh] = [(); 2].map(|()| Side::new(&registry));
    let verified = judged(&side.trusting(list([&device])), &device, Some(&staple), NOW_S).unwrap();
    let belief = |side: &Side| side.trusting(list([&device])).still_believes(&verified.identity, at(NOW_S));
    assert_eq!(
        [&side, &side.restarted(&registry), &fresh].map(belief),
        [Belief::Holds, Belief::Holds, Belief::Unknown]
    );
}

/// Beside a registry, the document to which a list pins a DID counts only if the registry does not have the
/// DID.
#[test]
fn a_pinned_document_beside_a_registry_is_asked_about() {
    let mut registry = Registry::new();
    let mut device = Holder::new();
    registry.put(&device);
    let hash = Sha256Hash::of(&awslc(), device.document().canonical().as_bytes()).unwrap();
    let pins = TrustList::read(&format!("{} {hash}", device.did())).unwrap();
    let pinned: Arc<dyn Resolver> =
        Arc::new(PinnedDocuments::new(&awslc(), &pins, [device.document().clone()]).unwrap());
    let alone = IdentifierVerifier::new(awslc(), pins.clone()).with_resolver(pinned.clone());
    judged(&alone, &device, None, NOW_S).unwrap();
    let side = Side::new(&registry);
    // Whichever the program names first.
    let first = IdentifierVerifier::new(awslc(), pins.clone()).with_resolver(pinned.clone());
    for verifier in
        [first.with_resolver(side.documents.clone()), side.trusting(pins.clone()).with_resolver(pinned)]
    {
        let refusal = judged(&verifier, &device, None, NOW_S).unwrap_err();
        assert_eq!(refusal.wanted(), Some(device.did()), "{refusal}");
        let verified = judged(&alone, &device, None, NOW_S).unwrap();
        assert_eq!(verifier.still_believes(&verified.identity, at(NOW_S)), Belief::Unknown);
        // The registry has proven that it does not have the DID.
        side.documents.set_absent(device.did().clone(), NOW_S);
        judged(&verifier, &device, None, NOW_S + LOOK_UP_AGE).unwrap();
        judged(&verifier, &device, None, NOW_S + LOOK_UP_AGE + 1).unwrap_err();
        assert_eq!(verifier.still_believes(&verified.identity, at(NOW_S)), Belief::Holds);
        side.documents.set_absent(device.did().clone(), NOW_S - LOOK_UP_AGE - 1);
    }
    device.end();
    registry.put(&device);
    let verifier = side.trusting(pins);
    judged(&verifier, &device, Some(&registry.staple(&device, NOW_S)), NOW_S).unwrap_err();
    let refusal = judged(&verifier, &device, None, NOW_S).unwrap_err();
    assert_eq!(refusal, ResolveError::Deactivated(device.did().clone()).into());
}

/// An older proof counts only while the watch has no answer, only within its age, and never against later
/// knowledge.
#[test]
fn an_older_proof_counts_in_an_outage_alone() {
    let mut registry = Registry::new();
    let mut device = Holder::new();
    let mut other = Holder::new();
    registry.put(&device);
    registry.put(&other);
    let [older, oldest] = [1800, 3601].map(|age| registry.staple(&device, NOW_S - age));
    other.rotate();
    registry.put(&other);
    let used = Arc::new(AtomicUsize::new(0));
    let counted = used.clone();
    let documents = RegistryDocuments::new(awslc(), registry.trust());
    let documents = documents.with_outage(3600, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let documents = Arc::new(documents);
    let verifier = IdentifierVerifier::new(awslc(), list([&device, &other])).with_resolver(documents.clone());
    judged(&verifier, &other, Some(&registry.staple(&other, NOW_S)), NOW_S).unwrap();
    let entry = device.entry();
    let judge = |staple: &Staple, now| {
        verifier.judge(std::slice::from_ref(&entry), Some(&staple.write().unwrap()), now)
    };
    judge(&older, NOW_S).unwrap_err();
    assert_eq!(documents.registries()[0].oldest_size, 6);
    let begin = Instant::now();
    let watch = documents.watch(begin);
    assert!(watch.unanswered(begin + SILENT_TIME));
    assert_eq!(documents.registries()[0].oldest_size, 0);
    let verified = judge(&older, NOW_S).unwrap();
    assert_eq!(verified.validity.until_s(), u64::try_from(NOW_S + 1800).unwrap());
    judge(&older, NOW_S + 1801).unwrap_err();
    judge(&oldest, NOW_S).unwrap_err();
    // A looked-up document counts for as long.
    judged(&verifier, &other, None, NOW_S + 3600).unwrap();
    judged(&verifier, &other, None, NOW_S + 3601).unwrap_err();
    assert_eq!(used.load(Ordering::Relaxed), 2);
    assert!(watch.answered(begin + SILENT_TIME));
    judge(&older, NOW_S).unwrap_err();
    // In an outage, too, an ended DID and an outdated document are refused.
    device.rotate();
    registry.put(&device);
    judged(&verifier, &device, Some(&registry.staple(&device, NOW_S)), NOW_S).unwrap();
    assert!(watch.unanswered(begin + 2 * SILENT_TIME));
    judge(&older, NOW_S + LOOK_UP_AGE + 1).unwrap_err();
    device.end();
    registry.put(&device);
    judged(&verifier, &device, Some(&registry.staple(&device, NOW_S)), NOW_S).unwrap_err();
    assert_eq!(judge(&older, NOW_S).unwrap_err(), ResolveError::Deactivated(device.did().clone()).into());
    assert_eq!(used.load(Ordering::Relaxed), 2);
}

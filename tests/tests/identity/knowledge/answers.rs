//! Whether a registry answers: only its silence makes older proofs count, so only an attacker who keeps all
//! answers away can bring it about.

use std::time::Duration;

use super::*;

fn begin() -> (Arc<RegistryDocuments>, Instant) {
    (Arc::new(RegistryDocuments::new(awslc(), Registry::new().trust())), Instant::now())
}

/// Each listener has a watch, and a reload begins others before the previous ones end.
#[test]
fn the_last_answer_to_any_watch_counts() {
    let (documents, begin) = begin();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let first = documents.watch(begin);
    assert!(!first.unanswered(at(59)) && !documents.is_silent());
    assert!(first.unanswered(at(60)) && documents.is_silent());
    // The beginning of another watch is no answer, and the news is told once.
    let second = documents.watch(at(61));
    assert!(!second.unanswered(at(61)) && documents.is_silent());
    assert!(!first.unanswered(at(70)) && documents.is_silent());
    assert!(second.answered(at(80)) && !documents.is_silent());
    assert!(!first.answered(at(90)) && !second.unanswered(at(149)) && !documents.is_silent());
    // An earlier answer whose news comes late changes nothing.
    second.answered(at(85));
    assert!(!first.unanswered(at(149)));
    assert!(first.unanswered(at(150)) && documents.is_silent());
    drop(first);
    assert!(documents.is_silent());
    drop(second);
    assert!(!documents.is_silent());
    // A later watch waits as long as the first one.
    let third = documents.watch(at(500));
    let fourth = documents.watch(at(530));
    assert!(!third.unanswered(at(559)));
    assert!(fourth.unanswered(at(560)));
}

#[test]
fn without_a_watch_nothing_is_silent() {
    let (documents, begin) = begin();
    drop(documents.watch(begin));
    assert!(!documents.is_silent());
}

/// Also one that this side refuses: a registry, or a web server in front of it, that shows an old state does
/// not make older proofs count.
#[test]
fn every_checkpoint_that_the_registry_has_signed_is_an_answer() {
    let mut registry = Registry::new();
    let device = Holder::new();
    let other = Holder::new();
    let now_s = u64::try_from(NOW_S).unwrap();
    registry.put(&device);
    let smaller = registry.checkpoint(now_s);
    registry.put(&other);
    let mut second = registry.other_history();
    second.put(&other);
    second.put(&device);
    let watch_key = Registry::at("watch.example/1").trust().witnesses()[0].clone();
    let watched = registry.trust().with_watches(vec![watch_key], 1).unwrap();
    let [documents, watched] =
        [registry.trust(), watched].map(|trust| RegistryDocuments::new(awslc(), trust));
    let newest = registry.checkpoint(now_s);
    assert!(documents.accept(&newest, None));
    let check = |documents: &RegistryDocuments, note: &str| documents.check_answer(note.as_bytes(), NOW_S);
    for (documents, signed, refusal) in [
        (&documents, &newest, None),
        (
            &documents,
            &registry.checkpoint(now_s - 90_000),
            Some(CheckpointError::Stale { found: 0, needed: 1 }),
        ),
        (&documents, &smaller, Some(CheckpointError::Rollback { offered: 2, accepted: 4 })),
        (&documents, &second.checkpoint(now_s), Some(CheckpointError::SplitView { size: 4 })),
        (&watched, &newest, Some(CheckpointError::Unwatched { found: 0, needed: 1 })),
    ] {
        let note = signed.to_string();
        let verdict = documents.checkpoint(note.as_bytes(), documents.newest().as_ref(), NOW_S);
        assert_eq!((verdict.err(), check(documents, &note)), (refusal, Ok(())));
    }
    // Knowledge from before a restart refuses these checkpoints, too.
    let known = Arc::new(Known::new(Knowledge::default()));
    let before = RegistryDocuments::new(awslc(), registry.trust()).with_known(known.clone());
    assert!(before.accept(&newest, None));
    let restarted = RegistryDocuments::new(awslc(), registry.trust()).with_known(known);
    for signed in [&smaller, &second.checkpoint(now_s)] {
        assert_eq!(check(&restarted, &signed.to_string()), Ok(()));
    }
    // Anyone can make these.
    let [mut thief, mut elsewhere] = [Registry::new(), Registry::at(PARTNER)];
    thief.put(&device);
    elsewhere.put(&device);
    let forged = newest.to_string().replacen("\n4\n", "\n5\n", 1);
    for note in [
        thief.checkpoint(now_s).to_string(),
        elsewhere.checkpoint(now_s).to_string(),
        forged,
        "no checkpoint".to_owned(),
    ] {
        assert!(check(&documents, &note).is_err(), "{note}");
    }
    assert_eq!(documents.newest(), Some(newest));
}

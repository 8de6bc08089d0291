//! The life cycle of keys: adding, rotating, revoking.

use zeroize::Zeroizing;

use super::{Identity, MIN_KEY_LEN, PskError, PskFault, PskRecord, PskRecords, Revoked, State};

/// Adds a key. With `replace`, it replaces the identity's existing key. A revoked identity stays revoked:
/// only a revoked record may replace it.
///
/// # Errors
/// [`PskFault::Exists`]; [`PskFault::Revoked`]; errors of the store.
pub fn add(records: &mut dyn PskRecords, record: PskRecord, replace: bool) -> Result<(), PskError> {
    match records.get(&record.identity)? {
        Some(_) if !replace => Err(PskFault::Exists(record.identity.to_string()).into()),
        Some(old) if old.revoked.is_some() && record.revoked.is_none() => {
            Err(PskFault::Revoked(record.identity.to_string()).into())
        }
        _ => records.put(record),
    }
}

/// All keys of a device. `who` is its name or one of its identities. A key without a device name belongs to a
/// device with the name of its identity.
///
/// # Errors
/// [`PskFault::Unknown`].
pub fn keys_of(records: &dyn PskRecords, who: &str) -> Result<Vec<PskRecord>, PskError> {
    let mut named = records.of_device(who)?;
    // A device name need not be a valid identity.
    let record = match Identity::parse(who.as_bytes()) {
        Ok(identity) => records.get(&identity)?,
        Err(_) if !named.is_empty() => None,
        Err(fault) => return Err(fault.into()),
    };
    match record {
        Some(record) if record.name.is_none() => named.insert(0, record),
        Some(PskRecord { name: Some(name), .. }) if named.is_empty() => return records.of_device(&name),
        None if named.is_empty() => return Err(PskFault::Unknown(who.to_owned()).into()),
        _ => {}
    }
    Ok(named)
}

/// The key of `who` that is valid now and for the longest time; of several, the newest.
///
/// # Errors
/// [`PskFault::Unknown`]; [`PskFault::Revoked`] if all keys are revoked; [`PskFault::NoneValid`].
pub fn current(records: &dyn PskRecords, who: &str, now_s: u64) -> Result<PskRecord, PskError> {
    let keys = keys_of(records, who)?;
    let all_revoked = keys.iter().all(|r| r.revoked.is_some());
    let valid = keys.into_iter().filter(|r| r.state(now_s) == State::Valid);
    let longest = valid.max_by_key(|r| r.not_after_s.unwrap_or(u64::MAX));
    let who = || who.to_owned();
    longest
        .ok_or_else(|| if all_revoked { PskFault::Revoked(who()) } else { PskFault::NoneValid(who()) }.into())
}

/// The result of a rotation.
pub struct Rotated {
    /// The expiring keys, the oldest first: the identity of each, and when it expires, in seconds since 1970.
    pub old: Vec<(Identity, u64)>,
    /// The new key. Its identity is the next generation of the current key's.
    pub new: PskRecord,
}

/// Gives `who` a new key. `make_key` makes a key with the given number of bytes. Keys that are valid now
/// expire after `overlap_s` seconds at the latest; until then they and the new key are valid. Keys that
/// become valid later do not change.
///
/// # Errors
/// Those of [`current`], of `make_key` and of the store.
pub fn rotate<E: From<PskError>>(
    records: &mut dyn PskRecords,
    who: &str,
    now_s: u64,
    overlap_s: u64,
    make_key: impl FnOnce(usize) -> Result<Zeroizing<Vec<u8>>, E>,
) -> Result<Rotated, E> {
    let current = current(records, who, now_s)?;
    let name = current.name.clone().unwrap_or_else(|| current.identity.to_string());
    let mut new = PskRecord::new(current.identity.clone(), make_key(current.key.len().max(MIN_KEY_LEN))?);
    while records.get(&new.identity)?.is_some() {
        new.identity = next_generation(&new.identity).map_err(PskError::from)?;
    }
    (new.name, new.hash, new.import) = (Some(name.clone()), current.hash, current.import);
    let mut rotated = Rotated { old: vec![], new: new.clone() };
    // This includes keys in the overlap of an earlier rotation, so that an overlap of zero leaves only the
    // new key.
    for mut old in keys_of(records, who)?.into_iter().filter(|r| r.state(now_s) == State::Valid) {
        let until_s = now_s.saturating_add(overlap_s).min(old.not_after_s.unwrap_or(u64::MAX));
        old.name.get_or_insert_with(|| name.clone());
        old.not_after_s = Some(until_s);
        rotated.old.push((old.identity.clone(), until_s));
        records.put(old)?;
    }
    records.put(new)?;
    Ok(rotated)
}

/// The identity after this one: `sensor-7`, `sensor-7.2`, `sensor-7.3`.
fn next_generation(identity: &Identity) -> Result<Identity, PskFault> {
    let bytes = identity.as_bytes();
    let digits = bytes.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (base, number) = bytes.split_at(bytes.len() - digits);
    let number = std::str::from_utf8(number).ok().and_then(|n| n.parse::<u32>().ok());
    let (base, next) = match (base.strip_suffix(b"."), number) {
        (Some(base), Some(number)) if number < u32::MAX => (base, number + 1),
        _ => (bytes, 2),
    };
    Identity::from_bytes([base, b".", next.to_string().as_bytes()].concat())
}

/// Revokes all keys of `who`, or with `only_identity` the key with exactly this identity. Returns the
/// identities.
///
/// # Errors
/// [`PskFault::Unknown`]; [`PskFault::AlreadyRevoked`] if all keys were revoked before; errors of the store.
pub fn revoke(
    records: &mut dyn PskRecords,
    who: &str,
    only_identity: bool,
    revoked: &Revoked,
) -> Result<Vec<Identity>, PskError> {
    let unknown = || PskFault::Unknown(who.to_owned());
    let found = if only_identity {
        vec![records.get(&Identity::parse(who.as_bytes())?)?.ok_or_else(unknown)?]
    } else {
        keys_of(records, who)?
    };
    let mut done = vec![];
    for mut record in found.into_iter().filter(|r| r.revoked.is_none()) {
        record.revoked = Some(revoked.clone());
        done.push(record.identity.clone());
        records.put(record)?;
    }
    if done.is_empty() { Err(PskFault::AlreadyRevoked(who.to_owned()).into()) } else { Ok(done) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::super::PskSet;
    use super::*;

    fn add_key(set: &mut PskSet, identity: &str) {
        let identity = Identity::parse(identity.as_bytes()).unwrap();
        add(set, PskRecord::new(identity, Zeroizing::new(vec![1; 20])), false).unwrap();
    }

    fn rotated(set: &mut PskSet, who: &str, now_s: u64, overlap_s: u64) -> Result<String, PskFault> {
        let made = rotate(set, who, now_s, overlap_s, |len| Ok::<_, PskError>(Zeroizing::new(vec![2; len])));
        made.map(|r| r.new.identity.to_string()).map_err(|e| e.fault)
    }

    fn valid(set: &PskSet, now_s: u64) -> Vec<String> {
        let valid = set.iter().filter(|r| r.state(now_s) == State::Valid);
        valid.map(|r| r.identity.to_string()).collect()
    }

    #[test]
    fn older_keys_stay_valid_for_the_overlap() {
        let mut set = PskSet::default();
        add_key(&mut set, "s");
        assert_eq!(rotated(&mut set, "s", 100, 50), Ok("s.2".into()));
        assert_eq!(valid(&set, 149), ["s", "s.2"]);
        assert_eq!(valid(&set, 150), ["s.2"]);
        // The device's name, the old identity and the new one all select the device's newest key.
        assert_eq!(rotated(&mut set, "s", 110, 50), Ok("s.3".into()));
        assert_eq!(rotated(&mut set, "s.2", 120, 20), Ok("s.4".into()));
        // No older key outlasts this overlap, even if an earlier rotation gave it more time.
        assert_eq!(valid(&set, 139), ["s", "s.2", "s.3", "s.4"]);
        assert_eq!(valid(&set, 140), ["s.4"]);
        assert_eq!(rotated(&mut set, "s", 125, 0), Ok("s.5".into()));
        assert_eq!(valid(&set, 125), ["s.5"]);
        assert!(set.iter().all(|r| r.name.as_deref() == Some("s") && r.key.len() == 20));
        assert_eq!(rotated(&mut set, "t", 1, 1), Err(PskFault::Unknown("t".into())));
    }

    #[test]
    fn rotation_never_prolongs_a_key() {
        let mut set = PskSet::default();
        add_key(&mut set, "s");
        rotated(&mut set, "s", 100, 50).unwrap();
        set.remove(&Identity::parse(b"s.2").unwrap()).unwrap();
        rotated(&mut set, "s", 110, 500).unwrap();
        assert_eq!(set.record(b"s").unwrap().not_after_s, Some(150));
    }

    #[test]
    fn rotation_leaves_keys_that_become_valid_later() {
        let mut set = PskSet::default();
        add_key(&mut set, "s");
        let mut planned = PskRecord::new(Identity::parse(b"p").unwrap(), Zeroizing::new(vec![1; 20]));
        (planned.name, planned.not_before_s) = (Some("s".into()), Some(1000));
        add(&mut set, planned, false).unwrap();
        rotated(&mut set, "s", 100, 0).unwrap();
        assert_eq!(
            (valid(&set, 100), valid(&set, 1000)),
            (vec!["s.2".into()], vec!["p".into(), "s.2".into()])
        );
    }

    #[test]
    fn replacing_a_key_does_not_lift_its_revocation() {
        let mut set = PskSet::default();
        add_key(&mut set, "s");
        let fresh = set.record(b"s").unwrap().clone();
        assert!(
            matches!(add(&mut set, fresh.clone(), false), Err(e) if e.fault == PskFault::Exists("s".into()))
        );
        add(&mut set, fresh.clone(), true).unwrap();
        let revoked = Revoked { at_s: 100, reason: None };
        revoke(&mut set, "s", false, &revoked).unwrap();
        assert!(
            matches!(add(&mut set, fresh.clone(), true), Err(e) if e.fault == PskFault::Revoked("s".into()))
        );
        add(&mut set, PskRecord { revoked: Some(revoked), ..fresh }, true).unwrap();
        assert_eq!(valid(&set, 100), [""; 0]);
    }

    #[test]
    fn revokes_all_keys_of_a_device_or_one_identity() {
        let mut set = PskSet::default();
        add_key(&mut set, "s");
        add_key(&mut set, "t");
        rotated(&mut set, "s", 100, 50).unwrap();
        let revoked = Revoked { at_s: 100, reason: Some("lost".into()) };
        let mut revoke = |who: &str, only| {
            let done = revoke(&mut set, who, only, &revoked);
            done.map(|d| d.iter().map(Identity::to_string).collect::<Vec<_>>()).map_err(|e| e.fault)
        };
        assert_eq!(revoke("s.2", true), Ok(vec!["s.2".to_owned()]));
        assert_eq!(revoke("s", false), Ok(vec!["s".to_owned()]));
        assert_eq!(revoke("s", false), Err(PskFault::AlreadyRevoked("s".into())));
        assert_eq!(rotated(&mut set, "s", 100, 1), Err(PskFault::Revoked("s".into())));
        assert_eq!(valid(&set, 100), ["t"]);
    }

    #[test]
    fn numbers_the_generations_of_an_identity() {
        for (old, new) in [("s", "s.2"), ("s.2", "s.3"), ("s.9", "s.10"), ("7", "7.2"), ("a.b", "a.b.2")] {
            let old = Identity::parse(old.as_bytes()).unwrap();
            assert_eq!(next_generation(&old).unwrap().to_string(), new);
        }
    }
}

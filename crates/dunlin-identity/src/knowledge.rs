//! The permanent knowledge of a program: that a DID has ended or has a later document, that an issuer has a
//! later status list, and how far a registry's log has come.
//!
//! [`Knowledge`] only grows. An entry takes [`RECORD_LEN`] bytes in a store, whatever it is about. At its
//! bound, [`Knowledge`] takes no further DID and forgets none, so strangers cannot displace the end of a key.
//! It does no I/O; [`Record`]s pass between it and a store.

use alloc::collections::BTreeMap;

use dunlin::crypto::CryptoProvider;

use crate::did::Did;

/// The most DIDs of one origin in [`Knowledge`], unless the program says otherwise, so that one registry does
/// not take the place of others. They take about 100 MiB of memory.
pub const MAX_KNOWN_DIDS: usize = 1 << 20;

/// The most status lists of one issuer in [`Knowledge`], so that one issuer does not take the place of
/// others.
pub const MAX_KNOWN_LISTS: usize = 4096;

/// The length of a [`Record`], in bytes.
pub const RECORD_LEN: usize = KEY_LEN + 8 + HASH_LEN + 1;

/// One byte for the kind, 8 for the owner, 16 for owner and name.
const KEY_LEN: usize = OWNER_LEN + 16;

/// The length of the kind and the owner, whose entries have a bound together.
const OWNER_LEN: usize = 9;

/// Half of a SHA-256: a holder who finds two documents with one such hash deceives itself alone.
const HASH_LEN: usize = 16;

/// The subject of an entry: digests of its names, so an entry tells no names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject([u8; KEY_LEN]);

impl Subject {
    // A kind whose meaning changes gets another number, so that no store is misread. 1 to 3 were without the
    // origin, 5 had the issuer's key.
    const DID: u8 = 4;
    const LOG: u8 = 6;
    const LIST: u8 = 7;
    const KINDS: [u8; 3] = [Self::DID, Self::LOG, Self::LIST];

    /// A DID, as the registry with this origin knows it: no registry ends or replaces the DIDs of another
    /// one. The origin is empty where there is no registry.
    pub fn did(provider: &CryptoProvider, origin: &str, did: &Did) -> Self {
        Self::of(provider, Self::DID, origin, &[did.as_str().as_bytes()])
    }

    /// The status list of an issuer at this URL, whichever of the issuer's keys has signed it.
    ///
    /// With a mark for each key, an older list by another key would hide a revocation. A list makes a mark
    /// only if a key of the issuer's document in force has signed it, and if its `validFrom` has come. So a
    /// thief of a key makes no mark that is later than the moment at which this side learns that the document
    /// no longer has the key. Every list that the issuer makes from then on counts. An earlier list does not
    /// count if the thief has made a later one: a list by which the issuer itself has revoked something with
    /// this key would look the same.
    pub fn list(provider: &CryptoProvider, issuer: &str, url: &str) -> Self {
        Self::of(provider, Self::LIST, issuer, &[url.as_bytes()])
    }

    /// The log of the registry with this origin.
    pub fn log(provider: &CryptoProvider, origin: &str) -> Self {
        Self::of(provider, Self::LOG, origin, &[])
    }

    /// The digest of the name covers the whole digest of the owner: two owners whose first 8 bytes agree
    /// share no more than a bound.
    fn of(provider: &CryptoProvider, kind: u8, owner: &str, name: &[&[u8]]) -> Self {
        let owner = provider.sha256.hash(&[owner.as_bytes()]);
        let name = provider.sha256.hash(&[&[owner.as_ref()], name].concat());
        let parts = [kind].into_iter().chain(owner.as_ref().iter().copied().take(OWNER_LEN - 1));
        let mut key = [0; KEY_LEN];
        key.iter_mut().zip(parts.chain(name.as_ref().iter().copied())).for_each(|(to, from)| *to = from);
        Self(key)
    }

    /// Whether it is the log of a registry. The mark of a log changes with almost every proof.
    pub const fn is_log(&self) -> bool {
        self.kind() == Self::LOG
    }

    const fn kind(&self) -> u8 {
        self.0[0]
    }

    /// The kind and the owner.
    fn owner(&self) -> [u8; OWNER_LEN] {
        self.0.first_chunk().copied().unwrap_or_default()
    }
}

/// The latest that is known of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number that grows: the number of a DID's document; when a list was made, and how many bits it has;
    /// the size of a log.
    pub number: u64,
    /// The beginning of the hash of the document, list or root.
    pub hash: [u8; HASH_LEN],
    /// Whether the DID has ended, for ever.
    pub ended: bool,
}

impl Mark {
    /// Something active with this number and hash.
    pub fn new(number: u64, hash: &[u8]) -> Self {
        let mut begin = [0; HASH_LEN];
        begin.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
        Self { number, hash: begin, ended: false }
    }

    /// A DID that has ended.
    pub const ENDED: Self = Self { number: 0, hash: [0; HASH_LEN], ended: true };

    /// Whether `self` is later than `other`: an end is later than everything.
    fn is_later(&self, other: &Self) -> bool {
        !other.ended && (self.ended || self.number > other.number)
    }
}

/// An entry for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The subject of the entry.
    pub subject: Subject,
    /// The latest that is known of it.
    pub mark: Mark,
}

impl Record {
    /// The bytes for a store.
    pub fn to_bytes(&self) -> [u8; RECORD_LEN] {
        let number = self.mark.number.to_be_bytes();
        let ended = [u8::from(self.mark.ended)];
        let parts = self.subject.0.iter().chain(&number).chain(&self.mark.hash).chain(&ended);
        let mut bytes = [0; RECORD_LEN];
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// Reads the bytes of a store. `None` if they are no record.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (subject, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (hash, rest) = rest.split_first_chunk()?;
        let ended = match rest {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let subject = Subject(*subject);
        if !Subject::KINDS.contains(&subject.kind()) {
            return None;
        }
        Some(Self { subject, mark: Mark { number: u64::from_be_bytes(*number), hash: *hash, ended } })
    }
}

/// How a learnt mark compares with the knowledge so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// It is later than what was known, or the first that is known.
    Later,
    /// It was known.
    Known,
    /// It has the number that is known, and another hash.
    Other,
    /// Something later is known.
    Earlier,
    /// The bound of the subject's origin or issuer is reached, and nothing is known of the subject.
    Full,
}

/// The permanent knowledge of a program. It only grows, up to its bounds.
#[derive(Clone, Debug)]
pub struct Knowledge {
    marks: BTreeMap<Subject, Mark>,
    /// How many entries each origin and issuer has.
    counts: BTreeMap<[u8; OWNER_LEN], usize>,
    max_dids: usize,
}

impl Default for Knowledge {
    /// At most [`MAX_KNOWN_DIDS`] of each origin.
    fn default() -> Self {
        Self::with_max_dids(MAX_KNOWN_DIDS)
    }
}

impl Knowledge {
    /// Nothing is known yet, and at most this many DIDs of each origin will be.
    pub const fn with_max_dids(max_dids: usize) -> Self {
        Self { marks: BTreeMap::new(), counts: BTreeMap::new(), max_dids }
    }

    /// The latest that is known of something.
    pub fn get(&self, subject: &Subject) -> Option<Mark> {
        self.marks.get(subject).copied()
    }

    /// Compares something with what is known, and keeps nothing.
    pub fn compare(&self, subject: &Subject, mark: &Mark) -> Learnt {
        match self.marks.get(subject) {
            None if self.is_full(subject) => Learnt::Full,
            None => Learnt::Later,
            Some(known) if mark.is_later(known) => Learnt::Later,
            Some(known) if known.is_later(mark) => Learnt::Earlier,
            Some(known) if known.ended || known.hash == mark.hash => Learnt::Known,
            Some(_) => Learnt::Other,
        }
    }

    /// Keeps the later of something and what is known.
    pub fn learn(&mut self, subject: Subject, mark: Mark) -> Learnt {
        let learnt = self.compare(&subject, &mark);
        if learnt == Learnt::Later {
            let is_new = self.marks.insert(subject, mark).is_none();
            *self.counts.entry(subject.owner()).or_default() += usize::from(is_new);
        }
        learnt
    }

    /// Keeps another hash of the number that is known: of documents without numbers of their own, the one
    /// that was looked up last counts.
    pub fn replace(&mut self, subject: Subject, mark: Mark) {
        if let Some(known) = self.marks.get_mut(&subject).filter(|known| !known.ended) {
            *known = mark;
        }
    }

    fn is_full(&self, subject: &Subject) -> bool {
        let bound = match subject.kind() {
            Subject::DID => self.max_dids,
            Subject::LIST => MAX_KNOWN_LISTS,
            // An origin has one log.
            _ => return false,
        };
        self.counts.get(&subject.owner()).copied().unwrap_or_default() >= bound
    }

    /// All entries, for a store.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.marks.iter().map(|(subject, mark)| Record { subject: *subject, mark: *mark })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

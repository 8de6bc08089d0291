//! The status of credentials: W3C Bitstring Status List 1.0, made and checked without network.
//!
//! An issuer publishes a list as a credential. A program fetches it, or receives it from the holder, and
//! keeps it in [`StatusLists`], with which [`Verifier::verify_with_status`] checks credentials.

use std::cmp::Reverse;

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use serde_json::{Map, Value, json};

use super::time::DateTime;
use super::{CREDENTIALS_V2, CredentialError, Seconds, Verifier, shown, texts, unsigned};
use crate::did::Did;
use crate::document::{DidDocument, Relationship};
use crate::encoding::gzip::{self, GzipError};
use crate::key::PublicKey;
use crate::knowledge::{MAX_KNOWN_LISTS, Mark, Subject};

/// The fewest entries of a list, so that an entry does not identify a holder (Bitstring Status List §3.1,
/// §6.1).
pub const MIN_STATUS_ENTRIES: u64 = 131_072;

/// The most entries of a list: 128 KiB without compression. An issuer with more credentials has several
/// lists.
pub const MAX_STATUS_ENTRIES: u64 = 1 << 20;

/// The longest credential that contains a list, in bytes: a list that does not shrink, in base64url, as a JWT
/// also twice.
pub const MAX_STATUS_CREDENTIAL: usize = 256 * 1024;

/// The longest status lists that a holder sends beside a credential, in bytes together with their lengths. It
/// is enough for lists in which one credential in twenty is revoked.
pub const MAX_STATUS_STAPLE: usize = 16 * 1024;

/// How many statuses a credential may have.
pub const MAX_STATUSES: usize = 4;

/// How many lists from holders a program keeps, unless it says otherwise. They take up to 8 MiB.
pub const MAX_STATUS_LISTS: usize = 64;

/// How old a list may be, unless the program says otherwise: the longest that a revocation can be missed.
pub const DEFAULT_STATUS_AGE: Seconds = 24 * 3600;

/// The longest URL of a list, in bytes.
pub const MAX_STATUS_URL: usize = 2048;

/// The default `ttl` of a list, in milliseconds (Bitstring Status List §2.2).
const DEFAULT_TTL: u64 = 300_000;

/// Why a status or a list is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The issuer has revoked the credential, for ever.
    #[error("the issuer has revoked the credential")]
    Revoked,
    /// The issuer has suspended the credential.
    #[error("the issuer has suspended the credential")]
    Suspended,
    /// The program does not have the list.
    #[error("the status list {0:?} is not at hand: fetch it")]
    Missing(String),
    /// The list is too old, or its validity has ended.
    #[error("the status list {0:?} is too old: fetch it again")]
    Stale(String),
    /// The list is older than the one at hand; or it is of the same second, and lacks some of its bits.
    #[error(
        "the status list {0:?} is older than the one at hand, or of the same second without all of its bits"
    )]
    Older(String),
    /// Another issuer than the credential's signed the list.
    #[error("the status list {0:?} has another issuer than the credential")]
    OtherIssuer(String),
    /// The list does not have the purpose of the entry.
    #[error("the status list {0:?} has another purpose than the entry of the credential")]
    OtherPurpose(String),
    /// The list is not the one that was asked for.
    #[error("the status list is {0:?}, which is not the one asked for")]
    OtherList(String),
    /// The list does not have that many entries.
    #[error("the status list has no entry {0}")]
    Index(u64),
    /// A status has another type than `BitstringStatusListEntry`, or a list another one than
    /// `BitstringStatusListCredential`.
    #[error("unknown type {0:?} of a status or status list")]
    Type(String),
    /// The purpose is neither revocation nor suspension, or an entry has several bits.
    #[error("unknown purpose or size of a status")]
    Purpose,
    /// A member of a status or list is missing or malformed.
    #[error("missing or malformed member {0:?} of a status or status list")]
    Member(&'static str),
    /// The lists beside a credential are no such lists: malformed, twice the same, too many or too long
    /// together.
    #[error(
        "the status lists beside the credential are malformed, repeated, more than {MAX_STATUSES}, or longer than \
         {MAX_STATUS_STAPLE} bytes together"
    )]
    Staple,
    /// [`MAX_KNOWN_LISTS`] lists of the issuer are known, and this is another one.
    #[error("the issuer has more than {MAX_KNOWN_LISTS} status lists, and this one is new here")]
    TooManyLists,
    /// The credential has more than [`MAX_STATUSES`] statuses.
    #[error("the credential has more than {MAX_STATUSES} statuses")]
    TooMany,
    /// The compressed list is malformed or too long.
    #[error("status list: {0}")]
    Gzip(#[from] GzipError),
    /// The list has fewer than [`MIN_STATUS_ENTRIES`] entries or more than [`MAX_STATUS_ENTRIES`].
    #[error("the status list has {0} entries: use {MIN_STATUS_ENTRIES} to {MAX_STATUS_ENTRIES}")]
    Length(u64),
}

/// The meaning of a set bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusPurpose {
    /// The credential is invalid for ever.
    Revocation,
    /// The credential is invalid until the bit is cleared.
    Suspension,
}

impl StatusPurpose {
    const ALL: [Self; 2] = [Self::Revocation, Self::Suspension];

    /// The name in entries and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Revocation => "revocation",
            Self::Suspension => "suspension",
        }
    }

    fn read(name: &str) -> Result<Self, StatusError> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == name).ok_or(StatusError::Purpose)
    }

    const fn refusal(self) -> StatusError {
        match self {
            Self::Revocation => StatusError::Revoked,
            Self::Suspension => StatusError::Suspended,
        }
    }
}

/// The place of a credential's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusEntry {
    /// The URL of the list.
    pub list: String,
    /// The number of the bit, from 0. An issuer chooses it at random, so that it says nothing about the
    /// holder.
    pub index: u64,
    /// The meaning of the bit.
    pub purpose: StatusPurpose,
}

impl StatusEntry {
    /// The member `credentialStatus` of a credential.
    pub fn to_value(&self) -> Value {
        json!({
            "type": "BitstringStatusListEntry",
            "statusPurpose": self.purpose.name(),
            "statusListIndex": self.index.to_string(),
            "statusListCredential": self.list,
        })
    }

    /// The entry in few bytes: the list, the index and the purpose.
    pub(crate) fn to_compact(&self) -> Value {
        json!([self.list, self.index.to_string(), self.purpose.name()])
    }

    /// Reads an array of entries in few bytes.
    pub(crate) fn read_compact(entries: Option<&Value>) -> Result<Vec<Self>, StatusError> {
        let malformed = || StatusError::Member("status");
        let read = |entry: &Value| {
            let text = |at: usize| entry.get(at).and_then(Value::as_str).ok_or_else(malformed);
            let list = text(0)?.to_owned();
            let purpose = StatusPurpose::read(text(2)?)?;
            Ok(Self { list, index: text(1)?.parse().map_err(|_| malformed())?, purpose })
        };
        let Some(entries) = entries else { return Ok(Vec::new()) };
        entries.as_array().ok_or_else(malformed)?.iter().map(read).collect()
    }

    /// The statuses of a credential.
    pub(crate) fn read_all(credential: &Map<String, Value>) -> Result<Vec<Self>, StatusError> {
        match credential.get("credentialStatus") {
            None => Ok(Vec::new()),
            Some(Value::Array(entries)) if entries.len() > MAX_STATUSES => Err(StatusError::TooMany),
            Some(Value::Array(entries)) => entries.iter().map(Self::read).collect(),
            Some(entry) => Ok(vec![Self::read(entry)?]),
        }
    }

    fn read(entry: &Value) -> Result<Self, StatusError> {
        let text = |name| entry.get(name).and_then(Value::as_str).ok_or(StatusError::Member(name));
        let typ = text("type")?;
        if typ != "BitstringStatusListEntry" {
            return Err(StatusError::Type(shown(typ)));
        }
        let purpose = StatusPurpose::read(text("statusPurpose")?)?;
        // Bitstring Status List §2.1: several bits serve the purpose `message` alone.
        if entry.get("statusSize").is_some_and(|size| size != 1) {
            return Err(StatusError::Purpose);
        }
        let index = text("statusListIndex")?;
        // Numbers in another form, such as +1 or 01, have no meaning there.
        let number = index.parse().ok().filter(|number: &u64| number.to_string() == index);
        let index = number.ok_or(StatusError::Member("statusListIndex"))?;
        let list = text("statusListCredential")?;
        if list.len() > MAX_STATUS_URL {
            return Err(StatusError::Member("statusListCredential"));
        }
        Ok(Self { list: list.to_owned(), index, purpose })
    }
}

/// The bits of a list. The first is the highest bit of the first byte (Bitstring Status List §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitstring(Vec<u8>);

impl Default for Bitstring {
    /// [`MIN_STATUS_ENTRIES`] bits, all clear.
    fn default() -> Self {
        Self(vec![0; (MIN_STATUS_ENTRIES / 8) as usize])
    }
}

impl Bitstring {
    /// A list of this many clear bits, rounded up to bytes.
    ///
    /// # Errors
    /// [`StatusError::Length`].
    pub fn new(entries: u64) -> Result<Self, StatusError> {
        Self::checked_len(entries)?;
        Ok(Self(vec![0; entries.div_ceil(8) as usize]))
    }

    fn checked_len(entries: u64) -> Result<(), StatusError> {
        let fits = (MIN_STATUS_ENTRIES..=MAX_STATUS_ENTRIES).contains(&entries);
        if fits { Ok(()) } else { Err(StatusError::Length(entries)) }
    }

    /// How many entries the list has.
    pub fn entries(&self) -> u64 {
        self.0.len() as u64 * 8
    }

    /// Whether a bit is set.
    ///
    /// # Errors
    /// [`StatusError::Index`].
    pub fn get(&self, index: u64) -> Result<bool, StatusError> {
        let byte = usize::try_from(index / 8).ok().and_then(|at| self.0.get(at));
        Ok(byte.ok_or(StatusError::Index(index))? & 0x80 >> (index % 8) != 0)
    }

    /// Sets or clears a bit.
    ///
    /// # Errors
    /// [`StatusError::Index`].
    pub fn set(&mut self, index: u64, value: bool) -> Result<(), StatusError> {
        let byte = usize::try_from(index / 8).ok().and_then(|at| self.0.get_mut(at));
        let byte = byte.ok_or(StatusError::Index(index))?;
        let bit = 0x80 >> (index % 8);
        *byte = if value { *byte | bit } else { *byte & !bit };
        Ok(())
    }

    /// Whether every bit that is set in the other list is set in this one, too.
    fn covers(&self, other: &Self) -> bool {
        self.0.len() >= other.0.len() && self.0.iter().zip(&other.0).all(|(own, other)| other & !own == 0)
    }

    /// The member `encodedList`: gzip, in multibase with base64url.
    pub fn encode(&self) -> String {
        format!("u{}", Base64UrlUnpadded::encode_string(&gzip::compress(&self.0)))
    }

    /// Reads the member `encodedList`, of at most [`MAX_STATUS_ENTRIES`] entries.
    ///
    /// # Errors
    /// [`StatusError::Member`], [`StatusError::Gzip`], [`StatusError::Length`].
    pub fn decode(encoded: &str) -> Result<Self, StatusError> {
        let malformed = StatusError::Member("encodedList");
        let text = encoded.strip_prefix('u').ok_or(malformed.clone())?;
        let bytes = Base64UrlUnpadded::decode_vec(text).map_err(|_| malformed)?;
        let bits = gzip::decompress(&bytes, (MAX_STATUS_ENTRIES / 8) as usize)?;
        Self::checked_len(bits.len() as u64 * 8)?;
        Ok(Self(bits))
    }

    /// The credential in which an issuer publishes the list at `url`. [`Issuer`](super::Issuer) signs it.
    ///
    /// # Errors
    /// [`CredentialError::Member`] if a time is out of range.
    pub fn credential(
        &self,
        issuer: &Did,
        url: &str,
        purpose: StatusPurpose,
        valid_from: Seconds,
        valid_until: Seconds,
    ) -> Result<Value, CredentialError> {
        let time = |name, seconds| {
            DateTime::from_seconds(seconds).map(|time| time.to_string()).ok_or(CredentialError::Member(name))
        };
        Ok(json!({
            "@context": [CREDENTIALS_V2],
            "id": url,
            "type": ["VerifiableCredential", "BitstringStatusListCredential"],
            "issuer": issuer.as_str(),
            "validFrom": time("validFrom", valid_from)?,
            "validUntil": time("validUntil", valid_until)?,
            "credentialSubject": {
                "id": format!("{url}#list"),
                "type": "BitstringStatusList",
                "statusPurpose": purpose.name(),
                "encodedList": self.encode(),
            },
        }))
    }
}

/// Encodes the status lists that a holder sends beside its credential in a handshake, so that verifiers need
/// not fetch them from the issuer: the credentials of the lists, each as `opaque list<1..2^16-1>`.
///
/// # Errors
/// [`StatusError::Staple`].
pub fn write_staple(lists: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, StatusError> {
    let mut staple = Vec::new();
    for list in lists.iter().map(AsRef::as_ref) {
        let length = u16::try_from(list.len()).ok().filter(|length| *length > 0);
        staple.extend(length.ok_or(StatusError::Staple)?.to_be_bytes());
        staple.extend(list);
    }
    let fits = lists.len() <= MAX_STATUSES && staple.len() <= MAX_STATUS_STAPLE;
    if fits { Ok(staple) } else { Err(StatusError::Staple) }
}

/// The lists in a staple ([`write_staple`]).
///
/// # Errors
/// [`StatusError::Staple`].
pub fn read_staple(staple: &[u8]) -> Result<Vec<&[u8]>, StatusError> {
    let mut lists = Vec::new();
    let mut rest = staple;
    while let Some((length, after)) = rest.split_first_chunk() {
        let list = after.split_at_checked(u16::from_be_bytes(*length).into());
        let (list, after) = list.filter(|(list, _)| !list.is_empty()).ok_or(StatusError::Staple)?;
        lists.push(list);
        rest = after;
    }
    let fits = rest.is_empty() && lists.len() <= MAX_STATUSES && staple.len() <= MAX_STATUS_STAPLE;
    if fits { Ok(lists) } else { Err(StatusError::Staple) }
}

/// Which list a credential says that it contains, before anything is verified.
///
/// # Errors
/// [`CredentialError`] of what cannot be read; [`StatusError::Member`] without an `id`.
pub fn list_url(credential: &[u8]) -> Result<String, CredentialError> {
    Ok(url_of(&super::unverified(credential)?)?.to_owned())
}

/// The issuer that a credential names, before anything is verified.
///
/// # Errors
/// [`CredentialError`] of what cannot be read; [`CredentialError::Member`] without an issuer.
pub fn list_issuer(credential: &[u8]) -> Result<String, CredentialError> {
    let list = super::unverified(credential)?;
    let issuer = list.get("issuer").map(|issuer| issuer.get("id").unwrap_or(issuer));
    let issuer = issuer.and_then(Value::as_str).ok_or(CredentialError::Member("issuer"))?;
    Ok(issuer.to_owned())
}

/// Whether a list is older than [`DEFAULT_STATUS_AGE`] by the time that it gives, before anything is
/// verified. Then it counts no longer.
pub fn is_old(credential: &[u8], now: Seconds) -> bool {
    let made = super::unverified(credential).ok().and_then(|list| DateTime::read(list.get("validFrom")?));
    made.is_some_and(|made| now > made.seconds().saturating_add(DEFAULT_STATUS_AGE))
}

fn url_of(list: &Value) -> Result<&str, StatusError> {
    list.get("id").and_then(Value::as_str).ok_or(StatusError::Member("id"))
}

/// Whether a credential contains a list.
pub(super) fn is_list(credential: &Value) -> bool {
    texts(credential.get("type")).is_some_and(|types| types.contains(&"BitstringStatusListCredential"))
}

/// A list after all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusList {
    url: String,
    issuer: String,
    /// SHA-256 of its credential.
    hash: Vec<u8>,
    mark: Mark,
    /// The issuer's key, and the scheme of its signature.
    key: PublicKey,
    scheme: SignatureScheme,
    purposes: Vec<StatusPurpose>,
    bits: Bitstring,
    made: Seconds,
    valid_until: Option<Seconds>,
    refresh: Seconds,
}

impl StatusList {
    /// Verifies the credential that was fetched from `url`, or that a holder sent for it. The verifier must
    /// trust its issuer.
    ///
    /// # Errors
    /// [`CredentialError`] of the credential; [`CredentialError::Status`] of the list.
    pub fn verify(
        verifier: &Verifier,
        provider: &CryptoProvider,
        credential: &[u8],
        url: &str,
        now: Seconds,
    ) -> Result<Self, CredentialError> {
        if credential.len() > MAX_STATUS_CREDENTIAL {
            return Err(CredentialError::TooLong);
        }
        let hash = provider.sha256.hash(&[credential]).as_ref().to_vec();
        let secured = verifier.secured(provider, credential, now, MAX_STATUS_CREDENTIAL)?;
        let valid_until = secured.check_times(now)?;
        let credential = &secured.credential;
        let claims = &secured.claims;
        // The status of a list would be in a list.
        if credential.get("credentialStatus").is_some() {
            return Err(CredentialError::Unchecked("credentialStatus"));
        }
        if !is_list(credential) {
            return Err(StatusError::Type("VerifiableCredential".to_owned()).into());
        }
        // Otherwise a holder could send one list of the issuer for another.
        let id = url_of(credential)?;
        if id != url {
            return Err(StatusError::OtherList(shown(id)).into());
        }
        let subject = credential.get("credentialSubject").and_then(Value::as_object);
        let subject = subject.ok_or(StatusError::Member("credentialSubject"))?;
        match subject.get("type").and_then(Value::as_str) {
            Some("BitstringStatusList") => {}
            typ => return Err(StatusError::Type(shown(typ.unwrap_or_default())).into()),
        }
        let names = texts(subject.get("statusPurpose")).ok_or(StatusError::Member("statusPurpose"))?;
        let purposes = names.into_iter().map(StatusPurpose::read).collect::<Result<Vec<_>, _>>()?;
        let encoded = subject.get("encodedList").and_then(Value::as_str);
        let bits = Bitstring::decode(encoded.ok_or(StatusError::Member("encodedList"))?)?;
        let ttl = match subject.get("ttl") {
            None => DEFAULT_TTL,
            // JSON has one kind of numbers: 300000.0 and 3e5 are 300000.
            Some(ttl) => ttl.as_f64().filter(|ttl| *ttl >= 0.0).ok_or(StatusError::Member("ttl"))? as u64,
        };
        // The signed time says how old the list is: a holder or a cache may have kept it.
        let made = claims.valid_from.ok_or(CredentialError::Member("validFrom"))?.seconds();
        let ttl = Seconds::try_from(ttl / 1000).unwrap_or(Seconds::MAX);
        let refresh = now.saturating_add(ttl);
        let issuer = claims.issuer.clone();
        let url = url.to_owned();
        let key = secured.key;
        let scheme = secured.scheme;
        let mark = mark(provider, made, &purposes, &bits);
        Ok(Self { url, issuer, hash, mark, key, scheme, purposes, bits, made, valid_until, refresh })
    }

    /// As [`Self::verify`], for a list in a file of the program. The list says itself which one it is.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_file(
        verifier: &Verifier,
        provider: &CryptoProvider,
        content: &[u8],
        now: Seconds,
    ) -> Result<Self, CredentialError> {
        let credential = super::of_file(content);
        Self::verify(verifier, provider, credential, &list_url(credential)?, now)
    }

    /// The URL of the list.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The DID of the issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The subject under which [`Knowledge`](crate::knowledge::Knowledge) keeps the lists of this issuer and
    /// URL.
    pub fn subject(&self, provider: &CryptoProvider) -> Subject {
        Subject::list(provider, &self.issuer, &self.url)
    }

    /// How new the list is, and which one of a second.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The scheme of the issuer's signature.
    pub fn scheme(&self) -> SignatureScheme {
        self.scheme
    }

    /// Whether the issuer has this document, with the key that has signed the list.
    pub fn is_by(&self, issuer: &DidDocument) -> bool {
        let mut keys = issuer.keys(Relationship::AssertionMethod);
        issuer.id().as_str() == self.issuer && keys.any(|(_, key)| *key == self.key)
    }

    /// The bits.
    pub fn bits(&self) -> &Bitstring {
        &self.bits
    }

    /// When the issuer made the list.
    pub fn made(&self) -> Seconds {
        self.made
    }

    /// Whether the list may take the place of this one. Times are in seconds, and of two lists of one second
    /// nothing says which one is newer. So the second of them must refuse all that the first refuses.
    fn may_replace(&self, present: &Self) -> bool {
        let covers = || {
            present.purposes.iter().all(|purpose| self.purposes.contains(purpose))
                && self.bits.covers(&present.bits)
        };
        self.made > present.made || (self.made == present.made && covers())
    }
}

/// How new a list is. Of two lists of one second, the one with more bits is newer: an issuer who revokes
/// twice in a second adds bits.
fn mark(provider: &CryptoProvider, made: Seconds, purposes: &[StatusPurpose], bits: &Bitstring) -> Mark {
    let set: u64 = bits.0.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let purposes: Vec<u8> = purposes.iter().map(|purpose| *purpose as u8).collect();
    let hash = provider.sha256.hash(&[&purposes, &bits.0]);
    // All bits of the longest list take 21 bits.
    let number = unsigned(made).saturating_mul(2 * MAX_STATUS_ENTRIES).saturating_add(set);
    Mark::new(number, hash.as_ref())
}

/// A list, and whether it stays for the program.
#[derive(Clone, Debug)]
struct Held {
    list: StatusList,
    stays: bool,
}

/// The lists that a program has at hand.
#[derive(Clone, Debug)]
pub struct StatusLists {
    held: Vec<Held>,
    max_age: Seconds,
    capacity: usize,
}

impl Default for StatusLists {
    /// At most [`MAX_STATUS_LISTS`] lists from holders, and none older than [`DEFAULT_STATUS_AGE`].
    fn default() -> Self {
        Self::new(DEFAULT_STATUS_AGE, MAX_STATUS_LISTS)
    }
}

impl StatusLists {
    /// Lists that are not older than `max_age` seconds: the longest that a revocation can be missed. At most
    /// `capacity` of them are from holders ([`Self::merge`]).
    pub const fn new(max_age: Seconds, capacity: usize) -> Self {
        Self { held: Vec::new(), max_age, capacity }
    }

    /// How old a list may be, in seconds.
    pub const fn max_age(&self) -> Seconds {
        self.max_age
    }

    /// Takes a list of the program in the place of an older one with this URL. It never leaves.
    ///
    /// # Errors
    /// [`StatusError::Older`]: a list never goes back, so a stored copy hides no revocation. Of two lists of
    /// one second, the one with all bits of the other counts.
    pub fn insert(&mut self, list: StatusList) -> Result<(), StatusError> {
        self.take(list, true)
    }

    fn take(&mut self, list: StatusList, stays: bool) -> Result<(), StatusError> {
        let same = |held: &&mut Held| held.list.url == list.url && held.list.issuer == list.issuer;
        match self.held.iter_mut().find(same) {
            Some(held) => {
                held.stays |= stays;
                if !list.may_replace(&held.list) {
                    return Err(StatusError::Older(shown(&list.url)));
                }
                held.list = list;
            }
            None => self.held.push(Held { list, stays }),
        }
        Ok(())
    }

    /// The lists.
    pub fn iter(&self) -> impl Iterator<Item = &StatusList> {
        self.held.iter().map(|held| &held.list)
    }

    /// Keeps only these lists.
    pub fn retain(&mut self, keep: impl Fn(&StatusList) -> bool) {
        self.held.retain(|held| keep(&held.list));
    }

    /// Takes those lists from holders that are newer than the ones at hand. Older ones change nothing. When
    /// there are too many, one of them leaves: of the issuer with the most, the one that was made first. So
    /// the lists of one issuer do not displace those of another.
    pub fn merge<'l>(&mut self, others: impl IntoIterator<Item = &'l StatusList>) {
        for list in others {
            // Only an older list is refused.
            let _ = self.take(list.clone(), false);
            self.bound();
        }
    }

    fn bound(&mut self) {
        let sent = || self.held.iter().enumerate().filter(|(_, held)| !held.stays);
        if sent().count() > self.capacity {
            let of = |issuer: &str| sent().filter(|(_, held)| held.list.issuer == issuer).count();
            let first = sent().min_by_key(|(_, held)| (Reverse(of(&held.list.issuer)), held.list.made));
            if let Some((first, _)) = first {
                self.held.remove(first);
            }
        }
    }

    /// The URLs of lists that the program should fetch again, because their `ttl` has passed.
    pub fn due(&self, now: Seconds) -> impl Iterator<Item = &str> {
        self.iter().filter(move |list| list.refresh <= now).map(|list| list.url.as_str())
    }

    /// The last second in which a list counts.
    fn end(&self, list: &StatusList) -> Seconds {
        let end = list.made.saturating_add(self.max_age);
        list.valid_until.map_or(end, |valid_until| valid_until.min(end))
    }

    /// Whether a list at hand says that the issuer has revoked or suspended a credential with these statuses.
    /// A list that is not at hand says nothing.
    pub fn refuses(&self, issuer: &Did, entries: &[StatusEntry]) -> bool {
        let of_issuer = |list: &&StatusList| list.issuer == issuer.as_str();
        entries.iter().any(|entry| {
            let named = self.iter().filter(of_issuer).filter(|list| list.url == entry.list);
            let mut lists = named.filter(|list| list.purposes.contains(&entry.purpose));
            // A list without the entry would refuse the credential, too.
            lists.any(|list| list.bits.get(entry.index).unwrap_or(true))
        })
    }

    /// Whether lists at hand that are not too old say that the issuer has neither revoked nor suspended a
    /// credential with these statuses. `is_newest` says whether no newer list is known.
    pub(crate) fn vouch(
        &self,
        issuer: &Did,
        entries: &[StatusEntry],
        now: Seconds,
        is_newest: impl Fn(&StatusList) -> bool,
    ) -> bool {
        self.check(&[], issuer.as_str(), entries, now, is_newest).is_ok()
    }

    /// Checks the statuses of a credential, by these lists and those that its holder has `sent`, after all
    /// checks: the newest one counts, unless `is_newest` says that a newer one is known. Returns the last
    /// second for which the answer holds; `None` if there are no statuses.
    pub(crate) fn check(
        &self,
        sent: &[StatusList],
        issuer: &str,
        entries: &[StatusEntry],
        now: Seconds,
        is_newest: impl Fn(&StatusList) -> bool,
    ) -> Result<Option<Seconds>, StatusError> {
        let mut until = None;
        for entry in entries {
            let named = || self.iter().chain(sent).filter(|list| list.url == entry.list);
            let of_issuer = named().filter(|list| list.issuer == issuer);
            let newest = of_issuer.reduce(|list, other| if other.may_replace(list) { other } else { list });
            let list = newest.ok_or_else(|| match named().next() {
                Some(_) => StatusError::OtherIssuer(shown(&entry.list)),
                None => StatusError::Missing(shown(&entry.list)),
            })?;
            let end = self.end(list);
            if now > end {
                return Err(StatusError::Stale(shown(&entry.list)));
            }
            if !list.purposes.contains(&entry.purpose) {
                return Err(StatusError::OtherPurpose(shown(&entry.list)));
            }
            if list.bits.get(entry.index)? {
                return Err(entry.purpose.refusal());
            }
            if !is_newest(list) {
                return Err(StatusError::Stale(shown(&entry.list)));
            }
            until = Some(until.map_or(end, |until: Seconds| until.min(end)));
        }
        Ok(until)
    }

    /// Whether a list that a holder has sent is at hand already, or a newer one.
    pub(crate) fn have(&self, provider: &CryptoProvider, issuer: &str, sent: &SentList<'_>) -> bool {
        let mut named = self.iter().filter(|list| list.url == sent.url && list.issuer == issuer);
        named.next().is_some_and(|present| {
            sent.made < present.made || present.hash == *provider.sha256.hash(&[sent.credential]).as_ref()
        })
    }
}

/// A list that a holder has sent beside a credential. Nothing in it is verified yet.
pub(crate) struct SentList<'s> {
    pub(crate) url: String,
    made: Seconds,
    pub(crate) credential: &'s [u8],
}

impl<'s> SentList<'s> {
    /// The lists in a staple beside a credential with these statuses.
    ///
    /// # Errors
    /// [`StatusError::Staple`]; [`StatusError::OtherList`]: the credential has no status in the list;
    /// [`CredentialError`] of what cannot be read.
    pub(crate) fn read_all(staple: &'s [u8], entries: &[StatusEntry]) -> Result<Vec<Self>, CredentialError> {
        let mut lists: Vec<Self> = Vec::new();
        for sent in read_staple(staple)? {
            let value = super::unverified(sent)?;
            let url = url_of(&value)?;
            if !entries.iter().any(|entry| entry.list == url) {
                return Err(StatusError::OtherList(shown(url)).into());
            }
            if lists.iter().any(|list| list.url == url) {
                return Err(StatusError::Staple.into());
            }
            let made = value.get("validFrom").and_then(DateTime::read).map(DateTime::seconds);
            let made = made.ok_or(CredentialError::Member("validFrom"))?;
            lists.push(Self { url: url.to_owned(), made, credential: sent });
        }
        Ok(lists)
    }
}

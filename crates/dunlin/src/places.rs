//! Places: how many connections a server holds, and which of them gives way to another one.
//!
//! A client asks for a place when its handshake has ended, since only then its identity is proven. [`Places`]
//! counts the clients of the whole server, of each host, and of each IPv6 network of 48 bits. At a limit, one
//! client within that limit gives way, in this order:
//!
//! 1. A client without an identity, in favour of one with an identity.
//! 2. The older connections of an identity that has several, in favour of a client with an identity: a device
//!    that has lost power comes back without a word about its previous connection.
//! 3. A connection of the network that has the most, if all clients together are too many and the newcomer's
//!    network has fewer.
//! 4. A client that has been silent for longer than [`PlaceLimits::silence`].
//!
//! Among those, the one that has been silent for longest gives way. A client with an identity never gives way
//! to one without. If nothing gives way, the newcomer is refused. [`Handshakes`] in progress are counted
//! apart. This code has no clock and does no I/O; [`crate::Endpoint`] uses it for associations, and
//! `dunlin-tokio` for servers over TCP.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU64;
use core::ops::RangeInclusive;
use core::time::Duration;

mod handshakes;

pub use handshakes::{HandshakeLimit, Handshakes};

/// The most places: as many as numbers of clients fit beside the other parts of an index's key.
pub const MAX_PLACES: usize = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The most clients that are filed anew for one newcomer, since a newcomer must not buy much time of its
/// server. The next one goes on.
const MAX_REORDERED: usize = 64;

/// A host, as limits count it: an IPv4 address, or an IPv6 network of 64 bits, since an IPv6 host can have
/// every address of its network (RFC 4291 §2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(NonZeroU64);

impl Host {
    /// The upper half of the numbers of IPv4 hosts. No IPv6 network begins like this (RFC 4291 §2.4 reserves
    /// 0000::/8).
    const V4: u64 = 1;

    /// The host with this address. An IPv4 address is the same host in its IPv6 form (RFC 4291 §2.5.5.2).
    pub fn of(address: IpAddr) -> Self {
        let number = match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4 << 32 | u64::from(u32::from(v4)),
            IpAddr::V6(v6) => (u128::from(v6) >> 64) as u64,
        };
        // Only the network of ::1 has the number 0.
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// The number of the IPv6 network of 48 bits that the host belongs to, which is what a site gets (RFC 6177
    /// §2). `None` for IPv4 addresses.
    pub fn site(self) -> Option<u64> {
        (!self.is_v4()).then(|| self.network())
    }

    /// The site that a host belongs to: an IPv6 network of 48 bits (RFC 6177), or the IPv4 address itself.
    const fn network(self) -> u64 {
        if self.is_v4() { self.0.get() } else { self.0.get() >> 16 << 16 }
    }

    const fn is_v4(self) -> bool {
        self.0.get() >> 32 == Self::V4
    }
}

/// Limits on places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// The most places of all clients.
    pub all: usize,
    /// The most places of one host.
    pub per_host: usize,
    /// The most places of one IPv6 network of 48 bits, which may have 65,536 hosts. IPv4 addresses belong to
    /// no such network.
    pub per_network: usize,
    /// A client that has been silent for this time may give way. `None`: never.
    pub silence: Option<Duration>,
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceLimit {
    /// [`PlaceLimits::all`].
    All,
    /// [`PlaceLimits::per_host`].
    PerHost,
    /// [`PlaceLimits::per_network`].
    PerNetwork,
}

/// Why a client gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivesWay {
    /// It has no identity, and the newcomer has one.
    Anonymous,
    /// Its identity has a newer connection.
    Double,
    /// Its network has more places than any other.
    Share,
    /// It has been silent for longer than [`PlaceLimits::silence`].
    Silent,
}

impl GivesWay {
    /// A word for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Double => "double",
            Self::Share => "share",
            Self::Silent => "silent",
        }
    }
}

/// A place, which its client keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Tells the client's identity from others; zero without one.
    identity: u64,
    turn: Turn,
}

/// A client that has a place.
#[derive(Debug)]
pub struct Holder<'a> {
    /// Its place.
    pub place: &'a mut Place,
    /// Its host.
    pub host: Host,
    /// When it was last heard, in milliseconds on the caller's clock.
    pub heard_ms: i64,
}

/// The clients that have places, by the numbers under which they have [entered](Places::enter).
pub trait Holders {
    /// The client with this number.
    fn holder(&mut self, number: u32) -> Option<Holder<'_>>;
}

/// The classes of clients, in the order in which they give way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Anonymous = 1,
    /// With an identity that has another connection, which counts as its only one.
    Double = 2,
    /// With an identity.
    Known = 3,
}

/// A client's turn to give way: its class, and the time at which it was heard, perhaps not the latest one.
/// The client's number makes turns distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn(NonZeroU64);

impl Turn {
    const CLASS: u32 = 62;
    /// The unit of the time is 64 ms, for which its bits last 500 years.
    const UNIT: u32 = 6;
    const LATEST: i64 = (1 << (Self::CLASS - NUMBER_BITS)) - 1;
    /// The caller's zero: a thawed connection may have been heard before it.
    const ZERO: i64 = Self::LATEST / 2;

    fn new(class: Class, heard_ms: i64, number: u32) -> Self {
        let heard = ((heard_ms >> Self::UNIT) + Self::ZERO).clamp(0, Self::LATEST) as u64;
        let bits = (class as u64) << Self::CLASS | heard << NUMBER_BITS | u64::from(number) & NUMBER;
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }

    const fn number(self) -> u32 {
        (self.0.get() & NUMBER) as u32
    }

    /// The turns of a class.
    fn of(class: Class) -> RangeInclusive<Self> {
        let turn = |bits| Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN));
        let first = (class as u64) << Self::CLASS;
        turn(first)..=turn(first | ((1 << Self::CLASS) - 1))
    }

    const fn is_double(self) -> bool {
        self.0.get() >> Self::CLASS == Class::Double as u64
    }
}

/// The key of a client in the index of identities: a part of its identity, whether it is a double, and its
/// number.
const fn identity_key(identity: u64, is_double: bool, number: u32) -> u64 {
    let double = 1 << NUMBER_BITS;
    identity & !(NUMBER | double) | if is_double { double } else { 0 } | number as u64 & NUMBER
}

/// Within which limit a place is wanted.
#[derive(Clone, Copy)]
enum Scope {
    All,
    Network(u64),
    Host(Host),
}

/// The client that wants the place.
struct Newcomer {
    number: u32,
    network: u64,
    is_known: bool,
}

/// The places of a server ([the module](self) has the rules). Numbers below [`MAX_PLACES`] name the clients.
#[derive(Debug, Default)]
pub struct Places {
    /// All clients in their turn.
    all: BTreeSet<Turn>,
    /// The same by network.
    of_networks: BTreeSet<(u64, Turn)>,
    /// Clients with an identity ([`identity_key`]).
    of_identities: BTreeSet<u64>,
    /// How many clients without an identity and with one each network has.
    counts: BTreeMap<u64, [u32; 2]>,
    /// The networks with several such clients, by these counts.
    shares: BTreeSet<(bool, u32, u64)>,
    /// The clients of IPv6 hosts by host. An IPv4 host is a network of its own.
    of_hosts: BTreeSet<(Host, Turn)>,
    /// How many clients each IPv6 host has.
    host_counts: BTreeMap<Host, u32>,
}

impl Places {
    /// No places are taken.
    pub const fn new() -> Self {
        Self {
            all: BTreeSet::new(),
            of_networks: BTreeSet::new(),
            of_identities: BTreeSet::new(),
            counts: BTreeMap::new(),
            shares: BTreeSet::new(),
            of_hosts: BTreeSet::new(),
            host_counts: BTreeMap::new(),
        }
    }

    /// The number of places that are taken.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether no place is taken.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Gives a place to the client with this number, whose handshake has just ended, and which was last heard
    /// at `heard_ms`. `identity` is what it has proven ([`crate::PeerIdentity::label`]). The caller keeps the
    /// place where `holders` finds it, and then calls [`Self::make_room`].
    pub fn enter(
        &mut self,
        number: u32,
        host: Host,
        identity: Option<u64>,
        heard_ms: i64,
        holders: &mut impl Holders,
    ) -> Place {
        let class = if identity.is_some() { Class::Known } else { Class::Anonymous };
        // Zero stands for no identity.
        let identity = identity.map_or(0, |identity| identity.max(1));
        if let Some(older) = self.with_identity(identity, false, holders) {
            self.reorder(older, holders, Class::Double);
        }
        let place = Place { identity, turn: Turn::new(class, heard_ms, number) };
        self.file(host, &place);
        self.count(host, identity != 0, |count| count.saturating_add(1));
        place
    }

    /// Decides which client gives way to the client with this number, which has just entered: none, if no
    /// limit is exceeded; another client, with the reason; or the newcomer itself, as an error with the
    /// limit. The caller then ends that client, whose place is free.
    pub fn make_room(
        &mut self,
        number: u32,
        limits: &PlaceLimits,
        now_ms: i64,
        holders: &mut impl Holders,
    ) -> Result<Option<(u32, GivesWay)>, PlaceLimit> {
        let Some(Holder { place, host, .. }) = holders.holder(number) else { return Ok(None) };
        let place = *place;
        let Some((scope, limit)) = self.exceeded(host, limits) else { return Ok(None) };
        let newcomer = Newcomer { number, network: host.network(), is_known: place.identity != 0 };
        let Some((other, why)) = self.choose(&newcomer, scope, (limits.silence, now_ms), holders) else {
            self.leave(host, &place, holders);
            return Err(limit);
        };
        if let Some(Holder { place, host, .. }) = holders.holder(other) {
            let place = *place;
            self.leave(host, &place, holders);
        }
        Ok(Some((other, why)))
    }

    /// As [`Self::make_room`], for a client whose handshake ended in an earlier process: no other one gives
    /// way to it, since its identity is not proven anew.
    ///
    /// # Errors
    /// The limit that is exceeded. The caller then ends the client, whose place is free.
    pub fn refuse_beyond(
        &mut self,
        number: u32,
        limits: &PlaceLimits,
        holders: &mut impl Holders,
    ) -> Result<(), PlaceLimit> {
        let Some(Holder { place, host, .. }) = holders.holder(number) else { return Ok(()) };
        let place = *place;
        let Some((_, limit)) = self.exceeded(host, limits) else { return Ok(()) };
        self.leave(host, &place, holders);
        Err(limit)
    }

    /// Takes the place of a client back. A second call has no effect.
    pub fn leave(&mut self, host: Host, place: &Place, holders: &mut impl Holders) {
        if !self.unfile(host, place) {
            return;
        }
        self.count(host, place.identity != 0, |count| count.saturating_sub(1));
        // One of the doubles is the only connection of its identity now.
        if !place.turn.is_double()
            && let Some(double) = self.with_identity(place.identity, true, holders)
        {
            self.reorder(double, holders, Class::Known);
        }
    }

    /// The client of this identity that is no double, or one of the doubles.
    fn with_identity(&self, identity: u64, is_double: bool, holders: &mut impl Holders) -> Option<u32> {
        let [first, last] = [0, NUMBER as u32].map(|number| identity_key(identity, is_double, number));
        let numbers = self.of_identities.range(first..=last).map(|key| (*key & NUMBER) as u32);
        let is_same = |number: &u32| holders.holder(*number).is_some_and(|it| it.place.identity == identity);
        if identity == 0 { None } else { numbers.into_iter().find(is_same) }
    }

    fn file(&mut self, host: Host, Place { identity, turn }: &Place) {
        self.all.insert(*turn);
        self.of_networks.insert((host.network(), *turn));
        if !host.is_v4() {
            self.of_hosts.insert((host, *turn));
        }
        if *identity != 0 {
            self.of_identities.insert(identity_key(*identity, turn.is_double(), turn.number()));
        }
    }

    /// Returns whether the place was filed.
    fn unfile(&mut self, host: Host, Place { identity, turn }: &Place) -> bool {
        let was_filed = self.all.remove(turn);
        self.of_networks.remove(&(host.network(), *turn));
        self.of_hosts.remove(&(host, *turn));
        if was_filed && *identity != 0 {
            self.of_identities.remove(&identity_key(*identity, turn.is_double(), turn.number()));
        }
        was_filed
    }

    /// Files a client under another class, and under the time at which it was last heard. Returns whether
    /// that has changed anything.
    fn reorder(&mut self, number: u32, holders: &mut impl Holders, class: Class) -> bool {
        let Some(Holder { place, host, heard_ms }) = holders.holder(number) else { return false };
        let turn = Turn::new(class, heard_ms, number);
        if turn == place.turn {
            return false;
        }
        self.unfile(host, place);
        place.turn = turn;
        self.file(host, place);
        true
    }

    /// Counts a client of this host, or one less.
    fn count(&mut self, host: Host, is_known: bool, change: impl Fn(u32) -> u32) {
        if !host.is_v4() {
            let of_host = self.host_counts.entry(host).or_default();
            *of_host = change(*of_host);
            if *of_host == 0 {
                self.host_counts.remove(&host);
            }
        }
        let network = host.network();
        let counts = self.counts.entry(network).or_default();
        let [anonymous, known] = counts;
        let count = if is_known { known } else { anonymous };
        self.shares.remove(&(is_known, *count, network));
        *count = change(*count);
        if *count > 1 {
            self.shares.insert((is_known, *count, network));
        }
        if *counts == [0, 0] {
            self.counts.remove(&network);
        }
    }

    /// The limit that is exceeded, the narrowest first: a client within it makes room within the wider ones,
    /// too.
    fn exceeded(&self, host: Host, limits: &PlaceLimits) -> Option<(Scope, PlaceLimit)> {
        let [anonymous, known] = self.counts.get(&host.network()).copied().unwrap_or_default();
        let of_network = anonymous.saturating_add(known);
        let of_host = if host.is_v4() { Some(of_network) } else { self.host_counts.get(&host).copied() };
        if of_host.unwrap_or(0) as usize > limits.per_host {
            Some((Scope::Host(host), PlaceLimit::PerHost))
        } else if !host.is_v4() && of_network as usize > limits.per_network {
            Some((Scope::Network(host.network()), PlaceLimit::PerNetwork))
        } else if self.len() > limits.all {
            Some((Scope::All, PlaceLimit::All))
        } else {
            None
        }
    }

    /// The client that gives way to this one.
    fn choose(
        &mut self,
        newcomer: &Newcomer,
        scope: Scope,
        (silence, now_ms): (Option<Duration>, i64),
        holders: &mut impl Holders,
    ) -> Option<(u32, GivesWay)> {
        if newcomer.is_known {
            for (class, why) in [(Class::Anonymous, GivesWay::Anonymous), (Class::Double, GivesWay::Double)] {
                if let Some((other, _)) = self.first(scope, class, newcomer, holders) {
                    return Some((other, why));
                }
            }
        }
        let class = if newcomer.is_known { Class::Known } else { Class::Anonymous };
        if let Scope::All = scope
            && let Some(network) = self.largest(newcomer)
            && let Some((other, _)) = self.first(Scope::Network(network), class, newcomer, holders)
        {
            return Some((other, GivesWay::Share));
        }
        let latest = now_ms.checked_sub(i64::try_from(silence?.as_millis()).ok()?)?;
        let (other, heard_ms) = self.first(scope, class, newcomer, holders)?;
        (heard_ms <= latest).then_some((other, GivesWay::Silent))
    }

    /// The network with the most clients like the newcomer, if it has more than the newcomer's, so that it
    /// keeps at least as many.
    fn largest(&self, newcomer: &Newcomer) -> Option<u64> {
        let is_known = newcomer.is_known;
        let [anonymous, known] = self.counts.get(&newcomer.network).copied().unwrap_or_default();
        let own = if is_known { known } else { anonymous };
        let all = (is_known, 0, 0)..=(is_known, u32::MAX, u64::MAX);
        let (_, count, network) = self.shares.range(all).next_back()?;
        (*count > own).then_some(*network)
    }

    /// The client of this class that has been silent for longest, and when it was heard. It is not the
    /// newcomer. If more than [`MAX_REORDERED`] clients were heard since they were filed, it is the one of
    /// these that has been silent for longest.
    fn first(
        &mut self,
        scope: Scope,
        class: Class,
        newcomer: &Newcomer,
        holders: &mut impl Holders,
    ) -> Option<(u32, i64)> {
        let turns = Turn::of(class);
        let is_other = |number: &u32| *number != newcomer.number;
        let mut longest: Option<(u32, i64)> = None;
        for _ in 0..MAX_REORDERED {
            let first = match scope {
                Scope::Host(host) if !host.is_v4() => {
                    let turns = self.of_hosts.range((host, *turns.start())..=(host, *turns.end()));
                    turns.map(|(_, turn)| turn.number()).find(is_other)
                }
                Scope::Host(host) => self.first_of(host.network(), &turns, is_other),
                Scope::Network(network) => self.first_of(network, &turns, is_other),
                Scope::All => self.all.range(turns.clone()).map(|turn| turn.number()).find(is_other),
            }?;
            let is_as_filed = !self.reorder(first, holders, class);
            let heard = holders.holder(first).map(|it| (first, it.heard_ms))?;
            // It may have been heard since it was filed.
            if is_as_filed {
                return Some(heard);
            }
            longest = longest.into_iter().chain([heard]).min_by_key(|(_, heard_ms)| *heard_ms);
        }
        longest
    }

    /// The first of a network's clients with these turns.
    fn first_of(
        &self,
        network: u64,
        turns: &RangeInclusive<Turn>,
        is_other: impl Fn(&u32) -> bool,
    ) -> Option<u32> {
        let of_network = self.of_networks.range((network, *turns.start())..=(network, *turns.end()));
        of_network.map(|(_, turn)| turn.number()).find(is_other)
    }
}

/// A client in [`Seats`].
pub trait Client {
    /// When it was last heard, in milliseconds on the caller's clock.
    fn heard_ms(&self) -> i64;
}

/// The seat of a client in [`Seats`], which never gives it to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    number: u32,
    /// The number of clients so far.
    begun: u64,
}

/// Places together with their clients, for servers without a table of their own.
#[derive(Debug)]
pub struct Seats<C> {
    places: Places,
    clients: Seated<C>,
    /// The numbers that are free again.
    free: Vec<u32>,
    begun: u64,
}

/// Clients by number.
#[derive(Debug)]
struct Seated<C>(Vec<Option<(Seat, Host, Place, C)>>);

impl<C: Client> Holders for Seated<C> {
    fn holder(&mut self, number: u32) -> Option<Holder<'_>> {
        let (_, host, place, client) = self.0.get_mut(number as usize)?.as_mut()?;
        Some(Holder { place, host: *host, heard_ms: client.heard_ms() })
    }
}

impl<C> Default for Seats<C> {
    fn default() -> Self {
        Self { places: Places::new(), clients: Seated(Vec::new()), free: Vec::new(), begun: 0 }
    }
}

impl<C: Client> Seats<C> {
    /// Gives a place to a client whose handshake has ended ([`Places::enter`]). Returns its seat, and the
    /// client that gave way, if there was one, with the reason.
    ///
    /// # Errors
    /// The limit that was reached, if no client gave way.
    pub fn take(
        &mut self,
        (host, identity, client): (Host, Option<u64>, C),
        limits: &PlaceLimits,
        now_ms: i64,
    ) -> Result<(Seat, Option<(C, GivesWay)>), PlaceLimit> {
        let Self { places, clients, free, begun } = self;
        let next = free.last().copied().or_else(|| u32::try_from(clients.0.len()).ok());
        let number = next.filter(|number| (*number as usize) < MAX_PLACES).ok_or(PlaceLimit::All)?;
        free.pop();
        *begun += 1;
        let seat = Seat { number, begun: *begun };
        let place = places.enter(number, host, identity, client.heard_ms(), clients);
        let seated = Some((seat, host, place, client));
        match clients.0.get_mut(number as usize) {
            Some(free) => *free = seated,
            None => clients.0.push(seated),
        }
        match places.make_room(number, limits, now_ms, clients) {
            Ok(gone) => {
                let gone = gone.and_then(|(other, why)| Some((self.free(other)?, why)));
                Ok((seat, gone))
            }
            Err(limit) => {
                self.free(number);
                Err(limit)
            }
        }
    }

    /// Takes the place of a client back. Returns the client, unless it has given way.
    pub fn leave(&mut self, seat: Seat) -> Option<C> {
        let seated = self.clients.0.get(seat.number as usize)?.as_ref();
        if seated.is_some_and(|(present, ..)| *present == seat) { self.free(seat.number) } else { None }
    }

    fn free(&mut self, number: u32) -> Option<C> {
        let (_, host, place, client) = self.clients.0.get_mut(number as usize)?.take()?;
        self.places.leave(host, &place, &mut self.clients);
        self.free.push(number);
        if self.places.is_empty() {
            // An empty server keeps no memory for what it had.
            (self.clients, self.free) = (Seated(Vec::new()), Vec::new());
        }
        Some(client)
    }

    /// The number of places that are taken.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no place is taken.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests;

//! Clients with several interfaces: which one they use, and what happens to their data when it fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod failover;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{App, Configs, DELAY, VERSIONS, events};
use dunlin::error::{Error, Misuse};
use dunlin::wire::ProtocolVersion;
use dunlin::{
    ClientConfig, DtlsConnection, Event, Local, Migration, Multihoming, NodeIds, PathChange, PathCheck,
};
use dunlin_sim::{Change, HostId, InterfaceId, Link, MultiHomed, Nat, NatId, NatKind, Network, SentBy};
use dunlin_tests::{NOW, awslc, localhost};

const PORT: u16 = 5684;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of probes and checks, which is longer than three round-trip times.
const PROBE: Duration = Duration::from_millis(300);

const fn ip(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, network, host))
}

const SERVER: SocketAddr = SocketAddr::new(ip(0, 1), PORT);

/// The network behind an interface.
#[derive(Default)]
struct Line {
    /// It loses everything, or all that the host sends.
    is_cut: AtomicBool,
    drops_outgoing: AtomicBool,
    /// An additional delay, in milliseconds.
    lag: AtomicU64,
}

impl Line {
    /// Its links, with this delay.
    fn links(self: &Arc<Self>, delay: Duration) -> [Box<dyn Link>; 2] {
        [true, false].map(|is_up| {
            let line = Arc::clone(self);
            let link = move |_: Duration, datagram: Vec<u8>| {
                let drops_outgoing = is_up && line.drops_outgoing.load(Ordering::Relaxed);
                let lag = Duration::from_millis(line.lag.load(Ordering::Relaxed));
                let is_lost = drops_outgoing || line.is_cut.load(Ordering::Relaxed);
                if is_lost { vec![] } else { vec![(delay + lag, datagram)] }
            };
            Box::new(link) as Box<dyn Link>
        })
    }
}

/// A connection whose client has two interfaces behind different NATs.
struct Homes {
    network: Network<MultiHomed>,
    client: HostId,
    server: HostId,
    interfaces: [InterfaceId; 2],
    of_server: InterfaceId,
    nats: [NatId; 2],
    lines: [Arc<Line>; 2],
}

fn migration() -> Migration {
    Migration::new(PathCheck::Enhanced).with_timeout(PROBE).unwrap()
}

fn configs(version: ProtocolVersion, multihoming: Multihoming) -> Configs {
    let mut configs = Configs::of_version(version);
    let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
    let multihoming = multihoming.with_timeout(PROBE).unwrap();
    configs.client = configs.client.with_connection_ids(ids()).with_migration(migration());
    configs.client = configs.client.with_multihoming(multihoming).unwrap();
    configs.server = configs.server.with_connection_ids(ids()).with_migration(migration());
    configs
}

impl Homes {
    fn new(version: ProtocolVersion, multihoming: Multihoming) -> Self {
        Self::with(configs(version, multihoming))
    }

    fn with(configs: Configs) -> Self {
        Self::with_delays(configs, [DELAY; 2])
    }

    fn with_delays(configs: Configs, delays: [Duration; 2]) -> Self {
        let mut network = Network::new(NOW);
        let nats = [(NatKind::FullCone, 2), (NatKind::PortRestricted, 3)]
            .map(|(kind, host)| network.add_nat(Nat::new(kind, ip(0, host), TIMEOUT, u64::from(host))));
        let client = DtlsConnection::client(&Arc::new(configs.client), localhost(), SERVER, NOW).unwrap();
        let client = network.add(MultiHomed::attentive(client, 40_000));
        let lines = [(); 2].map(|()| Arc::new(Line::default()));
        let interfaces = [0, 1].map(|n| {
            let links = lines[usize::from(n)].links(delays[usize::from(n)]);
            network.attach(client, ip(7 + n, 1), Some(nats[usize::from(n)]), links)
        });
        // The NAT's ports are reproducible, so its first one is known before the client connects.
        let from = SocketAddr::new(ip(7, 1), 40_000);
        let from = network.nat(nats[0]).outbound(Duration::ZERO, from, SERVER).unwrap();
        let server = DtlsConnection::server(&Arc::new(configs.server), from, NOW);
        let server = network.add(MultiHomed::attentive(server, PORT));
        let of_server = network.attach(server, SERVER.ip(), None, Arc::new(Line::default()).links(DELAY));
        network.run().unwrap();
        let mut homes = Self { network, client, server, interfaces, of_server, nats, lines };
        homes.client().assert_connected();
        homes.server().assert_connected();
        assert!(homes.changes().is_empty());
        homes
    }

    fn client(&mut self) -> &mut DtlsConnection {
        &mut self.network.host(self.client).connection
    }

    fn server(&mut self) -> &mut DtlsConnection {
        &mut self.network.host(self.server).connection
    }

    fn send(&mut self, data: impl IntoIterator<Item = u8>) {
        data.into_iter().for_each(|byte| self.client().send(&[byte]).unwrap());
    }

    /// The client's data that the server has received since the last call.
    fn received(&mut self) -> Vec<u8> {
        let records = self.server().received();
        // A client of DTLS 1.2 says by an empty record where it is.
        records.concat()
    }

    fn down(&mut self, interface: usize) {
        self.network.change(Change::Address(self.interfaces[interface], None));
    }

    fn up(&mut self, interface: usize, address: IpAddr) {
        self.network.change(Change::Address(self.interfaces[interface], Some(address)));
    }

    /// Lets an interface lose everything, without notice to the client.
    fn cut(&self, interface: usize) {
        self.lines[interface].is_cut.store(true, Ordering::Relaxed);
    }

    fn mend(&self, interface: usize) {
        self.lines[interface].is_cut.store(false, Ordering::Relaxed);
    }

    /// Lets time pass that is too short for a timer.
    fn wait(&mut self, time: Duration) {
        self.network.run_for(time).unwrap();
    }

    fn settle(&mut self) {
        self.network.run().unwrap();
    }

    fn changes(&mut self) -> Vec<PathChange> {
        let change = |event| match event {
            Event::PathChanged(change) => Some(change),
            _ => None,
        };
        events(self.client()).into_iter().filter_map(change).collect()
    }

    /// Sends data in both directions, which must arrive once.
    fn exchange(&mut self) {
        self.client().send(b"ping").unwrap();
        self.settle();
        assert_eq!(self.received(), b"ping");
        self.server().send(b"pong").unwrap();
        self.settle();
        assert_eq!(self.client().received().concat(), b"pong");
    }

    /// Lets the server send something. Returns where its copies go.
    fn copies(&mut self) -> Vec<SocketAddr> {
        let since = self.network.sent.len();
        let present = self.server().peer_address();
        self.server().send(b"copied?").unwrap();
        self.wait(DELAY * 6);
        let sent: Vec<_> = self.network.sent[since..].iter().filter(|sent| sent.from == SERVER).collect();
        let first = &sent.iter().find(|sent| sent.to == present).unwrap().datagram;
        let is_copy = |sent: &&&SentBy| sent.to != present && sent.datagram == *first;
        let copies = sent.iter().filter(is_copy).map(|sent| sent.to).collect();
        self.client().received();
        copies
    }

    /// The connection IDs in the client's protected records of DTLS 1.3, by source.
    fn ids_from(&self, source: IpAddr, since: usize) -> BTreeSet<Vec<u8>> {
        self.ids(since, |sent| sent.from.ip() == source)
    }

    /// The same in the server's records, by destination.
    fn ids_to(&self, destination: IpAddr, since: usize) -> BTreeSet<Vec<u8>> {
        self.ids(since, |sent| sent.to.ip() == destination)
    }

    fn ids(&self, since: usize, fits: impl Fn(&SentBy) -> bool) -> BTreeSet<Vec<u8>> {
        let sent = self.network.sent.iter().skip(since).filter(|sent| fits(sent));
        let protected = sent.filter(|sent| sent.datagram[0] & 0x30 == 0x30);
        protected.map(|sent| sent.datagram[1..9].to_vec()).collect()
    }
}

/// The interface goes down, and the client knows. Data in transit arrives over the other interface, and only
/// once.
#[test]
fn data_on_the_way_is_sent_again_over_the_next_interface() {
    for version in VERSIONS {
        let mut homes = Homes::new(version, Multihoming::linkable());
        homes.exchange();
        homes.send([1, 2, 3]);
        homes.wait(Duration::ZERO);
        homes.cut(0);
        homes.send([4, 5]);
        homes.wait(DELAY / 2);
        let at = homes.network.elapsed();
        homes.down(0);
        homes.wait(DELAY * 2);
        // In one trip over the other interface.
        assert_eq!(homes.received(), [1, 2, 3, 4, 5], "{version}");
        assert_eq!(homes.network.elapsed() - at, DELAY * 2);
        let [change] = homes.changes()[..] else { panic!("one change") };
        assert_eq!((change.from.local, change.to.local), (Local(0), Local(1)));
        assert_eq!((change.repeated, change.unrepeated), (5, 0));
        assert_eq!(homes.client().path().local, Local(1));
        homes.settle();
        assert_eq!(homes.server().discarded().replayed, 3, "the server had the first three");
        homes.exchange();
        assert_eq!(homes.server().peer_address().ip(), ip(0, 3));
        assert_eq!(homes.changes(), []);
    }
}

/// The network behind the interface fails, and only the missing answers tell.
#[test]
fn an_interface_without_answers_is_left_within_one_probe() {
    for version in VERSIONS {
        let mut homes = Homes::new(version, Multihoming::linkable());
        homes.exchange();
        homes.cut(0);
        let at = homes.network.elapsed();
        homes.send([1]);
        while homes.received() != [1] {
            homes.wait(DELAY / 4);
            assert!(homes.network.elapsed() - at <= PROBE * 2, "{version}");
        }
        let [change] = homes.changes()[..] else { panic!("one change") };
        assert_eq!((change.to.local, change.repeated, change.unrepeated), (Local(1), 1, 0));
        homes.settle();
        homes.exchange();
        assert_eq!(homes.server().discarded().replayed, 0);
        // The first interface works again, and the client tries it when it next has a reason.
        assert_eq!(homes.client().path().local, Local(1));
        homes.mend(0);
        homes.down(1);
        homes.exchange();
        assert_eq!(homes.client().path().local, Local(0));
    }
}

/// A sender whose server never answers with data keeps its interface, since the server answers probes.
#[test]
fn a_server_that_only_receives_is_probed_and_stays_where_it_is() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    for byte in 0..20 {
        homes.send([byte]);
        homes.settle();
        assert_eq!(homes.received(), [byte]);
    }
    assert_eq!((homes.changes(), homes.client().path().local), (vec![], Local(0)));
    // Nothing is left to confirm, so an idle connection is silent.
    let sent = homes.network.sent.len();
    homes.wait(TIMEOUT / 2);
    assert_eq!(homes.network.sent.len(), sent);
    homes.down(0);
    assert_eq!(homes.changes()[0].repeated, 0);
}

#[test]
fn unlinkable_interfaces_have_their_own_ids_and_nothing_is_repeated() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
    homes.exchange();
    homes.send([1, 2]);
    homes.wait(Duration::ZERO);
    homes.cut(0);
    homes.send([3]);
    homes.wait(DELAY / 2);
    homes.down(0);
    homes.settle();
    assert_eq!(homes.received(), [1, 2]);
    let [change] = homes.changes()[..] else { panic!("one change") };
    assert_eq!((change.to.local, change.repeated, change.unrepeated), (Local(1), 0, 3));
    homes.exchange();
    assert_eq!(homes.server().discarded().replayed, 0);
    let [first, second] = [7, 8].map(|network| homes.ids_from(ip(network, 1), 0));
    assert!(first.is_disjoint(&second) && !first.is_empty() && !second.is_empty());
    // Back at another address: another ID again, and the one of the second interface stays.
    homes.mend(0);
    let since = homes.network.sent.len();
    homes.up(0, ip(7, 9));
    homes.settle();
    homes.exchange();
    assert_eq!((homes.client().path().local, homes.changes().len()), (Local(0), 1));
    let third = homes.ids_from(ip(7, 9), since);
    assert!(third.is_disjoint(&first) && third.is_disjoint(&second) && !third.is_empty());
}

/// The server's records have the client's connection IDs, and each interface has its own before and after the
/// client uses it.
#[test]
fn a_server_answers_probes_of_an_unlinkable_client_under_other_ids() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
    homes.exchange();
    let [first, second] = [2, 3].map(|host| homes.ids_to(ip(0, host), 0));
    assert!(first.is_disjoint(&second) && !first.is_empty() && !second.is_empty(), "{first:?} {second:?}");
    homes.down(0);
    homes.exchange();
    assert_eq!(homes.server().peer_address().ip(), ip(0, 3));
    let since = homes.network.sent.len();
    homes.exchange();
    assert_eq!(homes.ids_to(ip(0, 3), since), second, "the ID that the server has kept");
}

/// Data waits for transmission when the interface goes or its address changes. It has the connection ID of
/// the old path.
#[test]
fn what_waits_for_transmission_links_no_paths() {
    for is_gone in [true, false] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
        homes.exchange();
        homes.send([1, 2]);
        if is_gone {
            homes.down(0);
        } else {
            homes.up(0, ip(7, 9));
        }
        homes.settle();
        assert!(homes.received().is_empty());
        let [change] = homes.changes()[..] else { panic!("one change") };
        assert_eq!((change.repeated, change.unrepeated), (0, 2));
        homes.exchange();
        let [first, new, second] = [ip(7, 1), ip(7, 9), ip(8, 1)].map(|source| homes.ids_from(source, 0));
        assert!(first.is_disjoint(&second) && first.is_disjoint(&new) && new.is_disjoint(&second));
        assert!(!second.is_empty() && new.is_empty() == is_gone);
    }
    // A client with a single interface and spare connection IDs.
    let mut configs = configs(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    configs.client = Configs::of_version(ProtocolVersion::DTLS1_3).client;
    let ids = NodeIds::new(&[], 8, awslc().random.clone()).unwrap();
    configs.client = configs.client.with_connection_ids(Arc::new(ids)).with_migration(migration());
    let mut homes = Homes::with(configs);
    homes.client().request_connection_ids(4).unwrap();
    homes.exchange();
    homes.send([1]);
    homes.up(0, ip(7, 9));
    homes.exchange();
    assert!(homes.ids_from(ip(7, 1), 0).is_disjoint(&homes.ids_from(ip(7, 9), 0)));
}

/// The client's interface goes when it has no spare connection ID.
#[test]
fn without_spare_ids_an_unlinkable_client_goes_on_and_says_that_it_can_be_linked() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
    homes.exchange();
    homes.down(1);
    homes.settle();
    homes.cut(0);
    while homes.client().use_spare_connection_id() {}
    homes.up(1, ip(8, 9));
    homes.wait(DELAY);
    assert_eq!((homes.changes(), homes.client().path().local), (vec![], Local(0)), "the present one stays");
    homes.down(0);
    homes.exchange();
    let [change] = homes.changes()[..] else { panic!("one change") };
    assert_eq!((change.to.local, change.is_linked), (Local(1), true));
    // The server gives spare IDs over the new path.
    assert_eq!(homes.client().spare_connection_ids(), 4);
    homes.mend(0);
    homes.up(0, ip(7, 9));
    homes.settle();
    homes.exchange();
    let [change] = homes.changes()[..] else { panic!("one change") };
    assert_eq!((change.to.local, change.is_linked), (Local(0), false));
    assert!(homes.ids_from(ip(7, 9), 0).is_disjoint(&homes.ids_from(ip(8, 9), 0)));
}

/// Interfaces that come and go for long neither run out of connection IDs nor let them accumulate.
#[test]
fn unlinkable_interfaces_do_not_run_out_of_ids() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
    for round in 0..40 {
        // In the first rounds only the second one, while the first one keeps the first ID.
        let which = if round < 20 { 1 } else { usize::from(round % 2 == 0) };
        homes.down(which);
        homes.settle();
        homes.exchange();
        homes.up(which, ip(7 + which as u8, 10 + round));
        homes.settle();
        homes.exchange();
        assert!(homes.server().connection_ids().count() <= 12);
        assert!(homes.client().connection_ids().count() <= 12);
    }
    let both: BTreeSet<_> = homes.changes().iter().map(|change| change.unrepeated).collect();
    assert_eq!(both, BTreeSet::from([0]));
    assert_eq!(homes.client().path().local, Local(0), "the best one");
}

/// The server answers no data, so only its messages reach the client, which has asked for them.
#[test]
fn a_client_that_only_sends_can_change_interfaces_for_ever() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
    for round in 0..80 {
        homes.send([round]);
        homes.settle();
        assert_eq!(homes.received(), [round], "{:?}", homes.client().error());
        homes.up(1, ip(8, 10 + round));
        homes.settle();
    }
    assert_eq!(homes.client().error(), None);
    assert_eq!(homes.server().error(), None);
}

/// A NAT forgets its mappings while the interface behind it is not in use, and then while it is.
#[test]
fn nats_may_restart_while_interfaces_come_and_go() {
    for linking in [Multihoming::linkable(), Multihoming::unlinkable(), Multihoming::duplicated()] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, linking);
        for round in 0..8 {
            homes.network.change(Change::Restart(homes.nats[round % 2]));
            homes.exchange();
            homes.down(round % 2);
            homes.exchange();
            homes.network.change(Change::Restart(homes.nats[(round + 1) % 2]));
            homes.exchange();
            homes.up(round % 2, ip(7 + (round % 2) as u8, 1));
            homes.exchange();
        }
    }
}

/// A client with a single interface says at once where it is. So data of the server finds it.
#[test]
fn a_changed_address_is_announced_at_once() {
    for version in VERSIONS {
        let mut homes = Homes::new(version, Multihoming::linkable());
        homes.down(1);
        homes.exchange();
        homes.up(0, ip(7, 77));
        homes.settle();
        assert!(homes.received().is_empty());
        homes.server().send(b"found you").unwrap();
        homes.settle();
        assert_eq!(homes.client().received().concat(), b"found you", "{version}");
        // The server moves, too, and tells the client.
        homes.network.change(Change::Address(homes.of_server, Some(ip(0, 9))));
        homes.settle();
        assert_eq!(homes.client().peer_address(), SocketAddr::new(ip(0, 9), PORT));
        homes.exchange();
    }
}

/// All interfaces are down for a while, and then the same one comes back.
#[test]
fn data_waits_while_there_is_no_network() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    homes.exchange();
    homes.down(1);
    homes.down(0);
    homes.send([1, 2]);
    homes.wait(TIMEOUT / 4);
    assert!(homes.received().is_empty());
    homes.up(0, ip(7, 1));
    homes.settle();
    assert_eq!(homes.received(), [1, 2]);
}

#[test]
fn at_most_32_records_of_the_present_epoch_are_repeated() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    homes.exchange();
    homes.cut(0);
    homes.send(0..40);
    homes.wait(Duration::ZERO);
    homes.down(0);
    homes.settle();
    let [change] = homes.changes()[..] else { panic!("one change") };
    assert_eq!((change.repeated, change.unrepeated), (32, 8));
    assert_eq!(homes.received(), (8..40).collect::<Vec<_>>());
    // A record under keys that were replaced meanwhile.
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    homes.exchange();
    homes.client().update_keys(false).unwrap();
    homes.wait(DELAY * 3);
    homes.send([1]);
    // The ACK of the KeyUpdate is too early to confirm the data.
    homes.wait(DELAY);
    homes.send([2]);
    homes.wait(DELAY / 2);
    homes.down(0);
    let [change] = homes.changes()[..] else { panic!("one change") };
    assert_eq!((change.repeated, change.unrepeated), (1, 1));
    homes.settle();
    assert_eq!(homes.received(), [1, 2]);
    homes.exchange();
}

/// Without return routability nothing probes, but the caller's word counts, and the server follows newer
/// records.
#[test]
fn towards_a_server_without_checks_only_the_caller_changes_interfaces() {
    for version in VERSIONS {
        let mut configs = configs(version, Multihoming::linkable());
        configs.server = configs.server.with_migration(Migration::never().with_unchecked(true));
        let mut homes = Homes::with(configs);
        homes.exchange();
        homes.cut(0);
        homes.send([1]);
        homes.wait(PROBE * 10);
        assert!(homes.received().is_empty() && homes.changes().is_empty());
        homes.down(0);
        homes.settle();
        assert_eq!(homes.received(), [1]);
        homes.exchange();
    }
}

#[test]
fn a_configuration_that_gives_two_interfaces_one_id_is_explained() {
    let explained = |config: Result<ClientConfig, Error>, why: &str| {
        let Err(Error::Misuse(Misuse::Config(told))) = config else { panic!("accepted: {why}") };
        assert!(told.contains(why), "{told}");
    };
    let random = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
    let [old, new] = VERSIONS.map(|version| Configs::of_version(version).client);
    let unlinkable = |config: &ClientConfig| config.clone().with_multihoming(Multihoming::unlinkable());
    explained(unlinkable(&old.clone().with_connection_ids(random())), "DTLS 1.2 has a single connection ID");
    explained(unlinkable(&new), "there are no connection IDs");
    #[derive(Debug)]
    struct Same;
    impl dunlin::ConnectionIds for Same {
        fn id_len(&self) -> usize {
            1
        }
        fn issue(&self) -> Result<Vec<u8>, Error> {
            Ok(vec![7])
        }
    }
    explained(unlinkable(&new.clone().with_connection_ids(Arc::new(Same))), "the same connection ID again");
    // A change after the check is noticed when the client connects.
    let config = unlinkable(&new.clone().with_connection_ids(random())).unwrap();
    let config = Arc::new(config.with_connection_ids(Arc::new(Same)));
    assert!(DtlsConnection::client(&config, localhost(), SERVER, NOW).is_err());
    assert!(old.clone().with_multihoming(Multihoming::linkable()).is_ok());
    assert!(old.with_multihoming(Multihoming::duplicated()).is_ok());
}

#[test]
fn refuses_interfaces_that_it_cannot_tell_apart() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    let now = homes.network.now;
    for bad in [&[0, 1, 0][..], &[0, 1, 2, 3, 4]] {
        let bad: Vec<_> = bad.iter().copied().map(Local).collect();
        let error = homes.client().set_interfaces(now, &bad).unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::Config(_))));
    }
    assert!(homes.server().set_interfaces(now, &[Local(0)]).is_err(), "a server does not choose");
    homes.exchange();
}

//! Two sides that have cached each other connect again after a change: either the table's certificates are
//! omitted, or the handshake ends with the table's error. A handshake without caches has the same number of
//! flights and the same result ([`World::connect`]).

use dunlin::Error;
use dunlin::error::{AuthenticationFailure, PeerMisbehaved};

use crate::setups;
use crate::world::{Belief, Certificate, World};

/// Whether the server's and the client's certificates are omitted, or the error.
type Expected = Result<[bool; 2], Fault>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Expired,
    NotValidYet,
    Revoked,
    UnknownIssuer,
    OverdueList,
}

impl Fault {
    fn of(error: &Error) -> Self {
        match error {
            Error::Authentication(AuthenticationFailure::Expired(_)) => Self::Expired,
            Error::Authentication(AuthenticationFailure::NotValidYet(_)) => Self::NotValidYet,
            Error::Authentication(AuthenticationFailure::Revoked) => Self::Revoked,
            Error::Authentication(AuthenticationFailure::UnknownIssuer) => Self::UnknownIssuer,
            Error::Authentication(AuthenticationFailure::OverdueRevocationList) => Self::OverdueList,
            Error::PeerMisbehaved(PeerMisbehaved::BadSignature) => panic!("invalid signature: {error}"),
            other => panic!("{other}"),
        }
    }
}

/// The state before the first connection, the change after the second, and the expected third handshake.
struct Row {
    what: &'static str,
    before: fn(&mut World),
    change: fn(&mut World),
    expected: Expected,
}

const fn row(what: &'static str, change: fn(&mut World), expected: Expected) -> Row {
    Row { what, before: |_| {}, change, expected }
}

const ALL: Expected = Ok([true, true]);
const SERVER: Expected = Ok([true, false]);
const CLIENT: Expected = Ok([false, true]);
const NONE: Expected = Ok([false, false]);

const ROWS: &[Row] = &[
    row("nothing", |_| {}, ALL),
    row("the client has lost its cache", World::lose_servers, NONE),
    row("the server has lost its cache, as by a restart", World::lose_clients, SERVER),
    row("both have lost their caches", |w| (w.lose_servers(), w.lose_clients()).0, NONE),
    row("the server has another key", |w| w.server.certificate = Certificate::Other, CLIENT),
    row("the client has another key", |w| w.client.certificate = Certificate::Other, SERVER),
    row(
        "both have another key",
        |w| [w.client.certificate, w.server.certificate] = [Certificate::Other; 2],
        NONE,
    ),
    row("the server's certificate is revoked", |w| w.client.belief = Belief::Revoked, Err(Fault::Revoked)),
    row("the client's certificate is revoked", |w| w.server.belief = Belief::Revoked, Err(Fault::Revoked)),
    row("the client has a CRL", |w| w.client.belief = Belief::Unrevoked, NONE),
    row("the server has a CRL", |w| w.server.belief = Belief::Unrevoked, SERVER),
    row("the client trusts other roots", |w| w.client.belief = Belief::Second, Err(Fault::UnknownIssuer)),
    row("the server trusts other roots", |w| w.server.belief = Belief::Second, Err(Fault::UnknownIssuer)),
    row("the client trusts one more root", |w| w.client.belief = Belief::Both, NONE),
    row("the server trusts one more root", |w| w.server.belief = Belief::Both, SERVER),
    row("a week", |w| w.pass(7), ALL),
    row("both entries are too old", |w| w.pass(9), NONE),
    row("the clock goes back", |w| w.pass(-1), NONE),
    Row {
        what: "the server's certificate has expired",
        before: |w| w.server.certificate = Certificate::Short,
        change: |w| w.pass(6),
        expected: Err(Fault::Expired),
    },
    Row {
        what: "the client's certificate has expired",
        before: |w| w.client.certificate = Certificate::Short,
        change: |w| w.pass(6),
        expected: Err(Fault::Expired),
    },
    Row {
        what: "the server's certificate is not valid yet after the clock was set back",
        before: |w| w.server.certificate = Certificate::Young,
        change: |w| w.pass(-4),
        expected: Err(Fault::NotValidYet),
    },
    Row {
        what: "the client's certificate is not valid yet",
        before: |w| w.client.certificate = Certificate::Young,
        change: |w| w.pass(-4),
        expected: Err(Fault::NotValidYet),
    },
    Row {
        what: "the client's CRL is overdue",
        before: |w| w.client.belief = Belief::Fresh,
        change: |w| w.pass(3),
        expected: Err(Fault::OverdueList),
    },
    Row {
        what: "the server's CRL is overdue",
        before: |w| w.server.belief = Belief::Fresh,
        change: |w| w.pass(3),
        expected: Err(Fault::OverdueList),
    },
    Row {
        what: "the client's CRL is current",
        before: |w| w.client.belief = Belief::Fresh,
        change: |w| w.pass(1),
        expected: ALL,
    },
];

#[test]
fn handshake_after_each_change_ends_as_without_caches() {
    for setup in setups() {
        for Row { what, before, change, expected } in ROWS {
            let mut world = World::new(setup);
            before(&mut world);
            assert_eq!(world.connect(), Ok([false; 2]), "{setup:?}: {what}");
            assert_eq!(world.connect(), Ok([true; 2]), "{setup:?}: {what}");
            change(&mut world);
            let result = world.connect().map_err(|error| Fault::of(&error));
            assert_eq!(&result, expected, "{setup:?}: {what}");
            // After a successful handshake, both sides have their entries again.
            if expected.is_ok() {
                assert_eq!(world.connect(), Ok([true; 2]), "{setup:?}: {what}");
            } else {
                assert!(world.connect().is_err(), "{setup:?}: {what}");
            }
        }
    }
}

//! The interfaces of `client --udp`, and reports about paths.

use clap::{Args, ValueEnum};
use dunlin::{ClientConfig, MAX_INTERFACES, Multihoming};
use dunlin_command::error::Error;
use dunlin_command::events::{At, Event, PathChanged};
use dunlin_tokio::addresses::plain;
use dunlin_tokio::{Interface, PathEvent};

/// The options of a client with several interfaces.
#[derive(Args, Clone, Default)]
pub(crate) struct InterfaceOptions {
    /// Send over this interface of this machine: a device, such as eth0; an address; or `default`, wherever
    /// the machine sends from. Repeat the option for several interfaces, the best first, at most four. The
    /// client uses the first one on which the server answers, and goes on over the next one when it fails.
    /// With --cid or --scheme, the association survives that.
    #[arg(
        long = "interfaces",
        alias = "interface",
        value_name = "NAME|ADDRESS",
        requires = "udp",
        help_heading = "Datagrams"
    )]
    pub(crate) interface: Vec<Interface>,
    /// Whether observers may link what the client sends over its interfaces [default: unlinkable if each
    /// interface can have its own connection ID: with DTLS 1.3 alone and --cid without HEX; otherwise
    /// linkable].
    #[arg(long, value_enum, value_name = "MODE", requires = "interface", help_heading = "Datagrams")]
    multihoming: Option<Mode>,
}

/// The value of `--multihoming`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Each interface has its own connection ID. Data that may be lost is not sent again.
    Unlinkable,
    /// All interfaces have the same connection ID. The latest data is sent again over the next interface.
    Linkable,
    /// Linkable, and all data leaves over all interfaces at once.
    Duplicated,
}

impl InterfaceOptions {
    /// A configuration for these interfaces. `survives`: whether the client offers a mechanism by which an
    /// association outlives a change of the interface.
    pub(crate) fn config(&self, config: ClientConfig, survives: bool) -> Result<ClientConfig, Error> {
        if self.interface.is_empty() {
            return Ok(config);
        }
        let count = self.interface.len();
        if count > MAX_INTERFACES {
            let why = format!("a client uses at most {MAX_INTERFACES} interfaces, not {count}");
            return Err(Error::usage("--interfaces", why, "leave some out"));
        }
        if self.interface.iter().any(|interface| interface.to_string().is_empty()) {
            let advice = "give a device, such as eth0; an address; or default";
            return Err(Error::usage("--interfaces", "the name is empty", advice));
        }
        let multihoming = match self.multihoming {
            None if !survives => {
                let why = "without connection IDs or a port of its own, a change of the interface ends the association";
                return Err(Error::usage(
                    "--interfaces",
                    why,
                    "add --cid or --scheme tcs; or --multihoming linkable",
                ));
            }
            None => match config.clone().with_multihoming(Multihoming::unlinkable()) {
                Ok(config) => return Ok(config),
                Err(_) => Multihoming::linkable(),
            },
            Some(Mode::Unlinkable) => Multihoming::unlinkable(),
            Some(Mode::Linkable) => Multihoming::linkable(),
            Some(Mode::Duplicated) => Multihoming::duplicated(),
        };
        config.with_multihoming(multihoming).map_err(|_| {
            let why = "an unlinkable client needs another connection ID for each address";
            let advice = "use DTLS 1.3 alone and --cid without HEX, or --multihoming linkable";
            Error::usage("--multihoming", why, advice)
        })
    }
}

/// The interfaces as the user gave them.
fn names(interfaces: &[Interface]) -> String {
    interfaces.iter().map(|interface| format!("--interfaces {interface}")).collect::<Vec<_>>().join(", ")
}

/// The error of a client without any interface on the way to a server with addresses of this family.
pub(crate) fn none_up(interfaces: &[Interface], family: &str) -> Error {
    let why = format!("not up with an {family} address");
    Error::failed(names(interfaces), why, "`ip address` lists this machine's interfaces; give another one")
}

/// The warning that some interfaces are missing.
pub(crate) fn some_down(interfaces: &[Interface], family: &str) -> String {
    format!("{}: not up with an {family} address; the client uses it as soon as it is", names(interfaces))
}

/// The warning that the system cannot send to the server.
pub(crate) fn outage(server: &str, why: std::io::ErrorKind, survives: bool) -> String {
    let advice = if survives {
        "data is lost until this machine has an address and a route again"
    } else {
        "connect again if this machine's address has changed; with --cid on both sides, the association survives that"
    };
    format!("{server}: cannot send: {why}; {advice}")
}

/// A line about a path, without the peer's address.
pub(crate) fn line(event: &PathEvent) -> String {
    match event {
        PathEvent::PeerMoved(address) => format!("the peer is now at {}", plain(*address)),
        PathEvent::Changed { sockets, change } => {
            let [from, to] = sockets.map(|socket| socket.map_or_else(|| "?".into(), |a| a.to_string()));
            let records = |n: usize| if n == 1 { "1 record".to_owned() } else { format!("{n} records") };
            let again = match (change.repeated, change.unrepeated) {
                (0, 0) => String::new(),
                (again, 0) => format!(", {} sent again", records(again)),
                (0, lost) => format!(", {} may be lost", records(lost)),
                (again, lost) => format!(", {} sent again, {} may be lost", records(again), records(lost)),
            };
            format!("sending from {to} instead of {from}{again}")
        }
        _ => "the path has changed".into(),
    }
}

/// The event for scripts; `None` if it has no name here.
pub(crate) fn event(at: At, event: &PathEvent) -> Option<Event> {
    match event {
        PathEvent::Changed { sockets: [from, to], change } => Some(Event::PathChanged(PathChanged {
            at,
            from: *from,
            to: *to,
            repeated_records: change.repeated,
            unrepeated_records: change.unrepeated,
        })),
        PathEvent::PeerMoved(address) => Some(Event::PeerMoved(At { address: plain(*address), ..at })),
        _ => None,
    }
}

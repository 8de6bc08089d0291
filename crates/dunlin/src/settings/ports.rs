//! The ports of associations without connection IDs.

use crate::error::{Error, Misuse};

/// How an association without connection IDs gets a port of its own at the server, so that the server still
/// knows the client after a change of its address (docs/association-ports.md; Caminati and others, "Fast
/// Session Resumption in DTLS for Mobile Communications", 2020). The server finds the association by the
/// local port; only a record that decrypts counts.
///
/// The ports come from the pool of the server's endpoint ([`crate::Endpoint::add_ports`]). A client gets one
/// only after it has returned a cookie. If both sides use connection IDs, or if no port is free, the
/// association is an ordinary one at the port of the server that the client has asked (the *welcome port*).
///
/// An association with a port of its own has no return routability check. It follows a client to another host
/// only under [`crate::Migration::with_unchecked`], whose risk stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortScheme {
    /// Implicit port communication (IPC): the server sends its ServerHello from the new port, and the client
    /// follows the first port of the server's address whose ServerHello parses. If that handshake fails or
    /// falls silent, the client tries the ServerHello of another port, at most four in all. Nothing is
    /// believed of a port before its Finished.
    ///
    /// A NAT that admits only the port that the client has asked (port-restricted, symmetric) blocks the
    /// ServerHello, and the handshake times out: use [`Self::Tcs`] there. The client offers the extension
    /// association_port. The server answers other clients from its welcome port.
    Ipc,
    /// The same without the extension, as the paper has it. A server with it uses it for all clients, and a
    /// client without it cannot connect to that server.
    IpcUnannounced,
    /// Temporary connected socket (TCS): the handshake stays at the welcome port. The server names the new
    /// port in the extension association_port, and the client moves there after the handshake. It works
    /// behind every kind of NAT. Both sides keep the old path until an authentic record has arrived over the
    /// new one.
    Tcs,
    /// The same, but the server names the port in a protected record after the handshake, as the paper has
    /// it, and repeats that until the client has spoken to the new port. For a client it is the same
    /// as [`Self::Tcs`]: the server chooses.
    TcsMessage,
}

impl PortScheme {
    /// Whether this build has association ports (the feature `association-ports`). Otherwise no pool takes
    /// ports, and no client connects with a scheme.
    pub const AVAILABLE: bool = cfg!(feature = "association-ports");

    /// The error of a build without association ports.
    pub(crate) fn unavailable() -> Error {
        let why = "this build has no association ports: build with the feature association-ports";
        Misuse::Config(why.into()).into()
    }

    /// Whether the client follows the ServerHello to another port.
    pub(crate) const fn is_ipc(self) -> bool {
        matches!(self, Self::Ipc | Self::IpcUnannounced)
    }
}

/// Why an association that was to have a port of its own has none, and is an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoPort {
    /// The endpoint's pool has no free port.
    Empty,
    /// The client's host has as many ports as one host may have ([`crate::EndpointLimits::ports_per_host`]).
    HostLimit,
    /// The server demands no cookie, which would protect the pool.
    NoCookie,
}

//! The settings for datagrams, which clients and servers share.

use super::check_mtu;
use crate::error::Error;
use crate::handshake::setup::{ClientConfig, ServerConfig};
use crate::settings::{ConnectionIds, Migration, PortScheme, Retransmission};
use crate::sync::Arc;

/// Adds the setters to a configuration.
macro_rules! datagram_setters {
    ($config:ty) => {
        impl $config {
            /// Sets the largest datagram to send, in bytes of UDP payload: 80 to 65507. The default is 1200.
            ///
            /// # Errors
            /// The value is outside this range.
            pub fn with_mtu(mut self, mtu: usize) -> Result<Self, Error> {
                self.datagram.mtu = check_mtu(mtu)?;
                Ok(self)
            }

            /// Negotiates connection IDs over datagrams (RFC 9146, RFC 9147 §9): `ids` issues those that this
            /// side receives.
            #[must_use]
            pub fn with_connection_ids(mut self, ids: Arc<dyn ConnectionIds>) -> Self {
                self.connection_ids = Some(ids);
                self
            }

            /// Sets whether and how a connection with connection IDs follows a peer whose address changes. By
            /// default it does after the enhanced check of RFC 9853 §5.2.
            #[must_use]
            pub const fn with_migration(mut self, migration: Migration) -> Self {
                self.datagram.migration = migration;
                self
            }

            /// Sets how an association without connection IDs gets a port of its own at the server. By
            /// default it gets none. A server needs a pool of ports ([`crate::Endpoint::add_ports`]), and
            /// must demand cookies. Both need a build with association ports ([`PortScheme::AVAILABLE`]). To
            /// follow clients to other hosts, it needs [`Migration::with_unchecked`].
            #[must_use]
            pub const fn with_port_scheme(mut self, scheme: PortScheme) -> Self {
                self.datagram.port_scheme = Some(scheme);
                self
            }

            /// Sets whether every protected record of DTLS 1.3 has 16 bits of its number and a length. The
            /// default is `false`: the header omits what the receiver does not need. Every conforming peer
            /// reads both forms (RFC 9147 §4). Only the runner of BoringSSL's conformance tests needs this
            /// setting.
            #[doc(hidden)]
            #[must_use]
            pub const fn with_full_record_headers(mut self, on: bool) -> Self {
                self.datagram.full_headers = on;
                self
            }

            /// Sets when a connection over datagrams sends a flight again, and when it gives up.
            #[must_use]
            pub const fn with_retransmission(mut self, retransmission: Retransmission) -> Self {
                self.datagram.retransmission = retransmission;
                self
            }

            /// Sets whether the transport guarantees that every datagram comes from the peer, as SCTP with
            /// SCTP-AUTH does. The default is `false`, and it must stay so over UDP (RFC 9147 §4.5.2). With
            /// `true`, errors and alerts end a connection even if nothing protects them, the peer's address
            /// counts as proven, and retransmissions stay at the MTU. Records that are not authentic are
            /// still discarded.
            #[must_use]
            pub const fn with_unforgeable_transport(mut self, on: bool) -> Self {
                self.datagram.is_unforgeable = on;
                self
            }
        }
    };
}

datagram_setters!(ClientConfig);
datagram_setters!(ServerConfig);

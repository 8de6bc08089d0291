//! How the clients of the target `endpoint` keep their associations when they move.

use std::sync::Arc;

use dunlin::crypto::SecureRandom;
use dunlin::error::Error;
use dunlin::{ConnectionIds, MAX_CONNECTION_ID, Migration, Multihoming, PathCheck, PortScheme, Side};

use crate::script::Script;
use crate::setting::{Setting, World};
use crate::traffic::ID_LEN;

/// The lengths of the connection IDs that clients give. The server's have [`ID_LEN`] bytes. Other
/// implementations may use up to 255.
const CLIENT_IDS: [usize; 4] = [ID_LEN, 0, 20, 255];

/// The parameters that the bytes after the setting choose. Zeros mean connection IDs of equal length and one
/// interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Without connection IDs: ports of their own at the server.
    ports: Option<PortScheme>,
    client_ids: usize,
    multihoming: Option<Multihoming>,
    migration: Migration,
}

/// Random connection IDs of any length.
#[derive(Debug)]
struct Ids {
    len: usize,
    random: Arc<dyn SecureRandom>,
}

impl ConnectionIds for Ids {
    fn id_len(&self) -> usize {
        self.len
    }

    fn issue(&self) -> Result<Vec<u8>, Error> {
        let mut id = vec![0; self.len];
        self.random.fill(&mut id)?;
        Ok(id)
    }
}

impl Shape {
    pub(crate) fn read(script: &mut Script<'_>) -> Self {
        let first = script.u8();
        let second = script.u8();
        let ports = match first & 7 {
            4 => Some(PortScheme::Ipc),
            5 => Some(PortScheme::IpcUnannounced),
            6 => Some(PortScheme::Tcs),
            7 => Some(PortScheme::TcsMessage),
            _ => None,
        };
        let multihoming = match first >> 5 & 3 {
            _ if ports.is_some() => None,
            1 => Some(Multihoming::linkable()),
            2 => Some(Multihoming::duplicated()),
            3 => Some(Multihoming::unlinkable()),
            _ => None,
        };
        let migration = match second & 3 {
            // These schemes have no check of a new address.
            _ if ports.is_some() => Migration::never().with_unchecked(true),
            1 => Migration::new(PathCheck::Basic),
            2 => Migration::never().with_unchecked(true),
            _ => Migration::new(PathCheck::Enhanced),
        };
        Self { ports, client_ids: CLIENT_IDS[usize::from(first >> 3 & 3)], multihoming, migration }
    }

    /// Whether associations have ports of their own at the server instead of connection IDs.
    pub(crate) const fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// Whether clients give connection IDs that an endpoint of this implementation could not find them by.
    pub(crate) const fn has_long_ids(&self) -> bool {
        !self.has_ports() && self.client_ids > MAX_CONNECTION_ID
    }

    /// Whether clients send each record over all interfaces.
    pub(crate) fn sends_copies(&self) -> bool {
        self.multihoming == Some(Multihoming::duplicated())
    }

    /// Whether clients have several interfaces.
    pub(crate) const fn has_interfaces(&self) -> bool {
        self.multihoming.is_some()
    }

    /// Whether both sides check a new address of the other one.
    pub(crate) fn is_checked(&self) -> bool {
        !self.has_ports() && self.migration != Migration::never().with_unchecked(true)
    }

    /// The configurations of the endpoint and its clients.
    pub(crate) fn world(&self, setting: Setting) -> World {
        let setting = match self.has_ports() {
            true => setting.without_ids(),
            // Small records leave an address no budget for a challenge with a long ID.
            false if self.has_long_ids() => setting.without_small_records(),
            false => setting,
        };
        let mut world = World::new(setting, Side::Server);
        let client = (*world.client).clone();
        let server = (*world.server).clone();
        let client = client.with_migration(self.migration);
        let mut server = server.with_migration(self.migration);
        let mut client = match self.ports {
            Some(scheme) => {
                server = server.with_port_scheme(scheme);
                client.with_port_scheme(scheme)
            }
            None => {
                let random = server.profile().provider().random.clone();
                client.with_connection_ids(Arc::new(Ids { len: self.client_ids, random }))
            }
        };
        if let Some(multihoming) = self.multihoming {
            // A client with DTLS 1.2, or without IDs, cannot give each interface its own.
            client = match client.clone().with_multihoming(multihoming) {
                Ok(client) => client,
                Err(_) => client.with_multihoming(Multihoming::linkable()).unwrap(),
            };
        }
        (world.client, world.server) = (Arc::new(client), Arc::new(server));
        world
    }
}

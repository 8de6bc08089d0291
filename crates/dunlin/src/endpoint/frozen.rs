//! Associations that leave an endpoint for another process, and those that come from one.

use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::Endpoint;
use super::association::Association;
use super::routes::Route;
use super::table::AssociationId;
use crate::connection::DtlsConnection;
use crate::error::{Error, Misuse};
use crate::places::PlaceLimit;
use crate::protocol::Side;
use crate::time::Now;

impl Endpoint {
    /// The names of all associations, ended ones included, the oldest first.
    pub fn associations(&self) -> impl Iterator<Item = AssociationId> + '_ {
        self.associations.ids().into_iter()
    }

    /// Writes an association out for [`DtlsConnection::thaw_server`] or [`DtlsConnection::thaw_client`] in
    /// another process, and ends it here without a word to the peer: [`DtlsConnection::freeze`] has the
    /// rules. As every ended association, it stays until the caller removes it, but its records are not
    /// recognised any more. `None` if the association was removed.
    ///
    /// Call [`Endpoint::set_server`] with `None` first, so that no client comes meanwhile, and transmit what
    /// waits.
    ///
    /// # Errors
    /// The errors of [`DtlsConnection::freeze`], and [`Misuse::SendClosed`] for an association that the
    /// endpoint has ended. They leave the association unchanged.
    pub fn freeze(&mut self, now: Now, id: AssociationId) -> Option<Result<Zeroizing<Vec<u8>>, Error>> {
        if self.associations.get(&id)?.ended.is_some() {
            return Some(Err(Misuse::SendClosed.into()));
        }
        self.update(id, |connection| connection.freeze(now))
    }

    /// Takes in a connection that was thawed. Its peer's next record finds it by the connection ID, or by the
    /// peer's address. No other client gives way to it ([`crate::places`]), since its peer has proven nothing
    /// anew.
    ///
    /// # Errors
    /// [`Misuse::EndpointFull`] at a limit of associations; [`Misuse::AddressInUse`] if there is an
    /// association with the address of a peer whose records carry no connection ID. Then the peer gets a
    /// close_notify and can connect again, unless 256 such datagrams already wait for
    /// [`Endpoint::poll_transmit`]: a caller that adopts many should transmit in between. Or the connection
    /// has failed, or its handshake is not complete.
    pub fn adopt(&mut self, now: Now, connection: DtlsConnection) -> Result<AssociationId, Error> {
        if let Some(error) = connection.error() {
            return Err(error.clone());
        }
        if connection.is_handshaking() {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        let route = self.index.routes.get(connection.peer_address());
        let has_ids = connection.connection_ids().any(|id| !id.is_empty());
        let is_beyond =
            connection.side() == Side::Client && self.associations.len() >= self.limits.associations;
        let mut association = Association::new(connection);
        association.is_half_open = false;
        let address = association.address;
        let id = self.insert(association);
        let refusal = match route.live {
            Some(_) if !has_ids => Some(Misuse::AddressInUse),
            _ if is_beyond || self.keep_within(id).is_err() => Some(Misuse::EndpointFull),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.remove(now, id);
            return Err(refusal.into());
        }
        if route.live.is_none() {
            self.index.routes.set(address, Route { live: Some(id), ..route });
        }
        self.refresh(id);
        Ok(id)
    }

    /// Gives a thawed association its place, unless that exceeds a limit.
    fn keep_within(&mut self, id: AssociationId) -> Result<(), PlaceLimit> {
        let Some((number, _)) = self.enter(id) else { return Ok(()) };
        self.places.refuse_beyond(number, &self.limits.places(), &mut self.associations)
    }
}

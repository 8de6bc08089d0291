//! Associations that continue elsewhere: in another process, or after a planned restart.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use zeroize::Zeroizing;

use super::Connection;
use crate::address::ServerAddress;
use crate::auth::{Belief, PeerIdentity, codec};
use crate::config::{ClientConfig, ServerConfig};
use crate::error::{AuthenticationFailure, Error, Misuse};
use crate::handshake::Step;
use crate::handshake::negotiated::Negotiated;
use crate::handshake::post::Traffic;
use crate::handshake::progress::Progress;
use crate::handshake::tls12::{self, Role};
use crate::protocol::{Protocol, Side};
use crate::record::datagram::{Datagram, KeyKind, Thawing};
use crate::resume::SettingsDigest;
use crate::schedule::keys::RecordForm;
use crate::schedule::{self, Export, tls13};
use crate::settings::{ConnectionIds, DatagramSettings, ProfileSettings, PskChoice, PskSource};
use crate::sync::Arc;
use crate::time::Now;
use crate::transport::Emitter;
use crate::wire::{CipherSuite, Field, Reader, Writer};

/// The number of the format. A version of this engine reads its own format only, since an association lives
/// shortly.
const FORMAT: u8 = 8;

/// Room for everything except identities, names and connection IDs, in bytes. The buffer with the secrets
/// must not move while it grows: a moved one would leave an unwiped copy.
const ROOM: usize = 1024;

impl Connection<Datagram> {
    /// Ends the connection on this side of a restart, and writes it out for [`Self::thaw_server`] or
    /// [`Self::thaw_client`]. Nothing is sent afterwards: every further call reports [`Misuse::Frozen`]. The
    /// peer notices nothing. The wall clock in `now` tells the thawed connection how long the peer has been
    /// silent.
    ///
    /// The bytes contain the secrets of the connection. The caller must seal them, and **must never thaw them
    /// twice**: two connections with the same keys and record numbers would reveal their plaintext. Unread
    /// data, the peer's certificates, the memory of tickets, and the connection IDs of other interfaces
    /// ([`crate::Multihoming::unlinkable`]) are left behind.
    ///
    /// # Errors
    /// All but the last leave the connection unchanged.
    ///
    /// * [`Misuse::FlightWaits`] while a message is on its way in either direction, or output waits for
    ///   transmission.
    /// * [`Misuse::HandshakeNotComplete`].
    /// * [`Misuse::SendClosed`] if either side has closed.
    /// * [`Misuse::NotSupported`] in DTLS 1.2 without extended master secret, or if this server's association
    ///   has a port of its own.
    /// * The connection has failed.
    pub fn freeze(&mut self, now: Now) -> Result<Zeroizing<Vec<u8>>, Error> {
        self.check()?;
        let Some(negotiated) = self.progress.negotiated.as_deref() else {
            return Err(Misuse::HandshakeNotComplete.into());
        };
        if self.progress.send_closed || self.peer_closed {
            return Err(Misuse::SendClosed.into());
        }
        // RFC 7627 §5.4: without extended master secret a connection exports nothing, and its secrets leave
        // it on no other way.
        let Some(exporter) = &self.progress.exporter else {
            return Err(Misuse::NotSupported(Field::FrozenAssociation).into());
        };
        let settings = self.transport.settings().ok_or(Misuse::HandshakeNotComplete)?;
        self.transport.check_settled()?;
        let mut w = Writer::new();
        let identity = |peer: Option<&PeerIdentity>| match peer {
            Some(PeerIdentity::RawKey(key)) => key.len() + 2,
            peer => peer.map_or(0, codec::max_len),
        };
        let identities = identity(negotiated.peer.as_ref()) + identity(negotiated.peer_certified.as_deref());
        w.reserve(ROOM + identities + negotiated.names_len() + self.transport.ids_len());
        w.u8(FORMAT);
        w.u8((self.side == Side::Server).into());
        w.u8(self.transport.protocol().changes_cipher_spec().into());
        w.put(settings.as_bytes());
        let (heard_at, silent_before) = self.transport.heard_at();
        let silent = now.monotonic.since(heard_at) + silent_before;
        w.u64(now.unix_ms.saturating_sub(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)));
        w.u16(negotiated.cipher_suite.map_or(0, |suite| suite.0));
        // Nothing fails from the first secret on.
        negotiated.freeze(&mut w)?;
        exporter.freeze(&mut w);
        if let Some(Step::Traffic(state)) = &self.state {
            state.freeze(&mut w);
        }
        self.transport.freeze(&mut w);
        let bytes = Zeroizing::new(w.finish()?);
        self.error = Some(Misuse::Frozen.into());
        self.state = None;
        self.progress = Progress::default();
        Ok(bytes)
    }

    /// Continues a server's connection that [`Self::freeze`] has written, under the same settings. The device
    /// of a client that has proved a pre-shared key is the key's current name. A caller that keeps the keys
    /// itself ([`PskSource::Ask`]) must look the key up.
    ///
    /// # Errors
    /// * [`Misuse::OtherSettings`] if they were written under other trusted certificates, CRLs or client
    ///   authentication, or if the client has proved a pre-shared key and the configuration has no source of
    ///   keys.
    /// * [`crate::error::Internal::QuestionFailed`] if the pre-shared keys cannot be read now
    ///   ([`crate::auth::FindPsk::find_for_thaw`]).
    /// * [`AuthenticationFailure::Expired`] if the peer's certificate or a CRL behind it has expired.
    /// * [`AuthenticationFailure::Rejected`] if the verifier no longer believes the peer
    ///   ([`crate::auth::Verifier::still_believes`]), or if the configuration no longer has the pre-shared
    ///   key that the client has proved, also beside a certificate.
    /// * The bytes do not parse or are a client's, or the provider failed.
    pub fn thaw_server(config: &Arc<ServerConfig>, bytes: &[u8], now: Now) -> Result<Self, Error> {
        let owner = Owner {
            side: Side::Server,
            settings: &config.digests.trust,
            profile: &config.profile,
            datagram: &config.datagram,
            issuer: config.connection_ids.clone(),
        };
        let mut connection = owner.thaw(bytes, now, || Role::Server(Arc::clone(config)))?;
        let negotiated = connection.progress.negotiated.as_deref_mut();
        if let Some(negotiated) = negotiated {
            check_psk(config, negotiated, now)?;
        }
        Ok(connection)
    }

    /// Continues a client's connection to `server`, as [`Self::thaw_server`]. It keeps no further tickets.
    ///
    /// # Errors
    /// As [`Self::thaw_server`]; also [`Misuse::OtherSettings`] if the connection was made with another name
    /// of the server, or with a pre-shared key that the configuration no longer has. Keys that the caller
    /// chooses ([`PskChoice`]) are not compared.
    pub fn thaw_client(
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        bytes: &[u8],
        now: Now,
    ) -> Result<Self, Error> {
        let owner = Owner {
            side: Side::Client,
            settings: &config.session_settings,
            profile: &config.profile,
            datagram: &config.datagram,
            issuer: config.connection_ids.clone(),
        };
        let name = server.host();
        let connection = owner.thaw(bytes, now, || Role::Client(Arc::clone(config), server))?;
        let negotiated = connection.progress.negotiated.as_deref();
        if negotiated.is_some_and(|negotiated| is_to(negotiated, &name) && has_psk(config, negotiated)) {
            Ok(connection)
        } else {
            Err(Misuse::OtherSettings.into())
        }
    }

    /// Lets `issuer` issue further connection IDs of this side, instead of the configuration's, if its IDs
    /// have the length of those before. A caller with several endpoints learns only from a thawed
    /// connection's IDs to which of them it belongs.
    pub fn set_connection_ids(&mut self, issuer: Arc<dyn ConnectionIds>) {
        self.transport.set_issuer(issuer);
    }
}

/// Whether a client's connection was made to the server of this name.
fn is_to(negotiated: &Negotiated, name: &str) -> bool {
    negotiated.server_name.as_deref() == Some(name)
}

/// Checks that a server still has the pre-shared key that has authenticated the client or went into the keys,
/// as for a session that resumes. A client with a key gets its current name. Another key with the same
/// identity says nothing about the client.
fn check_psk(config: &ServerConfig, negotiated: &mut Negotiated, now: Now) -> Result<(), Error> {
    let psk = match &mut negotiated.peer {
        Some(PeerIdentity::Psk(psk)) => Some(psk),
        _ => negotiated.beside.as_deref_mut(),
    };
    match (psk, &config.psks) {
        (None, _) | (Some(_), Some(PskSource::Ask)) => Ok(()),
        (Some(psk), Some(PskSource::Here(keys))) => {
            let key = keys.find_for_thaw(&psk.identity, now)?;
            if key.is_some_and(|key| psk.take_name(&key, config.profile.provider.sha256)) {
                Ok(())
            } else {
                let why = "this side no longer has the pre-shared key of the frozen association";
                Err(AuthenticationFailure::Rejected(why.into()).into())
            }
        }
        // A server without any keys says nothing about this one.
        (Some(_), None) => Err(Misuse::OtherSettings.into()),
    }
}

/// Whether a client still has the pre-shared key that has authenticated the server or went into the keys.
fn has_psk(config: &ClientConfig, negotiated: &Negotiated) -> bool {
    let psk = match &negotiated.peer {
        Some(PeerIdentity::Psk(psk)) => Some(psk),
        _ => negotiated.beside.as_deref(),
    };
    let Some(psk) = psk else { return true };
    let sha256 = config.profile.provider.sha256;
    !matches!(config.psk_choice, PskChoice::First)
        || config.psks.iter().any(|own| psk.is_proved_by(own, sha256))
}

/// The parts of a configuration that a thawed connection needs.
struct Owner<'a> {
    side: Side,
    settings: &'a SettingsDigest,
    profile: &'a ProfileSettings,
    datagram: &'a DatagramSettings,
    issuer: Option<Arc<dyn ConnectionIds>>,
}

impl Owner<'_> {
    fn thaw(
        self,
        bytes: &[u8],
        now: Now,
        role: impl FnOnce() -> Role,
    ) -> Result<Connection<Datagram>, Error> {
        Reader::all(bytes, Field::FrozenAssociation, |r| {
            let format = r.u8()?;
            let is_server = r.u8()? == 1;
            let is_12 = r.u8()? == 1;
            let settings = r.array()?;
            if (format, is_server) != (FORMAT, self.side == Side::Server) {
                return Err(r.bad_value().into());
            }
            // The engine has authenticated the peer under these settings only.
            if &settings != self.settings.as_bytes() {
                return Err(Misuse::OtherSettings.into());
            }
            let heard_ms = r.u64()?;
            let suite = CipherSuite(r.u16()?);
            let mut negotiated = Negotiated::thaw(r)?;
            if let Some(validity) = &negotiated.peer_validity {
                validity.check(now)?;
            }
            let trust = &self.profile.trust;
            let certified = negotiated.peer_certified.as_deref();
            // If the belief is unknown, the caller asks about the peer while the association goes on.
            let peers = [negotiated.peer.as_ref(), certified];
            if peers.iter().any(|peer| trust.still_believe(*peer, now) == Belief::Ended) {
                let why = "this side no longer believes the peer of the frozen association";
                return Err(AuthenticationFailure::Rejected(why.into()).into());
            }
            let (state, exporter, protocol, kind) =
                if is_12 { self.secrets12(r, suite, role)? } else { self.secrets13(r, suite)? };
            negotiated.version = Some(protocol.version());
            negotiated.cipher_suite = Some(suite);
            let random = self.profile.provider.random.clone();
            let thawing = Thawing {
                side: self.side,
                protocol,
                settings: self.datagram,
                issuer: self.issuer,
                random: random.clone(),
                digest: *self.settings,
                kind,
                now: now.monotonic,
                silent: Duration::from_millis(now.unix_ms.saturating_sub(heard_ms)),
            };
            let transport = Datagram::thaw(r, thawing)?;
            let mut connection = Connection::new(self.side, transport, now);
            connection.state = Some(state);
            // The frozen bytes do not contain the client's random. A new random value matches no ClientHello.
            random.fill(&mut connection.effects.client_random)?;
            connection.progress.exporter = Some(exporter);
            connection.progress.key_update_after = self.profile.records.key_update_after;
            connection.progress.negotiated = Some(Box::new(negotiated));
            Ok(connection)
        })
    }

    fn secrets13(&self, r: &mut Reader<'_>, suite: CipherSuite) -> Result<Secrets, Error> {
        let protocol = Protocol::Dtls13;
        let suite = self.profile.suite(suite).ok_or_else(|| r.bad_value())?;
        let exporter = tls13::Exporter::thaw(r, suite, protocol)?;
        let state = Traffic::thaw(r, suite, protocol, self.side)?;
        let kind = (suite.aead, RecordForm::Tls13);
        Ok((Step::Traffic(Box::new(state)), Box::new(exporter), protocol, kind))
    }

    fn secrets12(
        &self,
        r: &mut Reader<'_>,
        suite: CipherSuite,
        role: impl FnOnce() -> Role,
    ) -> Result<Secrets, Error> {
        let suites = self.profile.tls12.iter().flat_map(|tls12| &tls12.suites);
        let suite = suites.copied().find(|known| known.id == suite).ok_or_else(|| r.bad_value())?;
        let exporter = schedule::tls12::Exporter::thaw(r, suite)?;
        let kind = (suite.aead, schedule::tls12::record_form(suite));
        Ok((tls12::thawed(role()), Box::new(exporter), Protocol::Dtls12, kind))
    }
}

/// The state, the exporter, the protocol, and the kind of the keys.
type Secrets = (Step, Box<dyn Export>, Protocol, KeyKind);

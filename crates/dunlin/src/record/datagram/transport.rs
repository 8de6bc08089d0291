//! A transport over datagrams ([`Emitter`], [`Transport`]), for the handshake and the connection.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::connection_id::{OwnIds, PeerIds};
use super::receive::Received;
use super::{Datagram, HANDSHAKE_EPOCH};
use crate::address::PathChange;
use crate::crypto::SecureRandom;
use crate::error::Error;
use crate::flight::timers::Timer;
use crate::message::Reading;
use crate::message::connection_ids::Usage;
use crate::protocol::{Protocol, Side};
use crate::resume::SettingsDigest;
use crate::schedule::keys::TrafficKeys;
use crate::settings::ConnectionIds;
#[cfg(feature = "association-ports")]
use crate::settings::PortScheme;
use crate::time::Instant;
use crate::transport::{Emitter, Epoch, Incoming, Reads, Transport};
use crate::wire::{AlertDescription, AlertLevel, HandshakeType};

impl Emitter for Datagram {
    fn protocol(&self) -> Protocol {
        self.receiver.protocol()
    }

    fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        // RFC 6347 §4.2.4: only a whole flight answers a flight. DTLS 1.3 acknowledges parts.
        if self.retransmit.has_heard && !self.complete && !self.protocol().has_acks() {
            self.answered();
        }
        if self.retransmit.gave_up {
            self.progress();
        }
        self.sender.message(message)
    }

    fn note_settings(&mut self, settings: &SettingsDigest) {
        self.settings = Some(*settings);
    }

    fn next_number(&self) -> u16 {
        self.sender.next_number()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.paths.present().peer)
    }

    fn prove_address(&mut self) {
        self.is_address_proven = true;
    }

    fn longest_peer_id(&self) -> usize {
        self.sender.longest_peer_id()
    }

    fn offer_connection_id(&mut self, len: usize) {
        self.receiver.ids = OwnIds::offered(len);
    }

    fn use_connection_ids(&mut self, issuer: Option<Arc<dyn ConnectionIds>>, own: Vec<u8>, peers: Vec<u8>) {
        if !own.is_empty() || !peers.is_empty() {
            self.ports.give_up();
        }
        self.receiver.ids = OwnIds::new(issuer, own);
        self.sender.ids = PeerIds::new(peers);
    }

    #[cfg(feature = "association-ports")]
    fn use_port(&mut self, scheme: Option<PortScheme>) -> Option<u16> {
        self.take_port(scheme)
    }

    #[cfg(feature = "association-ports")]
    fn expect_port(&mut self, port: u16) {
        Self::expect_port(self, port);
    }

    fn check_paths(&mut self, random: Arc<dyn SecureRandom>) {
        self.receiver.are_paths_checked = true;
        self.paths.agree(random);
    }

    fn sends_connection_id(&self) -> bool {
        !self.sender.ids.present().is_empty()
    }

    fn receives_connection_id(&self) -> bool {
        self.receiver.ids.are_used()
    }

    fn awaits_connection_ids(&self) -> bool {
        self.interfaces.as_ref().is_some_and(|interfaces| interfaces.awaits_ids())
    }

    fn take_connection_ids(&mut self, ids: Vec<Vec<u8>>, usage: Usage) -> Result<(), Error> {
        let longest = self.sender.longest_peer_id();
        if let Some(interfaces) = &mut self.interfaces {
            interfaces.got_ids(ids.len());
        }
        self.sender.ids.take(ids, usage, longest)
    }

    fn send_connection_ids(&mut self, count: u8) -> Result<(), Error> {
        self.issue_connection_ids(count, Usage::Spare)
    }

    /// The sender holds a KeyUpdate back until the peer has acknowledged the previous one (RFC 9147 §5.8.4).
    fn has_unsent_key_update(&self) -> bool {
        self.sender.has_next_update()
    }

    /// Always passes, because datagrams arrive in any order and the receiver keeps early fragments.
    fn peer_waits(&self) -> Result<(), Error> {
        Ok(())
    }

    fn answer_once(&mut self) {
        self.receiver.drop_rest();
    }

    fn end_of_flight(&mut self) -> Result<(), Error> {
        self.flush()
    }

    /// RFC 9147 §5: DTLS 1.3 has no compatibility mode.
    fn change_cipher_spec(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn agree(&mut self, protocol: Protocol) -> Result<(), Error> {
        self.receiver.agree(protocol);
        self.sender.agree(protocol);
        Ok(())
    }

    fn write_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        self.sender.set_key(epoch, keys)
    }

    fn read_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        self.receiver.set_key(epoch, keys)
    }

    fn limit_sent_records(&mut self, content: usize) {
        self.sender.limit(content);
    }

    /// Does nothing, because the size of datagrams limits records.
    fn cap_sent_records(&mut self, _: usize) {}

    fn limit_received_records(&mut self, content: usize) {
        self.receiver.limit(content);
    }

    /// Does nothing, because this engine has no early data over datagrams.
    fn write_in_the_clear(&mut self) {}

    fn limit_early_data(&mut self, _: u32) {}

    /// Does nothing: early data has its own epoch, and the receiver discards its records for lack of keys.
    fn skip_early_data(&mut self) {}

    fn handshake_complete(&mut self) {
        // The side that has sent the last flight of DTLS 1.2 keeps it.
        if self.retransmit.has_heard && !self.protocol().has_acks() {
            self.answered();
        }
        self.complete = true;
        if self.side == Side::Server {
            // An honest client sends no parts of messages yet, except in the next epoch. Parts from a hostile
            // client may need more room than is left after the handshake.
            self.receiver.drop_parts();
        }
        self.progress();
        self.sender.complete_handshake();
    }
}

impl Transport for Datagram {
    fn next(&mut self, reads: &mut dyn Reads) -> Result<Option<Incoming>, Error> {
        loop {
            if core::mem::take(&mut self.has_moved) {
                return Ok(Some(Incoming::PeerMoved(self.paths.present().peer)));
            }
            let protocol = self.protocol();
            if let Some(message) = self.receiver.next_message(&mut |message| reads.message(protocol, message))
            {
                self.timers.stop(Timer::DropParts);
                if !self.retransmit.has_heard && self.side == Side::Server && !self.complete {
                    self.sender.begin(message.number, self.receiver.plain_sequence());
                }
                self.retransmit.has_heard = true;
                if message.typ == HandshakeType::SERVER_HELLO {
                    self.sender.knows_version();
                }
                if self.protocol().has_acks() && !self.complete {
                    self.answered();
                }
                if !self.complete {
                    self.timers.stop(Timer::GiveUp);
                }
                return Ok(Some(Incoming::Message(message)));
            }
            let reading = |typ| reads.reading(protocol, typ);
            let established: Option<&dyn Fn(HandshakeType) -> Reading> =
                if self.complete { Some(&reading) } else { None };
            let mut heard = None;
            let received =
                self.receiver.next_record(&mut heard, established, self.retransmit.backoff.is_patient())?;
            heard.map_or(Ok(()), |heard| self.follow(&heard))?;
            match received {
                Some(Received::Path(path, len, message)) => self.path_message(path, len, message)?,
                // In DTLS 1.2 it can overtake the Finished of its epoch. The server repeats it.
                Some(Received::Port(..)) if !self.complete => {}
                Some(Received::Port(path, newest, content)) => self.about_port(path, newest, &content)?,
                Some(Received::Alert(level, description)) => {
                    if level == AlertLevel::FATAL || description == AlertDescription::CLOSE_NOTIFY {
                        // The peer sends nothing more, ACKs included.
                        self.answered();
                    }
                    return Ok(Some(Incoming::Alert(level, description)));
                }
                Some(Received::Ack(epoch, numbers)) => {
                    let is_progress = self.sender.acknowledged(&numbers)?;
                    if is_progress {
                        self.progress();
                        self.begin_to_move()?;
                    }
                    if let Some((count, usage)) = self.sender.take_owed_ids() {
                        self.issue_connection_ids(count, usage)?;
                    }
                    // RFC 9147 §5.8.1: an ACK of a part asks for the rest. §7.1: an empty one says that only
                    // the hello arrived.
                    self.retransmit.resend_wanted |= epoch <= HANDSHAKE_EPOCH
                        && (is_progress || numbers.is_empty())
                        && !self.retransmit.backoff.is_patient();
                    if epoch > HANDSHAKE_EPOCH {
                        return Ok(Some(Incoming::Acknowledgement));
                    }
                }
                // RFC 9147 §5.8.1: a repeated ClientHello asks for the server's flight again. RFC 6347
                // §4.2.4: so does the repeated end of the flight before the last one.
                Some(Received::Repeated) => {
                    self.retransmit.repeat_wanted |= self.side == Side::Server || self.keeps_last_flight();
                }
                // The peer has completed its handshake, so it needs the last flight no more.
                Some(Received::Data) if self.keeps_last_flight() => self.sender.drop_flight(),
                Some(Received::Data | Received::Nothing | Received::Messages(..)) => {}
                None => {
                    let rest = self.retransmit.resend_wanted;
                    let all = self.retransmit.repeat_wanted;
                    (self.retransmit.resend_wanted, self.retransmit.repeat_wanted) = (false, false);
                    if (rest || all) && self.sender.has_room() {
                        if all { self.repeat()? } else { self.resend(self.budget())? }
                    }
                    if self.complete {
                        self.limit_parts();
                        self.flush()?;
                        self.begin_to_move()?;
                    }
                    if self.has_moved {
                        continue;
                    }
                    return Ok(None);
                }
            }
        }
    }

    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        self.sender.alert(level, description)
    }

    fn needs_key_update(&self, after: Option<u64>) -> bool {
        self.sender.needs_key_update(after)
    }

    fn key_update_waits(&self) -> bool {
        self.sender.key_update_waits()
    }

    fn has_room(&self) -> bool {
        self.sender.has_room()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        self.now = now;
        while let Some(timer) = self.timers.expire(now) {
            match timer {
                Timer::GiveUp => self.give_up()?,
                Timer::Retransmit => self.retransmit()?,
                Timer::Acknowledge => self.acknowledge_part()?,
                Timer::Probe => self.expire_probes()?,
                Timer::CheckPath => {
                    let challenge = self.paths.expire()?;
                    self.after_step((false, challenge))?;
                }
                Timer::MovePort => self.move_again()?,
                Timer::DropParts => self.receiver.drop_parts(),
            }
        }
        Ok(())
    }

    fn take_path_change(&mut self) -> Option<PathChange> {
        self.path_change()
    }

    fn discard_input(&mut self) {
        self.receiver.discard_input();
    }
}

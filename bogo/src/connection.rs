//! One connection, from its configuration through the handshake to its end. [`crate::exchange`] exchanges the
//! data.

use std::time::Duration;

use dunlin::error::{Error, PeerIncompatible};
use dunlin::wire::{AlertDescription, HandshakeType, ProtocolVersion};
use dunlin::{EarlyDataOutcome, Event, MessageSize, Question, Side};

use crate::answers::Answers;
use crate::engine::Engine;
use crate::options::{Options, Renegotiation, as_tls};
use crate::setup::{LONGEST_TIMEOUT, Role, Setup, Shared};
use crate::transport::{Command, Transport};
use crate::{Failure, expect, reasons};

/// Runs one connection. Once the server refuses early data, a client uses the options for `retry`.
pub(crate) fn run(
    options: &Options,
    retry: &Options,
    shared: &mut Shared,
    is_resume: bool,
) -> Result<(), Failure> {
    let setup = Setup::new(options, shared)?;
    let tls = match &setup.role {
        Role::Client(config, server) => Engine::client(config, server.clone(), options.dtls, shared.now())?,
        Role::Server(config, _) => Engine::server(config, options.dtls, shared.now()),
    };
    let transport = Transport::connect(options)?;
    let (profile, is_client) = match &setup.role {
        Role::Client(config, _) => (config.profile(), true),
        Role::Server(config, _) => (config.profile(), false),
    };
    let answers = Answers { options, setup: &setup, provider: profile.provider() };
    let mut link = Link {
        tls,
        transport,
        shared,
        answers,
        retry,
        waiting: Vec::new(),
        ended: false,
        new_session: false,
        renegotiations: 0,
        refused: false,
        held: false,
        unread: 0,
        unsent: None,
    };
    let outcome = link.run(is_resume);
    // Send the alert, if there is one.
    link.held = false;
    link.flush();
    let options = link.answers.options;
    outcome.map_err(|e| unspoken_version(options, e))?;
    // A client that closes at once may not have read the ticket.
    let session_due = !options.expect.no_session && link.is_extended();
    if is_client
        && !options.shim_shuts_down
        && !options.send_alert
        && session_due != link.shared.sessions.has_one()
    {
        let what = if session_due { "the client got no session" } else { "the client got a session" };
        return Err(Failure::Unexpected(what.into()));
    }
    let sessions = &link.shared.sessions;
    if is_client
        && sessions.has_one()
        && !options.dtls
        && options.expect.session_with_early_data != sessions.allows_early_data()
    {
        return Err(Failure::Unexpected("early data in the session is not as expected".into()));
    }
    Ok(())
}

/// Turns the failure into "not implemented" if the peer needs TLS 1.1 or older and the options allow that.
fn unspoken_version(options: &Options, failure: Failure) -> Failure {
    let unspoken = [ProtocolVersion::TLS1_0, ProtocolVersion::TLS1_1];
    match failure {
        Failure::Engine(Error::PeerIncompatible(PeerIncompatible::Version(Some(version))))
            if unspoken.contains(&as_tls(version)) && options.allows(as_tls(version)) =>
        {
            Failure::Unimplemented(format!("{version}"))
        }
        Failure::Engine(Error::AlertReceived(AlertDescription::PROTOCOL_VERSION))
            if !options.server && unspoken.into_iter().any(|version| options.allows(version)) =>
        {
            Failure::Unimplemented("versions before TLS 1.2".into())
        }
        other => other,
    }
}

/// A connection of the engine, with its transport and its answers.
pub(crate) struct Link<'a> {
    pub(crate) tls: Engine,
    pub(crate) transport: Transport,
    pub(crate) shared: &'a mut Shared,
    pub(crate) answers: Answers<'a>,
    retry: &'a Options,
    /// Received bytes that the engine has not taken yet.
    waiting: Vec<u8>,
    pub(crate) ended: bool,
    /// Whether the client received a new session.
    new_session: bool,
    renegotiations: u32,
    /// Whether the server refused early data that it should have accepted.
    refused: bool,
    /// Whether transmission is held back for now.
    pub(crate) held: bool,
    /// The number of bytes that were returned but not consumed. They are consumed by the next read, so that
    /// the engine does not process later records early.
    pub(crate) unread: usize,
    /// The rest of the data that did not fit into the early data. It follows after the handshake.
    pub(crate) unsent: Option<Vec<u8>>,
}

impl Link<'_> {
    fn run(&mut self, is_resume: bool) -> Result<(), Failure> {
        while self.events()? {}
        self.flush();
        if self.tls.side() == Side::Client && self.tls.early_data().is_some() {
            self.write_early()?;
        }
        // A server that accepts early data continues as if the handshake were complete.
        while self.tls.is_handshaking() && !(self.answers.options.server && self.tls.early_data().is_some()) {
            self.step()?;
        }
        self.events()?;
        self.flush();
        let is_early = self.tls.is_handshaking();
        if !is_early {
            self.check(is_resume)?;
        }
        let options = self.answers.options;
        self.export()?;
        if options.send_alert {
            self.tls.abort(reasons::DECOMPRESSION_FAILURE);
            return Ok(());
        }
        self.write_first()?;
        if !options.shim_shuts_down {
            self.echo()?;
        }
        if is_early {
            self.check(is_resume)?;
        }
        self.shut_down()?;
        expect::same("renegotiations", Some(options.expect.renegotiations), Some(self.renegotiations))
    }

    /// Compares the negotiated parameters with the expected ones.
    fn check(&mut self, is_resume: bool) -> Result<(), Failure> {
        let options = self.answers.options;
        if self.refused {
            return Err(Failure::Unexpected("early data was refused".into()));
        }
        let Some(negotiated) = self.tls.negotiated() else {
            return Err(Failure::Unexpected("the handshake did not finish".into()));
        };
        let used = self.answers.setup.credentials.used(negotiated);
        expect::check(options, negotiated, used, self.shared, is_resume)?;
        if self.is_tls12() {
            self.check_tls12(negotiated.is_resumed())?;
        }
        if options.expect.ocsp_response.is_some() && options.expect.ocsp_response != self.shared.ocsp_response
        {
            return Err(Failure::Unexpected("the OCSP response is not as expected".into()));
        }
        Ok(())
    }

    /// Whether a TLS 1.2 handshake is complete.
    fn is_tls12(&self) -> bool {
        self.tls.negotiated().is_some_and(|n| n.version.map(as_tls) == Some(ProtocolVersion::TLS1_2))
    }

    /// Whether the master secret is extended. Otherwise there is no exporter, and no session is kept (RFC
    /// 7627 §5.4).
    fn is_extended(&self) -> bool {
        self.tls.export(b"EXPERIMENTAL", None, &mut [0]).is_ok()
    }

    /// Fails as BoringSSL's credential callback, which runs when the server requests a certificate.
    fn check_certificate_request(&mut self) -> Result<(), Failure> {
        let asked = |m: &MessageSize| !m.sent && m.typ == HandshakeType::CERTIFICATE_REQUEST;
        if self.answers.options.fail_credential_callback && self.tls.messages().iter().any(asked) {
            self.tls.abort(AlertDescription::INTERNAL_ERROR);
            return Err(Failure::Unexpected(":CERT_CB_ERROR: the credential callback fails".into()));
        }
        Ok(())
    }

    /// Ends the connection if the peer requests a renegotiation that the options do not allow, as BoringSSL
    /// does. The engine itself would refuse and continue.
    fn check_renegotiation(&mut self) -> Result<(), Failure> {
        let typ = match self.tls.side() {
            Side::Client => HandshakeType::HELLO_REQUEST,
            Side::Server => HandshakeType::CLIENT_HELLO,
        };
        let received = self.tls.messages().iter().filter(|m| !m.sent).map(|m| m.typ);
        let later = received.skip_while(|typ| *typ != HandshakeType::FINISHED);
        let requests = later.filter(|t| *t == typ).count();
        match self.answers.options.renegotiation {
            Renegotiation::Free if !self.tls.has_closed() => return Ok(()),
            Renegotiation::Once if requests <= 1 => return Ok(()),
            Renegotiation::Ignored => return Ok(()),
            _ if requests == 0 || !self.is_tls12() => return Ok(()),
            _ => {}
        }
        self.tls.abort(AlertDescription::NO_RENEGOTIATION);
        Err(Failure::Unexpected(":NO_RENEGOTIATION: the peer requests a renegotiation".into()))
    }

    /// Checks properties that TLS 1.3 always has, or has only later.
    fn check_tls12(&self, resumed: bool) -> Result<(), Failure> {
        let expect = &self.answers.options.expect;
        if expect.extended_master_secret && !self.is_extended() {
            return Err(Failure::Unexpected("there is no extended master secret".into()));
        }
        let session_due = !expect.no_session && (!resumed || expect.ticket_renewal) && self.is_extended();
        match self.tls.side() {
            Side::Client => expect::same("a new session", Some(session_due), Some(self.new_session)),
            Side::Server => Ok(()),
        }
    }

    /// Switches to the options for a retry, because the server has refused the early data.
    fn retry(&mut self) {
        // Do not fail yet: another failure would say more.
        self.refused |= self.answers.options.expect.early_data != Some(false);
        self.answers.options = self.retry;
        self.unsent = None;
        self.held = false;
    }

    /// Answers questions, transmits, and receives the next bytes. Waits for them if there is nothing else to
    /// do.
    pub(crate) fn step(&mut self) -> Result<(), Failure> {
        let answered = self.events()?;
        // After the handshake, output waits for the next data, because one KeyUpdate may answer several.
        if self.tls.is_handshaking() || self.is_tls12() || self.answers.options.dtls {
            self.flush();
        }
        if self.waiting.is_empty() {
            if answered {
                return Ok(());
            }
            if self.answers.options.dtls {
                return self.follow_command();
            }
            self.waiting = self.transport.read()?;
            self.ended = self.waiting.is_empty();
            self.held &= !self.tls.is_handshaking();
        }
        if self.ended {
            return if self.tls.is_handshaking() || self.answers.options.check_close_notify {
                self.tls.receive_end()
            } else {
                Ok(())
            };
        }
        let portion = self.transport.portion(self.waiting.len());
        let now = self.shared.now();
        let taken = self.tls.receive(now, self.waiting.get(..portion).unwrap_or_default())?;
        self.waiting.drain(..taken);
        self.check_certificate_request()?;
        self.check_renegotiation()
    }

    /// Waits for the runner's next command about a DTLS connection, and follows it.
    fn follow_command(&mut self) -> Result<(), Failure> {
        let command = self.transport.command()?;
        let now = self.shared.now();
        let Some(dtls) = self.tls.dtls() else { return Ok(()) };
        match command {
            Command::Packet(packet) => {
                self.tls.receive(now, &packet)?;
                self.check_certificate_request()?;
                return self.check_renegotiation();
            }
            Command::AdvanceClock(by) => return self.pass(by),
            Command::SetMtu(mtu) => dtls.set_mtu(mtu)?,
            Command::ExpectTimeout(expected) => {
                let next = dtls.poll_timeout().map(|deadline| deadline.since(now.monotonic));
                // The engine also limits the time of the whole handshake. BoringSSL has no such timer.
                let next = next.filter(|next| *next <= LONGEST_TIMEOUT);
                // The engine rounds times down to milliseconds, more than once.
                let is_expected = match (next, expected) {
                    (Some(next), Some(expected)) => next.abs_diff(expected) < Duration::from_millis(2),
                    (next, expected) => next == expected,
                };
                if !is_expected {
                    let what = format!("the next timeout is {next:?}, not {expected:?}");
                    return Err(Failure::Unexpected(what));
                }
            }
            Command::SetTimeout(first) => dtls.set_first_timeout(first)?,
            Command::End => {
                self.ended = true;
                if self.tls.is_handshaking() {
                    return self.tls.receive_end();
                }
            }
        }
        Ok(())
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        self.shared.advance(time);
        let now = self.shared.now();
        if let Some(dtls) = self.tls.dtls() {
            dtls.handle_timeout(now)?;
        }
        self.flush();
        Ok(())
    }

    /// Handles all events. Returns whether it answered a question.
    fn events(&mut self) -> Result<bool, Failure> {
        let mut answered = false;
        while let Some(event) = self.tls.poll_event() {
            match event {
                Event::Question(_, Question::ChooseProfile(_))
                    if self.answers.options.fail_early_callback =>
                {
                    // BoringSSL sends this alert; the engine itself would send access_denied.
                    self.tls.abort(AlertDescription::HANDSHAKE_FAILURE);
                    return Err(Failure::Unexpected(":CONNECTION_REJECTED: the early callback fails".into()));
                }
                Event::Question(id, question) => {
                    if matches!(question, Question::Sign { .. }) && self.answers.options.signature_ms > 0 {
                        self.flush();
                        self.pass(Duration::from_millis(self.answers.options.signature_ms))?;
                    }
                    let answer = self.answers.answer(question, self.shared)?;
                    self.tls.answer(self.shared.now(), id, answer)?;
                    answered = true;
                }
                Event::NewSession(id, session) => drop(self.shared.asked.insert(id, session)),
                Event::SessionUsed(id) => drop(self.shared.asked.remove(&id)),
                Event::TicketReceived => self.new_session = true,
                Event::Renegotiated => self.renegotiations += 1,
                Event::EarlyData(EarlyDataOutcome::Rejected(_)) if self.tls.side() == Side::Client => {
                    self.retry();
                }
                _ => {}
            }
        }
        Ok(answered)
    }

    pub(crate) fn flush(&mut self) {
        if !self.held {
            self.tls.flush(self.shared.now(), &mut self.transport);
        }
    }
}

//! Clients over TCP: their places, and their handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::places::HandshakeLimit;
use dunlin::wire::AlertDescription;
use dunlin_command::counted::Counted;
use dunlin_command::error::Explanation;
use dunlin_command::events::Event;
use dunlin_tokio::places::{HandshakePlace, accept};
use dunlin_tokio::throttle::Line;
use dunlin_tokio::{HandshakeError, TlsAcceptor, now};
use tokio::net::{TcpListener, TcpStream};

use super::slots::{Limit, Slots};
use super::{Choice, Connections, Incoming, Server, Shaken, Unserved};
use crate::tls::log::Level;

impl Server {
    /// Accepts clients, each of which gets a place for its handshake.
    pub(super) async fn accept_tcp(self: Arc<Self>, listener: TcpListener, connections: &mut Connections) {
        let slots = Arc::new(Slots::new(self.args.places()));
        while self.args.naccept.is_none_or(|n| connections.accepted < n) {
            let failed = |error: &io::Error| {
                self.not_accepted(error);
                slots.relieve();
            };
            let (tcp, from) = accept(&listener, failed).await;
            let place = match slots.handshake(from.ip()) {
                Ok(place) => Arc::new(place),
                Err(limit) => {
                    self.refuse(from, limit);
                    continue;
                }
            };
            let server = self.clone();
            let incoming = Incoming::Tcp(tcp, slots.clone(), place);
            connections.add(async move { server.serve(incoming, from).await });
        }
    }

    /// Logs that a connection was not accepted, for example for lack of open files, at most once a minute.
    fn not_accepted(&self, error: &io::Error) {
        if let Some(Line { left_out }) = self.refusals.limit("", Limit::OpenFiles.name(), now()) {
            let Explanation { why, advice, .. } = Limit::OpenFiles.explain(left_out);
            let why = format!("{why}: {error}; {advice}");
            self.log.say(Level::Error, || why.clone(), || Event::NotAccepted { why: why.clone() });
        }
    }

    /// Does a handshake, and gives the client a place.
    pub(super) async fn handshake_tcp(
        self: &Arc<Self>,
        tcp: TcpStream,
        from: SocketAddr,
        (slots, place): (&Slots, &Arc<HandshakePlace>),
        choice: Choice,
    ) -> Result<Shaken, Unserved> {
        // The option is an optimisation, so ignore a failure.
        let _ = tcp.set_nodelay(true);
        let (tcp, traffic) = Counted::new(tcp);
        let config = self.chosen(&choice).await?;
        let acceptor = TlsAcceptor::new(config.clone()).with_timeout(self.args.tls.timeout);
        let failed = place.clone();
        // A failed handshake leaves its place before the client has closed.
        let acceptor = acceptor.with_on_linger(move || failed.linger());
        let mut acceptor = acceptor.with_profiles(move |hello| {
            // A connection has only one ClientHello to choose by.
            let _ = choice.offered.set(hello.cipher_suites.clone());
            Some(config.clone())
        });
        if let Some(log) = self.message_log(from) {
            acceptor = acceptor.with_on_message(log);
        }
        if let Some(answers) = self.answers() {
            acceptor = acceptor.with_answers(answers);
        }
        let stop = async {
            tokio::select! {
                () = self.stopped() => {}
                () = place.displaced() => {}
            }
        };
        let mut stream = match acceptor.accept_until(tcp, stop).await {
            Err(HandshakeError::Stopped) if place.is_displaced() => {
                return Err(Unserved::Refused(Limit::Handshakes(HandshakeLimit::All)));
            }
            stream => stream?,
        };
        // Only now the client's identity is proven.
        let seated = match slots.settle(from.ip(), stream.negotiated().peer.as_ref()) {
            Ok(seated) => Arc::new(seated),
            Err(limit) => {
                // RFC 8446 §6.2: a lack of resources is an internal_error.
                tokio::select! {
                    () = stream.abort(AlertDescription::INTERNAL_ERROR) => {}
                    () = place.displaced() => {}
                }
                return Err(Unserved::Refused(limit));
            }
        };
        place.end();
        traffic.seat(&seated);
        Ok(Shaken { stream: Box::new(stream), traffic, seated: Some(seated) })
    }
}

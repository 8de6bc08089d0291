//! Associations that outlive the server's process.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use dunlin::error::Misuse;
use dunlin::wire::AlertDescription;
use dunlin::{DtlsConnection, EndpointLimits, PskSource};
use dunlin_command::error::{Code, Error, Explanation, count};
use dunlin_command::events::{Connection, Event, Failure, Frozen, Side};
use dunlin_command::report::Report;
use dunlin_command::session::DtlsStream;
use dunlin_registry::lookup;
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint, Resumed, addresses};
use tokio::net::{TcpListener, UdpSocket};

use super::{Connections, Listener, Server, at, no_ports};
use crate::tls::frozen::Thaw;
use crate::tls::log::Level;
use crate::tls::reasons::Explainer;

impl Server {
    /// Binds a socket to this address, and continues the associations that another process has frozen.
    pub(super) async fn listen(
        self: Arc<Self>,
        address: SocketAddr,
        connections: &mut Connections,
    ) -> Result<Listener, Error> {
        let args = &self.args;
        let failed = |e: io::Error| Error::failed(address, e, "give another address with --accept");
        if !args.tls.udp {
            return Ok(Listener::Tcp(TcpListener::bind(address).await.map_err(failed)?));
        }
        let mut limits = EndpointLimits::default();
        let places = args.places();
        (limits.associations, limits.half_open) = (places.all, places.all);
        (limits.associations_per_host, limits.half_open_per_host) = (places.per_host, places.per_host);
        (limits.associations_per_network, limits.stale) = (places.per_network, places.silence);
        // The socket keeps what devices send meanwhile.
        let socket = UdpSocket::bind(address).await.map_err(failed)?;
        // A server that does not start must not use up the file.
        let ports = self.bind_ports(socket.local_addr().map_err(failed)?.ip()).await?;
        if self.frozen.is_some() && !ports.is_empty() {
            let why = "associations with a port of --port-pool are not frozen";
            let advice =
                "let clients use connection IDs; those with a port need new handshakes after a restart";
            self.tell_error_first(&Error::failed("--frozen", why, advice));
        }
        if !ports.is_empty() && !args.tls.datagrams.follows_unchecked() {
            let why = "the server loses a client whose address changes";
            let advice = "add --migrate on-newer-record to follow clients with a port of their own";
            self.tell_error_first(&Error::failed("--scheme", why, advice));
        }
        let thawed = self.clone().thaw().await?;
        let thawed = thawed.into_iter().map(|connection| *connection);
        let resumed = DtlsEndpoint::resume(socket, limits, thawed).map_err(failed)?;
        let Resumed { endpoint, associations, refused, .. } = resumed;
        if let Some(loss) = &args.tls.datagrams.loss {
            endpoint.set_loss(loss.decider());
        }
        if !ports.is_empty() {
            endpoint.add_ports(ports).map_err(no_ports)?;
        }
        if let Some((from, error)) = refused.first() {
            let why = format!("{} not thawed, the first ({from}) because: {error}", count_of(refused.len()));
            let advice = "give at least the --max-connections of the previous server; their clients need new handshakes";
            self.tell_error_first(&Error::failed("--frozen", why, advice));
        }
        for association in associations {
            let server = self.clone();
            let from = addresses::plain(association.peer_address());
            connections.resume(async move { server.resume(association, from).await });
        }
        if self.frozen.is_some() {
            let _ = self.endpoint.set(endpoint.clone());
        }
        Ok(Listener::Udp(endpoint))
    }

    /// Thaws the associations of the previous process. The server does not start if its user can mend the
    /// failure, except if it only believes none of the clients. A file that can no longer be thawed is set
    /// aside.
    async fn thaw(self: Arc<Self>) -> Result<Vec<Box<DtlsConnection>>, Error> {
        let Some(frozen) = self.frozen.clone() else { return Ok(Vec::new()) };
        let server = self.clone();
        let mut config = self.config.current_off_thread(move |outcome| server.tell_reload(outcome)).await;
        if let Some(psks) = self.psks.clone() {
            config = config.with_psks(PskSource::Here(psks));
        }
        let config = Arc::new(config);
        let begin = Instant::now();
        let thawing = frozen.clone();
        let thawed = tokio::task::spawn_blocking(move || thawing.thaw(&config, dunlin_tokio::now())).await;
        match thawed {
            Ok(Ok(Thaw::NoFile)) => Ok(Vec::new()),
            Err(error) => Err(Error::failed("--frozen", error, "report this error")),
            Ok(Ok(Thaw::Thawed(connections, refused))) => {
                let ms = begin.elapsed().as_millis();
                let file = frozen.path();
                let associations = connections.len();
                let others = refused.len();
                let text = || format!("thawed {} from {file} in {ms} ms", count_of(associations));
                let event = || Event::Thawed(Frozen { file: file.clone(), associations, others, ms });
                self.tell_first(Level::Info, text, event);
                if let Some(error) = refused.first() {
                    let why = format!("{} not thawed, the first because: {error}", count_of(others));
                    self.tell_error_first(&Error::failed(&file, why, "their clients need new handshakes"));
                }
                Ok(connections)
            }
            Ok(Ok(Thaw::NoClient(error))) => {
                let why = format!("{error}. The server starts without this file, which stays");
                self.tell_error_first(&Error::failed("--frozen: nothing was thawed", why, error.advice()));
                Ok(Vec::new())
            }
            Ok(Err(error)) => {
                let advice = error.advice();
                let failed = |why| Error::failed("--frozen: nothing was thawed", why, &advice);
                if !error.is_final() {
                    return Err(failed(error.to_string()));
                }
                let aside = frozen.set_aside().map_err(|e| Error::failed("--frozen", &e, e.advice()))?;
                let aside = aside.map_or_else(String::new, |aside| format!(" (now {})", aside.display()));
                self.tell_error_first(&failed(format!("{error}{aside}")));
                Ok(Vec::new())
            }
        }
    }

    /// Freezes the associations for the next process. A failure is logged, and decides how the server ends.
    pub(super) async fn freeze(self: Arc<Self>) {
        let (Some(place), Some(endpoint)) = (self.frozen.clone(), self.endpoint.get().cloned()) else {
            return;
        };
        let begin = Instant::now();
        let freezing = place.clone();
        let frozen = tokio::task::spawn_blocking(move || freezing.freeze(&endpoint)).await;
        match frozen {
            Ok(Ok((frozen, aside))) => {
                let ms = begin.elapsed().as_millis();
                let file = place.path();
                if let Some(aside) = aside {
                    let why = format!("this server has not thawed this file; it is now {}", aside.display());
                    let advice = "its associations thaw once it has its name again; give each server a file of its own, and end one before the next starts";
                    self.log_error(&Error::failed(&file, why, advice));
                }
                for (from, error) in &frozen.left {
                    self.log_failure(*from, not_kept(error));
                }
                let associations = frozen.associations;
                let others = frozen.left.len();
                let text = || format!("froze {} into {file} in {ms} ms", count_of(associations));
                let event = || Event::Frozen(Frozen { file: file.clone(), associations, others, ms });
                self.log.say(Level::Info, text, event);
            }
            Ok(Err(error)) => {
                let advice = error.advice();
                self.not_frozen(&Error::failed("associations are lost", &error, advice));
            }
            Err(error) => {
                self.not_frozen(&Error::failed("associations are lost", error, "report this error"));
            }
        }
    }

    /// Serves a client whose association another process has frozen, and returns whether it succeeded.
    async fn resume(self: Arc<Self>, association: DtlsAssociation, from: SocketAddr) -> bool {
        let negotiated = association.negotiated().clone();
        let answers = self.answers();
        let (mut stream, traffic) = DtlsStream::new(association);
        let text = || format!("{from} continues: {}", Report::new(&stream).parameters());
        let event = || Event::Connection(Connection::new(at(from), Report::new(&stream).handshake()).into());
        // A restart with many associations must not flood the log.
        self.log.say(Level::Debug, text, event);
        let offered = OnceLock::new();
        let explainer = Explainer::server(&self.args.tls, None, &offered);
        tokio::select! {
            served = self.converse(&mut stream, from, (&traffic, None), &explainer) => return served,
            () = lookup::ended(answers.as_ref(), &negotiated) => {}
        }
        self.log_failure(from, identity_lost());
        self.log_end(from, &traffic, None);
        stream.into_association().abort(AlertDescription::CERTIFICATE_REVOKED);
        false
    }

    /// Logs that freezing has failed.
    fn not_frozen(&self, error: &Error) {
        self.log.say(Level::Error, || error.to_string(), || failure(error));
        let _ = self.not_frozen.set(());
    }

    /// Logs an error that does not end the server.
    fn log_error(&self, error: &Error) {
        self.log.say(Level::Warn, || error.to_string(), || failure(error));
    }

    /// As [`Self::log_error`], before the server listens.
    fn tell_error_first(&self, error: &Error) {
        self.tell_first(Level::Warn, || error.to_string(), || failure(error));
    }

    /// Writes a line before the one that the server listens.
    fn tell_first(&self, level: Level, text: impl FnOnce() -> String, event: impl FnOnce() -> Event) {
        if self.log.wants(level) {
            // A reader that is gone does not stop the server here.
            let _ = self.say(&self.log.render(level, text, event));
        }
    }
}

/// Explains why an association does not outlive the process.
fn not_kept(error: &dunlin::Error) -> Explanation {
    Explanation::new(format!("the association was not frozen: {error}"), "the client needs a new handshake")
}

/// Explains why a thawed association ends.
fn identity_lost() -> Explanation {
    let why = format!("the client has lost its identity: {}", lookup::ENDED);
    let advice = "the client needs a new handshake, with a DID and credential that count";
    Explanation { code: Code::AUTHENTICATION, ..Explanation::new(why, advice) }
}

/// Whether this error says that the association continues in another process.
pub(super) fn is_frozen(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<dunlin::Error>());
    matches!(error, Some(dunlin::Error::Misuse(Misuse::Frozen)))
}

/// The event of an error that does not end the server.
fn failure(error: &Error) -> Event {
    Event::Failure(Failure::of_command(Side::Server, error))
}

/// `n` associations.
fn count_of(n: usize) -> String {
    count(n as u64, "association")
}

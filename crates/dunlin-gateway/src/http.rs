//! Listeners for plain HTTP whose requests the gateway answers itself: the administrative listener, and those
//! that redirect clients.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dunlin::places::PlaceLimits;
use dunlin_tokio::http::{HttpRules, serve};
use dunlin_tokio::places::Places;
use dunlin_tokio::throttle::Line;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::clock::now;
use crate::context::Context;
use crate::life::Phase;
use crate::metrics::Limit;

/// How long a connection may last after it was accepted, or after its latest request.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// The behaviour of such a listener: its limits, the clients that it refuses, and its answers.
pub(crate) trait Answers: Send + Sync + 'static {
    /// The simultaneous connections. Further clients wait until one ends.
    const MAX_CONNECTIONS: usize;
    /// The phase of the gateway in which the listener ends.
    const UNTIL: Phase;
    /// Whether a client may send several requests over a connection.
    const KEEPS_ALIVE: bool;

    /// The name for the log and the metrics.
    fn name(&self) -> &str;
    /// The simultaneous connections of the host with this address. The listener closes further ones.
    fn max_per_host(&self, from: IpAddr) -> usize;
    /// Whether this client gets no byte.
    fn refuses(&self, from: SocketAddr) -> bool;
    /// The answer to a request.
    fn answer(
        &self,
        request: Request<Incoming>,
        from: SocketAddr,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// Answers clients until the phase [`Answers::UNTIL`], or until `removed` becomes true. `current` returns the
/// settings in force.
pub(crate) async fn run<A: Answers>(
    context: Arc<Context>,
    current: impl Fn() -> A,
    socket: TcpListener,
    mut removed: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(A::MAX_CONNECTIONS));
    let hosts = Arc::new(Places::default());
    let reach = |limit: Limit, answers: &A, from: SocketAddr| {
        let listener = answers.name();
        context.metrics.limit_reached(listener, limit);
        if let Some(Line { left_out }) = context.lines.limit(listener, limit.name(), now()) {
            tracing::warn!(listener, client = %from, limit = limit.name(), left_out, "limit reached over plain HTTP");
        }
    };
    loop {
        let name = || current().name().to_owned();
        let accepted = context.accept(&hosts, A::UNTIL, &socket, &mut removed, name).await;
        let Some((tcp, from)) = accepted else {
            return;
        };
        let answers = current();
        if answers.refuses(from) {
            continue;
        }
        let all = usize::MAX;
        let per_network = usize::MAX;
        let per_host = answers.max_per_host(from.ip());
        let limits = PlaceLimits { all, per_host, per_network, silence: None };
        let of_host = match hosts.settle(from.ip(), None, &limits) {
            Ok(seated) => seated,
            Err(limit) => {
                reach(Limit::of(limit), &answers, from);
                continue;
            }
        };
        if places.available_permits() == 0 {
            reach(Limit::Connections, &answers, from);
        }
        let of_all = tokio::select! {
            // The semaphore is never closed.
            place = places.clone().acquire_owned() => place,
            () = context.life.reached(A::UNTIL) => return,
            _ = removed.wait_for(|removed| *removed) => return,
        };
        tokio::spawn(async move {
            let rules = HttpRules { idle_time: IDLE_TIME, keeps_alive: A::KEEPS_ALIVE };
            serve(tcp, rules, |request| answers.answer(request, from), pending()).await;
            drop((of_host, of_all));
        });
    }
}

//! The state that several gateways share through Redis: the keys of tickets, and the addresses from which
//! clients came.

use std::sync::Arc;
use std::time::Duration;

use dunlin_store::{SharedLog, SharedTickets};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::clock::{now, now_s};
use crate::context::Context;
use crate::life::Phase;
use crate::listener::ListenerState;
use crate::shared_clients::SharedClients;

/// How often the gateway reads the keys from Redis. A new one is there a minute before its use.
const REFRESH: Duration = Duration::from_secs(10);

/// How often it exchanges the addresses of clients.
const EXCHANGE: Duration = Duration::from_secs(1);

/// Follows the ticket keys of these listeners, and the addresses of their clients.
pub(crate) fn follow(context: &Arc<Context>, listeners: &[Arc<ListenerState>]) -> Vec<JoinHandle<()>> {
    let begin = |follow: fn(Arc<Context>, Arc<ListenerState>) -> JoinHandle<()>,
                 live: &Arc<ListenerState>| { follow(context.clone(), live.clone()) };
    let mut tasks: Vec<_> = listeners.iter().map(|live| begin(keys_of, live)).collect();
    let mut logs: Vec<&Arc<SharedLog>> = vec![];
    for live in listeners {
        // Listeners with the same policy have the same addresses.
        if let Some(SharedClients { log, .. }) = &live.shared_clients
            && !logs.iter().any(|other| Arc::ptr_eq(other, log))
        {
            logs.push(log);
            tasks.push(begin(clients_of, live));
        }
    }
    tasks
}

fn keys_of(context: Arc<Context>, live: Arc<ListenerState>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(keys) = &live.shared_tickets else { return };
        tokio::select! {
            () = follow_keys(&context, &live.config.name, keys) => {}
            () = context.life.reached(Phase::Draining) => {}
        }
    })
}

fn clients_of(context: Arc<Context>, live: Arc<ListenerState>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(clients) = &live.shared_clients else { return };
        tokio::select! {
            () = follow_clients(&context, &live.config.name, clients) => {}
            () = context.life.reached(Phase::Draining) => {}
        }
    })
}

async fn follow_keys(context: &Context, listener: &str, keys: &Arc<SharedTickets>) {
    let mut is_down = false;
    loop {
        let keys = keys.clone();
        // It fails only if the runtime ends.
        let Ok(refreshed) = spawn_blocking(move || keys.refresh(now())).await else { return };
        context.metrics.shared_refreshed(listener, "tickets", refreshed.is_ok());
        match &refreshed {
            Ok(()) if is_down => tracing::info!(listener, "ticket keys are shared again"),
            Err(fault) if !is_down => {
                tracing::error!(
                    listener,
                    "ticket keys are not shared: {fault}; clients of other gateways get full handshakes"
                );
            }
            _ => {}
        }
        is_down = refreshed.is_err();
        sleep(REFRESH).await;
    }
}

async fn follow_clients(context: &Context, listener: &str, clients: &SharedClients) {
    let mut is_down = false;
    loop {
        let clients = clients.clone();
        // It fails only if the runtime ends.
        let Ok(exchanged) = spawn_blocking(move || clients.exchange(now_s())).await else { return };
        context.metrics.shared_refreshed(listener, "clients", exchanged.is_ok());
        match &exchanged {
            Ok(()) if is_down => tracing::info!(listener, "addresses of clients are shared again"),
            Err(fault) if !is_down => {
                tracing::error!(
                    listener,
                    "addresses of clients are not shared: {fault}; each gateway knows its own"
                );
            }
            _ => {}
        }
        is_down = exchanged.is_err();
        sleep(EXCHANGE).await;
    }
}

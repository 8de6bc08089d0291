//! The state that several gateways share through Redis: the keys of tickets, and the addresses from which
//! clients came.

use std::sync::Arc;
use std::time::Duration;

use dunlin_store::cache::CacheFault;
use dunlin_store::{MAX_MESSAGE, MAX_SENT, SharedLog, SharedTickets};
use dunlin_tokio::now;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::clock::now_s;
use crate::life::{Phase, reached};
use crate::listener::Live;
use crate::policed::Memory;
use crate::policy::{AddressChange, AddressTable};
use crate::service::Shared;

/// How often the gateway reads the keys from Redis. A new one is there a minute before its use.
const REFRESH: Duration = Duration::from_secs(10);

/// How often it exchanges the addresses of clients.
const EXCHANGE: Duration = Duration::from_secs(1);

/// The addresses of clients, which gateways with the same policy share.
#[derive(Clone)]
pub(crate) struct SharedClients {
    pub(crate) log: Arc<SharedLog>,
    pub(crate) memory: Arc<Memory>,
}

/// Follows the ticket keys of these listeners, and the addresses of their clients.
pub(crate) fn follow(shared: &Arc<Shared>, listeners: &[Arc<Live>]) -> Vec<JoinHandle<()>> {
    let begin = |follow: fn(Arc<Shared>, Arc<Live>) -> JoinHandle<()>, live: &Arc<Live>| {
        follow(shared.clone(), live.clone())
    };
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

fn keys_of(shared: Arc<Shared>, live: Arc<Live>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(keys) = &live.shared else { return };
        let phases = shared.phase.subscribe();
        tokio::select! {
            () = follow_keys(&shared, &live.config.name, keys) => {}
            () = reached(&phases, Phase::Draining) => {}
        }
    })
}

fn clients_of(shared: Arc<Shared>, live: Arc<Live>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(clients) = &live.shared_clients else { return };
        let phases = shared.phase.subscribe();
        tokio::select! {
            () = follow_clients(&shared, &live.config.name, clients) => {}
            () = reached(&phases, Phase::Draining) => {}
        }
    })
}

async fn follow_keys(shared: &Shared, listener: &str, keys: &Arc<SharedTickets>) {
    let mut is_down = false;
    loop {
        let keys = keys.clone();
        // It fails only if the runtime ends.
        let Ok(refreshed) = spawn_blocking(move || keys.refresh(now())).await else { return };
        shared.metrics.shared_refreshed(listener, "tickets", refreshed.is_ok());
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

async fn follow_clients(shared: &Shared, listener: &str, clients: &SharedClients) {
    let mut is_down = false;
    loop {
        let clients = clients.clone();
        // It fails only if the runtime ends.
        let Ok(exchanged) = spawn_blocking(move || clients.exchange()).await else { return };
        shared.metrics.shared_refreshed(listener, "clients", exchanged.is_ok());
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

impl SharedClients {
    /// Sends this gateway's changes to the other gateways, and receives theirs.
    fn exchange(&self) -> Result<(), CacheFault> {
        let addresses = &self.memory.addresses;
        tell(addresses, self.memory.max_address_lifetime_s(), |messages| self.log.exchange(messages))
    }
}

/// Tells the other gateways all changes, as many at a time as `exchange` sends, and learns what it returns.
/// After a fault, the changes wait for the next call.
fn tell<E>(
    addresses: &AddressTable,
    max_lifetime_s: u64,
    mut exchange: impl FnMut(&[Vec<u8>]) -> Result<Vec<Vec<u8>>, E>,
) -> Result<(), E> {
    let mut changes = addresses.changes();
    loop {
        let rest = changes.split_off(changes.len().min(MAX_SENT));
        let messages: Vec<_> = changes.iter().filter_map(message).collect();
        match exchange(&messages) {
            Ok(received) => {
                for change in received.iter().filter_map(|message| serde_json::from_slice(message).ok()) {
                    addresses.learn(change, max_lifetime_s, now_s());
                }
            }
            Err(fault) => {
                changes.into_iter().chain(rest).for_each(|change| addresses.keep_change(change));
                return Err(fault);
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        changes = rest;
    }
}

/// The change as a message; `None` for a client whose attributes are too long.
fn message(change: &AddressChange) -> Option<Vec<u8>> {
    serde_json::to_vec(change).ok().filter(|message| message.len() <= MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn tells_every_change_or_keeps_it() {
        let addresses = AddressTable::new(1);
        let all = MAX_SENT * 2 + 1;
        for i in 0..all {
            let address = Ipv4Addr::from_bits(u32::try_from(i).unwrap());
            let change = format!("{{\"address\":\"{address}\",\"client\":null,\"rank\":0,\"until_s\":0}}");
            addresses.keep_change(serde_json::from_str(&change).unwrap());
        }
        // The second exchange of three fails.
        let mut sent = vec![];
        let told = tell(&addresses, 0, |messages| {
            sent.push(messages.len());
            if sent.len() == 2 { Err(()) } else { Ok(vec![]) }
        });
        assert_eq!((told, sent), (Err(()), vec![MAX_SENT, MAX_SENT]));
        let mut sent = vec![];
        let told = tell(&addresses, 0, |messages| {
            sent.push(messages.len());
            Ok::<_, ()>(vec![])
        });
        assert_eq!((told, sent), (Ok(()), vec![MAX_SENT, 1]));
        assert!(addresses.changes().is_empty());
    }
}

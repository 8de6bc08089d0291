//! The addresses from which clients came, as gateways with the same policy exchange them through Redis.

use std::sync::Arc;

use dunlin_store::cache::CacheFault;
use dunlin_store::{MAX_MESSAGE, MAX_SENT, SharedLog};

use crate::memory::Memory;
use crate::policy::{AddressChange, AddressTable};

/// The addresses of clients, which gateways with the same policy share.
#[derive(Clone)]
pub(crate) struct SharedClients {
    pub(crate) log: Arc<SharedLog>,
    pub(crate) memory: Arc<Memory>,
}

impl SharedClients {
    /// Sends this gateway's changes to the other gateways, and receives theirs.
    pub(crate) fn exchange(&self, now_s: u64) -> Result<(), CacheFault> {
        let addresses = &self.memory.addresses;
        tell(addresses, self.memory.max_address_lifetime_s(), now_s, |messages| self.log.exchange(messages))
    }
}

/// Tells the other gateways all changes, as many at a time as `exchange` sends, and learns what it returns.
/// After a fault, the changes wait for the next call.
fn tell<E>(
    addresses: &AddressTable,
    max_lifetime_s: u64,
    now_s: u64,
    mut exchange: impl FnMut(&[Vec<u8>]) -> Result<Vec<Vec<u8>>, E>,
) -> Result<(), E> {
    let mut changes = addresses.changes();
    loop {
        let rest = changes.split_off(changes.len().min(MAX_SENT));
        let messages: Vec<_> = changes.iter().filter_map(message).collect();
        match exchange(&messages) {
            Ok(received) => {
                for change in received.iter().filter_map(|message| serde_json::from_slice(message).ok()) {
                    addresses.learn(change, max_lifetime_s, now_s);
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
        let told = tell(&addresses, 0, 0, |messages| {
            sent.push(messages.len());
            if sent.len() == 2 { Err(()) } else { Ok(vec![]) }
        });
        assert_eq!((told, sent), (Err(()), vec![MAX_SENT, MAX_SENT]));
        let mut sent = vec![];
        let told = tell(&addresses, 0, 0, |messages| {
            sent.push(messages.len());
            Ok::<_, ()>(vec![])
        });
        assert_eq!((told, sent), (Ok(()), vec![MAX_SENT, 1]));
        assert!(addresses.changes().is_empty());
    }
}

//! Metrics that DTLS endpoints count themselves. The gateway reads them at each request for its metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::EndpointDiscarded;
use dunlin_tokio::DtlsEndpoint;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The endpoints of the listeners that accept clients.
#[derive(Clone, Default)]
pub(super) struct Endpoints(Arc<Mutex<Vec<Watching>>>);

/// Returns the present name of a listener, which a reload may rename.
pub(super) type ListenerName = Box<dyn Fn() -> String + Send + Sync>;

/// An endpoint of a listener.
struct Watching {
    number: u64,
    listener: ListenerName,
    endpoint: DtlsEndpoint,
}

/// An endpoint that the metrics show until the value is dropped.
#[must_use]
pub(crate) struct Watched {
    endpoints: Endpoints,
    number: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let gone = {
            let mut watching = self.endpoints.lock();
            let at = watching.iter().position(|watching| watching.number == self.number);
            at.map(|at| watching.swap_remove(at))
        };
        // Its socket may close with it, which needs no lock.
        drop(gone);
    }
}

impl Endpoints {
    fn lock(&self) -> MutexGuard<'_, Vec<Watching>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, listener: ListenerName, endpoint: &DtlsEndpoint) -> Watched {
        let mut watching = self.lock();
        let number = watching.iter().map(|watching| watching.number + 1).max().unwrap_or(0);
        watching.push(Watching { number, listener, endpoint: endpoint.clone() });
        Watched { endpoints: self.clone(), number }
    }

    pub(super) fn associations(&self) -> usize {
        self.lock().iter().map(|watching| watching.endpoint.associations()).sum()
    }

    /// The associations and discarded datagrams of each listener. While a listener takes the name of a
    /// removed one, two endpoints have it.
    fn by_listener(&self) -> BTreeMap<String, (usize, [u64; 7])> {
        let mut listeners = BTreeMap::new();
        for watching in &*self.lock() {
            let (associations, discarded): &mut (usize, [u64; 7]) =
                listeners.entry((watching.listener)()).or_default();
            *associations += watching.endpoint.associations();
            for (sum, (_, count)) in discarded.iter_mut().zip(reasons(&watching.endpoint.discarded())) {
                *sum += count;
            }
        }
        listeners
    }
}

/// The counts with their labels.
const fn reasons(discarded: &EndpointDiscarded) -> [(&'static str, u64); 7] {
    [
        ("unknown", discarded.unknown),
        ("unwanted", discarded.unwanted),
        ("full", discarded.full),
        ("partial", discarded.partial),
        ("failed", discarded.failed),
        ("displaced", discarded.displaced),
        ("output", discarded.output),
    ]
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|watching| (watching.listener)())).finish()
    }
}

impl Collector for Endpoints {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let listeners = self.by_listener();
        if listeners.is_empty() {
            return Ok(());
        }
        let help = "DTLS associations, also those in a handshake";
        let mut family = encoder.encode_descriptor("dtls_associations", help, None, MetricType::Gauge)?;
        for (listener, (associations, _)) in &listeners {
            family.encode_family(&[("listener", &**listener)])?.encode_gauge(associations)?;
        }
        let help = "Datagrams that were discarded before they reached an association";
        let mut family = encoder.encode_descriptor("dtls_discarded", help, None, MetricType::Counter)?;
        for (listener, (_, discarded)) in &listeners {
            for ((reason, _), count) in reasons(&EndpointDiscarded::default()).into_iter().zip(discarded) {
                let labels = [("listener", &**listener), ("reason", reason)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        Ok(())
    }
}

//! A registry that does not answer: older proofs count for a while, and a tunnel keeps its earlier knowledge.

use std::time::{Duration, Instant};

use dunlin::Error;
use dunlin::wire::AlertDescription;
use dunlin_identity::Did;

use crate::acme::Log;
use crate::place::{PATIENCE, Place, backend, listener, metric, route, within};
use crate::registry::{CLIENTS, Site, asks};
use crate::thawed::{end, write};

const PROOFS: &str = "dunlin_gateway_outage_proofs_total";

/// Only the programs' own watches find out that the registry is silent, after a minute, which this test does
/// not wait for.
#[tokio::test]
async fn an_older_proof_counts_while_the_registry_is_silent_and_is_counted_and_logged() {
    let (log, _guard) = Log::start();
    let place = Place::new();
    let site = Site::new(&place).await;
    let text = listener("") + CLIENTS + &Site::table("clients", site.port);
    let to = route(backend("one").await, "");
    let (gateway, port) = place.start(&(text.clone() + &to)).await;
    let (strict, strict_port) = place.start(&(text + "outage_age = \"0s\"\n" + &to)).await;
    let proof = |did: &Did| site.registry.resolve(did).unwrap().staple().unwrap().write().unwrap();
    let (own, document, _) = site.device();
    let old = proof(document.id());
    let (other, other_document, _) = site.device();
    let new = proof(other_document.id());
    for port in [port, strict_port] {
        // The gateways have seen a newer state of the registry.
        let visited = site.visit_as(&place, port, &other, &other_document, Some(new.clone())).await;
        assert_eq!(visited.unwrap(), "one got ");
    }
    let visit = |port| site.visit_as(&place, port, &own, &document, Some(old.clone()));
    site.stop().await;
    for port in [port, strict_port] {
        let error = visit(port).await.unwrap_err();
        let received = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(received, Some(&Error::AlertReceived(AlertDescription::BAD_CERTIFICATE)), "{error}");
    }
    assert_eq!((metric(&gateway, PROOFS), metric(&strict, PROOFS)), (0.0, 0.0));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(70)).await;
    tokio::time::resume();
    let begin = Instant::now();
    while visit(port).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "the older proof does not count");
    }
    assert_eq!(metric(&gateway, PROOFS), 1.0);
    let lines = log.lines("an older proof counts, because the registry does not answer");
    assert!(lines.len() == 1 && lines[0].contains(document.id().as_str()), "{lines:?}");
    assert!(visit(strict_port).await.is_err());
    assert_eq!(metric(&strict, PROOFS), 0.0);
}

/// The gateway sends no proof, so the tunnel asks. The next one has no registry to ask.
#[tokio::test]
async fn a_tunnel_knows_after_a_restart_that_the_did_of_its_server_has_ended() {
    let (log, _guard) = Log::start();
    let place = Place::new();
    let site = Site::new(&place).await;
    let hub = site.device();
    write(&place, "hub", &hub);
    let text = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntickets = 0\n\
                [[listener.certificate]]\ndid = \"hub\"\n";
    let (_gateway, to) = place.start(&(text.to_owned() + &route(backend("one").await, ""))).await;
    let known = "[known]\nfile = \"known\"\n";
    let reaches = async |known: &str| {
        let text = format!(
            "{known}[[listener]]\nname = \"local\"\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\ntickets = false\n\
             [listener.server]\ndids = \"hub.did\"\n{}",
            Site::table("server", site.port)
        );
        let (tunnel, port) = place.tunnel(&text).await;
        let reached = asks(port).await;
        within(tunnel.stop()).await;
        reached
    };
    assert!(reaches(known).await);
    end(&site, &hub);
    assert!(!reaches(known).await);
    let told = || [" is deactivated", " cannot be looked up"].map(|text| log.lines(text).len());
    assert_eq!(told(), [1, 0]);
    site.stop().await;
    assert!(!reaches(known).await);
    assert_eq!(told(), [2, 0]);
    assert!(!reaches("").await);
    assert_eq!(told(), [2, 1]);
}

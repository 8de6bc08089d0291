//! The registry over HTTPS.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod site;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64ct::{Base64, Encoding};
use common::{NOW, RegistryDirectory};
use dunlin_identity::method::dunlin::MAX_OPERATION;
use dunlin_identity::transparency::{
    Hasher, NoteKeyKind, NoteSigner, RegistryTrust, SignedCheckpoint, Staple, StateProof, map_key,
};
use dunlin_registry::server::{Admission, Limits};
use dunlin_registry::tile::{Tile, TileKind};
use dunlin_registry::{MAX_HISTORY, OWN_INTERVAL, ROOM_MARGIN, Registry, Settings};
use hyper::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use site::Site;

#[tokio::test]
async fn a_did_is_submitted_resolved_and_proven() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    let create = holder.next().canonical().unwrap();
    for _ in 0..2 {
        let answer = client.post(create.clone()).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["number"]), (200, &json!(0)));
        assert_eq!(answer.json()["checkpoint"], site.registry.snapshot().text());
    }
    let did = holder.state().did();
    let staple = client.get(&format!("/dids/{did}/staple")).await;
    let [log, witness] = site.registry.keys().clone();
    let trust = RegistryTrust::new(log, vec![witness]).unwrap();
    let staple = Staple::read(&staple.body).unwrap();
    let resolved = staple.verify(&site.place.provider, did, &trust, None, NOW).unwrap();
    assert_eq!(&resolved.document, holder.state().document());

    for path in [format!("/dids/{did}"), format!("/dids/{}", did.as_str().replace(':', "%3A"))] {
        let answer = client.get(&path).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
        let answer = answer.json();
        assert_eq!(answer["did"], did.as_str());
        assert_eq!(&answer["document"], holder.state().document().value());
        assert_eq!(answer["state"], json!({"sequence": 0, "active": true}));
        assert_eq!(answer["proof"], Base64::encode_string(&staple.proof));
        assert_eq!(answer["checkpoint"].as_str().unwrap().as_bytes(), staple.checkpoint);
    }
    client.post(holder.deactivate().canonical().unwrap()).await;
    let answer = client.get(&format!("/dids/{}", holder.state().did())).await;
    assert_eq!(answer.json()["state"], json!({"sequence": 1, "active": false}));
}

#[tokio::test]
async fn the_absence_of_a_did_is_proven() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    client.post(site.place.holder(2).next().canonical().unwrap()).await;
    holder.next();
    let did = holder.state().did();
    let answer = client.get(&format!("/dids/{did}")).await;
    assert_eq!(answer.status, 404);
    let answer = answer.json();
    assert_eq!((&answer["state"], &answer["document"]), (&Value::Null, &Value::Null));
    let proof = Base64::decode_vec(answer["proof"].as_str().unwrap()).unwrap();
    let checkpoint = SignedCheckpoint::read(answer["checkpoint"].as_str().unwrap().as_bytes()).unwrap();
    let key = map_key(&site.place.provider, did).unwrap();
    let hasher = Hasher(site.place.provider.sha256);
    let absent = StateProof::read(&proof).unwrap().verify_absence(hasher, &key, checkpoint.checkpoint());
    assert_eq!(absent, Ok(()));
    assert_eq!(client.get(&format!("/dids/{did}/staple")).await.status, 404);
    assert_eq!(client.get("/dids/nobody").await.status, 400);
}

#[tokio::test]
async fn refusals_say_why() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    let create = holder.next().canonical().unwrap();
    client.post(create.clone()).await;
    holder.next();
    let gap = holder.next().canonical().unwrap();
    for (body, status) in [
        (b"nonsense".to_vec(), 400),
        (create.replace(common::ORIGIN, "other.example").into_bytes(), 400),
        (gap.into_bytes(), 409),
        (vec![b' '; MAX_OPERATION + 1], 413),
    ] {
        let answer = client.post(body).await;
        assert_eq!(answer.status, status);
        assert!(answer.json()["error"].as_str().unwrap().contains("operation"), "{}", answer.json());
        // hyper closes a connection whose body it has not read.
        client = site.client().await;
    }
    assert_eq!(site.registry.snapshot().size(), 2);
    let answer = client.get("/operations").await;
    assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, "POST"));
    let answer = client.send(Method::DELETE, "/checkpoint", "").await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, "GET, HEAD"));
    for path in ["/nothing", "/dids", "/tile/0/1", "//tile/0/000", "/tile/0/000.p/3"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_host_that_submits_too_much_must_wait() {
    let limits = Limits { writes_per_minute: 1, write_burst: 3, ..Limits::default() };
    let site = Site::new(limits).await;
    let mut client = site.client().await;
    for number in 0..3 {
        let answer = client.post(site.place.holder(number).next().canonical().unwrap()).await;
        assert_eq!(answer.status, 200);
    }
    let mut client = site.client().await;
    let answer = client.post(site.place.holder(3).next().canonical().unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, "60"));
    // Reading goes on.
    assert_eq!(site.client().await.get("/checkpoint").await.status, 200);
    assert_eq!(site.registry.snapshot().size(), 6);
}

/// A log never becomes shorter, so the disk has a limit. Holders can still rotate once and end their DIDs,
/// however many creations strangers have sent.
#[tokio::test]
async fn a_full_registry_has_room_for_one_update_and_the_end_of_each_did() {
    let site = Site::new(Limits { database: 1, ..Limits::default() }).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    site.registry.submit(holder.next()).unwrap();
    let refused = client.post(site.place.holder(2).next().canonical().unwrap()).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "3600"));
    assert!(refused.json()["error"].as_str().unwrap().contains("full"));
    assert_eq!(client.post(site.place.holder(1).next().canonical().unwrap()).await.status, 503);
    let room = site.registry.snapshot().room();
    let creation = site.place.holder(1).next().canonical().unwrap().len() as u64;
    assert_eq!(room, creation + ROOM_MARGIN);
    assert_eq!(client.post(holder.next().canonical().unwrap()).await.status, 200);
    assert_eq!(site.registry.snapshot().room(), 0);
    let mut ahead = holder.clone();
    let refused = client.post(ahead.next().canonical().unwrap()).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "3600"));
    assert_eq!(client.post(holder.deactivate().canonical().unwrap()).await.status, 200);
    assert_eq!(site.registry.snapshot().size(), 6);
    // The limit is on main file and journal.
    let wal = std::fs::metadata(site.place.path("registry-wal")).unwrap().len();
    assert!(site.registry.size_on_disk().unwrap() > wal && wal > 0);
}

/// Each creation counts with what its DID may still need. A reopened registry has reserved the same.
#[tokio::test]
async fn creations_leave_the_room_of_other_dids() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holders: Vec<_> = (0..50).map(|number| place.holder(number)).collect();
    place.submit(&registry, holders.iter_mut().map(|holder| holder.next()).collect());
    let room = registry.snapshot().room();
    assert!(room > 50 * ROOM_MARGIN);
    drop(registry);
    let registry = place.open().unwrap();
    assert_eq!(registry.snapshot().room(), room);
    // Main file and journal together are what a later commit leaves at most.
    let database = registry.size_on_disk().unwrap() + 3 * room;
    let site = Site::of(place, registry, Limits { database, ..Limits::default() }).await;
    let mut client = site.client().await;
    let refused = client.post(site.place.holder(99).next().canonical().unwrap()).await;
    assert_eq!(refused.status, 503);
    for holder in &mut holders[..3] {
        assert_eq!(client.post(holder.next().canonical().unwrap()).await.status, 200);
    }
    let spent = room - site.registry.snapshot().room();
    assert!(spent > 3 * ROOM_MARGIN);
    // An update that is longer than what is reserved.
    let mut long = holders.swap_remove(10);
    let update = long.publish("alsoKnownAs", json!(["x".repeat(5000)])).canonical().unwrap();
    assert_eq!(client.post(update).await.status, 503);
}

/// Strangers' creations use up the rate of all hosts, but not a DID's own rate.
#[tokio::test]
async fn a_did_has_a_rate_of_its_own() {
    let site = Site::new(Limits { all_writes_per_minute: 1, ..Limits::default() }).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    site.registry.submit(holder.next()).unwrap();
    assert_eq!(client.post(site.place.holder(2).next().canonical().unwrap()).await.status, 200);
    assert_eq!(client.post(site.place.holder(3).next().canonical().unwrap()).await.status, 429);
    // The DID is new.
    let update = holder.next().canonical().unwrap();
    assert_eq!(client.post(update.clone()).await.status, 429);
    site.place.clock.fetch_add(OWN_INTERVAL, Ordering::Relaxed);
    assert_eq!(client.post(update).await.status, 200);
    let next = holder.next().canonical().unwrap();
    assert_eq!(client.post(next.clone()).await.status, 429);
    site.place.clock.fetch_add(OWN_INTERVAL - 1, Ordering::Relaxed);
    assert_eq!(client.post(next.clone()).await.status, 429);
    site.place.clock.fetch_add(1, Ordering::Relaxed);
    assert_eq!(client.post(next).await.status, 200);
    // A stranger's operation for the DID uses nothing up.
    let mut forged = site.place.holder(4);
    forged.next();
    assert_eq!(client.post(forged.next().canonical().unwrap()).await.status, 429);
}

#[tokio::test]
async fn creations_can_demand_admission() {
    let place = RegistryDirectory::new();
    let [mut admitted, mut other] = [1, 2].map(|number| place.holder(number));
    let create = admitted.next();
    let refused = other.next();
    let registry = place.open().unwrap();
    registry.submit(refused.clone()).unwrap();
    let did = create.did().clone();
    let admission = Admission::Listed(Arc::new(move |asked| *asked == did));
    let site = Site::of(place, registry, Limits { admission, ..Limits::default() }).await;
    let mut client = site.client().await;
    assert_eq!(client.post(create.canonical().unwrap()).await.status, 200);
    let stranger = client.post(site.place.holder(3).next().canonical().unwrap()).await;
    assert_eq!(stranger.status, 403);
    assert!(stranger.json()["error"].as_str().unwrap().contains("operator's list"), "{}", stranger.json());
    // The DIDs that are there change and end as before.
    assert_eq!(client.post(other.next().canonical().unwrap()).await.status, 200);
    assert_eq!(client.post(other.deactivate().canonical().unwrap()).await.status, 200);
}

/// Operations that the registry refuses keep no client out, and an owner that must end a DID never waits for
/// others.
#[tokio::test]
async fn all_hosts_together_must_wait_if_they_append_too_much() {
    let site = Site::new(Limits { all_writes_per_minute: 1, ..Limits::default() }).await;
    let mut client = site.client().await;
    let [mut first, mut second] = [1, 2].map(|number| site.place.holder(number));
    let create = first.next();
    let other = second.next();
    let early = second.next();
    for (body, status) in [("nonsense".to_owned(), 400), (early.canonical().unwrap(), 409)] {
        assert_eq!(client.post(body).await.status, status);
    }
    assert_eq!(client.post(create.canonical().unwrap()).await.status, 200);
    let answer = client.post(other.canonical().unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, "60"));
    assert!(answer.json()["error"].as_str().unwrap().contains("all addresses"), "{}", answer.json());
    assert_eq!(client.post(first.deactivate().canonical().unwrap()).await.status, 200);
    assert_eq!(site.registry.snapshot().size(), 4);
}

/// The client would take the status 404 for the absence of the DID.
#[tokio::test]
async fn a_staple_that_is_too_long_is_no_missing_did() {
    let place = RegistryDirectory::new();
    let signer = |number: u64| {
        let name = format!("{number:a>255}");
        let key = common::key(&place.provider, [8, 8, number]);
        NoteSigner::new(&place.provider, &name, NoteKeyKind::Cosignature, key).unwrap()
    };
    let witnesses: Vec<_> = (0..42).map(signer).collect();
    let settings = Settings {
        witnesses: witnesses.iter().map(|witness| witness.key().clone()).collect(),
        needed: witnesses.len(),
        ..place.settings()
    };
    let registry = Registry::open(&place.path("registry"), &settings).unwrap();
    let operation = place.holder(1).next();
    registry.submit(operation.clone()).unwrap();
    let snapshot = registry.snapshot();
    let text = snapshot.checkpoint().note().text();
    let cosigned =
        witnesses.iter().map(|witness| witness.sign(&place.provider, text, NOW).unwrap().to_string());
    let cosigned: Vec<_> = cosigned.collect();
    assert_eq!(registry.witnessed(&snapshot, cosigned.iter().map(String::as_str)), Ok(true));

    let site = Site::of(place, registry, Limits::default()).await;
    let mut client = site.client().await;
    let answer = client.get(&format!("/dids/{}/staple", operation.did())).await;
    assert_eq!(answer.status, 500);
    assert!(answer.json()["error"].as_str().unwrap().contains("longer than"), "{}", answer.json());
    assert_eq!(client.get(&format!("/dids/{}", operation.did())).await.status, 200);
}

/// The program's supervisor can then start it again.
#[tokio::test]
async fn a_server_ends_when_its_registry_no_longer_writes() {
    let site = Site::new(Limits::default()).await;
    let database = Connection::open(site.place.path("registry")).unwrap();
    database.execute("UPDATE setting SET value = '' WHERE name = 'checkpoint'", []).unwrap();
    assert!(site.registry.submit(site.place.holder(1).next()).is_err());
    let ended = site.ended().await.unwrap_err();
    assert!(ended.to_string().contains("no longer writes"), "{ended}");
}

#[tokio::test]
async fn the_log_is_served_with_proofs() {
    let site = Site::new(Limits::default()).await;
    site.place.submit(&site.registry, (0..300).map(|number| site.place.holder(number).next()).collect());
    let mut client = site.client().await;
    let size = site.registry.snapshot().size();
    let answer = client.get("/checkpoint").await;
    assert_eq!(answer.body, site.registry.snapshot().text().as_bytes());
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    for tile in Tile::all(size).chain(Tile::new(TileKind::Hashes(0), 0, 7)) {
        let answer = client.get(&format!("/{tile}")).await;
        assert_eq!(answer.header("content-length"), answer.body.len().to_string());
        assert_eq!(Some(answer.body.clone()), site.registry.tile(&tile).unwrap());
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        assert!(answer.header("cache-control").contains("immutable"));
    }
    let hashes = |answer: site::Answer| {
        let json = answer.json();
        let decode = |hash: &Value| Base64::decode_vec(hash.as_str().unwrap()).unwrap();
        json["hashes"].as_array().unwrap().iter().map(decode).collect::<Vec<_>>()
    };
    let consistency = hashes(client.get("/consistency?old=20&new=300").await);
    assert_eq!(consistency, site.registry.consistency(20, 300).unwrap());
    let inclusion = hashes(client.get("/inclusion?size=299&number=7").await);
    assert_eq!(inclusion, site.registry.inclusion(7, 299).unwrap());
    for query in [
        "consistency",
        "consistency?old=1",
        "consistency?old=1&old=2",
        "consistency?old=1&new=2&more=3",
        "consistency?old=-1&new=2",
        "consistency?old=0&new=2",
        "consistency?old=3&new=2",
        "consistency?old=1&new=999",
        "inclusion?number=5&size=5",
        "inclusion?number=5&size=999",
    ] {
        assert_eq!(client.get(&format!("/{query}")).await.status, 400, "{query}");
    }
    let head = client.send(Method::HEAD, "/checkpoint", "").await.unwrap();
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn every_path_of_the_description_answers_as_described() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    for sequence in 0..2 {
        assert_eq!(client.post(holder.next().canonical().unwrap()).await.json()["number"], 2 * sequence);
    }
    let document = client.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 11);
    for (path, item) in paths {
        let filled = path
            .replace("{did}", holder.state().did().as_str())
            .replace("{level}/{number}", "entries/000.p/2");
        let query = match path.as_str() {
            "/consistency" => "?old=1&new=2",
            "/inclusion" => "?number=1&size=2",
            _ => "",
        };
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters")
        {
            let body = if method == "post" { holder.next().canonical().unwrap() } else { String::new() };
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let answer = client.send(method, &format!("{filled}{query}"), body).await.unwrap();
            assert_eq!(answer.status, 200, "{path}");
            let mut described = &operation["responses"]["200"];
            if let Some(reference) = described["$ref"].as_str() {
                described = document.pointer(reference.trim_start_matches('#')).unwrap();
            }
            let form = answer.header("content-type").split(';').next().unwrap();
            assert!(described["content"].get(form).is_some(), "{path}: {form}");
        }
    }
}

#[tokio::test]
async fn the_page_shows_the_log_and_runs_nothing() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    client.post(holder.next().canonical().unwrap()).await;
    let answer = client.get("/").await;
    let text = String::from_utf8(answer.body.clone()).unwrap();
    assert!(
        text.contains("2 entries, 1 DIDs")
            && text.contains("<code>dunlin-map ")
            && text.contains(holder.state().did().as_str())
    );
    assert!(text.contains(&site.registry.keys()[0].to_string()));
    assert!(answer.header("content-security-policy").starts_with("default-src 'none'"));
    assert!(!text.contains("<script"));
}

/// Every document is from a stranger.
const HOSTILE: &str =
    "</pre></title><script>alert(1)</script><img src=x onerror='alert(1)'>\"&lt;\u{202e}\u{7}";

#[tokio::test]
async fn the_page_of_a_did_shows_hostile_documents_as_text() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    let operations =
        vec![holder.next(), holder.publish("alsoKnownAs", json!([HOSTILE])), holder.deactivate()];
    let did = holder.state().did().clone();
    assert_eq!(client.get(&format!("/dids/{did}/page")).await.status, 404);
    site.place.submit(&site.registry, operations);
    let answer = client.get(&format!("/dids/{did}/page")).await;
    assert_eq!(
        answer.header("content-security-policy"),
        "default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    );
    let text = String::from_utf8(answer.body).unwrap();
    let shown = "&lt;/pre&gt;&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=&#39;alert(1)&#39;&gt;\
                 \\&quot;&amp;lt;\\u202e\\u0007";
    assert!(text.contains(shown), "{text}");
    for markup in ["<script", "<img", "\u{202e}", "\u{7}"] {
        assert!(!text.contains(markup), "{text}");
    }
    for part in ["Deactivated after 2 changes", "<td>create</td><td>0</td>", "<td>deactivate</td><td>2</td>"]
    {
        assert!(text.contains(part), "{text}");
    }
    // The log has the same operations.
    let log = String::from_utf8(client.get("/").await.body).unwrap();
    assert!(log.contains(&format!("<a href=\"/dids/{did}/page\">{did}</a>")) && !log.contains("<script"));
}

#[tokio::test]
async fn the_history_of_a_did_comes_in_order_and_in_parts() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    let mut holder = site.place.holder(1);
    let stranger = site.place.holder(2).next();
    let mut operations: Vec<_> = (0..=MAX_HISTORY).map(|_| holder.next()).collect();
    let did = holder.state().did().clone();
    let answer = client.get(&format!("/dids/{did}/history")).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (404, "application/json"));
    operations.insert(1, stranger);
    site.place.submit(&site.registry, operations.clone());
    operations.remove(1);
    let mut path = format!("/dids/{did}/history");
    let mut found = vec![];
    for next in [json!(MAX_HISTORY), Value::Null] {
        let part = client.get(&path).await.json();
        assert_eq!((&part["did"], &part["next"]), (&json!(did.as_str()), &next));
        found.extend(part["operations"].as_array().unwrap().clone());
        path = format!("/dids/{}/history?from={next}", did.as_str().replace(':', "%3A"));
    }
    assert_eq!(found.len() as u64, MAX_HISTORY + 1);
    for ((found, operation), sequence) in found.iter().zip(&operations).zip(0..) {
        // A root is the second entry of the log, and the stranger's operation the third.
        assert_eq!(found["number"], if sequence == 0 { 0 } else { sequence + 2 });
        assert_eq!(found["operation"].to_string(), operation.canonical().unwrap());
        assert_eq!((operation.sequence(), operation.did()), (sequence, &did));
    }
    assert_eq!(client.get(&format!("/dids/{did}/history?from=99")).await.json()["operations"], json!([]));
    for wrong in ["history?from=", "history?from=-1", "history?to=1", "history?from=0&from=1", "page?from=x"]
    {
        assert_eq!(client.get(&format!("/dids/{did}/{wrong}")).await.status, 400, "{wrong}");
    }
    assert_eq!(client.get(&format!("/dids/{did}/more")).await.status, 404);
    let page = String::from_utf8(client.get(&format!("/dids/{did}/page?from=32")).await.body).unwrap();
    assert!(page.contains("Earlier operations") && !page.contains("Later operations"), "{page}");
}

/// Readers see a state only after the witnesses have cosigned it.
#[tokio::test]
async fn a_history_ends_with_the_state_that_readers_see() {
    let place = RegistryDirectory::new();
    let witness = common::key(&place.provider, [8, 8, 8]);
    let witness = NoteSigner::new(&place.provider, "witness", NoteKeyKind::Cosignature, witness).unwrap();
    let mut holder = place.holder(1);
    place.open().unwrap().submit(holder.next()).unwrap();
    let settings = Settings { witnesses: vec![witness.key().clone()], ..place.settings() };
    let registry = Registry::open(&place.path("registry"), &settings).unwrap();
    registry.submit(holder.next()).unwrap();
    let did = holder.state().did();
    assert_eq!(registry.history(did, 0).unwrap().len(), 1);
    let newest = registry.snapshot();
    let text = newest.checkpoint().note().text();
    let cosigned = witness.sign(&place.provider, text, NOW).unwrap().to_string();
    assert_eq!(registry.witnessed(&newest, [cosigned.as_str()]), Ok(true));
    assert_eq!(registry.history(did, 0).unwrap().len(), 2);
}

#[tokio::test]
async fn the_page_of_the_log_leads_to_older_operations() {
    let site = Site::new(Limits::default()).await;
    site.place.submit(&site.registry, (0..120).map(|number| site.place.holder(number).next()).collect());
    let mut client = site.client().await;
    // With the roots after the first and the last operation.
    for (path, entries, newer, older) in [
        ("/", 72..122, false, Some("/?before=72")),
        ("/?before=72", 22..72, true, Some("/?before=22")),
        ("/?before=22", 0..22, true, None),
        ("/?before=0", 0..0, true, None),
        ("/?before=999", 72..122, false, Some("/?before=72")),
    ] {
        let text = String::from_utf8(client.get(path).await.body).unwrap();
        let shown: Vec<u64> = text
            .split("<tr><td>")
            .skip(1)
            .map(|row| row.split_once('<').unwrap().0.parse().unwrap())
            .collect();
        assert_eq!(shown, entries.rev().collect::<Vec<_>>(), "{path}");
        assert_eq!(text.contains("<a href=\"/\">Newest"), newer, "{path}");
        let link = text.split_once("\">Older").map(|(before, _)| before.rsplit_once('"').unwrap().1);
        assert_eq!(link, older, "{path}");
    }
    assert_eq!(client.get("/?before=x").await.status, 400);
}

#[tokio::test]
async fn a_host_has_a_limited_number_of_connections() {
    let site = Site::new(Limits { connections_per_host: 2, ..Limits::default() }).await;
    let mut one = site.client().await;
    let two = site.client().await;
    assert!(site.tls().await.is_err());
    assert_eq!(one.get("/checkpoint").await.status, 200);
    drop(two);
    // The server notices the end of the connection in its own time.
    while site.tls().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stopping_server_ends_idle_connections() {
    let site = Site::new(Limits::default()).await;
    let mut client = site.client().await;
    assert_eq!(client.get("/checkpoint").await.status, 200);
    site.stop().await.unwrap();
    assert!(client.send(Method::GET, "/checkpoint", "").await.is_err());
}

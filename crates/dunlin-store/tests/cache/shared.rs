//! Ticket keys and messages in a real Redis.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dunlin::Now;
use dunlin::resume::SealTickets;
use dunlin_store::cache::OpenError;
use dunlin_store::{MAX_MESSAGE, SharedLog, SharedTickets};
use tempfile::TempDir;

use crate::redis::Redis;

const PERIOD: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> Now {
    Now::from_unix_ms(1_800_000_000_000 + seconds * 1000)
}

/// A key file of the store.
fn key(directory: &TempDir, byte: u8) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.path().join(format!("{byte}.key"));
    std::fs::write(&path, [byte; 32]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn server(url: &str, name: &str, key: &Path) -> SharedTickets {
    let provider = Arc::new(dunlin_awslc::provider());
    SharedTickets::open(url, name, key, provider).unwrap().with_period(PERIOD)
}

fn opens(server: &SharedTickets, now: Now, ticket: &[u8]) -> bool {
    server.open(now, b"aad", ticket).is_some_and(|session| session[..] == *b"session")
}

#[test]
fn a_server_opens_tickets_of_another_one_until_their_key_expires() {
    let redis = Redis::new();
    let directory = TempDir::new().unwrap();
    let url = redis.url();
    let key = key(&directory, 1);
    let [one, two] = [(); 2].map(|()| server(&url, "web", &key));
    for server in [&one, &two] {
        server.refresh(at(0)).unwrap();
    }
    let ticket = one.seal(at(1), b"aad", b"session").unwrap();
    assert!(opens(&two, at(1), &ticket));
    assert!(two.open(at(1), b"other", &ticket).is_none());
    // The next key is known to both before it seals.
    one.refresh(at(3590)).unwrap();
    two.refresh(at(3591)).unwrap();
    let next = two.seal(at(3601), b"aad", b"session").unwrap();
    assert_ne!(next[..4], ticket[..4]);
    assert!(opens(&one, at(3601), &next) && opens(&one, at(7199), &ticket));
    assert!(!opens(&one, at(7200), &ticket) && opens(&one, at(7200), &next));
    // Other listeners have other keys.
    let other = server(&url, "mqtt", &key);
    other.refresh(at(3601)).unwrap();
    assert!(!opens(&other, at(3601), &next));
}

#[test]
fn a_server_without_the_key_file_or_with_a_forged_record_gets_no_keys() {
    let redis = Redis::new();
    let directory = TempDir::new().unwrap();
    let url = redis.url();
    let keys = [1, 2].map(|byte| key(&directory, byte));
    let one = server(&url, "web", &keys[0]);
    one.refresh(at(0)).unwrap();
    let ticket = one.seal(at(1), b"aad", b"session").unwrap();
    let mut connection = ::redis::Client::open(url.clone()).unwrap().get_connection().unwrap();
    let records: Vec<String> = ::redis::cmd("KEYS").arg("dunlin:tickets:*").query(&mut connection).unwrap();
    let [name] = &records[..] else { panic!("{records:?}") };
    let mut record: Vec<u8> = ::redis::cmd("GET").arg(name).query(&mut connection).unwrap();
    let left: i64 = ::redis::cmd("PTTL").arg(name).query(&mut connection).unwrap();
    assert!(left > 0);
    let foreign = server(&url, "web", &keys[1]);
    foreign.refresh(at(1)).unwrap();
    assert!(!opens(&foreign, at(1), &ticket));
    *record.last_mut().unwrap() ^= 1;
    ::redis::cmd("SET").arg(name).arg(&record).exec(&mut connection).unwrap();
    let stranger = server(&url, "web", &keys[0]);
    stranger.refresh(at(1)).unwrap();
    assert!(!opens(&stranger, at(1), &ticket));
    let absent = SharedTickets::open(
        &url,
        "web",
        &directory.path().join("absent"),
        Arc::new(dunlin_awslc::provider()),
    );
    assert!(matches!(absent, Err(OpenError::Key { .. })));
}

#[test]
fn a_server_without_redis_uses_the_known_keys_and_then_its_own() {
    let mut redis = Redis::new();
    let directory = TempDir::new().unwrap();
    let url = redis.url();
    let key = key(&directory, 1);
    let [one, two] = [(); 2].map(|()| server(&url, "web", &key));
    for server in [&one, &two] {
        server.refresh(at(0)).unwrap();
    }
    redis.stop();
    let fault = one.refresh(at(3590)).unwrap_err().to_string();
    assert!(fault.starts_with("Redis at 127.0.0.1:") && fault.lines().count() == 1, "{fault}");
    let shared = one.seal(at(3599), b"aad", b"session").unwrap();
    assert!(opens(&two, at(3599), &shared));
    let own = one.seal(at(3601), b"aad", b"session").unwrap();
    assert!(opens(&one, at(3602), &own) && !opens(&two, at(3602), &own));
    redis.start();
    for server in [&one, &two] {
        server.refresh(at(3603)).unwrap();
    }
    let shared = one.seal(at(3603), b"aad", b"session").unwrap();
    assert!(opens(&two, at(3603), &shared) && opens(&one, at(3603), &own));
}

#[test]
fn servers_get_each_others_messages_once_and_in_order() {
    let redis = Redis::new();
    let directory = TempDir::new().unwrap();
    let url = redis.url();
    let key_file = key(&directory, 1);
    let log = |name: &str, key: &Path| {
        SharedLog::open(&url, name, key, Arc::new(dunlin_awslc::provider())).unwrap()
    };
    let [one, two] = [(); 2].map(|()| log("policy.toml", &key_file));
    let messages: Vec<_> = (0..20_u8).map(|number| vec![number; 1 + usize::from(number) * 100]).collect();
    assert!(one.exchange(&messages).unwrap().is_empty());
    assert_eq!(two.exchange(&[b"from two".to_vec()]).unwrap(), messages);
    assert_eq!(one.exchange(&[]).unwrap(), [b"from two"]);
    assert!(two.exchange(&[]).unwrap().is_empty() && one.exchange(&[]).unwrap().is_empty());
    // A server that starts later hears everything; one with another name or key hears nothing.
    let late = log("policy.toml", &key_file).exchange(&[]).unwrap();
    assert_eq!((late.len(), &*late[20]), (21, &b"from two"[..]));
    assert!(log("other.toml", &key_file).exchange(&[]).unwrap().is_empty());
    assert!(log("policy.toml", &key(&directory, 2)).exchange(&[]).unwrap().is_empty());
    // The longest message passes, a longer one is left out.
    one.exchange(&[vec![1; MAX_MESSAGE], vec![2; MAX_MESSAGE + 1], vec![3]]).unwrap();
    assert_eq!(two.exchange(&[]).unwrap(), [vec![1; MAX_MESSAGE], vec![3]]);
    drop(redis);
    assert!(one.exchange(&[]).unwrap_err().to_string().contains("Redis at 127.0.0.1"));
}

//! A persistent cache and its key file, opened in one call.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::Side;
use dunlin_store::cache::{CacheFault, CacheStore, KeyFault, OpenError};
use dunlin_tests::{KeyType, Pki, awslc};
use tempfile::TempDir;

use crate::common::{Faults, client, connect, no_fault, server};

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cache");
    (directory, path)
}

fn stores(path: &Path) -> Vec<CacheStore> {
    vec![
        CacheStore::file(path.with_extension("file")),
        #[cfg(feature = "sqlite")]
        CacheStore::sqlite(path.with_extension("sqlite")),
    ]
}

#[test]
fn makes_the_store_and_a_key_file_of_mode_0600() {
    let (directory, path) = place();
    let pki = Pki::shared(KeyType::P256);
    let clients = stores(&path.with_file_name("client"));
    for (at_client, at_server) in clients.into_iter().zip(stores(&path.with_file_name("server"))) {
        for known in [false, true] {
            let faults = Faults::default();
            let servers = at_client.open_client(&awslc(), faults.report()).unwrap();
            let clients = at_server.open_server(&awslc(), faults.report()).unwrap();
            let ends = (client(pki, Arc::new(servers)), server(pki, Arc::new(clients)));
            assert_eq!(connect(&ends.0, &ends.1), [known; 2]);
            let told = faults.take();
            assert_eq!(told.len(), if known { 0 } else { 2 }, "{told:?}");
            assert!(
                told.iter().all(|told| told.ends_with(".key: created a new key for the store")),
                "{told:?}"
            );
        }
    }
    let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let keys: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "key")).collect();
    assert_eq!(keys.len(), 2 * stores(&path).len());
    for key in keys {
        let found = fs::metadata(&key).unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (32, 0o600));
    }
}

#[test]
fn refuses_a_key_file_that_others_can_access() {
    let (_directory, path) = place();
    let key = path.with_extension("key");
    let fault = |key: &Path| {
        let opened = CacheStore::file(&path).with_key_file(key).open_server(&awslc(), no_fault());
        match opened.map(drop).unwrap_err() {
            OpenError::Key { file, fault } if file == key => fault,
            error => panic!("{error}"),
        }
    };
    fs::write(&key, [1; 32]).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o610] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        assert!(matches!(fault(&key), KeyFault::Access(found) if found == mode), "{mode:o}");
    }
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let link = path.with_extension("link");
    symlink(&key, &link).unwrap();
    assert!(matches!(fault(&link), KeyFault::SymbolicLink));
    fs::remove_file(&link).unwrap();
    symlink(path.with_extension("nowhere"), &link).unwrap();
    assert!(matches!(fault(&link), KeyFault::SymbolicLink));
    assert!(!path.with_extension("nowhere").exists());
    assert!(matches!(fault(path.parent().unwrap()), KeyFault::NotAFile));
    assert!(matches!(fault(&path.join("none")), KeyFault::Unreadable(_)));
    CacheStore::file(&path).with_key_file(&key).open_server(&awslc(), no_fault()).map(drop).unwrap();
    for len in [0, 31, 33] {
        fs::write(&key, vec![1; len]).unwrap();
        assert!(matches!(fault(&key), KeyFault::Length(found) if found == len as u64));
    }
}

#[test]
fn refuses_one_file_for_both_sides_or_for_the_key() {
    let (_directory, path) = place();
    for (store, file) in stores(&path).into_iter().zip(["file", "sqlite"]) {
        let file = path.with_extension(file);
        store.open_client(&awslc(), Box::new(|_| {})).map(drop).unwrap();
        match store.open_server(&awslc(), no_fault()).map(drop).unwrap_err() {
            OpenError::Store(CacheFault::OtherSide { store, of: Side::Client }) if store == file => {}
            error => panic!("{error}"),
        }
        for key in [file.clone(), path.with_file_name(".").join(file.file_name().unwrap())] {
            let opened = store.clone().with_key_file(key).open_client(&awslc(), no_fault());
            assert!(matches!(opened.map(drop).unwrap_err(), OpenError::KeyIsStore(_)));
        }
    }
}

#[cfg(feature = "redis")]
#[test]
fn makes_no_key_for_a_redis() {
    let (_directory, path) = place();
    let store = CacheStore::redis("redis://:secret@127.0.0.1:1/");
    assert!(matches!(store.open_server(&awslc(), no_fault()).map(drop), Err(OpenError::NoKeyFile)));
    let store = store.with_key_file(&path);
    match store.open_server(&awslc(), no_fault()).map(drop).unwrap_err() {
        error @ OpenError::Key { fault: KeyFault::Missing, .. } => {
            assert!(error.advice().contains("/dev/urandom"), "{}", error.advice());
        }
        error => panic!("{error}"),
    }
    assert!(!path.exists() && !format!("{store:?}").contains("secret"));
}

/// A file of another user. Only root can give a file away; for other users, root's own file is one.
fn foreign_file(at: &Path, content: &[u8]) -> PathBuf {
    fs::write(at, content).unwrap();
    fs::set_permissions(at, Permissions::from_mode(0o600)).unwrap();
    match chown(at, Some(65534), None) {
        Ok(()) => at.to_owned(),
        Err(_) => PathBuf::from("/etc/passwd"),
    }
}

#[test]
fn refuses_a_key_file_of_another_user() {
    let (_directory, path) = place();
    let key = foreign_file(&path.with_extension("key"), &[1; 32]);
    let owner = fs::metadata(&key).unwrap().uid();
    for store in stores(&path) {
        let opened = store.with_key_file(&key).open_server(&awslc(), no_fault());
        let error = opened.map(drop).unwrap_err();
        assert!(
            matches!(error, OpenError::Key { fault: KeyFault::Owner(uid), .. } if uid == owner),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("it belongs to user {owner}, not to user ")), "{error}");
        assert!(error.advice().starts_with("chown "), "{}", error.advice());
    }
}

#[test]
fn refuses_a_store_of_another_user_or_that_another_user_can_write() {
    let (_directory, path) = place();
    for (store, ending) in stores(&path).into_iter().zip(["file", "sqlite"]) {
        store.open_server(&awslc(), Box::new(|_| {})).map(drop).unwrap();
        let file = path.with_extension(ending);
        let content = fs::read(&file).unwrap();
        for mode in [0o660, 0o602] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let error = store.open_server(&awslc(), no_fault()).map(drop).unwrap_err().to_string();
            assert!(
                error.contains(&format!("other users can write it (mode {mode:04o}): chmod go-w ")),
                "{error}"
            );
        }
        let foreign = foreign_file(&file, &content);
        let store = match ending {
            "file" => CacheStore::file(foreign),
            #[cfg(feature = "sqlite")]
            _ => CacheStore::sqlite(foreign),
            #[cfg(not(feature = "sqlite"))]
            other => panic!("{other}"),
        };
        let error = store.open_server(&awslc(), no_fault()).map(drop).unwrap_err().to_string();
        assert!(
            error.contains("it belongs to user ") && error.ends_with("give each a store of its own"),
            "{error}"
        );
    }
}

/// Only root can make a link of another user; other users meet it in /tmp.
#[test]
fn follows_no_link_of_another_user() {
    let (directory, path) = place();
    let link = directory.path().join("link");
    for (store, ending) in stores(&link).into_iter().zip(["file", "sqlite"]) {
        let link = link.with_extension(ending);
        let target = path.with_extension(ending);
        symlink(&target, &link).unwrap();
        if lchown(&link, Some(65534), None).is_err() {
            // Another user's link looks like one that leads nowhere.
            fs::remove_file(&link).unwrap();
            symlink(&link, &link).unwrap();
        }
        let error = store.open_server(&awslc(), no_fault()).map(drop).unwrap_err().to_string();
        assert!(error.contains("a symbolic link of another user, or one that leads nowhere"), "{error}");
        assert!(!target.exists());
    }
}

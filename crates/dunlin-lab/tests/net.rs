//! Namespaces with a pair of devices, and processes in them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use dunlin_lab::net::{Ground, Pair};

use crate::common::{privileged, until};

#[test]
fn two_namespaces_reach_only_each_other() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(1500).unwrap();
    let listener = pair.server.run(|| TcpListener::bind((Pair::SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = pair.client.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let (mut server, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), Pair::CLIENT);
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"hello");

    let names = |namespace: &dunlin_lab::net::Namespace| {
        let list = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
        let mut names: Vec<_> =
            list.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect();
        names.sort();
        names
    };
    assert_eq!(names(&pair.client), ["lo", Pair::DEVICE]);
    assert_eq!(names(&pair.server), ["lo", Pair::DEVICE]);
}

#[test]
fn disables_offloads() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(1500).unwrap();
    for namespace in [&pair.client, &pair.server] {
        let features =
            namespace.run(|| Command::new("ethtool").args(["-k", Pair::DEVICE]).output()).unwrap().unwrap();
        let features = String::from_utf8(features.stdout).unwrap();
        for feature in [
            "rx-checksumming",
            "tx-checksumming",
            "scatter-gather",
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "generic-receive-offload",
        ] {
            assert!(features.contains(&format!("{feature}: off")), "{feature} in {features}");
        }
    }
}

#[test]
fn refuses_an_impossible_mtu_in_one_line() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(127).unwrap();
    pair.set_mtu(576).unwrap();
    let error = pair.set_mtu(67).unwrap_err().to_string();
    assert!(error.starts_with("ip in network namespace dunlin-"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn processes_run_in_their_namespace_and_end_with_their_ground() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let namespace = ground.namespace("one").unwrap();
    // The shell starts another process, which only the PID namespace knows.
    let mut shell = Command::new("sh");
    shell.args(["-c", "readlink /proc/self/ns/net; sleep 1000 & wait"]).stdout(Stdio::piped());
    let mut process = ground.spawn(&namespace, &mut shell).unwrap();
    let mut link = [0; 64];
    let len = process.child().stdout.as_mut().unwrap().read(&mut link).unwrap();
    let expected = fs::read_link(namespace.path()).unwrap();
    assert_eq!(String::from_utf8_lossy(&link[..len]).trim(), expected.to_str().unwrap());

    let shell = process.child().id();
    let children = || fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
    let sleeper = until(|| children().split_whitespace().next().map(str::to_owned));
    drop(process);
    drop(ground);
    assert!(!fs::exists(format!("/proc/{sleeper}")).unwrap(), "the shell's own child is still there");
}

#[test]
fn names_a_missing_program() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let namespace = ground.namespace("one").unwrap();
    let error = ground.spawn(&namespace, &mut Command::new("no-such-program")).unwrap_err().to_string();
    assert!(error.starts_with("no-such-program: "), "{error}");
}

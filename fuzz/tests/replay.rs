//! Every setting connects.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use dunlin_fuzz::handshake;
use dunlin_fuzz::setting::Setting;

#[test]
fn every_setting_connects_where_nothing_is_changed() {
    for first in 0..32 {
        for second in 0..12 {
            for flags in (0..12).map(|bit| 1 << bit).chain([0, 0xffff, 0xfdf]) {
                let input = Setting::write(first, second, flags);
                assert!(handshake::client(&input), "client {input:?}");
                assert!(handshake::server(&input), "server {input:?}");
            }
        }
    }
}

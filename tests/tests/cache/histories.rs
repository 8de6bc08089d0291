//! Rule 2 in random histories: after any sequence of changes, a handshake with caches is accepted exactly
//! when a full handshake would be accepted at that moment.

use dunlin::cache::CacheMode;
use dunlin::wire::ProtocolVersion;
use dunlin_tests::carry;

use crate::Setup;
use crate::tickets::Dice;
use crate::world::Belief::{Both, First, Fresh, Unrevoked};
use crate::world::Certificate::{Long, Other, Short, Young};
use crate::world::{BELIEFS, CERTIFICATES, World};

/// Makes one random change.
fn change(world: &mut World, dice: &mut Dice) {
    match dice.below(12) {
        0 => world.client.certificate = CERTIFICATES[dice.below(5) as usize],
        1 => world.server.certificate = CERTIFICATES[dice.below(5) as usize],
        2 => world.client.belief = BELIEFS[dice.below(6) as usize],
        3 => world.server.belief = BELIEFS[dice.below(6) as usize],
        4 | 10 => world.pass(dice.below(6) as i64),
        5 => world.pass(-(dice.below(4) as i64)),
        6 if dice.below(2) == 0 => world.lose_servers(),
        6 => world.lose_clients(),
        7 => {
            world.setup.version = match dice.below(2) {
                0 => ProtocolVersion::TLS1_2,
                _ => ProtocolVersion::TLS1_3,
            };
        }
        // A connection that breaks off early.
        8 => {
            let mut pair = world.pair(true);
            for _ in 0..dice.below(4) {
                let _ = carry(&mut pair.client, &mut pair.server, pair.now);
                let _ = carry(&mut pair.server, &mut pair.client, pair.now);
            }
        }
        // Restore certificates and trust that work at present.
        9 | 11 => {
            world.now_ms = World::new(world.setup).now_ms;
            for side in [&mut world.client, &mut world.server] {
                side.certificate = [Long, Other, Short, Young][dice.below(4) as usize];
                side.belief = [First, Both, Unrevoked, Fresh][dice.below(4) as usize];
            }
            // Connect once, so that the caches have entries.
            let _ = world.connect();
        }
        _ => {}
    }
}

#[test]
fn cache_accepts_exactly_the_peers_that_a_full_handshake_accepts() {
    let mut used = [0; 2];
    let mut refused = 0;
    for (seed, mode) in (1..=8)
        .flat_map(|seed| [CacheMode::Rfc7924, CacheMode::Bithac, CacheMode::Compact].map(|mode| (seed, mode)))
    {
        let mut dice = Dice::new(seed);
        let mut world = World::new(Setup { version: ProtocolVersion::TLS1_3, mode });
        for _ in 0..50 {
            change(&mut world, &mut dice);
            match world.connect() {
                Ok(cached) => used.iter_mut().zip(cached).for_each(|(n, is)| *n += usize::from(is)),
                Err(_) => refused += 1,
            }
        }
    }
    // The histories must be meaningful: of the 1200 connections many used a cache, and many were refused.
    assert!(used.iter().all(|n| *n > 100) && refused > 100, "{used:?} {refused}");
}

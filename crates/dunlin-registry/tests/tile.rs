//! The paths of tiles, as C2SP tlog-tiles gives them.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use dunlin_registry::tile::{TILE_WIDTH, Tile, TileKind};

#[test]
fn paths_are_read_as_they_are_written() {
    let cases = [
        (TileKind::Hashes(0), 0, TILE_WIDTH, "tile/0/000"),
        (TileKind::Hashes(1), 7, 17, "tile/1/007.p/17"),
        (TileKind::Hashes(63), 999, 1, "tile/63/999.p/1"),
        (TileKind::Hashes(2), 1000, 255, "tile/2/x001/000.p/255"),
        (TileKind::Entries, 1_234_067, TILE_WIDTH, "tile/entries/x001/x234/067"),
        (TileKind::Entries, u64::MAX, TILE_WIDTH, "tile/entries/x018/x446/x744/x073/x709/x551/615"),
    ];
    for (kind, number, width, path) in cases {
        let tile = Tile::new(kind, number, width).unwrap();
        assert_eq!((tile.to_string().as_str(), path.parse()), (path, Ok(tile)));
        assert_eq!(tile.is_full(), width == TILE_WIDTH);
    }
}

#[test]
fn other_paths_are_refused() {
    for path in [
        "",
        "tile",
        "tile/",
        "tile/0",
        "tile/0/",
        "tile//000",
        "tile/64/000",
        "tile/00/000",
        "tile/+1/000",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/x000",
        "tile/0/001/000",
        "tile/0/x000/001",
        "tile/0/1000",
        "tile/0/x001/x000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/000.p/",
        "tile/0/000.p",
        "tile/0/000.p/1/",
        "tile/0/000/",
        "tile/0/-01",
        "tile/0/x+01/000",
        "Tile/0/000",
        "tile/entries",
        "tile/entries/0",
        "tile/entry/000",
        "/tile/0/000",
        "tile/0/000?",
        "tile/0/../000",
        "tile/0/x018/x446/x744/x073/x709/x551/616",
        "tile/0/x001/x018/x446/x744/x073/x709/x551/615",
    ] {
        assert!(path.parse::<Tile>().is_err(), "{path}");
    }
    assert_eq!(Tile::new(TileKind::Entries, 0, 0), None);
    assert_eq!(Tile::new(TileKind::Entries, 0, TILE_WIDTH + 1), None);
}

/// The example of the specification.
#[test]
fn a_log_has_the_tiles_of_its_size() {
    let tiles: Vec<_> = Tile::all(70_000).collect();
    let count = |kind, full| tiles.iter().filter(|tile| tile.kind == kind && tile.is_full() == full).count();
    let widths = |kind| tiles.iter().filter(|tile| tile.kind == kind).map(|tile| tile.width.get()).min();
    assert_eq!((count(TileKind::Hashes(0), true), count(TileKind::Hashes(0), false)), (273, 1));
    assert_eq!((count(TileKind::Hashes(1), true), count(TileKind::Hashes(1), false)), (1, 1));
    assert_eq!((count(TileKind::Hashes(2), true), count(TileKind::Hashes(2), false)), (0, 1));
    assert_eq!((count(TileKind::Entries, true), count(TileKind::Entries, false)), (273, 1));
    let levels = [0, 1, 2].map(|level| widths(TileKind::Hashes(level)));
    assert_eq!(levels, [Some(112), Some(17), Some(1)]);
    assert_eq!(tiles.len(), 274 + 274 + 2 + 1);
    assert_eq!(Tile::all(0).count(), 0);
    let paths: Vec<_> = Tile::all(256).map(|tile| tile.to_string()).collect();
    assert_eq!(paths, ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"]);
}

//! The places of tiles and entry bundles (C2SP tlog-tiles), as a registry serves and exports them.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// How many hashes or entries a full tile or bundle has.
pub const TILE_WIDTH: u16 = 256;

/// The highest level of tiles (C2SP tlog-tiles). A log of 2^64 entries has levels 0 to 7.
const MAX_TILE_LEVEL: u8 = 63;

/// The most path elements of a tile's number: enough for 2^63 tiles.
const MAX_NUMBER_ELEMENTS: usize = 7;

/// The content of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileKind {
    /// Hashes at a level: of leaves at level 0, of full tiles of the level below above it.
    Hashes(u8),
    /// Entries, each with its length in two bytes.
    Entries,
}

/// The place of a tile or an entry bundle. Its text is the path below the log's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The content.
    pub kind: TileKind,
    /// Its number in its level, from 0.
    pub number: u64,
    /// How many hashes or entries it has, up to [`TILE_WIDTH`].
    pub width: NonZeroU16,
}

impl Tile {
    /// The tile of this width; `None` if that is 0 or more than [`TILE_WIDTH`].
    pub fn new(kind: TileKind, number: u64, width: u16) -> Option<Self> {
        let width = NonZeroU16::new(width).filter(|width| width.get() <= TILE_WIDTH)?;
        Some(Self { kind, number, width })
    }

    /// All tiles and entry bundles of a log with this size, the entry bundles first.
    pub fn all(size: u64) -> impl Iterator<Item = Self> {
        let kinds = std::iter::once((TileKind::Entries, size));
        let levels = (0..8).map(move |level: u8| (TileKind::Hashes(level), size >> (8 * u32::from(level))));
        kinds.chain(levels).flat_map(|(kind, count)| {
            let width = u64::from(TILE_WIDTH);
            let full = (0..count / width).filter_map(move |number| Self::new(kind, number, TILE_WIDTH));
            let partial = u16::try_from(count % width).ok();
            full.chain(partial.and_then(|partial| Self::new(kind, count / width, partial)))
        })
    }

    /// Whether the tile is full and will never change.
    pub fn is_full(&self) -> bool {
        self.width.get() == TILE_WIDTH
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TileKind::Hashes(level) => write!(f, "tile/{level}/")?,
            TileKind::Entries => f.write_str("tile/entries/")?,
        }
        let mut elements = vec![format!("{:03}", self.number % 1000)];
        let mut rest = self.number / 1000;
        while rest > 0 {
            elements.push(format!("x{:03}", rest % 1000));
            rest /= 1000;
        }
        elements.reverse();
        f.write_str(&elements.join("/"))?;
        if self.is_full() { Ok(()) } else { write!(f, ".p/{}", self.width) }
    }
}

/// The text is not the path of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the path of a tile: write tile/LEVEL/NUMBER or tile/entries/NUMBER, with .p/WIDTH for a partial one"
)]
pub struct TilePathError;

impl FromStr for Tile {
    type Err = TilePathError;

    fn from_str(path: &str) -> Result<Self, TilePathError> {
        let parsed = || {
            let (kind, rest) = path.strip_prefix("tile/")?.split_once('/')?;
            let kind = if kind == "entries" {
                TileKind::Entries
            } else {
                TileKind::Hashes(kind.parse().ok().filter(|level| *level <= MAX_TILE_LEVEL)?)
            };
            let (number, width) = match rest.split_once(".p/") {
                Some((number, width)) => (number, width.parse().ok().filter(|width| *width < TILE_WIDTH)?),
                None => (rest, TILE_WIDTH),
            };
            let mut value = 0_u64;
            for (place, element) in number.split('/').enumerate() {
                let digits = element.strip_prefix('x').unwrap_or(element);
                if place == MAX_NUMBER_ELEMENTS {
                    return None;
                }
                value = value.checked_mul(1000)?.checked_add(digits.parse().ok()?)?;
            }
            Self::new(kind, value, width)
        };
        // One tile has one path: numbers without signs and further zeros, elements of three digits.
        parsed().filter(|tile| tile.to_string() == path).ok_or(TilePathError)
    }
}

//! Entry bundles in pieces: the entries of one can have five megabytes together.

use std::fmt;
use std::sync::Arc;

use crate::operator::database;
use crate::operator::error::RegistryError;
use crate::operator::reader::{Reader, framed, tile_range};
use crate::operator::tile::{Tile, TileKind};

/// How many entries a piece has: at most 80 kB, and for most operations a few kilobytes.
const PIECE: u64 = 4;

/// The bytes of an entry bundle (C2SP tlog-tiles), in pieces that are read from the database one after the
/// other.
pub struct Bundle {
    reader: Arc<Reader>,
    next: u64,
    end: u64,
    remaining: u64,
}

impl Reader {
    /// An entry bundle in pieces; `None` if the log is too small for it, or the tile consists of hashes.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn bundle(self: &Arc<Self>, tile: &Tile) -> Result<Option<Bundle>, RegistryError> {
        let range =
            if tile.kind == TileKind::Entries { tile_range(tile, self.snapshot().size()) } else { None };
        let Some((first, end)) = range else { return Ok(None) };
        let length = self.read(|connection| database::bundle_length(connection, first, end))?;
        Ok(Some(Bundle { reader: Arc::clone(self), next: first, end, remaining: length }))
    }
}

impl Bundle {
    /// How many bytes the pieces that have not been read have.
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    fn read(&mut self) -> Result<Vec<u8>, RegistryError> {
        let after = self.end.min(self.next.saturating_add(PIECE));
        let entries = self.reader.entries(self.next, after)?;
        let bytes = framed(&entries)?;
        let remaining = self.remaining.checked_sub(bytes.len() as u64);
        let whole = remaining.filter(|remaining| {
            entries.len() as u64 == after - self.next && (after < self.end || *remaining == 0)
        });
        self.remaining = whole.ok_or_else(|| RegistryError::damaged("an entry bundle has changed"))?;
        self.next = after;
        Ok(bytes)
    }
}

impl Iterator for Bundle {
    type Item = Result<Vec<u8>, RegistryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let piece = self.read();
        if piece.is_err() {
            (self.next, self.remaining) = (self.end, 0);
        }
        Some(piece)
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("next", &self.next).field("end", &self.end).finish_non_exhaustive()
    }
}

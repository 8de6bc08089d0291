//! Files of TOML, read key by key. serde's derived code would stop at the first fault; this reader collects
//! all of them, each with file, line, key and the allowed values.
//!
//! The configuration and policies use it.

mod section;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use dunlin_setup::place::{Fault, Faults, Field, FileField, Place};
use toml::Spanned;
use toml::de::DeTable;

pub(crate) use section::{Kind, SWITCH, Section};

/// A text of TOML, and the file from which it comes.
pub(crate) struct Source {
    path: Arc<Path>,
    text: String,
    /// The offsets of all line feeds.
    line_feeds: Vec<usize>,
}

impl Source {
    pub(crate) fn new(path: impl Into<Arc<Path>>, text: String) -> Self {
        let line_feeds = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i);
        Self { path: path.into(), line_feeds: line_feeds.collect(), text }
    }

    /// Parses the text. Adds a fault for each error of the syntax.
    pub(crate) fn parse(&self, faults: &mut Vec<Fault>) -> Spanned<DeTable<'_>> {
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        faults.extend(errors.iter().map(|error| {
            let line = self.line(error.span().map_or(0, |span| span.start));
            let place = Place { file: self.path.clone(), line, key: String::new() };
            place.fault(error.message().replace('\n', ", "), "write it as TOML demands (toml.io)")
        }));
        table
    }

    /// The number of the line that contains this byte.
    fn line(&self, offset: usize) -> usize {
        1 + self.line_feeds.partition_point(|line_feed| *line_feed < offset)
    }

    /// Resolves a path relative to the directory of the file.
    fn resolve(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_line_of_each_byte() {
        let text = "a\n\r\n\nbc\n";
        let source = Source::new(Path::new("a.toml"), text.to_owned());
        for offset in 0..=text.len() {
            let line = 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            assert_eq!(source.line(offset), line, "{offset}");
        }
    }
}

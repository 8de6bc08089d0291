//! The instructions of Dunlin's server for an upload, without the kernel's, by valgrind's callgrind.

use super::super::valgrind::{Counts, PROGRAM};
use super::case::{Case, ClientKind, SIZES, Stack};
use super::server::COUNTED;
use super::talk::Talk;
use super::{Ends, Foreign, Place, Start, WARM_UP};
use crate::Error;

/// Whether the instructions of a case are counted: Dunlin's server has the same work for all clients that
/// prove the same.
pub(super) fn are_counted(case: &Case) -> bool {
    case.stack == Stack::Dunlin && case.client != ClientKind::Curl
}

/// Counts the server's instructions for an upload of each size.
///
/// # Errors
/// Valgrind is not installed, or a side failed.
pub(super) fn count(
    place: &Place<'_>,
    case: Case,
    sizes: &[usize],
    uploader: Option<&Foreign>,
) -> Result<Vec<f64>, Error> {
    let counts = Counts::new()?;
    let counted = COUNTED.iter().take(sizes.len()).map(|(name, _)| *name);
    let options = counts.options(counted.clone().map(|name| format!("*{name}")));
    let tool = Some((PROGRAM, &*options, WARM_UP + sizes.len()));
    let start = Start { namespace: &place.pair.server, key_log: None, tool };
    let mut ends = Ends::start(place, case, uploader, start)?;
    for size in [SIZES[0]; WARM_UP].iter().chain(sizes) {
        ends.untimed(*size)?;
    }
    ends.server.take().map_or(Ok(()), Talk::finish)?;
    counted.map(|name| counts.of(name)).collect()
}

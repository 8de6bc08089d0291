//! The instructions of Dunlin's server for an upload, without the kernel's, by valgrind's callgrind.
//! Valgrind's processor has AES-NI and AVX2, but no SHA extensions and no AVX-512, so counts compare only
//! with counts.

use std::ffi::OsString;
use std::fs;

use super::super::caching::inclusive;
use super::case::{Case, ClientKind, SIZES, Stack};
use super::server::COUNTED;
use super::talk::Talk;
use super::{Ends, Foreign, Place, Start, WARM_UP};
use crate::Error;

const PROGRAM: &str = "valgrind";
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
    let directory = tempfile::tempdir().map_err(failed)?;
    let counts = directory.path().join("counts");
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(&counts);
    let options = ["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"].map(OsString::from);
    let counted = COUNTED.iter().take(sizes.len()).map(|(name, _)| *name);
    let toggles = counted.clone().map(|name| format!("--toggle-collect=*{name}").into());
    let options: Vec<_> = options.into_iter().chain(toggles).chain([file]).collect();
    let tool = Some((PROGRAM, &*options, WARM_UP + sizes.len()));
    let start = Start { namespace: &place.pair.server, key_log: None, tool };
    let mut ends = Ends::start(place, case, uploader, start)?;
    for size in [SIZES[0]; WARM_UP].iter().chain(sizes) {
        ends.untimed(*size)?;
    }
    ends.server.take().map_or(Ok(()), Talk::finish)?;
    let counts = fs::read_to_string(counts).map_err(failed)?;
    let of = |name| match inclusive(&counts, name) {
        0 => Err(failed(format_args!("it has not seen {name}: was this program stripped?"))),
        sum => Ok(sum as f64),
    };
    counted.map(of).collect()
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(PROGRAM, why, "install it to have instructions counted: apt-get install valgrind")
}

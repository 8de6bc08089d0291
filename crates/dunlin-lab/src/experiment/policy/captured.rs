//! A capture of one upload of each case, for the paper's figures 5 and 6: the messages of one handshake, and
//! of two.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::apache::Apache;
use super::case::{Aes, Case, SIZES};
use super::{Ends, Foreign, Place, Start};
use crate::Error;
use crate::capture::{Capture, Frame, save_pcap};
use crate::error::failed;
use crate::net::Pair;
use dunlin_command::caller::give_file;

/// The time in which the last frame must pass.
const PATIENCE: Duration = Duration::from_secs(10);
/// The place of the flags in a TCP header (RFC 9293 §3.1), behind headers of Ethernet and of IPv4 without
/// options.
const TCP_FLAGS: usize = 14 + 20 + 13;
/// The flags FIN and RST.
const ENDING: u8 = 0b101;

/// Writes the frames of an upload after a first one to `CASE.pcap`, and the client's keys, if it tells them,
/// to `CASE.keys`. Client and server are in namespaces of their own, joined by Ethernet.
pub(super) fn save(
    directory: &Path,
    place: &Place<'_>,
    case: Case,
    uploader: Option<&Foreign>,
    apaches: &mut BTreeMap<Aes, Apache<'_>>,
) -> Result<(), Error> {
    let keys = tempfile::NamedTempFile::new().map_err(failed)?;
    let start = Start { namespace: &place.pair.client, key_log: Some(keys.path()), tool: None };
    let mut ends = Ends::start(place, case, uploader, start)?;
    ends.once(SIZES[0], apaches)?;
    // Only the keys of the captured upload are of use.
    std::fs::write(keys.path(), []).map_err(failed)?;
    let mut capture = Capture::start(&place.pair.client, Pair::DEVICE)?;
    ends.upload(SIZES[0], apaches)?;
    let connections = if case.strategy.is_redirection() { 2 } else { 1 };
    capture.wait(PATIENCE, |frames| frames.iter().filter(|frame| is_ending(frame)).count() >= connections)?;
    let file = |extension| directory.join(format!("{}.{extension}", case.name()));
    save_pcap(&capture.finish()?, &file("pcap"))?;
    let lines = std::fs::read(keys.path()).map_err(failed)?;
    if lines.is_empty() {
        return Ok(());
    }
    let path = file("keys");
    let failed =
        |error| Error::new(path.display(), error, "name a directory that is there and can be written");
    std::fs::write(&path, lines).map_err(failed)?;
    std::fs::File::open(&path).and_then(|file| give_file(&file)).map_err(failed)
}

fn is_ending(frame: &Frame) -> bool {
    frame.bytes.get(TCP_FLAGS).is_some_and(|flags| flags & ENDING != 0)
}

//! The receiver of an association that continues in another process.

use core::time::Duration;

use super::super::connection_id::OwnIds;
use super::super::epoch::{EpochKey, Kind};
use super::super::freeze::{check_epoch, read_number, write_number};
use super::super::replay::ReplayWindow;
use super::{ReadEpoch, Receiver, Times};
use crate::error::Error;
use crate::flight::reassemble::Reassembler;
use crate::protocol::Protocol;
use crate::settings::ConnectionIds;
use crate::sync::Arc;
use crate::time::Instant;
use crate::wire::{MAX_PLAINTEXT, Reader, Writer};

impl Receiver {
    /// Writes its state for an association that continues elsewhere. Unread data is left behind. The previous
    /// keys are not: the peer may still use them.
    pub(in crate::record::datagram) fn freeze(&self, w: &mut Writer) {
        self.ids.freeze(w);
        let previous = self.epochs.len().checked_sub(2).and_then(|at| self.epochs.get(at));
        w.u8(previous.is_some().into());
        for epoch in previous.into_iter().chain(self.epochs.last()) {
            w.u64(epoch.number);
            epoch.key.freeze(w);
            epoch.window.freeze(w);
            // RFC 9147 §4.5.3: the limit belongs to the key, which goes on.
            w.u64(epoch.forged);
        }
        write_number(w, self.newest);
        w.u16(u16::try_from(self.messages.next_number()).unwrap_or(u16::MAX));
        w.u16(u16::try_from(self.content_limit).unwrap_or(u16::MAX));
    }

    /// Continues with the output of [`Self::freeze`].
    pub(in crate::record::datagram) fn thaw(
        &mut self,
        r: &mut Reader<'_>,
        protocol: Protocol,
        issuer: Option<Arc<dyn ConnectionIds>>,
        kind: Kind,
        (now, silent_before): (Instant, Duration),
    ) -> Result<(), Error> {
        let silent_before = u32::try_from(silent_before.as_secs()).unwrap_or(u32::MAX);
        self.times = Times { now, heard_at: now, silent_before };
        self.protocol = protocol;
        self.ids = OwnIds::thaw(r, issuer)?;
        self.epochs.reserve_exact(1);
        for is_previous in [true, false].into_iter().skip(usize::from(r.u8()? != 1)) {
            let number = r.u64()?;
            let number = if is_previous { number } else { check_epoch(r, protocol, number)? };
            let key = EpochKey::thaw(r, kind)?;
            let window = ReplayWindow::thaw(r)?;
            let forged = r.u64()?;
            self.epochs.push(ReadEpoch { number, key, window, forged, has_asked: false });
        }
        self.newest = read_number(r)?;
        self.messages = Reassembler::continuing(r.u16()?.into());
        self.content_limit = usize::from(r.u16()?).min(MAX_PLAINTEXT);
        self.is_authentic = true;
        Ok(())
    }
}

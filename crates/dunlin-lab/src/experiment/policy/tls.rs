//! TLS for uploads: its questions and its data.

use std::time::Duration;

use dunlin::{Answer, Event, Question};

use super::super::blocking::Tls;
use crate::Error;
use crate::error::failed;

/// Longer than any upload.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Receives bytes, answers the questions that they raise, and gives data to `sink`. Returns false at the end
/// of TCP. `is_refused` becomes true if the client refuses to renegotiate.
pub(super) fn receive(
    tls: &mut Tls,
    is_refused: &mut bool,
    answer: &mut dyn FnMut(&Question) -> Answer,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<bool, Error> {
    tls.receive(|connection| {
        let now = dunlin_tokio::now();
        let mut goes_on = false;
        while let Some(event) = connection.poll_event() {
            goes_on = true;
            match event {
                Event::Question(id, question) => {
                    connection.answer(now, id, answer(&question)).map_err(failed)?;
                }
                Event::RenegotiationRefused => *is_refused = true,
                _ => {}
            }
        }
        let data = connection.received();
        let len = data.len();
        if len > 0 {
            sink(data)?;
            connection.consume(now, len).map_err(failed)?;
        }
        Ok(goes_on || len > 0)
    })
}

/// Sends close_notify.
pub(super) fn close(tls: &mut Tls) -> Result<(), Error> {
    tls.connection.close();
    tls.flush()
}

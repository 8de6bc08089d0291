//! Exchanges data after the handshake.

use dunlin::MessageSize;

use crate::Failure;
use crate::connection::Link;

/// The default size of a read: less than a record, so that records are read in parts.
const READ_SIZE: usize = 512;
/// The default size of a read with DTLS: a whole record, so that the answer is one record, too.
const DTLS_READ_SIZE: usize = 16 * 1024;

/// The default text to write.
const INITIAL_WRITE: &str = "hello";

impl Link<'_> {
    pub(crate) fn export(&mut self) -> Result<(), Failure> {
        let options = self.answers.options;
        if options.export > 0 {
            let mut material = vec![0; options.export];
            let label = options.export_label.as_bytes();
            let context = options.export_context.as_bytes();
            // TLS 1.3 treats a missing context as empty (RFC 8446 §7.5); TLS 1.2 distinguishes the two.
            let context = options.use_export_context.then_some(context);
            self.tls.export(label, context, &mut material)?;
            self.write(&material)?;
        }
        if options.export_traffic_secrets {
            let secrets = &self.answers.setup.secrets;
            let (read, write) = if options.server {
                ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0")
            } else {
                ("SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0")
            };
            let read = secrets.get(read);
            let write = secrets.get(write);
            let len = u16::try_from(read.len()).unwrap_or(0).to_le_bytes();
            self.write(&[&len[..], &read, &write].concat())?;
        }
        if options.tls_unique {
            let binding = self.tls.tls_unique();
            self.write(&binding.ok_or_else(|| Failure::Unexpected("failed to get tls-unique".into()))?)?;
        }
        Ok(())
    }

    /// Writes a client's early data, as much as the session allows.
    pub(crate) fn write_early(&mut self) -> Result<(), Failure> {
        let options = self.answers.options;
        if options.expect.no_early_data_offer {
            return Err(Failure::Unexpected("early data is offered".into()));
        }
        self.export()?;
        if let Some(after) = options.early_write_after {
            let came = |m: &MessageSize| !m.sent && m.typ.0 == after;
            while !self.tls.messages().iter().any(came) {
                self.step()?;
            }
        }
        if !options.shim_writes_first && !options.unfinished_write {
            return Ok(());
        }
        let text = options.initial_write.as_deref().unwrap_or(INITIAL_WRITE).as_bytes();
        let mut unsent = Vec::new();
        self.held = options.unfinished_write;
        for _ in 0..options.repeat_initial_write.unwrap_or(1) {
            let Some(mut early) = self.tls.early_data() else { break };
            let n = early.send(text)?;
            unsent.extend_from_slice(text.get(n..).unwrap_or_default());
            self.flush();
        }
        if self.held {
            // Send one byte; the rest waits until something was received.
            self.tls.flush_byte(&mut self.transport);
        }
        self.unsent = Some(unsent);
        Ok(())
    }

    /// Writes the data that goes out before anything is read.
    pub(crate) fn write_first(&mut self) -> Result<(), Failure> {
        let options = self.answers.options;
        let text = options.initial_write.as_deref().unwrap_or(INITIAL_WRITE);
        if let Some(unsent) = self.unsent.take() {
            self.write(&unsent)?;
        } else if options.unfinished_write {
            // Send one byte of the record; the rest waits until something was read.
            self.held = true;
            self.write(text.as_bytes())?;
            self.tls.flush_byte(&mut self.transport);
        } else if options.shim_writes_first {
            for _ in 0..options.repeat_initial_write.unwrap_or(1) {
                self.write(text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Sends received data back with every bit inverted, until the peer closes.
    pub(crate) fn echo(&mut self) -> Result<(), Failure> {
        let options = self.answers.options;
        loop {
            if options.key_update_before_read {
                self.tls.update_keys(false)?;
                self.flush();
            }
            let default = if options.dtls { DTLS_READ_SIZE } else { READ_SIZE };
            let Some(mut data) = self.read(options.read_size.unwrap_or(default))? else { return Ok(()) };
            self.held = false;
            self.flush();
            if options.key_update {
                self.tls.update_keys(false)?;
            }
            data.iter_mut().for_each(|b| *b ^= 0xff);
            self.write(&data)?;
        }
    }

    /// Closes, and waits for the peer's close if an option says so.
    pub(crate) fn shut_down(&mut self) -> Result<(), Failure> {
        let options = self.answers.options;
        self.tls.close();
        self.flush();
        if options.check_close_notify && options.shim_shuts_down {
            // BoringSSL cannot read data after it has closed, so data is an error here.
            if self.read(READ_SIZE)?.is_some() {
                return Err(Failure::Unexpected(
                    ":APPLICATION_DATA_ON_SHUTDOWN: the peer sent data instead of closing".into(),
                ));
            }
        }
        Ok(())
    }

    fn write(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        while !data.is_empty() {
            let n = match self.tls.early_data() {
                Some(mut early) => early.send(data)?,
                None => self.tls.send(data)?,
            };
            data = data.get(n..).unwrap_or_default();
            self.flush();
        }
        Ok(())
    }

    /// The next data, at most `size` bytes; `None` once the peer has closed.
    fn read(&mut self, size: usize) -> Result<Option<Vec<u8>>, Failure> {
        let now = self.shared.now();
        if self.answers.options.export_between_reads {
            self.tls.export(b"some label", None, &mut [0; 32])?;
        }
        let used = std::mem::take(&mut self.unread);
        match self.tls.early_data() {
            Some(mut early) => early.consume(now, used)?,
            None => self.tls.consume(now, used)?,
        }
        loop {
            if let Some(early) = self.tls.early_data()
                && !early.received().is_empty()
            {
                let data: Vec<u8> = early.received().iter().copied().take(size).collect();
                self.unread = data.len();
                return Ok(Some(data));
            }
            let received = self.tls.received();
            if !received.is_empty() {
                self.unread = received.len().min(size);
                return Ok(Some(received.iter().copied().take(size).collect()));
            }
            if self.tls.peer_has_closed() || self.ended {
                return Ok(None);
            }
            self.step()?;
        }
    }
}

//! Writes an explanation as text, one line for each item.

use std::fmt::{self, Display, Formatter};

use crate::bytes::{Bytes, Layer};
use crate::message::Field;
use crate::model::{
    Carrier, Explanation, Flow, FlowPath, MessageTotal, Packet, Part, Protection, Record, side_name,
};

impl Display for Explanation {
    /// Writes every flow with its packets, records, messages and fields, and the bytes of each.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for flow in &self.flows {
            writeln!(f, "{flow}")?;
        }
        if self.flows.len() != 1 || self.elsewhere.total() > 0 {
            writeln!(f, "Total: {} frames, {} bytes", self.frames, self.bytes.total())?;
            layers(f, &self.bytes)?;
        }
        self.problems.iter().try_for_each(|problem| writeln!(f, "Problem: {problem}"))
    }
}

impl Flow {
    /// The two ends, the client's first; `None` for bytes without packets.
    pub(crate) fn ends(&self) -> Option<String> {
        let carrier = match self.carrier {
            Carrier::Tcp => "TCP",
            Carrier::Udp => "UDP",
            Carrier::Bytes => return None,
        };
        Some(format!("{carrier} {} to {}", self.client?, self.server?))
    }
}

impl Display for Flow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let protocol = self.version.as_deref().or(self.protocol).unwrap_or("neither TLS nor DTLS");
        match self.ends() {
            Some(ends) => write!(f, "{ends}: {protocol}")?,
            None => write!(f, "{protocol}")?,
        }
        if let Some(suite) = &self.cipher_suite {
            write!(f, ", {suite}")?;
        }
        if self.carrier != Carrier::Bytes {
            write!(f, ", {} packets", self.packets.len())?;
        }
        writeln!(f, ", {} bytes", self.bytes.total())?;
        for (index, FlowPath { client, server }) in self.paths.iter().enumerate() {
            writeln!(f, "  path {}: {client} to {server}", index + 1)?;
        }
        if self.protocol.is_none() {
            return Ok(());
        }
        let mut records = self.records.iter().peekable();
        for packet in &self.packets {
            writeln!(f, "{packet}")?;
            while let Some(record) = records.next_if(|record| record.frame <= packet.frame) {
                write!(f, "{record}")?;
            }
        }
        for record in records {
            write!(f, "{record}")?;
        }
        layers(f, &self.bytes)?;
        for total in &self.messages {
            writeln!(f, "{total}")?;
        }
        Ok(())
    }
}

impl Display for Packet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let whole = self.link_bytes + self.ip_bytes + self.transport_bytes + self.payload_bytes;
        let sender = side_name(self.from);
        let time = self.time_us as f64 / 1e3;
        write!(f, "{:>6} {time:>12.3} ms  {sender}  {whole:>6}  = ", format!("#{}", self.frame))?;
        write!(f, "link {} + IP {} + transport {}", self.link_bytes, self.ip_bytes, self.transport_bytes)?;
        write!(f, " + payload {}", self.payload_bytes)?;
        if let Some(path) = self.path {
            write!(f, "  path {path}")?;
        }
        if self.flags.is_empty() { Ok(()) } else { write!(f, "  {}", self.flags) }
    }
}

/// The indentation of records under their packets.
const RECORD: usize = 27;

impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.header_bytes > 0 {
            line(
                f,
                0,
                self.bytes(),
                &format!("record from the {}, {}", side_name(self.from), self.describe()),
            )?;
            line(f, 1, self.header_bytes, "record header")?;
        }
        for part in &self.parts {
            line(f, 1, part.bytes, &part.describe())?;
            part.fields.iter().try_for_each(|field| fields(f, 2, field))?;
        }
        if self.protection_bytes > 0 {
            line(f, 1, self.protection_bytes, "tag and padding")?;
        }
        Ok(())
    }
}

impl Record {
    fn describe(&self) -> String {
        let mut words = vec![self.content_type.clone()];
        words.extend(self.epoch.map(|epoch| format!("epoch {epoch}")));
        words.extend(self.number.map(|number| format!("number {number}")));
        words.extend(self.connection_id.as_ref().map(|id| format!("connection ID {id}")));
        words.push(
            match self.protection {
                Protection::None => "in the clear",
                Protection::Opened => "decrypted",
                Protection::Sealed => "not decrypted",
            }
            .into(),
        );
        words.join(", ")
    }
}

impl Part {
    fn describe(&self) -> String {
        match (self.layer, self.message_bytes) {
            (Layer::Handshake, Some(whole)) if whole > self.bytes => {
                format!("{}: the end of {whole} bytes", self.name)
            }
            (Layer::Handshake, None) if self.handshake_type.is_some() => format!("{}: a piece", self.name),
            _ => self.name.clone(),
        }
    }
}

impl Display for MessageTotal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "  {:>9}  {:<6}  {}", self.bytes, side_name(self.from), self.name)?;
        if self.count == 1 { Ok(()) } else { write!(f, ", {} times", self.count) }
    }
}

fn fields(f: &mut Formatter<'_>, depth: usize, field: &Field) -> fmt::Result {
    match &field.value {
        Some(value) => line(f, depth, field.bytes, &format!("{}: {value}", field.name))?,
        None => line(f, depth, field.bytes, &field.name)?,
    }
    field.fields.iter().try_for_each(|inner| fields(f, depth + 1, inner))
}

fn line(f: &mut Formatter<'_>, depth: usize, bytes: usize, what: &str) -> fmt::Result {
    writeln!(f, "{:RECORD$}{bytes:>7}  {:2$}{what}", "", "", 2 * depth)
}

fn layers(f: &mut Formatter<'_>, bytes: &Bytes) -> fmt::Result {
    for layer in Layer::ALL {
        if bytes.of(layer) > 0 {
            writeln!(f, "  {:>9}  {}", bytes.of(layer), layer.name())?;
        }
    }
    Ok(())
}

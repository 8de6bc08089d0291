//! The output: the state of every device as a table, redrawn in place on a terminal, or a line for each
//! connection.

use std::fmt::Write as _;
use std::io::{self, Write};

use dunlin_command::error::{count, printable};
use dunlin_command::events::{At, Chosen, Connection, Device, Event, Failure, Handshake, Side};

use super::device::{Done, Failed, Outcome, Report};
use super::setup;

const HEADER: [&str; 10] =
    ["device", "way", "identity", "profile", "done", "failed", "first", "last", "saved", "ms"];
/// The number of text columns; the others hold right-aligned figures.
const TEXT_COLUMNS: usize = 4;
/// The column that is cut to what the others leave: a raw key's digest is long.
const IDENTITY: usize = 2;
/// The width of the table, in characters. An error follows its row, and a terminal cuts it.
const WIDTH: usize = 100;
/// The lines below the table.
const LEGEND: &str = "\
done: device and gateway identified each other, and the server behind the gateway answered
first, last: bytes of a handshake, read and written on the device's socket, without later tickets;
moved: to another address since; saved: bytes that resumed and cached handshakes saved in total";

/// The state of the devices.
pub(super) struct Table {
    rows: Vec<Row>,
    /// The clients that connected by hand: their number, and the last identity.
    guests: (u64, String),
}

struct Row {
    name: String,
    way: &'static str,
    done: u64,
    failed: u64,
    first: Option<Box<Done>>,
    last: Option<Box<Done>>,
    /// The bytes that resumed and cached handshakes saved against the first one.
    saved: u64,
    /// The error of the last connection, if it failed.
    error: Option<String>,
}

impl Table {
    /// A table of these devices, without results.
    pub(super) fn new(devices: &[setup::Device]) -> Self {
        let row = |device: &setup::Device| Row {
            name: device.name.clone(),
            way: device.way.name(),
            done: 0,
            failed: 0,
            first: None,
            last: None,
            saved: 0,
            error: None,
        };
        Self { rows: devices.iter().map(row).collect(), guests: Default::default() }
    }

    /// Adds the result of a connection.
    pub(super) fn note(&mut self, report: &Report) {
        let Some(row) = self.rows.get_mut(report.index) else { return };
        match &report.outcome {
            Outcome::Ok(done) => {
                row.done += 1;
                row.error = None;
                let first = row.first.get_or_insert_with(|| done.clone());
                if done.how().is_some() {
                    row.saved += first.handshake_bytes().saturating_sub(done.handshake_bytes());
                }
                row.last = Some(done.clone());
            }
            Outcome::Failed(Failed { side, why, .. }) => {
                row.failed += 1;
                row.error = Some(format!("{} side: {why}", side.name()));
            }
        }
    }

    /// Adds a client that connected by hand.
    pub(super) fn note_guest(&mut self, identity: &str) {
        self.guests = (self.guests.0 + 1, guest_line(identity));
    }

    /// The number of successful and of failed connections.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.rows.iter().fold((0, 0), |(done, failed), row| (done + row.done, failed + row.failed))
    }

    /// Returns the table in at most `most` lines. If there are more devices, failed ones come first, and the
    /// rest is counted.
    pub(super) fn lines(&self, limit: usize) -> Vec<String> {
        // Beside the rows: the header, the legend's three lines, the guests, and the count of omitted
        // devices.
        let room = limit.saturating_sub(6).max(1);
        let mut shown: Vec<_> = self.rows.iter().collect();
        if shown.len() > room {
            shown.sort_by_key(|row| row.error.is_none());
            shown.truncate(room);
        }
        let mut cells: Vec<_> = shown.iter().map(|row| row.cells()).collect();
        let mut widths = HEADER.map(str::len);
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let gaps: usize = (1..HEADER.len()).map(|column| gap(column).len()).sum();
        let others = widths.iter().sum::<usize>() - widths[IDENTITY] + gaps;
        let room = WIDTH.saturating_sub(others).max(HEADER[IDENTITY].len());
        widths[IDENTITY] = widths[IDENTITY].min(room);
        for row in &mut cells {
            row[IDENTITY] = cut(&row[IDENTITY], room);
        }
        let mut lines = vec![aligned(&HEADER.map(str::to_owned), &widths)];
        for (row, cells) in shown.iter().zip(&cells) {
            let mut line = aligned(cells, &widths);
            if let Some(error) = &row.error {
                let _ = write!(line, "  {}", printable(error));
            }
            lines.push(line);
        }
        if shown.len() < self.rows.len() {
            let (done, failed) = self.totals();
            let left_out = self.rows.len() - shown.len();
            lines.push(format!(
                "and {}; {} in all, {failed} failed",
                count(left_out, "more device"),
                count(done, "connection")
            ));
        }
        if let (joined @ 1.., last) = &self.guests {
            lines.push(format!("{last} ({joined} joined)"));
        }
        lines.extend(LEGEND.lines().map(str::to_owned));
        lines
    }
}

impl Row {
    fn cells(&self) -> [String; HEADER.len()] {
        let nothing = || "-".to_owned();
        let bytes = |done: &Done| {
            let Handshake { handshake_bytes_read, handshake_bytes_written, .. } = &done.handshake;
            (handshake_bytes_read + handshake_bytes_written).to_string()
        };
        let last = |done: &Done| {
            let how = done.how().map(|how| format!("{how} ")).unwrap_or_default();
            format!("{how}{}", bytes(done))
        };
        let of = |done: &Option<Box<Done>>, show: &dyn Fn(&Done) -> String| {
            done.as_deref().map_or_else(nothing, show)
        };
        [
            self.name.clone(),
            self.way.to_owned(),
            of(&self.last, &|done| printable(&done.exchange.client_identity)),
            of(&self.last, &|done| done.chosen.profile.clone().unwrap_or_else(nothing)),
            self.done.to_string(),
            self.failed.to_string(),
            of(&self.first, &bytes),
            of(&self.last, &last),
            if self.saved > 0 { self.saved.to_string() } else { nothing() },
            of(&self.last, &|done| milliseconds(done.exchange.handshake_us)),
        ]
    }
}

fn chosen(chosen: &Chosen) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    format!("{}, {}", text(&chosen.profile), text(&chosen.rule))
}

fn milliseconds(us: u64) -> String {
    format!("{}.{}", us / 1000, us / 100 % 10)
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The space before this column.
const fn gap(column: usize) -> &'static str {
    match column {
        0 => "",
        1..TEXT_COLUMNS => "  ",
        _ => " ",
    }
}

fn aligned<const N: usize>(cells: &[String; N], widths: &[usize; N]) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let gap = gap(column);
        let _ = if column < TEXT_COLUMNS {
            write!(line, "{gap}{cell:<width$}")
        } else {
            write!(line, "{gap}{cell:>width$}")
        };
    }
    line.trim_end().to_owned()
}

/// A table that is redrawn in place on a terminal.
#[derive(Default)]
pub(super) struct Live {
    drawn: usize,
}

impl Live {
    /// Draws `table` over its last drawing. The terminal cuts lines that are too wide.
    pub(super) fn draw(&mut self, table: &Table, out: &mut dyn Write) -> io::Result<()> {
        const DEFAULT_HEIGHT: u16 = 24;
        let height = terminal_size::terminal_size().map_or(DEFAULT_HEIGHT, |(_, height)| height.0);
        let lines = table.lines(usize::from(height).saturating_sub(1));
        let mut frame = String::new();
        if self.drawn > 0 {
            let _ = write!(frame, "\x1b[{}A", self.drawn);
        }
        // Erase the lines below. Disable wrapping, so that each line stays one line.
        frame.push_str("\r\x1b[J\x1b[?7l");
        for line in &lines {
            frame.push_str(line);
            frame.push('\n');
        }
        frame.push_str("\x1b[?7h");
        self.drawn = lines.len();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

/// One connection as a line.
pub(super) fn log_line(report: &Report) -> String {
    let Report { device: Device { device, way, speaks, number }, outcome, .. } = report;
    match outcome {
        Outcome::Ok(done) => format!(
            "{device} #{number} {way}, {speaks}: ok, {}{}, {} + {} bytes, {} ms, client {}, gateway {}, {}",
            done.how().unwrap_or("full"),
            done.exchange.moved_to.map_or_else(String::new, |to| format!(" to {to}")),
            done.handshake.handshake_bytes_read,
            done.handshake.handshake_bytes_written,
            milliseconds(done.exchange.handshake_us),
            done.exchange.client_identity,
            done.server_identity(),
            chosen(&done.chosen)
        ),
        Outcome::Failed(Failed { side, why, .. }) => {
            format!(
                "{device} #{number} {way}, {speaks}: failed on the {} side: {}",
                side.name(),
                printable(why)
            )
        }
    }
}

/// A client that connected by hand, as a line.
pub(super) fn guest_line(identity: &str) -> String {
    format!("by hand: joined as {}", printable(identity))
}

/// One connection as a JSON object (docs/json.md).
pub(super) fn json_line(report: Report) -> String {
    let Report { device, server, outcome, .. } = report;
    let device = Some(device);
    let event = match outcome {
        Outcome::Ok(done) => {
            let Done { handshake, exchange, chosen } = *done;
            let at = At::new(Side::Client, server);
            let exchange = Some(exchange);
            let chosen = Some(chosen);
            Event::Connection(Connection { at, device, handshake, exchange, chosen }.into())
        }
        Outcome::Failed(Failed { side, code, why }) => Event::Failure(Failure {
            side,
            address: Some(server),
            device,
            code,
            what: None,
            why,
            advice: None,
        }),
    };
    event.line()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::net::Ipv4Addr;

    use crate::up::setup::Setup;
    use dunlin_command::error::Code;

    use super::*;

    fn failure(index: usize, error: &str) -> Report {
        let outcome = Failed { side: Side::Server, code: Code::FAILED, why: error.into() };
        let device =
            Device { device: format!("device-{}", index + 1), way: "PSK", speaks: "HTTP", number: 1 };
        let server = (Ipv4Addr::LOCALHOST, 4433).into();
        Report { index, device, server, outcome: Outcome::Failed(outcome) }
    }

    #[test]
    fn errors_stand_in_the_row_of_their_device() {
        let mut table = Table::new(&Setup::new(Some(3), false).unwrap().devices);
        table.note(&failure(1, "no\x1b[2J"));
        let lines = table.lines(usize::MAX);
        assert!(
            lines[2].starts_with("camera-2") && lines[2].ends_with("  server side: no\\u{1b}[2J"),
            "{lines:?}"
        );
        assert_eq!(table.totals(), (0, 1));
        assert_eq!(lines.iter().filter(|line| line.contains("server side")).count(), 1);
    }

    #[test]
    fn table_lists_failures_first_and_counts_hidden_devices() {
        let mut table = Table::new(&Setup::new(Some(40), true).unwrap().devices);
        table.note(&failure(39, "bad"));
        table.note_guest("PSK x\ny");
        let lines = table.lines(11);
        assert_eq!(lines.len(), 11, "{lines:?}");
        assert!(lines[1].starts_with("truck-40 ") && lines[2].starts_with("sensor-1 "), "{lines:?}");
        assert_eq!(lines[6], "and 35 more devices; 0 connections in all, 1 failed");
        assert_eq!(lines[7], "by hand: joined as PSK x\\ny (1 joined)");
        assert_eq!(table.lines(usize::MAX).len(), 1 + 40 + 1 + 3);
    }

    #[test]
    fn drawing_replaces_the_previous_one() {
        let table = Table::new(&Setup::new(Some(1), false).unwrap().devices);
        let mut live = Live::default();
        let mut draw = || {
            let mut out = vec![];
            live.draw(&table, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first = draw();
        let second = draw();
        assert_eq!(second, format!("\x1b[{}A{first}", first.matches('\n').count()));
    }
}

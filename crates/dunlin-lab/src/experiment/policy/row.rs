//! The figures of all uploads, and the rows that they give.

use std::collections::BTreeMap;

use super::Upload;
use super::case::{Case, LowKey, Stack, Strategy};
use super::model::{self, Line};
use crate::report::{Row, median_of};

/// The power of a busy core in watts, for the estimate of energy: the thermal design power of the paper's
/// processor, the Intel Core i7-6700, is 65 W for four cores (Intel's specifications of the processor).
const WATTS: f64 = 65.0 / 4.0;

/// The costs of all uploads.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) uploads: BTreeMap<(usize, Case), Vec<Upload>>,
    /// The instructions of the server.
    instructions: BTreeMap<(usize, Case), f64>,
}

impl Figures {
    /// Keeps the server's instructions for uploads of these sizes.
    pub(super) fn count(&mut self, case: Case, sizes: &[usize], counts: &[f64]) {
        self.instructions.extend(sizes.iter().zip(counts).map(|(size, count)| ((*size, case), *count)));
    }

    /// The rows of all sizes and cases.
    pub(super) fn rows(&self, sizes: &[usize], cases: &[Case]) -> Vec<Row> {
        sizes.iter().flat_map(|size| cases.iter().map(|case| self.row(sizes, *size, *case))).collect()
    }

    fn row(&self, sizes: &[usize], size: usize, case: Case) -> Row {
        let all = |figure| self.all(size, case, figure);
        let signatures = self.uploads.get(&(size, case)).into_iter().flatten();
        let signatures: Vec<_> = signatures.filter_map(|upload| upload.signatures).collect();
        let row = case
            .row(size)
            .figure("server_us", &all(|upload| upload.server_us))
            .paper("server_us", case.paper_us(size))
            .figure("server_cpu_us", &all(|upload| upload.server_cpu_us))
            .figure("client_us", &all(|upload| upload.client_us))
            .figure("signatures", &signatures)
            .figure("server_instructions", self.instructions.get(&(size, case)).copied().as_slice())
            // Microseconds times watts are microjoules.
            .figure("server_energy_mj", &all(|upload| upload.server_cpu_us * WATTS / 1e3));
        let cpu = |size: usize, case| self.median(size, case, |upload| upload.server_cpu_us);
        let row = match line(sizes, case, cpu) {
            Some(line) => {
                let model = line.at(size as f64);
                let error = (model / cpu(size, case) - 1.0) * 100.0;
                row.figure("server_cpu_model_us", &[model]).figure("model_error_percent", &[error])
            }
            None => row,
        };
        match case.strategy {
            Strategy::None => row,
            _ => self.with_overhead(self.reduced(row, case, size), case, size),
        }
    }

    fn all(&self, size: usize, case: Case, figure: fn(&Upload) -> f64) -> Vec<f64> {
        self.uploads.get(&(size, case)).into_iter().flatten().map(figure).collect()
    }

    /// Zero for a case that was not measured.
    fn median(&self, size: usize, case: Case, figure: fn(&Upload) -> f64) -> f64 {
        median_of(&self.all(size, case, figure))
    }

    /// Adds by how much the case costs less than the highest scheme, of the medians.
    fn reduced(&self, row: Row, case: Case, size: usize) -> Row {
        let percent = |figure| {
            let of = |case| self.median(size, case, figure);
            (1.0 - of(case) / of(case.reference())) * 100.0
        };
        let papers = case.paper_us(size).zip(case.reference().paper_us(size));
        row.figure("reduction_percent", &[percent(|upload| upload.server_us)])
            .paper("reduction_percent", papers.map(|(us, reference)| (1.0 - us / reference) * 100.0))
            .figure("cpu_reduction_percent", &[percent(|upload| upload.server_cpu_us)])
    }

    /// Adds what a second handshake adds, divided by the time with it, as in the paper's "about 50 %", and by
    /// the time without it, as in its "16.7 %".
    fn with_overhead(&self, row: Row, case: Case, size: usize) -> Row {
        let Some(free) = case.without_overhead() else { return row };
        let us = |case| self.median(size, case, |upload| upload.server_us);
        if us(free) <= 0.0 {
            return row;
        }
        let paper = case.paper_us(size).zip(free.paper_us(size));
        let share = |(forced, free): (f64, f64)| [(forced - free) / forced, (forced - free) / free];
        let names = ["overhead_of_forced_percent", "overhead_of_free_percent"];
        names.into_iter().enumerate().fold(row, |row, (at, name)| {
            let percent = |times| share(times)[at] * 100.0;
            row.figure(name, &[percent((us(case), us(free)))]).paper(name, paper.map(percent))
        })
    }
}

/// The paper's model of a case: equation (1) fitted to its medians, or for renegotiations equation (2) with
/// the fits of the others.
fn line(sizes: &[usize], case: Case, cpu: impl Fn(usize, Case) -> f64) -> Option<Line> {
    let of = |strategy, low| {
        let case = Case { strategy, low, ..case };
        let points: Vec<_> = sizes.iter().map(|size| (*size as f64, cpu(*size, case))).collect();
        Line::through(&points).filter(|_| points.iter().all(|(_, us)| *us > 0.0))
    };
    if !case.strategy.is_renegotiation() {
        return of(case.strategy, case.low);
    }
    let first = match case.strategy {
        Strategy::RenegotiationLowest => of(Strategy::Lowest, case.low)?,
        _ => of(Strategy::None, LowKey::Rsa2048)?,
    };
    let resumed = of(Strategy::Ticket, LowKey::Rsa2048)?;
    let last = match case.strategy {
        Strategy::Renegotiation => of(Strategy::Lowest, case.low)?,
        _ => first,
    };
    // Apache shows the same certificate again.
    let second = if case.stack == Stack::Apache { first } else { last };
    Some(model::renegotiated(first, second, resumed, last))
}

#[cfg(test)]
mod tests {
    use super::super::case::{Aes, ClientKind};
    use super::*;

    #[test]
    fn the_papers_overheads_have_two_divisors() {
        let stack = Stack::Dunlin;
        let client = ClientKind::OpenSsl;
        let low = LowKey::Rsa2048;
        let case = |strategy, aes| Case { stack, strategy, client, aes, low };
        let mut figures = Figures::default();
        for strategy in [
            Strategy::None,
            Strategy::Lowest,
            Strategy::Renegotiation,
            Strategy::RenegotiationHighest,
            Strategy::RenegotiationLowest,
        ] {
            for size in [10 << 10, 10 << 20] {
                for aes in [Aes::Hardware, Aes::Software] {
                    let server_us = if strategy.is_renegotiation() { 30.0 } else { 20.0 };
                    let upload = Upload { server_us, server_cpu_us: 8.0, ..Upload::default() };
                    figures.uploads.entry((size, case(strategy, aes))).or_default().push(upload);
                }
            }
        }
        let percent = |strategy, aes, size, name: &str| {
            let row = figures.row(&[10 << 10, 10 << 20], size, case(strategy, aes));
            row.get(name).and_then(serde_json::Value::as_f64).unwrap()
        };
        let forced = percent(
            Strategy::RenegotiationLowest,
            Aes::Hardware,
            10 << 10,
            "paper_overhead_of_forced_percent",
        );
        assert!((forced - 51.5).abs() < 0.1, "\"about 50 %\" for 10 KB: {forced}");
        let free = percent(
            Strategy::RenegotiationHighest,
            Aes::Hardware,
            10 << 20,
            "paper_overhead_of_free_percent",
        );
        assert!((free - 16.7).abs() < 0.05, "\"16.7 %\" for 10 MB: {free}");
        let ours = ["overhead_of_forced_percent", "overhead_of_free_percent"]
            .map(|name| percent(Strategy::Renegotiation, Aes::Software, 10 << 10, name));
        assert_eq!(ours.map(|percent| percent.round() as i32), [33, 50]);
        let row = figures.row(&[10 << 10], 10 << 10, case(Strategy::Renegotiation, Aes::Hardware));
        assert_eq!(
            row.get("paper_server_us"),
            None,
            "the paper has no renegotiation from the highest scheme"
        );
        let row = figures.row(&[10 << 10], 10 << 10, case(Strategy::None, Aes::Hardware));
        assert_eq!(row.get("server_energy_mj"), Some(&serde_json::json!(0.13)), "8 µs at 16.25 W");
    }
}

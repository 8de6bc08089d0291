//! Prints medians, and ratios of values of the same round.

use crate::stack::Competitor;

const COMPETITORS: usize = Competitor::ALL.len();

/// Prints the head of a table with this unit.
pub(crate) fn heading(unit: &str, what: &str) {
    print!("\n| {unit} |");
    Competitor::ALL.iter().for_each(|competitor| print!(" {} |", competitor.name()));
    Competitor::ALL[1..].iter().for_each(|other| print!(" {what}, dunlin / {} |", other.name()));
    println!("\n| --- |{}", " ---: |".repeat(2 * COMPETITORS - 1));
}

/// The values of both sides, one column for each competitor; `None` if it does not support the handshake.
#[derive(Default)]
pub(crate) struct Rounds(Vec<[Option<[f64; 2]>; COMPETITORS]>);

impl Rounds {
    /// Every competitor takes a turn. A different one begins in each round.
    pub(crate) fn play(&mut self, round: usize, mut measure: impl FnMut(usize) -> Option<[f64; 2]>) {
        let mut row = [None; COMPETITORS];
        for turn in 0..COMPETITORS {
            let competitor = (round + turn) % COMPETITORS;
            row[competitor] = measure(competitor);
        }
        self.0.push(row);
    }

    /// Prints a line for each side: the medians, then the medians of the ratios. With more than one round,
    /// the ratios have quartiles.
    pub(crate) fn print(&self, what: &str, sides: &[&str; 2]) {
        for (at, side) in sides.iter().enumerate() {
            self.line(&format!("{what}, {side}"), |measured| measured[at]);
        }
    }

    /// Prints a line for the sum of both sides.
    pub(crate) fn print_sum(&self, what: &str) {
        self.line(what, |measured| measured.iter().sum());
    }

    fn line(&self, what: &str, value: impl Fn(&[f64; 2]) -> f64) {
        print!("| {what} |");
        for competitor in 0..COMPETITORS {
            match quartiles(self.0.iter().filter_map(|row| row[competitor].as_ref().map(&value))) {
                Some((median, _, _)) => print!(" {median:.*} |", if median < 100.0 { 2 } else { 0 }),
                None => print!(" – |"),
            }
        }
        for other in 1..COMPETITORS {
            let ratio = |row: &[Option<[f64; 2]>; COMPETITORS]| {
                Some(value(row[0].as_ref()?) / value(row[other].as_ref()?))
            };
            match quartiles(self.0.iter().filter_map(ratio)) {
                Some((median, _, _)) if self.0.len() == 1 => print!(" {median:.3} |"),
                Some((median, low, high)) => print!(" {median:.3} ({low:.3}–{high:.3}) |"),
                None => print!(" – |"),
            }
        }
        println!();
    }
}

/// Median, first and third quartile; `None` without values.
fn quartiles(values: impl Iterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values.get(values.len().checked_sub(1)? * quarter / 4).copied();
    Some((at(2)?, at(1)?, at(3)?))
}

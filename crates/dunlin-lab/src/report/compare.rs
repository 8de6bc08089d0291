//! Compares Dunlin's rows with the rivals' of the same run and with the paper.

use std::collections::HashMap;

use super::{PAPER, Row, names, shown};

/// The parameter that names the implementation.
pub(super) const STACK: &str = "stack";
/// The value for Dunlin.
pub(super) const OURS: &str = "dunlin";

/// Returns whether the row is about Dunlin; rows without a stack are.
pub(super) fn is_ours(row: &Row) -> bool {
    row.get(STACK).is_none_or(|stack| stack == OURS)
}

/// The result of comparing a figure with all references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Better than the paper and every rival.
    Better,
    /// Worse than one reference.
    Worse,
}

/// The references of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct References {
    /// The best value of the rivals in the same run.
    pub(super) rival: Option<f64>,
    /// The paper's value, unless its machine decides about it.
    pub(super) paper: Option<f64>,
}

/// The sign of better figures: bytes and times are to be small, rates large. A percentage can be either and has
/// none.
fn goal(name: &str) -> Option<f64> {
    match name {
        _ if name.ends_with("_percent") => None,
        _ if name.ends_with("_per_s") => Some(1.0),
        _ => Some(-1.0),
    }
}

/// Whether the machine decides about the figure: a time, a rate or an energy. The paper measured on another
/// one, so its figure is shown, but neither better nor worse.
fn is_of_machine(name: &str) -> bool {
    matches!(names::words(name).1, "per s" | "kbit/s" | "mJ" | "µs" | "ms" | "s")
}

/// The rivals' rows, by the parameters that they share with Dunlin's.
pub(super) struct Rivals<'a>(HashMap<String, Vec<&'a Row>>);

impl<'a> Rivals<'a> {
    pub(super) fn new(rows: &'a [Row]) -> Self {
        let mut rivals: HashMap<_, Vec<_>> = HashMap::new();
        for row in rows.iter().filter(|row| !is_ours(row)) {
            rivals.entry(case(row)).or_default().push(row);
        }
        Self(rivals)
    }

    /// Returns the rivals' best value for the figure of Dunlin's `row`.
    fn best(&self, row: &Row, figure: &str) -> Option<f64> {
        let goal = goal(figure)?;
        let rivals = self.0.get(&case(row))?.iter();
        rivals.filter_map(|rival| rival.number(figure)).max_by(|a, b| (goal * a).total_cmp(&(goal * b)))
    }

    /// Returns the ratio of Dunlin's figure to the best rival's.
    pub(super) fn ratio(&self, row: &Row, figure: &str) -> Option<f64> {
        let best = self.best(row, figure).filter(|best| *best != 0.0 && is_ours(row))?;
        Some(row.number(figure)? / best)
    }

    /// The references of the figure of `row`, if the row is Dunlin's.
    pub(super) fn references(&self, row: &Row, figure: &str) -> References {
        if !is_ours(row) || goal(figure).is_none() {
            return References::default();
        }
        let paper = row.number(&format!("{PAPER}{figure}")).filter(|_| !is_of_machine(figure));
        References { rival: self.best(row, figure), paper }
    }

    /// Compares the figure of `row`, if the row is Dunlin's and has a reference.
    pub(super) fn verdict(&self, row: &Row, figure: &str) -> Option<Verdict> {
        let goal = goal(figure)?;
        let value = row.number(figure)?;
        let References { rival, paper } = self.references(row, figure);
        let others: Vec<_> = [rival, paper].into_iter().flatten().map(|other| goal * other).collect();
        if others.iter().any(|other| *other > goal * value) {
            Some(Verdict::Worse)
        } else if !others.is_empty() && others.iter().all(|other| *other < goal * value) {
            Some(Verdict::Better)
        } else {
            None
        }
    }
}

/// The parameters of a row except its stack, as one text.
fn case(row: &Row) -> String {
    let parameters = row.parameters().filter(|(name, _)| *name != STACK);
    // No name contains the separator, so only cases with equal values are equal.
    parameters.map(|(name, value)| format!("{name}\u{1f}{}\u{1f}", shown(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stack: &str, mtu: u32, total: f64) -> Row {
        Row::new().with(STACK, stack).with("mtu", mtu).figure("total_bytes", &[total])
    }

    #[test]
    fn compares_with_the_best_rival_of_the_same_case() {
        let ours = row("dunlin", 127, 50.0);
        let rows =
            [ours.clone(), row("openssl", 127, 100.0), row("wolfssl", 127, 80.0), row("wolfssl", 1500, 10.0)];
        let rivals = Rivals::new(&rows);
        assert_eq!(rivals.ratio(&ours, "total_bytes"), Some(0.625));
        assert_eq!(rivals.verdict(&ours, "total_bytes"), Some(Verdict::Better));
        assert_eq!(rivals.verdict(&row("dunlin", 127, 80.0), "total_bytes"), None, "as good as the best");
        assert_eq!(rivals.verdict(&row("dunlin", 127, 81.0), "total_bytes"), Some(Verdict::Worse));
        assert_eq!(
            rivals.verdict(&row("dunlin", 576, 81.0), "total_bytes"),
            None,
            "there is no rival to compare with"
        );
        assert_eq!(
            (rivals.ratio(&rows[1], "total_bytes"), rivals.verdict(&rows[1], "total_bytes")),
            (None, None)
        );
    }

    #[test]
    fn compares_with_the_paper() {
        let rows = [row("openssl", 127, 100.0)];
        let rivals = Rivals::new(&rows);
        let ours = row("dunlin", 127, 90.0);
        assert_eq!(
            rivals.verdict(&ours.clone().paper("total_bytes", 91.0), "total_bytes"),
            Some(Verdict::Better)
        );
        assert_eq!(rivals.verdict(&ours.clone().paper("total_bytes", 90.0), "total_bytes"), None);
        assert_eq!(rivals.verdict(&ours.paper("total_bytes", 89.0), "total_bytes"), Some(Verdict::Worse));
    }

    #[test]
    fn times_on_the_papers_machine_are_no_reference() {
        let rivals = Rivals::new(&[]);
        for name in ["server_us", "verify_ms", "sealed_per_s", "server_mj"] {
            for value in [0.5, 2.0] {
                let row = Row::new().figure(name, &[value]).paper(name, 1.0);
                assert_eq!(rivals.verdict(&row, name), None, "{name} {value}");
            }
        }
    }

    #[test]
    fn prefers_greater_throughput() {
        let fast = Row::new().with(STACK, OURS).figure("sealed_per_s", &[2.0]);
        let slow = [Row::new().with(STACK, "openssl").figure("sealed_per_s", &[1.0])];
        let rivals = Rivals::new(&slow);
        assert_eq!(rivals.verdict(&fast, "sealed_per_s"), Some(Verdict::Better));
        let saved = Row::new().figure("saved_percent", &[2.0]).paper("saved_percent", 1.0);
        assert_eq!(rivals.verdict(&saved, "saved_percent"), None);
    }
}

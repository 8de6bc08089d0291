//! The paper's model: T(m) = o + Ta + Ts(m) for one handshake, its equation (1), and T(m) = o + 2 Ta + Ts(m)
//! for two, its equation (2).

/// A straight line: the time without data, in µs, and the time of a byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// o + Ta.
    pub(super) fixed_us: f64,
    /// Ts for one byte.
    pub(super) us_per_byte: f64,
}

impl Line {
    /// The line with the least squares of relative errors through points of size and time. `None` for fewer
    /// than two sizes.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let sum = |term: fn(f64, f64) -> f64| {
            points.iter().map(|(bytes, us)| term(*bytes, *us) / (us * us)).sum::<f64>()
        };
        let weights = sum(|_, _| 1.0);
        let x = sum(|x, _| x);
        let y = sum(|_, y| y);
        let xx = sum(|x, _| x * x);
        let xy = sum(|x, y| x * y);
        let scale = weights * xx - x * x;
        (points.len() > 1 && scale > 0.0).then(|| {
            let us_per_byte = (weights * xy - x * y) / scale;
            Self { fixed_us: (y - us_per_byte * x) / weights, us_per_byte }
        })
    }

    /// The time for this size.
    pub(super) fn at(&self, bytes: f64) -> f64 {
        self.fixed_us + self.us_per_byte * bytes
    }
}

/// Equation (2), for handshakes of different schemes: a handshake costs what a resumption, which has no
/// asymmetric operation but a key exchange at most, does not. `first` and `second` have the schemes of the
/// two handshakes, `last` that of the data.
pub(super) const fn renegotiated(first: Line, second: Line, resumed: Line, last: Line) -> Line {
    let fixed_us = first.fixed_us + second.fixed_us - resumed.fixed_us;
    Line { fixed_us, us_per_byte: last.us_per_byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        let line = Line::through(&[(10.0, 120.0), (100.0, 300.0), (1000.0, 2100.0)]).unwrap();
        assert!((line.fixed_us - 100.0).abs() < 1e-6 && (line.us_per_byte - 2.0).abs() < 1e-9, "{line:?}");
        assert!(Line::through(&[(10.0, 120.0)]).is_none());
    }

    #[test]
    fn a_renegotiation_costs_both_handshakes_but_only_one_rest() {
        let line = |fixed_us, us_per_byte| Line { fixed_us, us_per_byte };
        let both = renegotiated(line(5000.0, 3.0), line(800.0, 2.0), line(300.0, 2.0), line(800.0, 2.0));
        assert_eq!((both.fixed_us, both.at(10.0)), (5500.0, 5520.0));
    }
}

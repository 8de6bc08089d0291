//! Rows as text for a terminal.

use std::fmt::{self, Formatter};

use super::{Kind, Row, columns, common, shown};

/// The maximum width of a single table in characters, for a terminal and a page.
const MAX_WIDTH: usize = 120;

/// The heading of the row numbers in a table of several parts.
const NUMBER: &str = "#";

/// A column: the lines of its heading, and its cells.
#[derive(Clone)]
struct Column {
    name: Vec<String>,
    cells: Vec<String>,
    kind: Kind,
}

impl Column {
    fn width(&self) -> usize {
        self.name.iter().chain(&self.cells).map(|text| text.chars().count()).max().unwrap_or_default()
    }

    /// The same column with one word of its heading on each line.
    fn narrow(self) -> Self {
        Self { name: self.name.join("_").split('_').map(str::to_owned).collect(), ..self }
    }
}

/// Writes all rows as a table, with parameters to the left and figures to the right. A table that is too wide
/// is split into one for each kind of row. Each states common values once, and is split into parts if it is
/// still too wide.
pub(super) fn write(rows: &[Row], f: &mut Formatter<'_>) -> fmt::Result {
    let all = columns_of(rows);
    if width(&all) <= MAX_WIDTH {
        return write_part(&all, f);
    }
    let first_figure = |row: &Row| row.0.iter().find(|e| e.kind == Kind::Figure).map(|e| e.name.clone());
    for (i, rows) in rows.chunk_by(|a, b| first_figure(a) == first_figure(b)).enumerate() {
        if i > 0 {
            writeln!(f)?;
        }
        write_narrow(rows, f)?;
    }
    Ok(())
}

fn write_narrow(rows: &[Row], f: &mut Formatter<'_>) -> fmt::Result {
    let shared = common(rows);
    let common: Vec<_> = shared.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
    let mut columns = columns_of(rows);
    columns.retain(|column| !shared.iter().any(|(name, _)| column.name == [*name]));
    if !common.is_empty() {
        writeln!(f, "{}", common.join(", "))?;
    }
    for (i, part) in parts(columns.into_iter().map(Column::narrow).collect()).iter().enumerate() {
        if i > 0 {
            writeln!(f)?;
        }
        write_part(part, f)?;
    }
    Ok(())
}

/// Distributes the columns to parts that are narrow enough. Rows have numbers if there are several parts.
fn parts(columns: Vec<Column>) -> Vec<Vec<Column>> {
    if width(&columns) <= MAX_WIDTH {
        return vec![columns];
    }
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let cells = (1..=rows).map(|number| number.to_string()).collect();
    let numbers = Column { name: vec![NUMBER.to_owned()], cells, kind: Kind::Figure };
    let mut parts = vec![];
    let mut part = vec![numbers.clone()];
    for column in columns {
        part.push(column);
        if width(&part) > MAX_WIDTH && part.len() > 2 {
            let next = part.split_off(part.len() - 1);
            parts.push(std::mem::replace(&mut part, vec![numbers.clone()]));
            part.extend(next);
        }
    }
    parts.push(part);
    parts
}

fn columns_of(rows: &[Row]) -> Vec<Column> {
    let column = |(name, kind): (&str, Kind)| Column {
        name: vec![name.to_owned()],
        cells: rows.iter().map(|row| row.get(name).map(shown).unwrap_or_default()).collect(),
        kind,
    };
    columns(rows).into_iter().map(column).collect()
}

/// The separator of columns.
const GAP: &str = "  ";

fn width(columns: &[Column]) -> usize {
    columns.iter().map(Column::width).sum::<usize>() + GAP.len() * columns.len().saturating_sub(1)
}

fn write_part(columns: &[Column], f: &mut Formatter<'_>) -> fmt::Result {
    let height = columns.iter().map(|column| column.name.len()).max().unwrap_or_default();
    let rows = columns.first().map_or(0, |column| column.cells.len());
    // Headings are aligned to the bottom.
    let name = |column: &Column, line: usize| {
        let line = (line + column.name.len()).checked_sub(height);
        line.and_then(|line| column.name.get(line)).cloned().unwrap_or_default()
    };
    for line in 0..height {
        write_line(columns, |column| name(column, line), f)?;
    }
    for row in 0..rows {
        write_line(columns, |column| column.cells.get(row).cloned().unwrap_or_default(), f)?;
    }
    Ok(())
}

fn write_line(columns: &[Column], cell: impl Fn(&Column) -> String, f: &mut Formatter<'_>) -> fmt::Result {
    let aligned = columns.iter().map(|column| {
        let cell = cell(column);
        let width = column.width();
        match column.kind {
            Kind::Parameter => format!("{cell:<width$}"),
            Kind::Figure | Kind::Detail => format!("{cell:>width$}"),
        }
    });
    writeln!(f, "{}", aligned.collect::<Vec<_>>().join(GAP).trim_end())
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::*;

    fn text(rows: Vec<Row>) -> String {
        Report::new("caching", String::new(), 1, 1, rows).to_string()
    }

    #[test]
    fn wide_table_states_common_values_once() {
        let row = |mtu: u32| {
            let row = Row::new().with("way", "real").with("mtu", mtu).with("cipher", "x".repeat(60));
            let row = row.figure("client_common_us", &[1.5]).figure("server_common_us", &[2.5]);
            row.figure("client_signature_us", &[3.5]).paper("client_common_us", 4.0)
        };
        let expected = format!(
            "way real, cipher {}\n\
            \u{20}                                 paper\n\
            \u{20}     client  server     client  client\n\
            \u{20}     common  common  signature  common\n\
            mtu       us      us         us      us\n\
            127    1.500   2.500      3.500       4\n\
            1500   1.500   2.500      3.500       4\n",
            "x".repeat(60)
        );
        assert_eq!(text(vec![row(127), row(1500)]), expected);
    }

    #[test]
    fn each_kind_of_row_has_a_separate_table() {
        let wide = |name: &str| Row::new().with(&"p".repeat(50), 1).figure(name, &[1.0]);
        let a = "a".repeat(50);
        let b = "b".repeat(50);
        let told = text(vec![wide(&a), wide(&b)]);
        assert_eq!(told.matches("\n\n").count(), 1, "{told}");
        assert!(told.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{told}");
    }

    /// Every cell is present, and row numbers connect the parts.
    #[test]
    fn splits_a_very_wide_table_into_parts() {
        let row = |stack: &str, first: i64| {
            (0..20).fold(Row::new().with("stack", stack), |row, i| {
                row.figure(&format!("figure{i:02}"), &[(first + i) as f64])
            })
        };
        let told = text(vec![row("a", 100), row("b", 200)]);
        assert!(told.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{told}");
        let of = |number: &str| -> Vec<_> {
            let lines = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines
                .filter(|words| words.first() == Some(&number))
                .flat_map(|words| words[1..].to_vec())
                .collect()
        };
        let expected = |stack: &str, first: i64| {
            let figures = (first..first + 20).map(|figure| figure.to_string());
            [stack.to_owned()].into_iter().chain(figures).collect::<Vec<_>>()
        };
        assert_eq!(of("1"), expected("a", 100));
        assert_eq!(of("2"), expected("b", 200));
        assert_eq!(told.matches('#').count(), 2, "{told}");
    }
}

//! Reports as one self-contained page.

use std::fmt::{self, Display, Write as _};

use serde_json::Value;

use super::compare::{Rivals, Verdict, is_ours};
use super::{Kind, PAPER, Report, Row, columns, concise, names, plot};
use crate::experiment::{self, Experiment};

/// The style of the page, light and dark.
const STYLE: &str = include_str!("page.css");

/// A page of HTML about `reports`, with a section for each: its subject, its plots, its rows as a table, and the command that
/// repeats it. The page has no script and fetches nothing, so it can be read from a file, mailed and archived.
pub fn page(reports: &[Report]) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, reports);
    page
}

fn write_page(out: &mut String, reports: &[Report]) -> fmt::Result {
    out.write_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
    // A second defence after the escaping: the browser fetches and runs nothing, whatever a file contains.
    out.write_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    )?;
    out.write_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")?;
    writeln!(out, "<title>Dunlin: what was measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>")?;
    writeln!(out, "<header>\n<h1>Dunlin: what was measured</h1>")?;
    if reports.len() > 1 {
        out.write_str("<nav>")?;
        for (number, report) in reports.iter().enumerate() {
            write!(out, "<a href=\"#r{number}\">{}</a> ", Escaped(&report.experiment))?;
        }
        out.write_str("</nav>\n")?;
    }
    out.write_str("</header>\n<main>\n")?;
    for (number, report) in reports.iter().enumerate() {
        section(out, number, report)?;
    }
    out.write_str("</main>\n</body>\n</html>\n")
}

fn section(out: &mut String, number: usize, report: &Report) -> fmt::Result {
    let name = Escaped(&report.experiment);
    writeln!(out, "<section id=\"r{number}\">\n<h2>{name}</h2>")?;
    if let Ok(known) = experiment::find(&report.experiment) {
        writeln!(out, "<p class=\"about\">{}</p>", Escaped(known.about()))?;
        explanation(out, known)?;
    }
    plot::write(out, report)?;
    table(out, report)?;
    origin(out, report)?;
    out.write_str("</section>\n")
}

/// The paper that the experiment repeats, and the terms of its rows.
fn explanation(out: &mut String, experiment: &dyn Experiment) -> fmt::Result {
    if let Some(paper) = experiment.paper() {
        writeln!(out, "<p class=\"note\">The paper: {}</p>", Escaped(paper))?;
    }
    if experiment.terms().is_empty() {
        return Ok(());
    }
    out.write_str("<dl class=\"terms\">\n")?;
    for (term, meaning) in experiment.terms() {
        writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", Escaped(term), Escaped(meaning))?;
    }
    out.write_str("</dl>\n")
}

/// The command that repeats the experiment, and the machine it ran on.
fn origin(out: &mut String, report: &Report) -> fmt::Result {
    let Report { version, machine, command, seed, runs, .. } = report;
    let threads =
        if machine.cores == 1 { "1 thread".to_owned() } else { format!("{} threads", machine.cores) };
    let machine = [&machine.processor, &threads, &machine.system, &machine.kernel];
    let machine: Vec<_> = machine.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
    let lines: [(&str, &dyn Display); 4] =
        [("machine", &machine.join(", ")), ("version", version), ("seed", seed), ("runs", runs)];
    writeln!(out, "<dl>\n<div><dt>repeat</dt><dd><code>{}</code></dd></div>", Escaped(command))?;
    for (name, value) in lines {
        writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value.to_string()))?;
    }
    out.write_str("</dl>\n")
}

/// A column of the table.
enum Column<'a> {
    Parameter(&'a str),
    Figure(&'a str),
    /// Ours over the best rival's.
    Ratio(&'a str),
    /// By the whole name, `paper_` before it.
    Paper(&'a str),
}

/// The columns: what is the same in all rows is left out, the paper stands behind ours, and the ratio behind the first
/// figure in which there are rivals.
fn arranged<'a>(rows: &'a [Row], common: &[(&str, &Value)], rivals: &Rivals<'_>) -> Vec<Column<'a>> {
    let all = columns(rows);
    let of_kind = |wanted| all.iter().filter(move |(_, kind)| *kind == wanted).map(|(name, _)| *name);
    let is_common = |name: &str| common.iter().any(|(other, _)| *other == name);
    let parameters = of_kind(Kind::Parameter).filter(|name| !is_common(name));
    let mut arranged: Vec<_> = parameters.map(Column::Parameter).collect();
    let papers: Vec<_> = of_kind(Kind::Figure).filter(|name| name.starts_with(PAPER)).collect();
    let figures: Vec<_> = of_kind(Kind::Figure).filter(|name| !name.starts_with(PAPER)).collect();
    let has_rivals = |figure: &&&str| rows.iter().any(|row| rivals.ratio(row, figure).is_some());
    let with_ratio = figures.iter().find(has_rivals);
    let paper_of = |paper: &str, figure: &str| paper.strip_prefix(PAPER) == Some(figure);
    for figure in &figures {
        arranged.push(Column::Figure(figure));
        arranged.extend(with_ratio.filter(|name| *name == figure).map(|name| Column::Ratio(name)));
        arranged
            .extend(papers.iter().filter(|paper| paper_of(paper, figure)).map(|paper| Column::Paper(paper)));
    }
    let alone = papers.iter().filter(|paper| !figures.iter().any(|figure| paper_of(paper, figure)));
    arranged.extend(alone.map(|paper| Column::Paper(paper)));
    arranged
}

/// The parameters that all of several rows share.
fn common(rows: &[Row]) -> Vec<(&str, &Value)> {
    let [first, others @ ..] = rows else { return Vec::new() };
    let shared = |(name, value): &(&str, &Value)| others.iter().all(|row| row.get(name) == Some(value));
    if others.is_empty() { Vec::new() } else { first.parameters().filter(shared).collect() }
}

fn table(out: &mut String, report: &Report) -> fmt::Result {
    let rows = &report.rows;
    let common = common(rows);
    let rivals = Rivals::new(rows);
    let columns = arranged(rows, &common, &rivals);
    let paper = plot::paper(&report.experiment);
    out.write_str("<p class=\"note\">")?;
    match report.runs {
        0 | 1 => out.write_str("Figures of one run.")?,
        runs => write!(out, "Figures are medians of {runs} runs.")?,
    }
    if !common.is_empty() {
        let shared: Vec<_> = common.iter().map(|(name, value)| names::parameter(name, value)).collect();
        write!(out, " In all rows: {}.", Escaped(&shared.join(", ")))?;
    }
    let marked = |wanted| {
        let figures = columns.iter().filter_map(|column| match column {
            Column::Figure(name) => Some(*name),
            _ => None,
        });
        figures.into_iter().any(|figure| rows.iter().any(|row| rivals.verdict(row, figure) == Some(wanted)))
    };
    if marked(Verdict::Better) {
        write!(
            out,
            " <b class=\"better\">Bold</b>: better than the {paper} and every rival in the same run."
        )?;
    }
    if marked(Verdict::Worse) {
        write!(out, " <i class=\"worse\">Underlined</i>: worse than the {paper} or than a rival.")?;
    }
    let has_rivals = rows.iter().any(|row| !is_ours(row));
    let label = Escaped(&report.experiment);
    write!(
        out,
        "</p>\n<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"{label}: table\">\n"
    )?;
    out.write_str("<table>\n<thead><tr>")?;
    columns.iter().try_for_each(|column| heading(out, column, &paper))?;
    out.write_str("</tr></thead>\n<tbody>\n")?;
    for row in rows {
        out.write_str(if has_rivals && is_ours(row) { "<tr class=\"ours\">" } else { "<tr>" })?;
        columns.iter().try_for_each(|column| cell(out, row, column, &rivals))?;
        out.write_str("</tr>\n")?;
    }
    out.write_str("</tbody>\n</table>\n</div>\n")
}

fn heading(out: &mut String, column: &Column<'_>, paper: &str) -> fmt::Result {
    let (class, (words, unit), title) = match column {
        Column::Parameter(name) => ("", names::words(name), *name),
        Column::Figure(name) => ("n", names::words(name), *name),
        Column::Ratio(name) => ("n", ("÷ best".to_owned(), "rival"), *name),
        Column::Paper(name) => {
            let (words, unit) = names::words(name.strip_prefix(PAPER).unwrap_or(name));
            ("n paper", (format!("{paper}: {words}"), unit), *name)
        }
    };
    let (words, title) = (Escaped(&words), Escaped(title));
    write!(out, "<th scope=\"col\" class=\"{class}\" title=\"{title}\">{words}")?;
    if !unit.is_empty() {
        write!(out, " <small>{unit}</small>")?;
    }
    out.write_str("</th>")
}

fn cell(out: &mut String, row: &Row, column: &Column<'_>, rivals: &Rivals<'_>) -> fmt::Result {
    let value = |name: &str| row.get(name).map(concise).unwrap_or_default();
    match column {
        Column::Parameter(name) => write!(out, "<td>{}</td>", Escaped(&value(name))),
        Column::Paper(name) => write!(out, "<td class=\"n paper\">{}</td>", Escaped(&value(name))),
        Column::Ratio(name) => match rivals.ratio(row, name) {
            Some(ratio) => write!(out, "<td class=\"n\">{ratio:.3}</td>"),
            None => out.write_str("<td class=\"n\"></td>"),
        },
        Column::Figure(name) => {
            out.write_str("<td class=\"n\"")?;
            let detail = |suffix| value(&format!("{name}{suffix}"));
            if row.get(name).is_some() {
                let (mean, min, max) = (detail("_mean"), detail("_min"), detail("_max"));
                write!(out, " title=\"{} to {}, mean {}\"", Escaped(&min), Escaped(&max), Escaped(&mean))?;
            }
            let value = value(name);
            let value = Escaped(&value);
            match rivals.verdict(row, name) {
                Some(Verdict::Better) => write!(out, "><b class=\"better\">{value}</b></td>"),
                Some(Verdict::Worse) => write!(out, "><i class=\"worse\">{value}</i></td>"),
                None => write!(out, ">{value}</td>"),
            }
        }
    }
}

/// Text that is text in HTML, in elements and in attributes within double quotes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // HTML has no control characters, and those of direction would make text look like other text.
                c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                    f.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stack: &str, mtu: u32, total: f64) -> Row {
        Row::new()
            .with("stack", stack)
            .with("protocol", "tls1.3")
            .with("mtu", mtu)
            .figure("total_bytes", &[total])
    }

    fn report(experiment: &str, rows: Vec<Row>) -> Report {
        Report::new(experiment, "dunlin lab run caching".into(), 7, 3, rows)
    }

    #[test]
    fn a_row_has_the_paper_and_the_best_rival_beside_it() {
        let rows = vec![
            row("dunlin", 127, 50.0).paper("total_bytes", 60.0).figure("client_us", &[1.5]),
            row("openssl", 127, 80.0).paper("total_bytes", 60.0).figure("client_us", &[1.0]),
            row("wolfssl", 1500, 100.0),
        ];
        let page = page(&[report("caching", rows)]);
        assert!(page.contains(concat!(
            "<thead><tr><th scope=\"col\" class=\"\" title=\"stack\">stack</th>",
            "<th scope=\"col\" class=\"\" title=\"mtu\">MTU</th>",
            "<th scope=\"col\" class=\"n\" title=\"total_bytes\">total <small>bytes</small></th>",
            "<th scope=\"col\" class=\"n\" title=\"total_bytes\">÷ best <small>rival</small></th>",
            "<th scope=\"col\" class=\"n paper\" title=\"paper_total_bytes\">paper: total <small>bytes</small></th>",
            "<th scope=\"col\" class=\"n\" title=\"client_us\">client <small>µs</small></th></tr></thead>",
        )), "{page}");
        assert!(page.contains(concat!(
            "<tr class=\"ours\"><td>dunlin</td><td>127</td>",
            "<td class=\"n\" title=\"50 to 50, mean 50\"><b class=\"better\">50</b></td><td class=\"n\">0.625</td>",
            "<td class=\"n paper\">60</td>",
            "<td class=\"n\" title=\"1.5 to 1.5, mean 1.5\"><i class=\"worse\">1.5</i></td></tr>",
        )), "{page}");
        assert!(page.contains("<tr><td>wolfssl</td><td>1500</td>"), "{page}");
        assert!(page.contains("medians of 3 runs. In all rows: tls1.3. <b"), "{page}");
        assert!(page.contains("<code>dunlin lab run caching</code>"), "{page}");
        let caching = experiment::find("caching").unwrap();
        assert!(page.contains(&Escaped(caching.about()).to_string()), "{page}");
        assert!(page.contains("The paper: J. Bodenhausen"), "{page}");
        for (mode, meaning) in caching.terms() {
            let explained = format!("<dt>{mode}</dt><dd>{}</dd>", Escaped(meaning));
            assert!(page.contains(&explained), "{explained}\n{page}");
        }
    }

    #[test]
    fn nothing_from_a_file_is_markup() {
        let evil = "<script>alert(1)</script>\"'&\u{1b}\u{202e}";
        let rows = vec![
            Row::new().with(evil, evil).figure(evil, &[1.0]).paper(evil, 2.0),
            Row::new().with(evil, "other").figure(evil, &[2.0]),
        ];
        let mut report = report(evil, rows);
        for text in [&mut report.command, &mut report.version, &mut report.machine.processor] {
            evil.clone_into(text);
        }
        let page = page(&[report.clone(), report]);
        assert!(!page.contains("<script") && !page.contains("\"'&") && !page.contains("'&"), "{page}");
        assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page}");
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}"),
            "{page}"
        );
    }

    #[test]
    fn a_report_without_rows_is_a_section_still() {
        let page = page(&[report("alchemy", Vec::new())]);
        assert!(page.contains("<h2>alchemy</h2>") && page.contains("<tbody>\n</tbody>"), "{page}");
    }
}

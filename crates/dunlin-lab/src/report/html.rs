//! Reports as one self-contained page.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::compare::{References, Rivals, Verdict, is_ours};
use super::{Kind, PAPER, Report, Row, columns, common, concise, names, plot, view};

/// The words about an experiment on its page.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The subject in one sentence.
    pub subject: &'static str,
    /// The repeated paper: authors, title, and place of publication.
    pub paper: Option<&'static str>,
    /// Terms of the rows with their meanings.
    pub terms: &'static [(&'static str, &'static str)],
}

/// The style of the page, light and dark.
const STYLE: &str = include_str!("page.css");

/// Returns an HTML page with a section for each report: its subject, its plots, its rows as a table, and the
/// command that repeats it. The page has no script and fetches nothing, so it can be read from a file, mailed
/// and archived. `about` has the words about an experiment of a known name.
pub fn page(reports: &[Report], about: impl Fn(&str) -> Option<About>) -> String {
    let title = "Dunlin: measurements";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                // A second defence after escaping: the browser fetches and runs nothing, whatever a file
                // contains.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    @if reports.len() > 1 {
                        nav {
                            @for (number, report) in reports.iter().enumerate() {
                                a href={ "#r" (number) } { (name(report, reports)) } " "
                            }
                        }
                    }
                }
                main {
                    @for (number, report) in reports.iter().enumerate() { (section(number, report, &name(report, reports), about(&report.experiment))) }
                }
            }
        }
    };
    page.into_string().replace(is_misleading, "\u{fffd}")
}

/// Whether a character is not part of HTML (control characters, except the line feeds of the style) or makes
/// text look like other text (controls of direction). The templates escape all other characters that need it.
fn is_misleading(c: char) -> bool {
    c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The experiment, and if there are several runs of it, the options that tell this one apart, or its number.
fn name(report: &Report, reports: &[Report]) -> String {
    let experiment = &report.experiment;
    let runs: Vec<_> = reports.iter().filter(|other| other.experiment == *experiment).collect();
    if runs.len() < 2 {
        return experiment.clone();
    }
    let options = |run: &Report| {
        let options = run.command.split_once(&format!("lab run {experiment}"));
        options.map(|(_, options)| options.trim().to_owned()).unwrap_or_default()
    };
    let own = options(report);
    let is_unique = runs.iter().filter(|run| options(run) == own).count() == 1;
    match is_unique {
        true if own.is_empty() => format!("{experiment}, without options"),
        true => format!("{experiment} {own}"),
        false => {
            let number = runs.iter().position(|run| std::ptr::eq(*run, report)).unwrap_or_default() + 1;
            format!("{experiment} {own}, run {number}").replace(" ,", ",")
        }
    }
}

fn section(number: usize, report: &Report, name: &str, about: Option<About>) -> Markup {
    html! {
        section id={ "r" (number) } {
            h2 { (name) }
            @if !report.incomplete.is_empty() { p.worse { "Incomplete: " (report.incomplete) } }
            @if let Some(about) = about {
                p.about { (about.subject) }
                @if let Some(paper) = about.paper { p.note { "The paper: " (paper) } }
                @if !about.terms.is_empty() { dl.terms { (definitions(about.terms)) } }
            }
            (plot::plots(report))
            (table(report))
            (origin(report))
        }
    }
}

fn definitions(list: &[(&str, &str)]) -> Markup {
    html! {
        @for (term, meaning) in list { div { dt { (term) } dd { (meaning) } } }
    }
}

/// Writes the command that repeats the experiment, its date, the machine, and all versions.
fn origin(report: &Report) -> Markup {
    let machine = &report.machine;
    let threads =
        if machine.cores == 1 { "1 thread".to_owned() } else { format!("{} threads", machine.cores) };
    let machine = [&machine.processor, &threads, &machine.system, &machine.kernel];
    let machine: Vec<_> = machine.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
    let version = [&*report.version, &report.build].into_iter().filter(|part| !part.is_empty());
    let packages: Vec<_> =
        report.packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let facts = [
        ("started", report.date.clone()),
        ("machine", machine.join(", ")),
        ("version", version.collect::<Vec<_>>().join(", ")),
        ("beside", packages.join(", ")),
        ("seed", report.seed.to_string()),
        ("runs", report.runs.to_string()),
    ];
    let facts: Vec<_> =
        facts.iter().filter(|(_, fact)| !fact.is_empty()).map(|(name, fact)| (*name, &**fact)).collect();
    html! {
        dl {
            div { dt { "repeat" } dd { code { (report.command) } } }
            (definitions(&facts))
        }
    }
}

/// A column of the table.
enum Column<'a> {
    Parameter(&'a str),
    Figure(&'a str),
    /// The ratio of Dunlin's figure to the best rival's.
    Ratio(&'a str),
    /// The paper's figure, by its full name with `paper_`.
    Paper(&'a str),
}

/// Arranges the columns: values common to all rows are omitted, the paper's follow Dunlin's, and the ratio
/// follows the first figure that has rivals.
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

fn table(report: &Report) -> Markup {
    let rows = &report.rows;
    let common = common(rows);
    let rivals = Rivals::new(rows);
    let columns = arranged(rows, &common, &rivals);
    let paper = view::paper(&report.experiment);
    let shared: Vec<_> = common.iter().map(|(name, value)| names::parameter(name, value)).collect();
    let figures: Vec<_> = columns
        .iter()
        .filter_map(|column| match column {
            Column::Figure(name) => Some(*name),
            _ => None,
        })
        .collect();
    // The references of all marked cells, in words; empty if no cell has this mark.
    let marked = |wanted, of_paper: &str, between: &str, of_rivals: &str| {
        let cells = figures.iter().flat_map(|figure| rows.iter().map(move |row| (row, *figure)));
        let cells = cells.filter(|(row, figure)| rivals.verdict(row, figure) == Some(wanted));
        let references: Vec<References> = cells.map(|(row, figure)| rivals.references(row, figure)).collect();
        let has_paper = references.iter().any(|of| of.paper.is_some());
        let has_rivals = references.iter().any(|of| of.rival.is_some());
        let words = [has_paper.then_some(of_paper), has_rivals.then_some(of_rivals)];
        words.into_iter().flatten().collect::<Vec<_>>().join(between)
    };
    let better = marked(Verdict::Better, &paper, " and ", "every other stack in the same run");
    let worse = marked(Verdict::Worse, &paper, " or ", "another stack in the same run");
    let has_rivals = rows.iter().any(|row| !is_ours(row));
    html! {
        p.note {
            "Figures are " @if report.runs <= 1 { "of " } (report.basis()) "."
            @if !shared.is_empty() { " In all rows: " (shared.join(", ")) "." }
            @if !better.is_empty() { " " b.better { "Bold" } ": better than " (better) "." }
            @if !worse.is_empty() { " " i.worse { "Underlined" } ": worse than " (worse) "." }
        }
        div.table tabindex="0" role="region" aria-label={ (report.experiment) ": table" } {
            table {
                thead { tr { @for column in &columns { (heading(column, &paper)) } } }
                tbody {
                    @for row in rows {
                        tr class=[(has_rivals && is_ours(row)).then_some("ours")] {
                            @for column in &columns { (cell(row, column, &rivals)) }
                        }
                    }
                }
            }
        }
    }
}

fn heading(column: &Column<'_>, paper: &str) -> Markup {
    let (class, (words, unit), title) = match column {
        Column::Parameter(name) => (None, names::words(name), name),
        Column::Figure(name) => (Some("n"), names::words(name), name),
        Column::Ratio(name) => (Some("n"), ("÷ best".to_owned(), "other"), name),
        Column::Paper(name) => {
            let (words, unit) = names::words(name.strip_prefix(PAPER).unwrap_or(name));
            (Some("n paper"), (format!("{paper}: {words}"), unit), name)
        }
    };
    html! {
        th scope="col" class=[class] title=(title) { (words) @if !unit.is_empty() { " " small { (unit) } } }
    }
}

fn cell(row: &Row, column: &Column<'_>, rivals: &Rivals<'_>) -> Markup {
    let value = |name: &str| row.get(name).map(concise).unwrap_or_default();
    match column {
        Column::Parameter(name) => html! { td { (value(name)) } },
        Column::Paper(name) => html! { td.n.paper { (value(name)) } },
        Column::Ratio(name) => html! {
            td.n { @if let Some(ratio) = rivals.ratio(row, name) { (format!("{ratio:.3}")) } }
        },
        Column::Figure(name) => {
            let detail = |suffix| value(&format!("{name}{suffix}"));
            let spread = || format!("{} to {}, mean {}", detail("_min"), detail("_max"), detail("_mean"));
            html! {
                td.n title=[row.get(name).map(|_| spread())] {
                    @match rivals.verdict(row, name) {
                        Some(Verdict::Better) => { b.better { (value(name)) } }
                        Some(Verdict::Worse) => { i.worse { (value(name)) } }
                        None => { (value(name)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    fn row(stack: &str, mtu: u32, total: f64) -> Row {
        Row::new()
            .with("stack", stack)
            .with("protocol", "tls1.3")
            .with("mtu", mtu)
            .figure("total_bytes", &[total])
    }

    fn report(experiment: &str, rows: Vec<Row>) -> Report {
        Report::new(experiment, "dunlin-lab run caching".into(), 7, 3, rows)
    }

    #[test]
    fn shows_the_paper_and_the_best_rival() {
        let rows = vec![
            row("dunlin", 127, 50.0).paper("total_bytes", 60.0).figure("client_us", &[1.5]),
            row("openssl", 127, 80.0).paper("total_bytes", 60.0).figure("client_us", &[1.0]),
            row("wolfssl", 1500, 100.0),
        ];
        let packages = [("libssl-dev", "3.0.19-1"), ("valgrind", "1:3.19.0-1")];
        let packages = packages.map(|(name, version)| (name.to_owned(), version.to_owned())).into();
        let date = "2026-11-29T12:00:00Z".to_owned();
        let page = page(&[Report { date, packages, ..report("caching", rows) }], experiment::words);
        assert!(page.contains(concat!(
            "<thead><tr><th scope=\"col\" title=\"stack\">stack</th>",
            "<th scope=\"col\" title=\"mtu\">MTU</th>",
            "<th scope=\"col\" class=\"n\" title=\"total_bytes\">total <small>bytes</small></th>",
            "<th scope=\"col\" class=\"n\" title=\"total_bytes\">÷ best <small>other</small></th>",
            "<th scope=\"col\" class=\"n paper\" title=\"paper_total_bytes\">the paper: total <small>bytes</small></th>",
            "<th scope=\"col\" class=\"n\" title=\"client_us\">client <small>µs</small></th></tr></thead>",
        )), "{page}");
        assert!(page.contains(concat!(
            "<tr class=\"ours\"><td>dunlin</td><td>127</td>",
            "<td class=\"n\" title=\"50 to 50, mean 50\"><b class=\"better\">50</b></td><td class=\"n\">0.625</td>",
            "<td class=\"n paper\">60</td>",
            "<td class=\"n\" title=\"1.5 to 1.5, mean 1.5\"><i class=\"worse\">1.5</i></td></tr>",
        )), "{page}");
        assert!(page.contains("<tr><td>wolfssl</td><td>1500</td>"), "{page}");
        assert!(page.contains("Figures are medians of 3 runs. In all rows: tls1.3. <b"), "{page}");
        assert!(
            page.contains("</b>: better than the paper and every other stack in the same run."),
            "{page}"
        );
        assert!(page.contains("</i>: worse than another stack in the same run."), "{page}");
        assert!(page.contains("<code>dunlin-lab run caching</code>"), "{page}");
        assert!(page.contains("<dt>started</dt><dd>2026-11-29T12:00:00Z</dd>"), "{page}");
        assert!(page.contains("<dt>beside</dt><dd>libssl-dev 3.0.19-1, valgrind 1:3.19.0-1</dd>"), "{page}");
        let caching = experiment::find("caching").unwrap();
        assert!(page.contains(&html! { (caching.about.subject) }.into_string()), "{page}");
        assert!(page.contains("The paper: J. Bodenhausen"), "{page}");
        for (mode, meaning) in caching.about.terms {
            let explained = html! { dt { (mode) } dd { (meaning) } }.into_string();
            assert!(page.contains(&explained), "{explained}\n{page}");
        }
    }

    /// A quick run may lack the paper's cases, or the rivals.
    #[test]
    fn legend_names_the_references_of_the_marks() {
        let page = |rows| page(&[Report { runs: 1, ..report("caching", rows) }], experiment::words);
        let with_rival = page(vec![row("dunlin", 127, 50.0), row("openssl", 127, 80.0)]);
        assert!(with_rival.contains("Figures are of one run."), "{with_rival}");
        assert!(with_rival.contains("</b>: better than every other stack in the same run."), "{with_rival}");
        let with_paper = page(vec![row("dunlin", 127, 50.0).paper("total_bytes", 60.0)]);
        assert!(
            with_paper.contains("</b>: better than the paper.") && !with_paper.contains("</i>:"),
            "{with_paper}"
        );
        let alone = page(vec![row("dunlin", 127, 50.0).figure("client_us", &[2.0]).paper("client_us", 1.0)]);
        assert!(!alone.contains("</b>:") && !alone.contains("</i>:"), "{alone}");
    }

    #[test]
    fn runs_of_one_experiment_are_told_apart() {
        let run = |options: &str| {
            let command = format!("dunlin-lab run caching{options}");
            Report { command, ..report("caching", vec![row("dunlin", 127, 50.0)]) }
        };
        let runs = [
            run(""),
            run(" --way virtual --seed 7"),
            run(" --quick"),
            run(" --quick"),
            report("link", vec![]),
        ];
        let names: Vec<_> = runs.iter().map(|of| name(of, &runs)).collect();
        let caching = [
            "caching, without options",
            "caching --way virtual --seed 7",
            "caching --quick, run 3",
            "caching --quick, run 4",
        ];
        assert_eq!((&names[..4], &*names[4]), (&caching.map(str::to_owned)[..], "link"));
        let page = page(&runs, experiment::words);
        assert!(names.iter().all(|name| page.contains(&format!("<h2>{name}</h2>"))), "{page}");
    }

    #[test]
    fn escapes_texts_of_files() {
        let evil = "<script>alert(1)</script>\"'&\u{1b}\u{202e}";
        let rows = vec![
            Row::new().with(evil, evil).figure(evil, &[1.0]).paper(evil, 2.0),
            Row::new().with(evil, "other").figure(evil, &[2.0]),
        ];
        let mut report = report(evil, rows);
        let Report { command, version, build, date, machine, packages, .. } = &mut report;
        for text in [command, version, build, date, &mut machine.processor] {
            evil.clone_into(text);
        }
        packages.insert(evil.to_owned(), evil.to_owned());
        let page = page(&[report.clone(), report], experiment::words);
        assert!(!page.contains("<script") && !page.contains("\"'") && !page.contains("&\u{fffd}"), "{page}");
        assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\u{fffd}\u{fffd}"), "{page}");
    }

    #[test]
    fn writes_a_section_for_a_report_without_rows() {
        let page = page(&[report("alchemy", Vec::new())], experiment::words);
        assert!(page.contains("<h2>alchemy</h2>") && page.contains("<tbody></tbody>"), "{page}");
    }
}

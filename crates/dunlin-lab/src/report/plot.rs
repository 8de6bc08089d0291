//! Draws a report as plots: bars with their figures, in panels that share one scale.
//!
//! Positions along the scale are percentages; everything else is in pixels. So panels use the available
//! width, and their text has the page's size. This module writes the bars itself, because libraries for plots
//! draw SVG of a fixed size: a browser scales it together with its text.

use std::collections::BTreeSet;
use std::mem;

use maud::{Markup, html};
use serde_json::Value;

use super::compare::{OURS as OUR_STACK, STACK, is_ours};
use super::view::{Reference, View};
use super::{Kind, PAPER, Report, Row, columns, concise, names};

/// The maximum number of bars in a readable plot; the table has all rows.
const MAX_BARS: usize = 400;
/// The left end of bars, in pixels, to the right of their names.
const LABEL: usize = 88;
/// The left end of bars whose names stand above them.
const INDENT: usize = 12;
/// The longest bar, in percent of the width. Name and figure fit beside it on a telephone.
const SPAN: f64 = 58.0;
/// Heights in pixels.
const BAR: usize = 13;
const STEP: usize = BAR + 3;
const TITLE: usize = 18;
const GAP: usize = 10;
const AXIS: usize = 20;
/// The longest name that stands beside its bar, in characters. If one is longer, all names of the plot stand
/// above their bars.
const LONGEST_LABEL: usize = 11;
/// The longest line of a group's title or of a name above its bar, in characters, and its height in pixels.
const LONGEST_LINE: usize = 44;
const LINE: usize = 14;
/// The smallest number written in thousands.
const THOUSANDS: f64 = 1e5;
/// The number of shades of a colour in the style. Further parts of a bar share the last one.
const SHADES: usize = 4;
/// The number of colours in the style: one for Dunlin, and one for each rival. Further rivals share the last
/// one.
const COLOURS: usize = 6;

/// A plot.
struct Plot {
    panels: Vec<Panel>,
    /// The number of rows without room.
    left_out: usize,
    has_paper: bool,
    /// The stacks, each with a colour of its own; Dunlin is the first one, even without rows.
    stacks: Vec<String>,
}

impl Plot {
    /// Whether a bar of this stack's colour is drawn.
    fn has(&self, colour: usize) -> bool {
        self.bars().any(|bar| bar.class != REFERENCE && bar.colour == colour)
    }
}

struct Panel {
    title: String,
    groups: Vec<Group>,
}

#[derive(Default)]
struct Group {
    title: String,
    bars: Vec<Bar>,
    /// The paper's bar, below Dunlin's.
    papers: Vec<Bar>,
}

/// Classes of bars in the style of the page.
const OURS: &str = "ours";
const RIVAL: &str = "rival";
const REFERENCE: &str = "ref";

#[derive(PartialEq)]
struct Bar {
    label: String,
    class: &'static str,
    /// The number of its stack's colour.
    colour: usize,
    total: f64,
    /// The total as in the table.
    shown: String,
    /// The parts of the total with their names, or the total itself.
    parts: Vec<(String, f64)>,
}

/// Draws the plots of a report for the figures that it has.
pub(super) fn plots(report: &Report) -> Markup {
    html! { @for view in View::of(&report.experiment) { (view.draw(&report.rows, &report.basis())) } }
}

impl View {
    /// Draws the rows; `basis` tells from which runs they are.
    fn draw(&self, rows: &[Row], basis: &str) -> Markup {
        let rows: Vec<_> = rows.iter().filter(|row| (self.rows)(row)).collect();
        let drawn = columns(rows.iter().copied());
        let mut figures = drawn
            .iter()
            .filter(|(name, kind)| *kind == Kind::Figure && !name.starts_with(PAPER))
            .map(|(name, _)| *name);
        let wanted = |name: &&str| self.figure.is_none_or(|figure| figure == *name);
        let Some(figure) = figures.find(wanted) else { return html! {} };
        let plot = Plot::new(&rows, self, figure);
        let (words, unit) = names::words(figure);
        let caption = match self.caption {
            Some(caption) => caption.to_owned(),
            None if unit.is_empty() => words,
            None => format!("{words}, {unit}"),
        };
        let class = if plot.bars().any(|bar| bar.class != OURS) { "compared" } else { "alone" };
        let scale = Scale::new(&plot);
        html! {
            figure class=(class) {
                figcaption {
                    (caption)
                    @if plot.left_out > 0 { " (without the last " (plot.left_out) " rows, which are in the table)" }
                    (plot.legend(self, basis))
                }
                div.panels { @for panel in &plot.panels { (panel.draw(&scale, &caption, plot.layout())) } }
            }
        }
    }
}

impl Plot {
    fn new(rows: &[&Row], view: &View, figure: &str) -> Self {
        let rows: Vec<_> = rows.iter().copied().filter(|row| row.number(figure).is_some()).collect();
        let varying = varying(&rows);
        let in_group = |name: &str| name != view.bar && (view.group.is_empty() || view.group.contains(&name));
        let left_out = rows.len().saturating_sub(MAX_BARS);
        let mut plot =
            Self { panels: Vec::new(), left_out, has_paper: false, stacks: vec![OUR_STACK.to_owned()] };
        for row in rows.into_iter().take(MAX_BARS) {
            let title = |wanted: &dyn Fn(&str) -> bool| {
                let parameters = row.parameters().filter(|(name, _)| varying.contains(*name) && wanted(name));
                parameters.map(|(name, value)| names::parameter(name, value)).collect::<Vec<_>>().join(", ")
            };
            let panel_title = title(&|name| name != view.bar && !in_group(name));
            let colour = plot.colour(row);
            let group = plot.group(panel_title, title(&in_group));
            group.bars.extend(Bar::measured(row, view, figure, colour));
            if let Some(paper) = Bar::of_reference(row, view, figure) {
                if !group.papers.contains(&paper) {
                    group.papers.push(paper);
                }
                plot.has_paper = true;
            }
        }
        plot
    }

    fn group(&mut self, panel: String, group: String) -> &mut Group {
        let panels = &mut self.panels;
        let at = panels.iter().position(|other| other.title == panel).unwrap_or(panels.len());
        if at == panels.len() {
            panels.push(Panel { title: panel, groups: Vec::new() });
        }
        let groups = &mut panels[at].groups;
        let at = groups.iter().position(|other| other.title == group).unwrap_or(groups.len());
        if at == groups.len() {
            groups.push(Group { title: group, ..Group::default() });
        }
        &mut groups[at]
    }

    /// The number of the colour of this row's stack.
    fn colour(&mut self, row: &Row) -> usize {
        let Some(stack) = row.get(STACK).and_then(Value::as_str) else { return 0 };
        let known = self.stacks.iter().position(|other| other == stack);
        let number = known.unwrap_or_else(|| {
            self.stacks.push(stack.to_owned());
            self.stacks.len() - 1
        });
        number.min(COLOURS - 1)
    }

    fn layout(&self) -> Layout {
        let is_short = self.bars().all(|bar| bar.label.chars().count() <= LONGEST_LABEL);
        let lines = self.bars().map(|bar| lines(&bar.label).len()).max().unwrap_or(1);
        if is_short { Layout::BESIDE } else { Layout::above(lines) }
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        let groups = self.panels.iter().flat_map(|panel| &panel.groups);
        groups.flat_map(|group| group.bars.iter().chain(&group.papers))
    }

    fn legend(&self, view: &View, basis: &str) -> Markup {
        html! {
            span.legend {
                @if self.bars().any(|bar| bar.parts.len() > 1) {
                    @for (number, part) in view.parts.iter().enumerate() {
                        span { i class={ "key s" (number.min(SHADES - 1)) } {} (names::words(part).0) }
                    }
                }
                @if view.bar != STACK && self.stacks.len() > 1 {
                    @for (number, stack) in self.stacks.iter().enumerate() {
                        @let colour = number.min(COLOURS - 1);
                        @if self.has(colour) { span { i class={ "key s0 c" (colour) } {} (stack) } }
                    }
                }
                @if self.has_paper { span { i.key.ref.s0 {} (view.reference.name()) } }
                span { (basis) }
            }
        }
    }
}

/// The parameters that differ between rows.
fn varying(rows: &[&Row]) -> BTreeSet<String> {
    let Some((first, others)) = rows.split_first() else { return BTreeSet::new() };
    let parameters = rows.iter().flat_map(|row| row.parameters()).map(|(name, _)| name);
    let varies = |name: &&str| others.iter().any(|row| row.get(name) != first.get(name));
    parameters.filter(varies).map(str::to_owned).collect()
}

impl Bar {
    /// The value that distinguishes the bar of a row.
    fn label(row: &Row, view: &View) -> String {
        match row.get(view.bar) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => names::parameter(view.bar, value),
            None => String::new(),
        }
    }

    fn measured(row: &Row, view: &View, figure: &str, colour: usize) -> Option<Self> {
        let label = Self::label(row, view);
        let class = if is_ours(row) { OURS } else { RIVAL };
        Some(Self { colour, ..Self::new(row, view, "", figure, label, class)? })
    }

    fn of_reference(row: &Row, view: &View, figure: &str) -> Option<Self> {
        let (prefix, figure) = match view.reference {
            Reference::Paper(_) => (PAPER, figure),
            Reference::Figure(other) => ("", other),
        };
        // All stacks share a reference. Otherwise each bar has its own, which is named after the bar, too.
        let of = Some(Self::label(row, view)).filter(|label| view.bar != STACK && !label.is_empty());
        let names: Vec<_> = [view.reference.name()].into_iter().chain(of).collect();
        Self::new(row, view, prefix, figure, names.join(", "), REFERENCE)
    }

    fn new(
        row: &Row,
        view: &View,
        prefix: &str,
        figure: &str,
        label: String,
        class: &'static str,
    ) -> Option<Self> {
        let of = |name: &str| row.number(&format!("{prefix}{name}"));
        let total = of(figure)?;
        let shown = row.get(&format!("{prefix}{figure}")).map(concise).unwrap_or_default();
        let parts: Option<Vec<_>> = view
            .parts
            .iter()
            .map(|name| Some((names::words(name).0, of(name).filter(|part| *part >= 0.0)?)))
            .collect();
        let parts = parts.filter(|parts| !parts.is_empty());
        let parts = parts.unwrap_or_else(|| vec![(names::words(figure).0, total)]);
        Some(Self { label, class, colour: 0, total, shown, parts })
    }

    /// The positions of the parts on the scale.
    fn spans(&self) -> impl Iterator<Item = (f64, f64)> {
        self.parts.iter().scan(0.0, |from, (_, length)| {
            let start = *from;
            *from += length;
            Some((start, *from))
        })
    }

    fn draw(&self, scale: &Scale, layout: Layout, top: usize) -> Markup {
        let parts: Vec<_> = self.parts.iter().map(|(name, length)| format!("{name} {length}")).collect();
        let end = self.spans().map(|(_, to)| to).fold(0.0, f64::max);
        let y = top + layout.above;
        let middle = y + BAR - 2;
        let name = if layout.above > 0 { top + BAR - 2 } else { middle };
        let label = if layout.above > 0 { lines(&self.label) } else { vec![self.label.clone()] };
        html! {
            g class={ (self.class) " c" (self.colour) } {
                title { (self.label) ": " (self.shown) @if parts.len() > 1 { " (" (parts.join(", ")) ")" } }
                @for (number, line) in label.iter().enumerate() {
                    text class=(layout.class) x=(layout.x) y=(name + LINE * number) { (line) }
                }
                @for (number, (from, to)) in self.spans().enumerate() {
                    @let (left, right) = (scale.at(from.min(to)), scale.at(from.max(to)));
                    @let (x, width) = (percent(left), percent(right - left));
                    rect class={ "s" (number.min(SHADES - 1)) } x=(x) y=(y) width=(width) height=(BAR) {}
                }
                text.value x=(percent(scale.at(end))) dx="5" y=(middle) { (compact(self.total)) }
            }
        }
    }
}

/// Where the names of bars stand.
#[derive(Clone, Copy)]
struct Layout {
    /// The left end of bars, in pixels.
    left: usize,
    /// The room above each bar.
    above: usize,
    class: &'static str,
    x: &'static str,
}

impl Layout {
    const BESIDE: Self = Self { left: LABEL, above: 0, class: "name", x: "-6" };

    /// Room for names of this number of lines.
    const fn above(lines: usize) -> Self {
        Self { left: INDENT, above: LINE * lines, class: "above", x: "0" }
    }

    fn step(self) -> usize {
        STEP + self.above
    }
}

impl Group {
    /// The height of the title.
    fn top(&self) -> usize {
        TITLE + LINE * (lines(&self.title).len() - 1)
    }

    fn height(&self, layout: Layout) -> usize {
        self.top() + layout.step() * (self.bars.len() + self.papers.len()) + GAP
    }
}

impl Panel {
    fn draw(&self, scale: &Scale, caption: &str, layout: Layout) -> Markup {
        let bottom: usize = self.groups.iter().map(|group| group.height(layout)).sum();
        let tops = self.groups.iter().scan(0, |y, group| Some(mem::replace(y, *y + group.height(layout))));
        html! {
            div.panel {
                @if !self.title.is_empty() { h3 { (self.title) } }
                svg role="img" aria-label=(caption) width="100%" height=(bottom + AXIS) {
                    g transform={ "translate(" (layout.left) " 0)" } {
                        @for (place, label) in &scale.ticks {
                            @let x = percent(*place);
                            line x1=(x) x2=(x) y1=(TITLE) y2=(bottom) {}
                            text.tick x=(x) y=(bottom + AXIS - 6) { (label) }
                        }
                        @for (group, y) in self.groups.iter().zip(tops) {
                            @for (number, line) in lines(&group.title).iter().enumerate() {
                                text.group x={ "-" (layout.left) } y=(y + TITLE - 6 + LINE * number) { (line) }
                            }
                            @for (number, bar) in group.bars.iter().chain(&group.papers).enumerate() {
                                (bar.draw(scale, layout, y + group.top() + layout.step() * number))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn percent(place: f64) -> String {
    format!("{place:.2}%")
}

/// Converts figures to percent of the width, alike in all panels.
struct Scale {
    least: f64,
    greatest: f64,
    /// The ticks and their labels.
    ticks: Vec<(f64, String)>,
}

impl Scale {
    /// A scale that includes zero and all bars.
    fn new(plot: &Plot) -> Self {
        let ends = || plot.bars().flat_map(|bar| bar.spans().map(|(_, to)| to));
        let least = ends().fold(0.0, f64::min);
        let greatest = ends().fold(0.0, f64::max);
        let greatest = if greatest > least { greatest } else { least + 1.0 };
        let mut scale = Self { least, greatest, ticks: Vec::new() };
        let step = step((greatest - least) / 6.0);
        let places = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
        let first = (least / step).ceil() as i64;
        let last = (greatest / step).floor() as i64;
        let label = |place: f64| if step < THOUSANDS { format!("{place:.places$}") } else { compact(place) };
        let ticks = (first..=last).map(|number| number as f64 * step);
        scale.ticks = ticks.map(|place| (scale.at(place), label(place))).collect();
        scale
    }

    fn at(&self, figure: f64) -> f64 {
        (figure - self.least) / (self.greatest - self.least) * SPAN
    }
}

/// The smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

/// Formats a number in at most seven characters and a sign.
fn compact(number: f64) -> String {
    let scaled = |unit: f64| {
        let places = if (number / unit).abs() < 100.0 { 2 } else { 1 };
        let text = format!("{:.places$}", number / unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match number.abs() {
        0.0..1e3 => concise(&super::number((number * 1e3).round() / 1e3)),
        1e3..THOUSANDS => concise(&super::number((number * 10.0).round() / 10.0)),
        THOUSANDS..1e6 => format!("{} k", scaled(1e3)),
        1e6..1e9 => format!("{} M", scaled(1e6)),
        1e9..1e12 => format!("{} G", scaled(1e9)),
        _ => format!("{} T", scaled(1e12)),
    }
}

/// The whole text in lines, broken between words; at least one line.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let characters: Vec<_> = word.chars().collect();
        for part in characters.chunks(LONGEST_LINE) {
            let Some(line) = lines.last_mut() else { break };
            if line.chars().count() + part.len() <= LONGEST_LINE {
                line.extend(part);
            } else {
                lines.push(part.iter().collect());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(experiment: &str, rows: Vec<Row>) -> String {
        plots(&Report::new(experiment, String::new(), 1, 1, rows)).into_string()
    }

    fn count(text: &str, what: &str) -> usize {
        text.matches(what).count()
    }

    #[test]
    fn stacks_layers_beside_the_paper() {
        let row = |stack: &str, mtu: u32, tls: f64| {
            let layers =
                [("tls_bytes", tls), ("transport_bytes", 20.0), ("ip_bytes", 20.0), ("link_bytes", 10.0)];
            let row = Row::new().with("stack", stack).with("mtu", mtu).with("mode", "vanilla");
            let row = row.figure("total_bytes", &[tls + 50.0]).paper("total_bytes", 200.0);
            layers.into_iter().fold(row, |row, (name, bytes)| row.figure(name, &[bytes]))
        };
        let rows = vec![row("dunlin", 127, 50.0), row("openssl", 127, 150.0), row("dunlin", 1500, 30.0)];
        let plot = drawn("caching", rows);
        assert_eq!(count(&plot, "<svg "), 2, "a panel an MTU");
        assert!(plot.contains("<h3>MTU 127</h3>") && plot.contains("<h3>MTU 1500</h3>"), "{plot}");
        assert_eq!((count(&plot, "class=\"ours c0\""), count(&plot, "class=\"rival c1\"")), (2, 1));
        assert_eq!(count(&plot, "<g class=\"ref c0\"><title>the paper: 200</title>"), 2, "one a group");
        // 200 bytes are 58 % of the width.
        assert!(plot.contains("<title>dunlin: 100 (TLS 50, transport 20, IP 20, link 10)</title>"), "{plot}");
        for (colour, left, width) in
            [(0, "0.00", "14.50"), (1, "14.50", "5.80"), (2, "20.30", "5.80"), (3, "26.10", "2.90")]
        {
            let rect = format!("<rect class=\"s{colour}\" x=\"{left}%\" y=\"18\" width=\"{width}%\"");
            assert!(plot.contains(&rect), "{rect}\n{plot}");
        }
        assert!(plot.contains("<i class=\"key s0\"></i>TLS</span>"), "{plot}");
    }

    #[test]
    fn stacks_the_drafts_flights() {
        let flights = |row: Row, bytes: [f64; 3]| {
            let names = ["flight1_bytes", "flight2_bytes", "flight3_bytes"];
            names
                .iter()
                .zip(bytes)
                .fold(row, |row, (name, bytes)| row.figure(name, &[bytes]).paper(name, bytes + 1.0))
        };
        let row = Row::new().with("stack", "dunlin").with("mechanism", "psk");
        let row = flights(row, [10.0, 20.0, 30.0])
            .figure("handshake_bytes", &[60.0])
            .paper("handshake_bytes", 63.0);
        let plot = drawn("key-exchange", vec![row]);
        assert!(
            plot.contains(
                "<g class=\"ref c0\"><title>the draft: 63 (flight1 11, flight2 21, flight3 31)</title>"
            ),
            "{plot}"
        );
        assert_eq!(count(&plot, "<rect "), 6);
    }

    #[test]
    fn draws_the_schemes_of_a_handover_by_delay() {
        let row = |scheme: &str, nat: &str, delay: u32| {
            let row = Row::new().with("stack", "dunlin").with("scheme", scheme).with("nat", nat);
            let row = row.with("delay_ms", delay).with("loss_percent", 0).with("downtime_ms", 5);
            let row = row.figure("wall_clock_s", &[60.0]).figure("messages_acknowledged", &[600.0]);
            if scheme == "standard" || nat != "none" {
                return row;
            }
            let row = row.figure("saved_percent", &[f64::from(delay)]).paper("saved_percent", 13.63);
            row.figure("saved_over_listening_percent", &[9.0]).paper("saved_over_listening_percent", 13.63)
        };
        let rows = vec![
            row("standard", "none", 5),
            row("standard", "none", 30),
            row("cid13", "none", 30),
            row("cid13", "none", 100),
            row("cid13", "symmetric", 30),
        ];
        let plot = drawn("handover", rows);
        assert_eq!(count(&plot, "<svg "), 4, "{plot}");
        // Four bars of time, three behind NATs, and four of Table I for each reference, two of them the
        // paper's.
        assert_eq!(count(&plot, "<rect "), 15, "{plot}");
        assert!(plot.contains(">delay 30 ms</text>") && plot.contains(">symmetric</text>"), "{plot}");
        // Each bar of the paper names its delay.
        for delay in [30, 100] {
            assert_eq!(count(&plot, &format!(">the paper, delay {delay} ms</text>")), 2, "{plot}");
        }
        assert!(plot.contains("<i class=\"key ref s0\"></i>the paper</span><span>one run</span>"), "{plot}");
    }

    #[test]
    fn legends_tell_quick_runs() {
        let row = || Row::new().with("delay_ms", 5).figure("round_trip_error_ms", &[1.0]);
        for (options, runs, told) in [
            ("", 1, "one run"),
            (" --quick", 1, "one quick run"),
            (" --json lab/--quick.json", 3, "medians of 3 runs"),
            (" --runs 3 --quick", 3, "medians of 3 quick runs"),
        ] {
            let command = format!("dunlin-lab run link{options}");
            let plot = plots(&Report::new("link", command, 1, runs, vec![row()])).into_string();
            assert!(plot.contains(&format!("<span>{told}</span>")), "{plot}");
        }
    }

    #[test]
    fn draws_the_first_figure_by_default() {
        let rows = ["a", "b"]
            .map(|name| Row::new().with("kind", name).figure("sent_bytes", &[4.0]).figure("x_us", &[9.0]));
        let plot = drawn("alchemy", rows.to_vec());
        assert!(plot.contains("<figcaption>sent, bytes"), "{plot}");
        assert_eq!(count(&plot, "<rect "), 2);
        assert!(plot.contains(">a</text>") && plot.contains(">b</text>"), "{plot}");
        assert_eq!(drawn("alchemy", vec![Row::new().with("kind", "a")]), "", "nothing to draw");
    }

    #[test]
    fn draws_negative_figures_to_the_left() {
        let rows =
            [-1.0, 3.0].map(|error| Row::new().with("delay_ms", 5).figure("round_trip_error_ms", &[error]));
        let plot = drawn("link", rows.to_vec());
        assert!(plot.contains("x=\"0.00%\" y=\"18\" width=\"14.50%\""), "{plot}");
        assert!(plot.contains("x=\"14.50%\" y=\"34\" width=\"43.50%\""), "{plot}");
        for extreme in [[0.0, 0.0], [-1e15, 1e15], [1e-300, 0.0], [-3.0, -2.0]] {
            let rows = extreme.map(|error| Row::new().figure("round_trip_error_ms", &[error]));
            let plot = drawn("link", rows.to_vec());
            assert!(!plot.contains("NaN") && !plot.contains("inf") && !plot.contains("width=\"-"), "{plot}");
        }
    }

    #[test]
    fn names_and_titles_are_whole_and_each_stack_has_its_colour() {
        let long = "a stack with a name of many words";
        let row = |stack: &str| {
            let row =
                Row::new().with("stack", stack).with("first_parameter", "its first long value of several");
            row.with("second_parameter", stack.len()).figure("x_us", &[1.0])
        };
        let rows = ["dunlin", "openssl", "wolfssl", long, "openssl"].map(row).to_vec();
        let plot = drawn("alchemy", rows);
        assert!(plot.contains(&format!(">{long}</text>")), "{plot}");
        let colours = [0, 1, 2, 3].map(|colour| count(&plot, &format!(" c{colour}\"><title>")));
        assert_eq!(colours, [1, 2, 1, 1], "{plot}");
        let long = "one parameter of twenty, another parameter of twenty, a third";
        assert_eq!(lines(long).len(), 2);
        assert_eq!(lines(long).concat(), long);
        let plot = drawn("alchemy", [long, "openssl"].map(row).to_vec());
        assert!(lines(long).iter().all(|line| plot.contains(&format!(">{line}</text>"))), "{plot}");
    }

    /// A quick run lacks cases, perhaps all of Dunlin or of the paper, and parts.
    #[test]
    fn legend_has_only_keys_of_drawn_bars() {
        let row = |stack: &str, scheme: &str| {
            let row = Row::new().with("stack", stack).with("scheme", scheme).with("nat", "none");
            let row = row.with("loss_percent", 0).with("downtime_ms", 5).with("delay_ms", 30);
            row.figure("wall_clock_s", &[60.0])
        };
        let plot = drawn("handover", vec![row("openssl", "standard"), row("dunlin", "cid13")]);
        let key = |colour: usize, stack: &str| format!("<i class=\"key s0 c{colour}\"></i>{stack}</span>");
        assert!(plot.contains(&key(0, "dunlin")) && plot.contains(&key(1, "openssl")), "{plot}");
        let plot = drawn("handover", vec![row("openssl", "standard")]);
        assert!(!plot.contains(&key(0, "dunlin")) && plot.contains(&key(1, "openssl")), "{plot}");
        assert!(!plot.contains("key ref"), "{plot}");
        let row = Row::new().with("stack", "dunlin").with("mtu", 127).figure("total_bytes", &[100.0]);
        let plot = drawn("caching", vec![row.paper("total_bytes", 200.0)]);
        assert!(
            !plot.contains("transport") && plot.contains("<i class=\"key ref s0\"></i>the paper</span>"),
            "{plot}"
        );
    }

    #[test]
    fn draws_the_schemes_of_policy_beside_the_paper() {
        let row = |stack: &str, strategy: &str, size: u32| {
            let row = Row::new().with("stack", stack).with("strategy", strategy).with("size_bytes", size);
            let row = row.figure("server_us", &[800.0]).paper("server_us", 1524.0);
            row.figure("reduction_percent", &[60.0]).paper("reduction_percent", 69.68)
        };
        let rows = ["dunlin", "apache"].map(|stack| row(stack, "renegotiation_lowest", 10_240)).to_vec();
        let plot = drawn("policy", rows);
        assert_eq!(count(&plot, "<figure "), 2, "the time for 10 KB, and the reductions: {plot}");
        assert_eq!((count(&plot, "class=\"ours c0\""), count(&plot, "class=\"rival c1\"")), (2, 2), "{plot}");
        assert_eq!(count(&plot, "<title>the paper: 1524</title>"), 1, "{plot}");
        assert_eq!(count(&plot, "<title>the paper: 69.68</title>"), 1, "{plot}");
    }

    #[test]
    fn limits_the_number_of_bars() {
        let rows = (0..MAX_BARS + 3).map(|n| Row::new().with("n", n).figure("x_us", &[1.0])).collect();
        let plot = drawn("alchemy", rows);
        assert_eq!(count(&plot, "<rect "), MAX_BARS);
        assert!(plot.contains("without the last 3 rows"), "{plot}");
    }

    #[test]
    fn shortens_large_numbers() {
        let cases = [
            (0.0, "0"),
            (-0.25, "-0.25"),
            (0.5494, "0.549"),
            (802.5, "802.5"),
            (10045.0, "10045"),
            (10229.27, "10229.3"),
            (123_456.0, "123.5 k"),
            (3_534_567.0, "3.53 M"),
            (1e9, "1 G"),
            (-1e15, "-1000 T"),
        ];
        for (number, text) in cases {
            assert_eq!(compact(number), text);
        }
    }

    #[test]
    fn chooses_round_ticks() {
        for (least, expected) in
            [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (3340.0, 5000.0), (5.1, 10.0), (0.03, 0.05)]
        {
            assert!((step(least) / expected - 1.0).abs() < 1e-9, "{least}");
        }
    }
}

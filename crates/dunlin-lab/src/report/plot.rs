//! Draws a report as plots: bars with their figures, in panels that share one scale.
//!
//! Positions along the scale are percentages, and the style of the page does the rest. So panels use the
//! available width, and their text has the page's size and breaks where it must. This module writes the bars
//! itself, because libraries for plots draw images of a fixed size: a browser scales them with their text.

use maud::{Markup, html};
use serde_json::Value;

use super::compare::{OURS as OUR_STACK, STACK, is_ours};
use super::view::{Reference, View};
use super::{Kind, PAPER, Report, Row, columns, common, concise, names};

/// The maximum number of bars in a readable plot; the table has all rows.
const MAX_BARS: usize = 400;
/// The longest bar, in percent of the width beside the names. Its figure fits beside it on a telephone.
const SPAN: f64 = 74.0;
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
        let rows: Vec<_> = rows.iter().filter(|row| self.has(row)).collect();
        let drawn = columns(rows.iter().copied());
        let mut figures = drawn
            .iter()
            .filter(|(name, kind)| *kind == Kind::Figure && !name.starts_with(PAPER))
            .map(|(name, _)| *name);
        let wanted = |name: &&str| self.figure.is_none_or(|figure| figure == *name);
        let Some(figure) = figures.find(wanted) else { return html! {} };
        let plot = Plot::new(&rows, self, figure);
        let (words, unit) = names::words(figure);
        let caption = match &self.caption {
            Some(caption) => caption.clone(),
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
                div.panels { @for panel in &plot.panels { (panel.draw(&scale, &caption)) } }
            }
        }
    }
}

impl Plot {
    fn new(rows: &[&Row], view: &View, figure: &str) -> Self {
        let rows: Vec<_> = rows.iter().copied().filter(|row| row.number(figure).is_some()).collect();
        let common = common(rows.iter().copied());
        let is_common = |name: &str| rows.len() < 2 || common.iter().any(|(other, _)| *other == name);
        let in_group = |name: &str| name != view.bar && (view.group.is_empty() || view.group.contains(&name));
        let left_out = rows.len().saturating_sub(MAX_BARS);
        let mut plot =
            Self { panels: Vec::new(), left_out, has_paper: false, stacks: vec![OUR_STACK.to_owned()] };
        for row in rows.iter().copied().take(MAX_BARS) {
            let title = |wanted: &dyn Fn(&str) -> bool| {
                let parameters = row.parameters().filter(|(name, _)| !is_common(name) && wanted(name));
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

    fn draw(&self, scale: &Scale) -> Markup {
        let parts: Vec<_> = self.parts.iter().map(|(name, length)| format!("{name} {length}")).collect();
        let parts = if parts.len() > 1 { format!(" ({})", parts.join(", ")) } else { String::new() };
        let end = self.spans().map(|(_, to)| to).fold(0.0, f64::max);
        html! {
            div class={ "bar " (self.class) " c" (self.colour) } title={ (self.label) ": " (self.shown) (parts) } {
                span.name { (self.label) }
                div.track {
                    @for (number, (from, to)) in self.spans().enumerate() {
                        @let (left, right) = (scale.at(from.min(to)), scale.at(from.max(to)));
                        @let place = format!("left:{left:.2}%;width:{:.2}%", right - left);
                        i class={ "s" (number.min(SHADES - 1)) } style=(place) {}
                    }
                    span.value style=(left(scale.at(end))) { (compact(self.total)) }
                }
            }
        }
    }
}

impl Panel {
    fn draw(&self, scale: &Scale, caption: &str) -> Markup {
        html! {
            div.panel {
                @if !self.title.is_empty() { h3 { (self.title) } }
                div.plot role="img" aria-label=(caption) {
                    div.scale {
                        @for (place, label) in &scale.ticks { b style=(left(*place)) { span { (label) } } }
                    }
                    @for group in &self.groups {
                        div.group { (group.title) }
                        @for bar in group.bars.iter().chain(&group.papers) { (bar.draw(scale)) }
                    }
                }
            }
        }
    }
}

fn left(place: f64) -> String {
    format!("left:{place:.2}%")
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
        assert_eq!(count(&plot, "class=\"plot\""), 2, "a panel an MTU");
        assert!(plot.contains("<h3>MTU 127</h3>") && plot.contains("<h3>MTU 1500</h3>"), "{plot}");
        assert_eq!((count(&plot, "\"bar ours c0\""), count(&plot, "\"bar rival c1\"")), (2, 1));
        assert_eq!(count(&plot, "<div class=\"bar ref c0\" title=\"the paper: 200\">"), 2, "one a group");
        // 200 bytes are 74 % of the width.
        assert!(plot.contains("title=\"dunlin: 100 (TLS 50, transport 20, IP 20, link 10)\""), "{plot}");
        for (colour, left, width) in
            [(0, "0.00", "18.50"), (1, "18.50", "7.40"), (2, "25.90", "7.40"), (3, "33.30", "3.70")]
        {
            let rect = format!("<i class=\"s{colour}\" style=\"left:{left}%;width:{width}%\"");
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
                "<div class=\"bar ref c0\" title=\"the draft: 63 (flight1 11, flight2 21, flight3 31)\">"
            ),
            "{plot}"
        );
        assert_eq!(count(&plot, "<i class=\"s"), 6);
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
        assert_eq!(count(&plot, "class=\"plot\""), 4, "{plot}");
        // Four bars of time, three behind NATs, and four of Table I for each reference, two of them the
        // paper's.
        assert_eq!(count(&plot, "<i class=\"s"), 15, "{plot}");
        assert!(plot.contains(">delay 30 ms</span>") && plot.contains(">symmetric</span>"), "{plot}");
        // Each bar of the paper names its delay.
        for delay in [30, 100] {
            assert_eq!(count(&plot, &format!(">the paper, delay {delay} ms</span>")), 2, "{plot}");
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
        assert_eq!(count(&plot, "<i class=\"s"), 2);
        assert!(plot.contains(">a</div>") && plot.contains(">b</div>"), "{plot}");
        assert_eq!(drawn("alchemy", vec![Row::new().with("kind", "a")]), "", "nothing to draw");
    }

    #[test]
    fn draws_negative_figures_to_the_left() {
        let rows =
            [-1.0, 3.0].map(|error| Row::new().with("delay_ms", 5).figure("round_trip_error_ms", &[error]));
        let plot = drawn("link", rows.to_vec());
        assert!(plot.contains("left:0.00%;width:18.50%"), "{plot}");
        assert!(plot.contains("left:18.50%;width:55.50%"), "{plot}");
        for extreme in [[0.0, 0.0], [-1e15, 1e15], [1e-300, 0.0], [-3.0, -2.0]] {
            let rows = extreme.map(|error| Row::new().figure("round_trip_error_ms", &[error]));
            let plot = drawn("link", rows.to_vec());
            assert!(!plot.contains("NaN") && !plot.contains("inf") && !plot.contains("width:-"), "{plot}");
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
        assert!(plot.contains(&format!(">{long}</span>")), "{plot}");
        let colours = [0, 1, 2, 3].map(|colour| count(&plot, &format!(" c{colour}\" title=")));
        assert_eq!(colours, [1, 2, 1, 1], "{plot}");
        let long = "one parameter of twenty, another parameter of twenty, a third";
        let plot = drawn("alchemy", [long, "openssl"].map(row).to_vec());
        assert!(plot.contains(&format!(">{long}</span>")), "{plot}");
        assert!(plot.contains("<div class=\"group\">second parameter 7</div>"), "{plot}");
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
        assert_eq!((count(&plot, "\"bar ours c0\""), count(&plot, "\"bar rival c1\"")), (2, 2), "{plot}");
        assert_eq!(count(&plot, "title=\"the paper: 1524\""), 1, "{plot}");
        assert_eq!(count(&plot, "title=\"the paper: 69.68\""), 1, "{plot}");
    }

    #[test]
    fn limits_the_number_of_bars() {
        let rows = (0..MAX_BARS + 3).map(|n| Row::new().with("n", n).figure("x_us", &[1.0])).collect();
        let plot = drawn("alchemy", rows);
        assert_eq!(count(&plot, "<i class=\"s"), MAX_BARS);
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

//! A small plot of lines over a logarithmic axis, as SVG that follows the reader's light or dark theme.

use std::fmt::Write;

/// The measured values of one contender.
pub struct Line {
    pub name: &'static str,
    /// The size and the value, by rising size.
    pub points: Vec<(f64, f64)>,
}

/// A plot of several lines.
pub struct Plot {
    /// The name of the file, without its ending.
    pub name: &'static str,
    pub title: &'static str,
    /// The label of the horizontal axis, which is logarithmic and has a tick for each size.
    pub across: &'static str,
    /// The label of the vertical axis.
    pub upward: &'static str,
    /// The machine and the conditions, in small print.
    pub note: String,
    /// At most four.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
/// The right end of the axis. The names of the lines stand to the right of it.
const RIGHT: f64 = 516.0;
const TOP: f64 = 74.0;
const BOTTOM: f64 = 318.0;

/// The colours of the lines, light and dark.
const COLOURS: [(&str, &str); 4] = [
    ("#1f6fd1", "#6aa9f5"),
    ("#c2560f", "#f09a5d"),
    ("#14805a", "#4cc79a"),
    ("#7a4fc0", "#b296ee"),
];

/// The vertical axis.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// Returns an axis for the values: logarithmic if they differ widely, and from zero if not.
    fn over(values: &[f64]) -> Self {
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let low = values.iter().copied().filter(|value| *value > 0.0).fold(high, f64::min);
        if high / low > 6.0 {
            let ticks = round_numbers(low, high);
            // Labels at powers of ten only, where there are many.
            let wide = high / low > 300.0;
            let shown = |tick: &f64| !wide || (tick.log10().fract()).abs() < 1e-9;
            Axis {
                low: ticks[0],
                high: ticks[ticks.len() - 1],
                logarithmic: true,
                ticks: ticks.iter().copied().filter(shown).collect(),
            }
        } else {
            let steps = round_numbers(high / 6.0, high / 3.0);
            let step = steps.into_iter().find(|step| high / step <= 6.0).unwrap_or(high);
            let count = (high / step).ceil() as usize;
            Axis {
                low: 0.0,
                high: step * count as f64,
                logarithmic: false,
                ticks: (0..=count).map(|index| step * index as f64).collect(),
            }
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        BOTTOM - part * (BOTTOM - TOP)
    }
}

/// Returns the numbers 1, 2 and 5 times a power of ten, from the last that is at most `low` to the first that is at
/// least `high`.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let powers = (low.log10().floor() as i32 - 1)..=(high.log10().ceil() as i32 + 1);
    let all: Vec<f64> = powers
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
        .collect();
    let first = all.iter().rposition(|number| *number <= low).unwrap_or(0);
    let last = all.iter().position(|number| *number >= high).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1)].to_vec()
}

/// Formats a tick: `0.5`, `200`, `10k`, `1M`.
fn short(number: f64) -> String {
    let (value, suffix) = match number {
        number if number >= 1e6 => (number / 1e6, "M"),
        number if number >= 1e4 => (number / 1e3, "k"),
        number => (number, ""),
    };
    // The digits of a sum such as 0.1 + 0.2 are not shown.
    format!("{}{suffix}", (value * 1e6).round() / 1e6)
}

impl Plot {
    /// Returns the text of the file.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let mut sizes: Vec<f64> = points().map(|point| point.0).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
        let across = |size: f64| LEFT + (size / first).ln() / (last / first).ln() * (RIGHT - LEFT);
        let axis = Axis::over(&points().map(|point| point.1).collect::<Vec<_>>());

        let mut text = self.head(if axis.logarithmic { ", log scale" } else { "" });
        for tick in &axis.ticks {
            let y = axis.place(*tick);
            let _ = writeln!(text, r#"<path class="grid" d="M{LEFT} {y:.1}H{RIGHT}"/>"#);
            let _ = writeln!(
                text,
                r#"<text class="tick" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y + 4.0,
                short(*tick)
            );
        }
        let _ = writeln!(text, r#"<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>"#);
        for size in &sizes {
            let x = across(*size);
            let _ = writeln!(text, r#"<path class="axis" d="M{x:.1} {BOTTOM}v5"/>"#);
            let _ = writeln!(
                text,
                r#"<text class="tick" x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#,
                BOTTOM + 20.0,
                short(*size)
            );
        }
        for (index, line) in self.lines.iter().enumerate() {
            let places: Vec<(f64, f64)> = line
                .points
                .iter()
                .map(|(size, value)| (across(*size), axis.place(*value)))
                .collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = writeln!(text, r#"<path class="line l{index}" d="M{}"/>"#, path.join("L"));
            for ((x, y), (size, value)) in places.iter().zip(&line.points) {
                let _ = writeln!(
                    text,
                    r#"<circle class="dot d{index}" cx="{x:.1}" cy="{y:.1}" r="4"><title>{}, {}: {value:.1} {}</title></circle>"#,
                    escaped(line.name),
                    short(*size),
                    escaped(self.upward),
                );
            }
        }
        text.push_str(&self.names(&axis));
        text.push_str("</svg>\n");
        text
    }

    /// Writes everything that does not depend on the values, and the kind of the vertical scale.
    fn head(&self, scale: &str) -> String {
        let mut text = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
        );
        let _ = write!(text, "\n<title>{}</title>\n<style>\n{STYLE}", escaped(self.title));
        let rule = |text: &mut String, index: usize, colour: &str| {
            let _ = writeln!(text, ".l{index} {{ stroke: {colour} }} .d{index} {{ fill: {colour} }}");
        };
        for (index, (light, _)) in COLOURS.iter().enumerate() {
            rule(&mut text, index, light);
        }
        let _ = writeln!(text, "@media (prefers-color-scheme: dark) {{\n{DARK}");
        for (index, (_, dark)) in COLOURS.iter().enumerate() {
            rule(&mut text, index, dark);
        }
        let _ = writeln!(text, "}}\n</style>");
        let _ = writeln!(text, r#"<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>"#);
        let _ = writeln!(
            text,
            r#"<text class="title" x="20" y="32">{}</text>"#,
            escaped(self.title)
        );
        let _ = writeln!(
            text,
            r#"<text class="label" x="20" y="56">{}{scale}</text>"#,
            escaped(self.upward)
        );
        let _ = writeln!(
            text,
            r#"<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>"#,
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 42.0,
            escaped(self.across)
        );
        let _ = writeln!(
            text,
            r#"<text class="note" x="20" y="{}">{}</text>"#,
            HEIGHT - 12.0,
            escaped(&self.note)
        );
        text
    }

    /// Writes the name of each line beside its end, moved where two would overlap.
    fn names(&self, axis: &Axis) -> String {
        const GAP: f64 = 20.0;
        let end = |line: &Line| line.points.last().map_or(BOTTOM, |point| axis.place(point.1));
        let mut names: Vec<(usize, f64)> = self.lines.iter().map(end).enumerate().collect();
        names.sort_by(|one, other| one.1.total_cmp(&other.1));
        for index in 1..names.len() {
            names[index].1 = names[index].1.max(names[index - 1].1 + GAP);
        }
        // Upward again, if the last has left the plot.
        let mut lowest = BOTTOM;
        for name in names.iter_mut().rev() {
            name.1 = name.1.min(lowest);
            lowest = name.1 - GAP;
        }
        let mut text = String::new();
        for (index, y) in names {
            let _ = writeln!(
                text,
                r#"<circle class="d{index}" cx="{}" cy="{y:.1}" r="5"/><text class="name" x="{}" y="{:.1}">{}</text>"#,
                RIGHT + 20.0,
                RIGHT + 30.0,
                y + 4.5,
                escaped(self.lines[index].name)
            );
        }
        text
    }
}

/// Returns the text with the characters replaced that mean something in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const STYLE: &str = "\
text { font: 13px system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.label { fill: #57606a }
.tick { font-size: 12px; fill: #57606a }
.note { font-size: 11px; fill: #6e7781 }
.page { fill: #ffffff; stroke: #d0d7de }
.grid { stroke: #e6e9ed; fill: none }
.axis { stroke: #8c959f; fill: none }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.l0 { stroke-width: 3 }
.dot { stroke: #ffffff; stroke-width: 1.5 }
";

const DARK: &str = "\
text { fill: #e6edf3 }
.label { fill: #9da7b3 }
.tick { fill: #9da7b3 }
.note { fill: #8b949e }
.page { fill: #0d1117; stroke: #30363d }
.grid { stroke: #262c34 }
.axis { stroke: #6e7681 }
.dot { stroke: #0d1117 }
";

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: [f64; 2]) -> Plot {
        Plot {
            name: "test",
            title: "Cost & size",
            across: "size",
            upward: "ns",
            note: "a machine".to_owned(),
            lines: vec![Line {
                name: "bowline",
                points: vec![(1.0, values[0]), (10.0, values[1])],
            }],
        }
    }

    #[test]
    fn a_plot_has_its_labels_and_a_dot_for_each_point() {
        let svg = plot([10.0, 20.0]).svg();
        assert!(svg.contains("Cost &amp; size"), "{svg}");
        assert_eq!(svg.matches("class=\"dot d0\"").count(), 2, "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn values_that_are_close_are_shown_from_zero() {
        let axis = Axis::over(&[10.0, 20.0]);
        assert!(!axis.logarithmic);
        assert_eq!(axis.ticks, [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!((axis.place(0.0), axis.place(20.0)), (BOTTOM, TOP));
    }

    #[test]
    fn values_that_differ_widely_have_a_logarithmic_axis() {
        let axis = Axis::over(&[30.0, 700.0]);
        assert!(axis.logarithmic);
        assert_eq!(axis.ticks, [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        let axis = Axis::over(&[3.0, 40_000.0]);
        assert_eq!(axis.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn names_of_lines_that_end_together_do_not_overlap() {
        let mut plot = plot([10.0, 20.0]);
        let points = plot.lines[0].points.clone();
        for name in ["tokio", "smol"] {
            let points = points.clone();
            plot.lines.push(Line { name, points });
        }
        let names = plot.names(&Axis::over(&[10.0, 20.0]));
        let heights: Vec<&str> = names
            .lines()
            .filter_map(|line| line.split("cy=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(heights, ["74.0", "94.0", "114.0"]);
    }

    #[test]
    fn ticks_are_short() {
        let texts = [0.5, 200.0, 1000.0, 20_000.0, 1e6].map(short);
        assert_eq!(texts, ["0.5", "200", "1000", "20k", "1M"]);
    }
}

//! Formats the results: the table that people read, and the JSON file.

use gantry_columns::align;
use serde::Serialize;

use crate::sample::Summary;

/// One figure of one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    /// What was measured: `create`, `memory idle`.
    pub(crate) what: String,
    /// Which server.
    pub(crate) target: String,
    /// Under which conditions: `16 clients, h2`.
    pub(crate) setting: String,
    /// The figure itself.
    pub(crate) value: f64,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// Whether more is better.
    pub(crate) better: Better,
    /// The latency of single requests, where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) times: Option<Summary>,
    /// Processor time of the server for each request, in microseconds: the cost of a server without
    /// the clients that share its processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us: Option<f64>,
}

/// Which way a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// More is better, as with requests per second.
    More,
    /// Less is better, as with memory and time.
    Less,
}

/// Returns how many times better it is than the first target that has the same figure.
pub(crate) fn ratio(figures: &[Figure], figure: &Figure) -> Option<f64> {
    let base = figures
        .iter()
        .find(|other| other.what == figure.what && other.setting == figure.setting)
        .filter(|base| base.target != figure.target)?;
    let (new, old) = match figure.better {
        Better::More => (figure.value, base.value),
        Better::Less => (base.value, figure.value),
    };
    (old > 0.0).then(|| new / old)
}

/// All figures as a table, one line each, in the order they were taken.
pub(crate) fn table(figures: &[Figure]) -> String {
    let head = [
        "what", "setting", "target", "figure", "p50 ms", "p99 ms", "max ms", "errors", "cpu us",
        "ratio",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for figure in figures {
        let time = |pick: fn(&Summary) -> f64| {
            figure.times.as_ref().map_or_else(String::new, |times| format!("{:.2}", pick(times)))
        };
        rows.push([
            figure.what.clone(),
            figure.setting.clone(),
            figure.target.clone(),
            format!("{} {}", amount(figure.value), figure.unit),
            time(|times| times.p50_ms),
            time(|times| times.p99_ms),
            time(|times| times.max_ms),
            figure.times.as_ref().map_or_else(String::new, |times| times.errors.to_string()),
            figure.cpu_us.map_or_else(String::new, amount),
            ratio(figures, figure).map_or_else(String::new, |ratio| format!("{ratio:.1}x")),
        ]);
    }
    align(&rows, 2)
}

/// Formats a number with three significant digits, or as a whole number where it has more.
fn amount(value: f64) -> String {
    let digits = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(target: &str, value: f64, better: Better) -> Figure {
        Figure {
            what: "create".to_owned(),
            target: target.to_owned(),
            setting: "1 client".to_owned(),
            value,
            unit: "/s",
            better,
            times: None,
            cpu_us: None,
        }
    }

    #[test]
    fn ratios_say_how_many_times_better_than_the_first_target() {
        let table = [
            ("twice the rate", 100.0, 200.0, Better::More, Some(2.0)),
            ("half the memory", 100.0, 50.0, Better::Less, Some(2.0)),
            ("half the rate", 100.0, 50.0, Better::More, Some(0.5)),
            ("nothing to divide by", 0.0, 50.0, Better::More, None),
        ];
        for (why, base, value, better, expected) in table {
            let figures = [figure("real", base, better), figure("other", value, better)];
            assert_eq!(ratio(&figures, &figures[1]), expected, "{why}");
            assert_eq!(ratio(&figures, &figures[0]), None, "{why}: the base has no ratio");
        }
    }

    #[test]
    fn the_table_lines_up() {
        let text =
            table(&[figure("real", 651.4, Better::More), figure("other", 6514.0, Better::More)]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("what    setting   target  figure"), "{text}");
        assert!(lines[1].contains("651 /s"), "{text}");
        assert!(lines[2].ends_with("10.0x"), "{text}");
    }
}

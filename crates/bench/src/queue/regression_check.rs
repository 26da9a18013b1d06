//! Checks whether figures have become worse than those of earlier runs: by more than a fifth of
//! their mean, or by seven percentage points where they are shares. Kueue applies the same limits
//! to its scheduler.

use std::path::PathBuf;

use anyhow::Context as _;
use serde::Deserialize;

use crate::report::{Better, Figure};

/// The factor of the mean that a time may reach, and the inverse for a rate.
const MAX_RATIO: f64 = 1.2;
/// The percentage points that a share may lose.
const MAX_PERCENT_LOSS: f64 = 7.0;

/// A figure of an earlier run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct EarlierFigure {
    what: String,
    target: String,
    setting: String,
    value: f64,
}

/// Reads the figures of earlier runs.
pub(crate) fn read_earlier_figures(files: &[PathBuf]) -> anyhow::Result<Vec<EarlierFigure>> {
    let mut all = Vec::new();
    for file in files {
        let named = || format!("the figures of an earlier run in {}", file.display());
        let text = std::fs::read_to_string(file).with_context(named)?;
        all.extend(serde_json::from_str::<Vec<EarlierFigure>>(&text).with_context(named)?);
    }
    Ok(all)
}

/// Returns Gantry's figures that have become worse, one line each. Plain counts have no limit.
pub(crate) fn regressions(before: &[EarlierFigure], now: &[Figure]) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in now.iter().filter(|it| it.target == "gantry" && !it.unit.is_empty()) {
        let same = |it: &&EarlierFigure| {
            (&it.what, &it.target, &it.setting) == (&figure.what, &figure.target, &figure.setting)
        };
        let (sum, runs) = before
            .iter()
            .filter(same)
            .fold((0.0, 0.0), |(sum, runs), it| (sum + it.value, runs + 1.0));
        if runs == 0.0 {
            continue;
        }
        let (mean, value) = (sum / runs, figure.value);
        let is_worse = match (figure.unit, figure.better) {
            ("%", _) => value < mean - MAX_PERCENT_LOSS,
            (_, Better::Less) => value > mean * MAX_RATIO,
            (_, Better::More) => value < mean / MAX_RATIO,
        };
        if is_worse {
            let Figure { what, target, setting, unit, .. } = figure;
            lines.push(format!(
                "{target}: {what} ({setting}): {value:.1} {unit}, and {mean:.1} before ({runs} \
                 runs)"
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_5_a_fifth_above_mean_is_worse() {
        let kept = |value| EarlierFigure {
            what: "w".to_owned(),
            target: "gantry".to_owned(),
            setting: "s".to_owned(),
            value,
        };
        let before = [kept(90.0), kept(110.0)];
        let table = [
            ("a time", "s", Better::Less, [119.0, 121.0]),
            ("a rate", "/s", Better::More, [84.0, 83.0]),
            ("a share", "%", Better::More, [93.5, 92.5]),
        ];
        for (why, unit, better, [well, worse_]) in table {
            let figure = |what: &str, value| Figure {
                what: what.to_owned(),
                target: "gantry".to_owned(),
                setting: "s".to_owned(),
                value,
                unit,
                better,
                times: None,
                cpu_us: None,
            };
            assert_eq!(regressions(&before, &[figure("w", well)]), [""; 0], "{why}");
            assert_eq!(regressions(&before, &[figure("w", worse_)]).len(), 1, "{why}");
            assert_eq!(regressions(&before, &[figure("another", worse_)]), [""; 0], "{why}");
        }
        let count = Figure {
            what: "w".to_owned(),
            target: "gantry".to_owned(),
            setting: "s".to_owned(),
            value: 999.0,
            unit: "",
            better: Better::Less,
            times: None,
            cpu_us: None,
        };
        assert_eq!(regressions(&before, &[count]), [""; 0], "counts say nothing");
    }

    #[test]
    fn earlier_figures_are_read() {
        let text = r#"[{"what": "wall", "target": "gantry", "setting": "s", "value": 2.5, "unit": "s",
                        "better": "less", "times": {"count": 1}}]"#;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("figures.json");
        std::fs::write(&file, text).unwrap();
        assert_eq!(read_earlier_figures(std::slice::from_ref(&file)).unwrap()[0].value, 2.5);
        let none = folder.path().join("none.json");
        let error = format!("{:#}", read_earlier_figures(&[file, none]).unwrap_err());
        assert!(error.contains("none.json"), "{error}");
    }
}

//! Whether figures have become worse than those of earlier runs: by more than a fifth of their mean, or by
//! seven of a hundred where they are shares. Kueue holds its scheduler to the same.

use std::path::PathBuf;

use anyhow::Context as _;
use serde::Deserialize;

use crate::report::{Better, Figure};

/// How many times the mean a time may be, and a rate the other way round.
const TIMES: f64 = 1.2;
/// How much less of a hundred a share may be.
const POINTS: f64 = 7.0;

/// A figure of an earlier run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Kept {
    what: String,
    target: String,
    setting: String,
    value: f64,
}

/// Reads the figures of earlier runs.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Kept>> {
    let mut all = Vec::new();
    for file in files {
        let named = || format!("the figures of an earlier run in {}", file.display());
        let text = std::fs::read_to_string(file).with_context(named)?;
        all.extend(serde_json::from_str::<Vec<Kept>>(&text).with_context(named)?);
    }
    Ok(all)
}

/// What of ours has become worse, one line each. Mere counts are not held to anything.
pub(crate) fn worse(before: &[Kept], now: &[Figure]) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in now.iter().filter(|it| it.target == "gantry" && !it.unit.is_empty()) {
        let same = |it: &&Kept| {
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
            ("%", _) => value < mean - POINTS,
            (_, Better::Less) => value > mean * TIMES,
            (_, Better::More) => value < mean / TIMES,
        };
        if is_worse {
            let Figure { what, target, setting, unit, .. } = figure;
            lines.push(format!(
                "{target}: {what} ({setting}): {value:.1} {unit}, and {mean:.1} before ({runs} runs)"
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_5_a_fifth_more_than_the_mean_is_worse() {
        let kept = |value| Kept {
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
            assert_eq!(worse(&before, &[figure("w", well)]), [""; 0], "{why}");
            assert_eq!(worse(&before, &[figure("w", worse_)]).len(), 1, "{why}");
            assert_eq!(worse(&before, &[figure("another", worse_)]), [""; 0], "{why}");
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
        assert_eq!(worse(&before, &[count]), [""; 0], "counts say nothing");
    }

    #[test]
    fn what_was_written_is_read() {
        let text = r#"[{"what": "wall", "target": "gantry", "setting": "s", "value": 2.5, "unit": "s",
                        "better": "less", "times": {"count": 1}}]"#;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("figures.json");
        std::fs::write(&file, text).unwrap();
        assert_eq!(read(std::slice::from_ref(&file)).unwrap()[0].value, 2.5);
        let none = folder.path().join("none.json");
        let error = format!("{:#}", read(&[file, none]).unwrap_err());
        assert!(error.contains("none.json"), "{error}");
    }
}

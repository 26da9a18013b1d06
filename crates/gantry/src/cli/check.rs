//! `gantry check`: read manifests as the controllers would, without a cluster.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gantry_api::decode::{self, Decoded, Document};
use serde_json::Value;

use super::{End, Form, render_objects};
use crate::output::Output;

/// Most bytes read from one file.
///
/// The largest object an API server takes is 3 MiB, so this is a file of ten of them. Beyond it a
/// file is not a manifest, and reading on would only take memory.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

/// Read manifests and say what is wrong with them.
///
/// Reads objects of all of Gantry's API groups the way the controllers do: spellings of older
/// releases are accepted with a warning, everything else must be exactly right. Objects of other
/// groups are let through. No cluster is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry check claim.yaml pools/
  kubectl get appwrappers -A -o yaml | gantry check -
  gantry check old.yaml -o yaml > canonical.yaml

Exit code 1 if any document is refused.")]
pub(super) struct Arguments {
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(value_name = "FILE", required_unless_present = "filename")]
    files: Vec<PathBuf>,

    /// The same, as kubectl spells it.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Look into folders below the given ones too.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Drop unknown fields with a warning instead of refusing the document.
    #[arg(long)]
    lenient: bool,

    /// Print the accepted objects in canonical form instead of a line for each document.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let options = decode::Options { lenient: arguments.lenient };
    let mut tally = Tally::default();
    let mut accepted = Vec::new();
    for named in arguments.files.iter().chain(&arguments.filename) {
        let files = match manifests(named, arguments.recursive) {
            Ok(files) => files,
            Err(error) => {
                tally.unreadable += 1;
                output.failure(&error);
                continue;
            }
        };
        for file in files {
            let name = file.display().to_string();
            let read = read(&file).and_then(|text| {
                decode::documents(&text, options).map_err(|error| {
                    let at = error.at;
                    anyhow::Error::new(error).context(format!("{name}:{at}"))
                })
            });
            match read {
                Err(error) => {
                    tally.unreadable += 1;
                    output.failure(&error);
                }
                Ok(documents) => {
                    if documents.is_empty() {
                        output.warning(format_args!("{name}: no document in it"));
                    }
                    for document in &documents {
                        report(&name, document, arguments.output.is_none(), &mut tally, output)?;
                        accepted.extend(canonical(document)?);
                    }
                }
            }
        }
    }
    if let Some(form) = arguments.output {
        output.result_text(&render_objects(&accepted, form)?)?;
    }
    output.note(&tally);
    Ok(if tally.refused + tally.unreadable == 0 { End::Done } else { End::Refused })
}

#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    foreign: usize,
    unreadable: usize,
    warnings: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { accepted, refused, foreign, unreadable, warnings } = self;
        write!(
            f,
            "{accepted} accepted, {refused} refused, {foreign} of other kinds, {warnings} warnings"
        )?;
        if *unreadable > 0 {
            write!(f, ", {unreadable} files not read")?;
        }
        Ok(())
    }
}

fn report(
    file: &str,
    document: &Document,
    lines: bool,
    tally: &mut Tally,
    output: &mut Output,
) -> io::Result<()> {
    let Document { index, at: _, subject, content, errors, warnings } = document;
    for warning in warnings {
        tally.warnings += 1;
        output.warning(format_args!("{file}[{index}] {}: {}", warning.path, warning.text));
    }
    for error in errors {
        output
            .error(format_args!("{file}:{}: {subject}: {}: {}", error.at, error.path, error.text));
    }
    let verdict = match content {
        Decoded::Object(_) | Decoded::Nodes(_) | Decoded::CapacityClaim(_) => {
            tally.accepted += 1;
            "accepted"
        }
        Decoded::Foreign(_) => {
            tally.foreign += 1;
            "not a Gantry kind"
        }
        Decoded::Refused => {
            tally.refused += 1;
            "refused"
        }
    };
    if lines {
        output.result(format_args!("{file}[{index}] {subject}: {verdict}"))?;
    }
    Ok(())
}

fn canonical(document: &Document) -> anyhow::Result<Option<Value>> {
    Ok(match &document.content {
        Decoded::Object(object) => Some(object.to_value()?),
        Decoded::Nodes(nodes) => Some(serde_json::to_value(nodes)?),
        Decoded::CapacityClaim(claim) => Some(serde_json::to_value(claim)?),
        Decoded::Foreign(value) => Some(value.clone()),
        Decoded::Refused => None,
    })
}

/// The files a name on the command line stands for, in order of their names.
fn manifests(named: &Path, recursive: bool) -> anyhow::Result<Vec<PathBuf>> {
    if !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![named.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            folder.read_dir().with_context(|| format!("could not list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("could not list {}", folder.display()))?;
            let path = entry.path();
            // Links to folders are not followed: they can form a ring.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if recursive {
                    folders.push(path);
                }
            } else if matches!(
                path.extension().and_then(|e| e.to_str()),
                Some("yaml" | "yml" | "json")
            ) {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        bail!(
            "{}: no *.yaml, *.yml or *.json file in this folder; name a file{}",
            named.display(),
            if recursive { "" } else { ", or use --recursive" }
        );
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let mut bytes = Vec::new();
    let mut limited: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock().take(MOST_BYTES + 1))
    } else {
        let opened = File::open(file).with_context(|| {
            format!("could not open {name}; check the path and its permissions")
        })?;
        Box::new(opened.take(MOST_BYTES + 1))
    };
    limited.read_to_end(&mut bytes).with_context(|| format!("could not read {name}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!(
            "{name}:1:1: larger than {} MiB, which no manifest is; split the file, or check that it is the right one",
            MOST_BYTES >> 20
        );
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
            bail!(
                "{name}:{line}:1: not UTF-8 text; check that this is a YAML file, or save it as UTF-8"
            )
        }
    }
}

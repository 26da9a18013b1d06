//! `gantry check`: validates manifests as the controllers would, without a cluster.

use std::io;
use std::path::PathBuf;

use gantry_api::decode::{self, Decoded, Document};
use serde_json::Value;

use super::files::{manifests, read};
use super::{CommandOutcome, OutputFormat, render_objects};
use crate::output::Output;

/// Validate manifests and print what is wrong with them.
///
/// Reads objects of all of Gantry's API groups the way the controllers do: spellings of older
/// releases are accepted with a warning, everything else must be exactly right. Objects of other
/// groups are ignored. No cluster is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry check claim.yaml pools/
  kubectl get appwrappers -A -o yaml | gantry check -
  gantry check old.yaml -o yaml > canonical.yaml

Exit code 1 if any document is rejected.")]
pub(super) struct Arguments {
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(value_name = "FILE", required_unless_present = "filename")]
    files: Vec<PathBuf>,

    /// The same as the arguments, as kubectl spells it.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Also read folders below the given ones.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Drop unknown fields with a warning instead of rejecting the document.
    #[arg(long)]
    lenient: bool,

    /// Print the accepted objects in canonical form instead of one line per document.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let options = decode::Options { lenient: arguments.lenient };
    let mut tally = CheckSummary::default();
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
                        output.warning(format_args!("{name}: the file has no documents"));
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
    Ok(if tally.refused + tally.unreadable == 0 {
        CommandOutcome::Success
    } else {
        CommandOutcome::Failure
    })
}

#[derive(Debug, Default)]
struct CheckSummary {
    accepted: usize,
    refused: usize,
    foreign: usize,
    unreadable: usize,
    warnings: usize,
}

impl std::fmt::Display for CheckSummary {
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
    tally: &mut CheckSummary,
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

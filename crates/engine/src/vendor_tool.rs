//! The stand-in of the vendor tool: prints accelerators and their used memory from the ledgers.

use std::path::Path;

use crate::ledger::{Ledger, LedgerError, LedgerState};

/// One mebibyte, the unit in which memory is printed.
const MEBIBYTE: u64 = 1 << 20;
/// Returned for a field that is not known, as the tool does.
const UNKNOWN_FIELD: &str = "is not a valid field to query.";

/// Why nothing was printed.
#[derive(Debug, thiserror::Error)]
pub enum VendorToolError {
    /// The command line asks for something else.
    #[error(
        "{0:?} is not supported; use -L or --query-gpu=index,uuid,name,memory.used,memory.total \
         with --format=csv[,noheader][,nounits]"
    )]
    Argument(String),
    /// A field is not known.
    #[error("Field \"{0}\" {UNKNOWN_FIELD}")]
    Field(String),
    /// There is no accelerator.
    #[error("No devices were found")]
    NoDevices,
    /// The ledgers cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Query {
    /// A line with the name and UUID of each.
    List,
    /// These fields of each.
    Fields { fields: Vec<String>, header: bool, units: bool },
}

/// Prints what is asked about the accelerators that are visible: `visible` is the value of
/// `NVIDIA_VISIBLE_DEVICES`.
///
/// # Errors
/// The command line is wrong, or there is no accelerator.
pub fn run(
    arguments: &[String],
    ledgers: Option<&Path>,
    visible: Option<&str>,
) -> Result<String, VendorToolError> {
    let query = parse(arguments)?;
    let mut all = Vec::new();
    if let Some(directory) = ledgers {
        for ledger in Ledger::all(directory)? {
            all.push(ledger.read()?);
        }
    }
    all.retain(|it| is_visible(visible, it));
    if all.is_empty() {
        return Err(VendorToolError::NoDevices);
    }
    render(&query, &all)
}

/// Whether a value of `NVIDIA_VISIBLE_DEVICES` names an accelerator: by UUID or index.
fn is_visible(visible: Option<&str>, state: &LedgerState) -> bool {
    let accelerator = &state.accelerator;
    match visible.map(str::trim) {
        None | Some("" | "all") => true,
        Some("void" | "none") => false,
        Some(list) => {
            let index = accelerator.index.to_string();
            list.split(',').map(str::trim).any(|it| it == accelerator.uuid || it == index)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Query, VendorToolError> {
    let mut fields = None;
    let mut format = Vec::new();
    for argument in arguments {
        match argument.split_once('=') {
            Some(("--query-gpu", names)) => {
                fields = Some(names.split(',').map(|it| it.trim().to_owned()).collect());
            }
            Some(("--format", names)) => {
                format = names.split(',').map(|it| it.trim().to_owned()).collect();
            }
            _ if argument == "-L" || argument == "--list-gpus" => return Ok(Query::List),
            _ => return Err(VendorToolError::Argument(argument.clone())),
        }
    }
    let known = |it: &String| matches!(it.as_str(), "csv" | "noheader" | "nounits");
    if let Some(other) = format.iter().find(|it| !known(it)) {
        return Err(VendorToolError::Argument(format!("--format={other}")));
    }
    match fields {
        Some(fields) if format.iter().any(|it| it == "csv") => Ok(Query::Fields {
            fields,
            header: !format.iter().any(|it| it == "noheader"),
            units: !format.iter().any(|it| it == "nounits"),
        }),
        Some(_) | None => Err(VendorToolError::Argument(arguments.join(" "))),
    }
}

fn render(query: &Query, all: &[LedgerState]) -> Result<String, VendorToolError> {
    let mut text = String::new();
    match query {
        Query::List => {
            for it in all {
                let (index, uuid) = (it.accelerator.index, &it.accelerator.uuid);
                text.push_str(&format!("GPU {index}: Gantry Simulated (UUID: {uuid})\n"));
            }
        }
        Query::Fields { fields, header, units } => {
            if *header {
                let title = |it: &String| match (it.starts_with("memory."), units) {
                    (true, true) => format!("{it} [MiB]"),
                    (true, false) | (false, _) => it.clone(),
                };
                text.push_str(&fields.iter().map(title).collect::<Vec<_>>().join(", "));
                text.push('\n');
            }
            for it in all {
                let values: Result<Vec<_>, _> =
                    fields.iter().map(|field| value(field, it, *units)).collect();
                text.push_str(&values?.join(", "));
                text.push('\n');
            }
        }
    }
    Ok(text)
}

fn value(field: &str, state: &LedgerState, units: bool) -> Result<String, VendorToolError> {
    let memory = |bytes: u64| {
        let unit = if units { " MiB" } else { "" };
        format!("{}{unit}", bytes.div_ceil(MEBIBYTE))
    };
    let accelerator = &state.accelerator;
    Ok(match field {
        "index" => accelerator.index.to_string(),
        "uuid" | "gpu_uuid" => accelerator.uuid.clone(),
        "name" | "gpu_name" => "Gantry Simulated".to_owned(),
        "memory.used" => memory(state.used()),
        "memory.total" => memory(accelerator.capacity),
        "memory.free" => memory(accelerator.capacity.saturating_sub(state.used())),
        other => return Err(VendorToolError::Field(other.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ledger::{Change, Holder};

    #[test]
    fn the_queries_of_requesters_and_launchers_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        for (index, uuid) in [(1, "GPU-b"), (0, "GPU-a")] {
            Ledger::of(folder.path(), uuid).unwrap().describe(index, 4 * MEBIBYTE).unwrap();
        }
        let holder = Holder::new(folder.path(), "i", "m").unwrap();
        let ledger = Ledger::of(folder.path(), "GPU-a").unwrap();
        ledger.set(&holder, Change::Load, MEBIBYTE + 1, true, Timestamp::UNIX_EPOCH).unwrap();
        let run = |arguments: &str, visible: Option<&str>| {
            let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            run(&words, Some(folder.path()), visible).map_err(|error| error.to_string())
        };
        let table = [
            ("--query-gpu=uuid --format=csv,noheader", None, "GPU-a\nGPU-b\n"),
            (
                "--query-gpu=uuid,memory.used --format=csv,noheader,nounits",
                None,
                "GPU-a, 2\nGPU-b, 0\n",
            ),
            (
                "--query-gpu=index,memory.total --format=csv",
                Some("GPU-b"),
                "index, memory.total [MiB]\n1, 4 MiB\n",
            ),
            ("-L", Some("0"), "GPU 0: Gantry Simulated (UUID: GPU-a)\n"),
        ];
        for (arguments, visible, expected) in table {
            assert_eq!(run(arguments, visible).unwrap(), expected, "{arguments}");
        }
        for (arguments, visible, expected) in [
            ("-L", Some("none"), "No devices were found"),
            ("--query-gpu=nope --format=csv", None, "\"nope\""),
            ("--query-gpu=uuid", None, "is not supported"),
            ("--query-gpu=uuid --format=xml", None, "--format=xml"),
            ("-q", None, "\"-q\""),
        ] {
            assert!(run(arguments, visible).unwrap_err().contains(expected), "{arguments}");
        }
    }
}

//! Files that commands read: which they are, what they say, and what is wrong with them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gantry_api::decode::{self, Document};

use crate::output::Output;

/// Most bytes read from one file.
///
/// The largest object an API server takes is 3 MiB, so this is a file of ten of them. Beyond it a
/// file is not a manifest, and reading on would only take memory.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

/// A document of a file.
pub(super) struct Loaded {
    /// The file, as it was named.
    pub(super) file: String,
    /// What is in it.
    pub(super) document: Document,
}

/// Reads every document of files and folders. What should be written differently is said.
///
/// # Errors
/// A file cannot be read, or a document is refused. All that is wrong has been said then.
pub(super) fn load(
    named: &[PathBuf],
    recursive: bool,
    options: decode::Options,
    output: &mut Output,
) -> anyhow::Result<Vec<Loaded>> {
    let mut loaded = Vec::new();
    let mut refused = 0;
    for named in named {
        for file in manifests(named, recursive)? {
            let name = file.display().to_string();
            let documents = decode::documents(&read(&file)?, options).map_err(|error| {
                let at = error.at;
                anyhow::Error::new(error).context(format!("{name}:{at}"))
            })?;
            if documents.is_empty() {
                output.warning(format_args!("{name}: no document in it"));
            }
            for document in documents {
                let Document { index, subject, errors, warnings, .. } = &document;
                for warning in warnings {
                    let (path, text) = (&warning.path, &warning.text);
                    output.warning(format_args!("{name}[{index}] {path}: {text}"));
                }
                for error in errors {
                    let (at, path, text) = (&error.at, &error.path, &error.text);
                    output.error(format_args!("{name}:{at}: {subject}: {path}: {text}"));
                }
                refused += usize::from(!errors.is_empty());
                loaded.push(Loaded { file: name.clone(), document });
            }
        }
    }
    match refused {
        0 => Ok(loaded),
        1 => bail!("a document is refused; correct it, or say --lenient to drop unknown fields"),
        _ => bail!(
            "{refused} documents are refused; correct them, or say --lenient to drop unknown fields"
        ),
    }
}

/// The files a name on the command line stands for, in order of their names.
pub(super) fn manifests(named: &Path, recursive: bool) -> anyhow::Result<Vec<PathBuf>> {
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

/// The text of a file, or of standard input.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
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

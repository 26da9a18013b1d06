//! Reads the files that commands are given, and reports what is wrong with them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gantry_api::decode::{self, Document};

use crate::output::Output;

/// The maximum number of bytes read from one file.
///
/// The largest object an API server accepts is 3 MiB, so this is a file of ten of them. A larger
/// file is not a manifest, and reading on would only use memory.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// A document of a file.
pub(super) struct LoadedDocument {
    /// The file, as it was named.
    pub(super) file: String,
    /// The decoded document.
    pub(super) document: Document,
}

/// Reads every document of files and folders, and prints their warnings.
///
/// # Errors
/// A file cannot be read, or a document is rejected. Every problem has been printed then.
pub(super) fn load(
    named: &[PathBuf],
    recursive: bool,
    options: decode::Options,
    output: &mut Output,
) -> anyhow::Result<Vec<LoadedDocument>> {
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
                output.warning(format_args!("{name}: the file has no documents"));
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
                loaded.push(LoadedDocument { file: name.clone(), document });
            }
        }
    }
    match refused {
        0 => Ok(loaded),
        1 => bail!("a document is rejected; correct it, or use --lenient to drop unknown fields"),
        _ => bail!(
            "{refused} documents are rejected; correct them, or use --lenient to drop unknown \
             fields"
        ),
    }
}

/// Returns the files that a path on the command line stands for, in order of their names.
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
            // Links to folders are not followed: they can form a cycle.
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

/// Reads the text of a file, or of standard input.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let mut bytes = Vec::new();
    let mut limited: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock().take(MAX_FILE_BYTES + 1))
    } else {
        let opened = File::open(file).with_context(|| {
            format!("could not open {name}; check the path and its permissions")
        })?;
        Box::new(opened.take(MAX_FILE_BYTES + 1))
    };
    limited.read_to_end(&mut bytes).with_context(|| format!("could not read {name}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!(
            "{name}:1:1: larger than {} MiB, the limit for manifests; split the file, or check \
             the path",
            MAX_FILE_BYTES >> 20
        );
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
            bail!(
                "{name}:{line}:1: not UTF-8 text; check that this is a YAML file, or save it as \
                 UTF-8"
            )
        }
    }
}

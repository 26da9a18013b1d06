//! Reads the files of an inventory.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gantry_inventory::{ExtraVariables, Input, Source, TextFile, VaultPassword, is_read, split};
use zeroize::Zeroizing;

use crate::config;
use crate::output::Output;

/// Bytes of one file.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Files of one folder, and levels of folders below it.
const MAX_FILES: usize = 10_000;
const MAX_FOLDER_DEPTH: usize = 16;

/// Reads everything that the command line names.
pub(super) fn input(
    named: &[String],
    extra: &[String],
    password_files: &[PathBuf],
    output: &mut Output,
) -> anyhow::Result<Input> {
    let sources = named.iter().map(|named| source(named)).collect::<anyhow::Result<_>>()?;
    let extra = extra.iter().map(|text| extra_variables(text)).collect::<anyhow::Result<_>>()?;
    let passwords = password_files.iter().map(|path| password(path, output));
    Ok(Input {
        sources,
        extra_variables: extra,
        passwords: passwords.collect::<anyhow::Result<_>>()?,
        environment: config::environment(),
    })
}

/// The patterns of a limit; `@FILE` is a pattern on each line of the file.
pub(super) fn limit(text: &str) -> anyhow::Result<Vec<String>> {
    let mut patterns = Vec::new();
    for pattern in split(text) {
        match pattern.strip_prefix('@') {
            Some(path) => {
                let file = text_file(Path::new(path), path)?;
                let lines = file.text.lines().map(str::trim).filter(|line| !line.is_empty());
                patterns.extend(lines.map(str::to_owned));
            }
            None => patterns.push(pattern),
        }
    }
    Ok(patterns)
}

/// The folder beside an inventory that has steps of the user.
const STEPS_FOLDER: &str = "gantry_steps";

/// The files with steps of the user, beside the inventories or in their folders, by name.
pub(super) fn step_files(named: &[String]) -> anyhow::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for named in named {
        let path = Path::new(named);
        let folder =
            if path.is_dir() { path } else { path.parent().unwrap_or_else(|| Path::new("")) };
        let below = folder.join(STEPS_FOLDER);
        if path.exists() && below.is_dir() {
            walk(folder, &below, 0, &mut files)?;
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup_by(|one, other| one.path == other.path);
    Ok(files)
}

fn source(named: &str) -> anyhow::Result<Source> {
    let path = Path::new(named);
    let kind = std::fs::metadata(path);
    if named.contains(',') && kind.is_err() {
        return Ok(Source::Hosts(named.to_owned()));
    }
    let kind = kind.with_context(|| {
        format!("could not read the inventory {named}; for a list of hosts write a comma: {named},")
    })?;
    if kind.is_dir() {
        let mut files = Vec::new();
        walk(path, path, 0, &mut files)?;
        return Ok(Source::Folder { path: named.to_owned(), files });
    }
    let inside = path.file_name().and_then(|name| name.to_str()).unwrap_or("inventory");
    let file = text_file(path, inside)?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let mut variables = Vec::new();
    for name in ["group_vars", "host_vars"] {
        let below = folder.join(name);
        if below.is_dir() {
            walk(folder, &below, 0, &mut variables)?;
        }
    }
    Ok(Source::File { file, variables })
}

/// Reads the files below a folder that an inventory has a use for.
fn walk(root: &Path, folder: &Path, depth: usize, files: &mut Vec<TextFile>) -> anyhow::Result<()> {
    let shown = folder.display();
    if depth > MAX_FOLDER_DEPTH {
        bail!("{shown}: folders are nested too deeply, or a link leads back");
    }
    let entries = folder.read_dir().with_context(|| format!("could not list {shown}"))?;
    for entry in entries {
        let path = entry.with_context(|| format!("could not list {shown}"))?.path();
        let below = path.strip_prefix(root).unwrap_or(&path);
        let Some(inside) = below.to_str() else {
            bail!("{}: the name is not UTF-8; rename it", path.display());
        };
        let name = inside.rsplit('/').next().unwrap_or_default();
        // Steps are no hosts.
        if name.starts_with('.') || inside == STEPS_FOLDER {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, depth + 1, files)?;
        } else if is_read(inside) {
            if files.len() == MAX_FILES {
                bail!("{}: more than {MAX_FILES} files; name another folder", root.display());
            }
            files.push(text_file(&path, inside)?);
        }
    }
    Ok(())
}

fn text_file(path: &Path, inside: &str) -> anyhow::Result<TextFile> {
    let shown = path.display();
    let (bytes, mode) = contents(path)?;
    let text = String::from_utf8(bytes.to_vec()).ok();
    let text = text.with_context(|| format!("{shown}: not UTF-8; save the file as UTF-8"))?;
    Ok(TextFile {
        path: shown.to_string(),
        inside: inside.to_owned(),
        text: text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text),
        is_private: mode & 0o077 == 0,
    })
}

/// The bytes of a file and its mode.
fn contents(path: &Path) -> anyhow::Result<(Zeroizing<Vec<u8>>, u32)> {
    let shown = path.display();
    let file = File::open(path)
        .with_context(|| format!("could not open {shown}; check the path and its permissions"))?;
    let mode = file.metadata().with_context(|| format!("could not read {shown}"))?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("could not read {shown}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("{shown}: larger than {} MiB; check the path", MAX_FILE_BYTES >> 20);
    }
    Ok((bytes, mode.permissions().mode()))
}

fn extra_variables(text: &str) -> anyhow::Result<ExtraVariables> {
    if let Some(path) = text.strip_prefix('@') {
        return Ok(ExtraVariables::File(text_file(Path::new(path), path)?));
    }
    if text.starts_with(['/', '.']) {
        bail!("--extra-vars {text} has no variable; for a file write @{text}");
    }
    Ok(ExtraVariables::Text(text.to_owned()))
}

fn password(path: &Path, output: &mut Output) -> anyhow::Result<VaultPassword> {
    let shown = path.display();
    let (bytes, mode) = contents(path)?;
    if mode & 0o111 != 0 {
        bail!("{shown} is a program, and is not run; write the password to a file: chmod 600");
    }
    if mode & 0o077 != 0 {
        output.warning(format_args!("{shown}: other users can read the password; chmod 600"));
    }
    let password = Zeroizing::new(bytes.trim_ascii().to_vec());
    if password.is_empty() {
        bail!("{shown}: the file has no password");
    }
    Ok(VaultPassword { label: None, password })
}

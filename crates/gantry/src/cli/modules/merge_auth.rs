//! `gantry modules merge-auth`: one file of credentials from several Secrets, for builders that
//! read one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use gantry_registry::CredentialFile;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::Failure;
use super::container_files::{ContainerFiles, PathError};
use super::key_files::in_secret;
use crate::cli::CommandOutcome;
use crate::output::Output;

/// The largest file of credentials; Secrets are not larger.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Merge credentials of several registries into one file.
///
/// Builders read one file of credentials. Of two entries for one registry the first is used.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry modules merge-auth --output config.json /run/secrets/registry/0 /run/secrets/registry/1")]
pub(super) struct Arguments {
    /// The file that is written.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// Files of credentials in the format of Docker, or mounted Secrets.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Arguments {
    /// The same arguments with the paths of a container.
    pub(super) fn in_container(mut self, files: &ContainerFiles) -> Result<Self, PathError> {
        for path in &mut self.files {
            files.map_input(path)?;
        }
        files.map_output(&mut self.output)?;
        Ok(self)
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<CommandOutcome, Failure> {
    let mut merged = Map::new();
    for path in &arguments.files {
        let named = || format!("cannot use the credentials in {}", path.display());
        let file = in_secret(path, &[".dockerconfigjson", ".dockercfg"])?;
        let bytes = Zeroizing::new(std::fs::read(file).with_context(named)?);
        merge(&mut merged, &bytes).with_context(named)?;
    }
    let count = merged.len();
    let text = Zeroizing::new(json!({"auths": merged}).to_string());
    let path = &arguments.output;
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("could not write {}", path.display()))?;
    output.note(format_args!("credentials for {count} registries in {}", path.display()));
    Ok(CommandOutcome::Success)
}

/// Adds the entries of a file whose registries have none yet.
fn merge(merged: &mut Map<String, Value>, bytes: &[u8]) -> anyhow::Result<()> {
    anyhow::ensure!(bytes.len() <= MAX_FILE_BYTES, "more than {MAX_FILE_BYTES} bytes");
    // Everything that is wrong with an entry is found here, with its name and without its content.
    CredentialFile::parse(bytes)?;
    let file: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let entries = match file.get("auths") {
        Some(auths) => auths.as_object(),
        None => file.as_object(),
    };
    for (registry, entry) in entries.into_iter().flatten() {
        merged.entry(registry.clone()).or_insert_with(|| entry.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kms_44_of_two_entries_for_a_registry_the_first_is_used() {
        let mut merged = Map::new();
        let first =
            json!({"auths": {"a.example": {"auth": "dTpw"}, "b.example": {"auth": "dTpx"}}});
        let second = json!({"b.example": {"auth": "dTpy"}, "c.example": {"auth": "dTp6"}});
        for file in [first, second] {
            merge(&mut merged, file.to_string().as_bytes()).unwrap();
        }
        let expected = [("a.example", "dTpw"), ("b.example", "dTpx"), ("c.example", "dTp6")];
        for (registry, auth) in expected {
            assert_eq!(merged[registry]["auth"], auth, "{registry}");
        }
        assert_eq!(merged.len(), 3);
    }

    #[test]
    fn what_is_no_credential_is_refused() {
        for bad in ["", "[]", "{\"auths\": 1}", "{\"auths\": {\"a\": {\"auth\": \"?\"}}}"] {
            assert!(merge(&mut Map::new(), bad.as_bytes()).is_err(), "{bad}");
        }
    }
}

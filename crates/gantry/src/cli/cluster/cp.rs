//! `gantry cluster cp`: copies a file to hosts, or from them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use futures_util::{StreamExt as _, stream};
use gantry_connection::{ConnectionError, CopyOutcome, Upload};

use super::super::CommandOutcome;
use super::hosts::{ConnectedHost, HostOptions, hosts};
use super::outcome::{self, Outcomes};
use crate::output::Output;

/// Copy a file to the hosts of an inventory, or from them.
///
/// A file appears on a host whole or not at all, with the mode it has here; one that is there
/// already is not written again. From hosts, each file goes to FOLDER/HOST/PATH.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry cluster cp -i hosts.yaml --become audit.rules all:/etc/audit/rules.d/
  gantry cluster cp -i hosts.yaml 'master:!gpu-1:/var/log/syslog' logs/

Exit codes:
  0  copied, or already there
  1  no host was tried: the inventory or the file is wrong, or no host matched
  2  it could not be written or read on a host, or sudo refused
  4  a host was not reached; the message says why, and what to do
  5  the command line is wrong")]
pub(in super::super) struct Arguments {
    #[command(flatten)]
    hosts: HostOptions,

    /// A file here, or PATTERN:/PATH on hosts.
    #[arg(value_name = "FROM")]
    from: String,

    /// PATTERN:/PATH on hosts, or a folder here.
    #[arg(value_name = "TO")]
    to: String,
}

/// What is copied.
enum Copy {
    ToHosts { upload: Upload, path: String },
    FromHosts { path: String, folder: PathBuf },
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let (from, to) = (remote(&arguments.from), remote(&arguments.to));
    let (pattern, path) = match (from, to) {
        (None, Some(remote)) | (Some(remote), None) => remote,
        (Some(_), Some(_)) => bail!("both are on hosts; one of FROM and TO has to be a path here"),
        (None, None) => bail!("neither is on hosts; write one of them as PATTERN:/PATH"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let copy = if to.is_some() {
        let source = Path::new(&arguments.from);
        let kind = source.metadata();
        let kind = kind.with_context(|| format!("could not read {}", source.display()))?;
        if !kind.is_file() {
            bail!("{} is not a file; pack a folder with tar first", source.display());
        }
        let upload = Upload::prepare(source, kind.permissions().mode() & 0o7777);
        Copy::ToHosts { upload: runtime.block_on(upload)?, path: path.to_owned() }
    } else {
        Copy::FromHosts { path: path.to_owned(), folder: PathBuf::from(&arguments.to) }
    };
    let Some(hosts) = hosts(&arguments.hosts, pattern, output)? else {
        return Ok(CommandOutcome::Failure);
    };
    let outcomes = runtime.block_on(async {
        let forks = usize::from(arguments.hosts.forks);
        let copy = &copy;
        let work = hosts.iter().map(|host| async move {
            let result = one(copy, host, arguments).await;
            host.connection.close().await;
            (host, result)
        });
        let mut results = stream::iter(work).buffer_unordered(forks);
        let mut outcomes = Outcomes::default();
        while let Some((host, result)) = results.next().await {
            let (text, code) = match &result {
                Ok(text) => (text.clone(), 0),
                Err(error) => outcome::failure(host.name(), error),
            };
            output.result(text).context("could not print a result")?;
            outcomes.add(code);
        }
        anyhow::Ok(outcomes)
    })?;
    Ok(outcomes.outcome())
}

/// A pattern and an absolute path, if the text has both. A pattern may have colons itself.
fn remote(text: &str) -> Option<(&str, &str)> {
    let at = text.find(":/")?;
    // A path here may contain it as well; it begins as one.
    if at == 0 || text.starts_with(['/', '.']) {
        return None;
    }
    Some((&text[..at], &text[at + 1..]))
}

async fn one(
    copy: &Copy,
    host: &ConnectedHost,
    arguments: &Arguments,
) -> Result<String, ConnectionError> {
    let (r#become, limit) = (host.r#become.as_ref(), arguments.hosts.timeout);
    match copy {
        Copy::ToHosts { upload, path } => {
            let changed = match upload.send(&host.connection, path, r#become, limit).await? {
                CopyOutcome::Changed { bytes } => Some(bytes),
                CopyOutcome::Unchanged => None,
            };
            Ok(outcome::copied(host.name(), path, changed))
        }
        Copy::FromHosts { path, folder } => {
            let to = folder.join(host.name()).join(path.trim_start_matches('/'));
            let parent = to.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(|source| ConnectionError::Local {
                what: format!("make the folder {}", parent.display()),
                source,
            })?;
            let bytes = host.connection.fetch(path, &to, r#become, limit).await?;
            Ok(outcome::copied(host.name(), &to.display().to_string(), Some(bytes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_hosts_has_a_pattern_and_an_absolute_path() {
        let table = [
            ("all:/etc/motd", Some(("all", "/etc/motd"))),
            ("master:!gpu-1:/a:/b", Some(("master:!gpu-1", "/a:/b"))),
            ("/tmp/a:/b", None),
            ("./a:/b", None),
            (":/b", None),
            ("logs/", None),
            ("all:relative", None),
        ];
        for (text, expected) in table {
            assert_eq!(remote(text), expected, "{text}");
        }
    }
}

//! `gantry registry`: the images in the registry of a cluster.

use anyhow::{Context as _, bail};
use gantry_oci::Tag;
use gantry_registry::RepositoryName;
use http::{Method, Request};
use serde_json::{Value, json};

use super::cluster_client::ClusterFlags;
use super::{CommandOutcome, OutputFormat, render};
use crate::image_registry::GARBAGE_COLLECTION_PATH;
use crate::output::Output;

/// List and remove container images in the registry of a cluster.
///
/// The registry is that of `gantry up`, on the address of its API server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry registry ls
  gantry registry ls team-a/driver
  gantry registry rm team-a/driver:v1
  gantry registry gc")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    reach: ClusterFlags,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List repositories, or the tags of one.
    Ls {
        /// The repository.
        repository: Option<RepositoryName>,

        /// Print the result in this form.
        #[arg(short, long, value_name = "FORM")]
        output: Option<OutputFormat>,
    },
    /// Remove a tag; `gc` removes content that no image needs afterwards.
    Rm {
        /// The repository and the tag, for instance team-a/driver:v1.
        image: String,
    },
    /// Remove content that no image needs; this also happens once an hour.
    Gc,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(arguments, output))
}

async fn serve(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let client = arguments.reach.connect().await?.client;
    match &arguments.command {
        Command::Ls { repository, output: form } => {
            let (path, key) = match repository {
                Some(repository) => (format!("/v2/{repository}/tags/list"), "tags"),
                None => ("/v2/_catalog".to_owned(), "repositories"),
            };
            let found = all_pages(&client, path, key).await?;
            if let Some(form) = form {
                output.result_text(&render(&json!({ key: found }), *form)?)?;
            } else {
                let names: Vec<&str> = found.iter().filter_map(Value::as_str).collect();
                if names.is_empty() {
                    output.note(format_args!("no {key}"));
                }
                for name in names {
                    output.result(name)?;
                }
            }
        }
        Command::Rm { image } => {
            let (repository, tag) = image_name(image)?;
            let path = format!("/v2/{repository}/manifests/{tag}");
            send(&client, Method::DELETE, &path).await?;
            output.result(format_args!("{repository}:{tag} removed"))?;
        }
        Command::Gc => {
            let report = send(&client, Method::POST, GARBAGE_COLLECTION_PATH).await?;
            let report: Value = serde_json::from_str(&report)?;
            let (contents, bytes) = (&report["contents"], &report["bytes"]);
            output.result(format_args!("{contents} contents removed, {bytes} bytes"))?;
        }
    }
    Ok(CommandOutcome::Success)
}

/// Reads a repository and a tag.
fn image_name(text: &str) -> anyhow::Result<(RepositoryName, Tag)> {
    let Some((repository, tag)) = text.rsplit_once(':') else {
        bail!("{text}: write REPOSITORY:TAG; `gantry registry ls {text}` lists the tags");
    };
    let named = || format!("{text}: cannot read REPOSITORY:TAG");
    Ok((repository.parse().with_context(named)?, tag.parse().with_context(named)?))
}

/// The entries of a listing, page by page.
async fn all_pages(client: &kube::Client, path: String, key: &str) -> anyhow::Result<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    loop {
        let last = found.last().and_then(Value::as_str).unwrap_or_default();
        let page = format!("{path}?n={PAGE_SIZE}&last={last}");
        let page: Value = serde_json::from_str(&send(client, Method::GET, &page).await?)?;
        let entries = page[key].as_array().cloned().unwrap_or_default();
        let is_last = entries.len() < PAGE_SIZE;
        found.extend(entries);
        if is_last {
            return Ok(found);
        }
    }
}

/// The number of entries of one page.
const PAGE_SIZE: usize = 500;

/// Sends a request to the registry.
async fn send(client: &kube::Client, method: Method, path: &str) -> anyhow::Result<String> {
    let request = Request::builder().method(method).uri(path).body(Vec::new())?;
    match client.request_text(request).await {
        Ok(text) => Ok(text),
        Err(kube::Error::Api(status)) => {
            // Registries describe errors in another form than API servers.
            let words: Option<Value> = serde_json::from_str(&status.message).ok();
            let words = words.and_then(|it| it["errors"][0]["message"].as_str().map(str::to_owned));
            bail!("the registry refused: {}", words.unwrap_or(status.message))
        }
        Err(error) => Err(error).context(
            "could not reach the registry; start a cluster with `gantry up`, or use --kubeconfig",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::image_name;

    #[test]
    fn images_are_named_by_repository_and_tag() {
        let table = [
            ("team-a/driver:v1", Some("team-a/driver v1")),
            ("driver:latest", Some("driver latest")),
            ("team-a/driver", None),
            ("Team/driver:v1", None),
            ("team-a/../b:v1", None),
            ("team-a/driver:a/b", None),
            ("", None),
        ];
        for (text, expected) in table {
            let read = image_name(text).ok().map(|(name, tag)| format!("{name} {tag}"));
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}

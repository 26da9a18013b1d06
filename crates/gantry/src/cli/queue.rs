//! `gantry queue`: shows the order of the AppWrapper queue, what each AppWrapper waits for, and
//! since when.

pub(super) mod settings;
pub(super) mod snapshot;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use gantry_process::clock::Clock;
use gantry_queue::queue_report::{self, QueueRow};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use self::settings::{QueueSettings, SettingsFlags};
use self::snapshot::Snapshot;
use super::cluster_client::ClusterFlags;
use super::{CommandOutcome, OutputFormat, render};
use crate::output::Output;
use crate::queue_pages;

/// Show AppWrappers in queue order, and what each one waits for.
///
/// Pending AppWrappers are numbered. The reason to wait is what the queue would decide now: it is
/// evaluated by the queue's own rules with the settings of the operator, if they can be read; the
/// last line says which settings were used. Nothing is written.
///
/// The expected start is shown where it can be known: `now` where there is free capacity, `after`
/// the end of a backoff, `~` when running AppWrappers must have ended because of their time limits.
/// For running AppWrappers the latest end is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry queue                                   the queue of the cluster
  gantry queue -n team-a --state Pending         the pending AppWrappers of a team
  gantry queue -o wide --watch                   all columns, printed again on changes
  gantry queue -o json | jq '.appWrappers[0]'    for programs
  gantry queue -f jobs/ -f nodes.yaml            evaluate files, without a cluster

Reasons to wait:
  Unseen      the queue has not processed the AppWrapper yet
  NextCycle   it fits, or AppWrappers before it are evaluated first
  Resources   the cluster lacks free capacity for it
  Quota       a quota tree lacks free quota for it
  Labels      its labels for quota trees are being set
  Access      its author is not recorded, or the author's permissions are not known
  Victims     AppWrappers that are preempted for it must release their resources
  HeadOfLine  an AppWrapper before it blocks the head of the queue
  Backoff     it was preempted or requeued, and its backoff is not over
  Items       its items are being created
  Pods        its pods are not running yet, or have not completed
  Removal     its objects are being deleted")]
pub(super) struct Arguments {
    /// Show only AppWrappers of this namespace. Positions are those in the whole queue.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Show AppWrappers of all namespaces, which is the default.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Show only AppWrappers in this state, such as Pending or Running; may be repeated.
    #[arg(long, value_name = "STATE", ignore_case = true, value_parser = STATES)]
    state: Vec<String>,

    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: QueueOutputFormat,

    /// Refresh every two seconds, and print the queue when it has changed.
    #[arg(short, long, conflicts_with = "filename")]
    watch: bool,

    /// Read files instead of a cluster: AppWrappers, nodes, pods, quota trees.
    ///
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    reach: ClusterFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum QueueOutputFormat {
    /// One line per AppWrapper.
    Table,
    /// One line per AppWrapper, with all columns.
    Wide,
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
}

/// The states of AppWrappers as they are printed.
const STATES: [&str; 7] = [
    queue_pages::UNSEEN,
    "Pending",
    "Running",
    "RunningHoldCompletion",
    "Completed",
    "Failed",
    "Deleted",
];

/// How often `--watch` reads the cluster.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The JSON or YAML output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueOutput<'a> {
    settings: SettingsInEffect<'a>,
    app_wrappers: &'a [QueueRow],
}

/// The settings the queue was evaluated with.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SettingsInEffect<'a> {
    source: &'a str,
    values: &'a Value,
}

impl<'a> From<&'a QueueSettings> for SettingsInEffect<'a> {
    fn from(found: &'a QueueSettings) -> Self {
        Self { source: &found.source, values: &found.values }
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let clock = Clock::system();
    if !arguments.filename.is_empty() {
        let found = arguments.settings.for_files()?;
        found.warnings.iter().for_each(|it| output.warning(it));
        let snapshot = Snapshot::from_files(&arguments.filename, &found.settings, output)?;
        queue_report::initialize_unseen(&snapshot.world, &found.settings, clock.now());
        arguments.print(&snapshot, &found, clock.now(), output)?;
        return Ok(CommandOutcome::Success);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(arguments.watch_cluster(&clock, output))
}

impl Arguments {
    /// Reads the cluster and prints the queue, once or until the user stops the command.
    async fn watch_cluster(
        &self,
        clock: &Clock,
        output: &mut Output,
    ) -> anyhow::Result<CommandOutcome> {
        let cluster = self.reach.connect().await?;
        let (mut before, mut warned) = (None, Vec::new());
        loop {
            let found = self.settings.load(&cluster).await?;
            // Warnings are printed once, not with every refresh.
            if found.warnings != warned {
                found.warnings.iter().for_each(|it| output.warning(it));
                warned.clone_from(&found.warnings);
            }
            let namespace = self.namespace.as_deref();
            let snapshot =
                Snapshot::from_cluster(&cluster, namespace, &found.settings, output).await?;
            let shape = self.comparable_rows(&snapshot, &found, clock.now());
            if before.as_ref() != Some(&shape) {
                self.print(&snapshot, &found, clock.now(), output)?;
                before = Some(shape);
            }
            if !self.watch {
                return Ok(CommandOutcome::Success);
            }
            clock.sleep(WATCH_INTERVAL).await;
        }
    }

    /// Returns the rows without what depends only on the current time, to detect real changes.
    fn comparable_rows(
        &self,
        snapshot: &Snapshot,
        found: &QueueSettings,
        now: Timestamp,
    ) -> Vec<QueueRow> {
        let mut rows = self.rows(snapshot, found, now);
        for row in &mut rows {
            row.priority = 0.0;
            if let Some(wait) = &mut row.waits_for {
                wait.until = None;
            }
            row.expected = None;
        }
        rows
    }

    fn rows(&self, snapshot: &Snapshot, found: &QueueSettings, now: Timestamp) -> Vec<QueueRow> {
        let mut rows =
            queue_report::rows(&snapshot.world, &found.settings, snapshot.visibility, now);
        rows.retain(|row| self.matches_filter(row));
        rows
    }

    fn matches_filter(&self, row: &QueueRow) -> bool {
        let state = match row.state.as_str() {
            "" => queue_pages::UNSEEN,
            state => state,
        };
        self.namespace.as_ref().is_none_or(|it| *it == row.namespace)
            && (self.state.is_empty() || self.state.iter().any(|it| it.eq_ignore_ascii_case(state)))
    }

    fn print(
        &self,
        snapshot: &Snapshot,
        found: &QueueSettings,
        now: Timestamp,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let rows = self.rows(snapshot, found, now);
        let form = match self.output {
            QueueOutputFormat::Table | QueueOutputFormat::Wide => {
                match rows.is_empty() {
                    true => output.note("no AppWrappers found"),
                    false => {
                        let wide = self.output == QueueOutputFormat::Wide;
                        output.result_text(&queue_pages::table(&rows, wide, now))?;
                    }
                }
                output.note(format_args!("evaluated with {}", found.source));
                return Ok(());
            }
            QueueOutputFormat::Yaml => OutputFormat::Yaml,
            QueueOutputFormat::Json => OutputFormat::Json,
        };
        let page = QueueOutput { settings: SettingsInEffect::from(found), app_wrappers: &rows };
        output.result_text(&render(&page, form)?)?;
        Ok(())
    }
}

//! `gantry queue`: who is next, what each waits for, and since when.

pub(super) mod settings;
pub(super) mod snapshot;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use gantry_process::clock::Clock;
use gantry_queue::outlook::{self, Row};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use self::settings::{Found, SettingsFlags};
use self::snapshot::Snapshot;
use super::reach::Reach;
use super::{End, Form, render};
use crate::output::Output;
use crate::queue_pages;

/// Show AppWrappers in the order in which they are looked at, and what each waits for.
///
/// Those that wait are numbered. What they wait for is what the queue would decide now, by the same
/// rules and the settings of the operator, if they can be read; the last line says which were used.
/// Nothing is written.
///
/// The time of a start is shown where it can be known: `now` where there is room, `after` the end of a
/// pause, `~` when others must have ended because they may run for so long only. Of those that run it
/// is shown when they end at the latest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry queue                                   the queue of the cluster
  gantry queue -n team-a --state Pending         who of a team waits
  gantry queue -o wide --watch                   with every word, again when something changes
  gantry queue -o json | jq '.appWrappers[0]'    for programs
  gantry queue -f jobs/ -f nodes.yaml            who would run, before there is a cluster

Reasons to wait:
  Unseen      the queue has not seen it yet
  Turn        there is room, or those before it are looked at first
  Resources   something is missing in the cluster
  Quota       something is missing in a quota tree
  Labels      it is about to get labels of quota trees
  Access      who made it is not recorded, or what its author may create not known
  Victims     others must make room for it first
  HeadOfLine  somebody before it holds the line
  Backoff     it was taken back, and pauses
  Items       its items are being created
  Pods        its pods do not run, or have not ended
  Removal     its objects are being removed")]
pub(super) struct Arguments {
    /// Show those of this namespace alone. Numbers are those of the whole queue.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Show those of all namespaces, which is the default.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Show those in this state alone, such as Pending or Running; may be repeated.
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,

    /// The form of the output.
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: QueueForm,

    /// Look again every two seconds, and print the queue when it has changed.
    #[arg(short, long, conflicts_with = "filename")]
    watch: bool,

    /// Files instead of a cluster: AppWrappers, nodes, pods, quota trees.
    ///
    /// Folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum QueueForm {
    /// A line for each.
    Table,
    /// The same with everything that is known.
    Wide,
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
}

/// How often a queue that is watched is looked at.
const AGAIN: Duration = Duration::from_secs(2);

/// What programs are told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    settings: Used<'a>,
    app_wrappers: &'a [Row],
}

/// By which settings.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Used<'a> {
    source: &'a str,
    values: &'a Value,
}

impl<'a> From<&'a Found> for Used<'a> {
    fn from(found: &'a Found) -> Self {
        Self { source: &found.source, values: &found.values }
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let clock = Clock::system();
    if !arguments.filename.is_empty() {
        let found = arguments.settings.for_files()?;
        found.warnings.iter().for_each(|it| output.warning(it));
        let snapshot = Snapshot::of_files(&arguments.filename, &found.settings, output)?;
        outlook::enter(&snapshot.world, &found.settings, clock.now());
        arguments.print(&snapshot, &found, clock.now(), output)?;
        return Ok(End::Done);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(arguments.follow(&clock, output))
}

impl Arguments {
    /// Looks at the cluster, once or until somebody stops it.
    async fn follow(&self, clock: &Clock, output: &mut Output) -> anyhow::Result<End> {
        let cluster = self.reach.reach().await?;
        let (mut before, mut warned) = (None, Vec::new());
        loop {
            let found = self.settings.find(&cluster).await?;
            // Once, not with every look.
            if found.warnings != warned {
                found.warnings.iter().for_each(|it| output.warning(it));
                warned.clone_from(&found.warnings);
            }
            let namespace = self.namespace.as_deref();
            let snapshot =
                Snapshot::of_cluster(&cluster, namespace, &found.settings, output).await?;
            let shape = self.shape(&snapshot, &found, clock.now());
            if before.as_ref() != Some(&shape) {
                self.print(&snapshot, &found, clock.now(), output)?;
                before = Some(shape);
            }
            if !self.watch {
                return Ok(End::Done);
            }
            clock.sleep(AGAIN).await;
        }
    }

    /// What makes one look differ from another: all but how much time has passed.
    fn shape(&self, snapshot: &Snapshot, found: &Found, now: Timestamp) -> Vec<Row> {
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

    fn rows(&self, snapshot: &Snapshot, found: &Found, now: Timestamp) -> Vec<Row> {
        let mut rows = outlook::rows(&snapshot.world, &found.settings, snapshot.sight, now);
        rows.retain(|row| self.wants(row));
        rows
    }

    fn wants(&self, row: &Row) -> bool {
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
        found: &Found,
        now: Timestamp,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let rows = self.rows(snapshot, found, now);
        let form = match self.output {
            QueueForm::Table | QueueForm::Wide => {
                match rows.is_empty() {
                    true => output.note("there are no such AppWrappers"),
                    false => {
                        let wide = self.output == QueueForm::Wide;
                        output.result_text(&queue_pages::table(&rows, wide, now))?;
                    }
                }
                output.note(format_args!("by {}", found.source));
                return Ok(());
            }
            QueueForm::Yaml => Form::Yaml,
            QueueForm::Json => Form::Json,
        };
        let page = Page { settings: Used::from(found), app_wrappers: &rows };
        output.result_text(&render(&page, form)?)?;
        Ok(())
    }
}

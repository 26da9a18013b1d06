//! What happens to a cluster while it is used.

use super::processes::Processes;
use super::{Size, Stage};

/// One thing that happens.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub when: When,
    /// What.
    pub act: Act,
}

/// When something happens. What came before has happened by then.
#[derive(Clone, Debug)]
pub enum When {
    /// So many hundredths of the AppWrappers are completed.
    Done(u32),
    /// A node is known to be lost.
    Noticed(&'static str),
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Act {
    /// Nodes lose their power: they fall silent, and their pods stay as they are.
    PowerOff(&'static [&'static str]),
    /// A node has power again.
    PowerOn(&'static str),
    /// A node is gone for good.
    Remove(&'static str),
    /// Nodes come.
    Add(&'static str, u32),
    /// The operator is killed, and another started.
    KillOperator,
    /// The server is killed with everything in its process, and another started on its data.
    KillServer,
}

pub(super) fn full() -> Vec<Step> {
    let step = |when: When, act: Act| Step { when, act };
    vec![
        step(When::Done(6), Act::PowerOff(&["plain-0", "plain-1", "gpu-0"])),
        step(When::Done(12), Act::KillOperator),
        step(When::Done(18), Act::PowerOn("plain-0")),
        step(When::Done(22), Act::Remove("plain-1")),
        step(When::Done(26), Act::Add("late", 2)),
        step(When::Done(34), Act::KillServer),
        step(When::Done(42), Act::Remove("plain-2")),
        step(When::Done(50), Act::KillOperator),
        step(When::Done(58), Act::Add("spare", 1)),
        step(When::Noticed("gpu-0"), Act::PowerOn("gpu-0")),
    ]
}

pub(super) fn small() -> Vec<Step> {
    let step = |when: When, act: Act| Step { when, act };
    vec![
        step(When::Done(5), Act::PowerOff(&["plain-0"])),
        step(When::Done(15), Act::KillOperator),
        step(When::Done(25), Act::PowerOn("plain-0")),
        step(When::Done(30), Act::Add("late", 1)),
        step(When::Done(40), Act::KillServer),
    ]
}

/// The steps of a drill of some size.
pub(super) struct Script<'size> {
    size: &'size Size,
}

impl<'size> Script<'size> {
    pub(super) fn new(size: &'size Size) -> Self {
        Self { size }
    }

    /// Lets everything happen, each in its time.
    pub(super) async fn play(
        &self,
        stage: &Stage,
        processes: &mut Processes,
    ) -> Result<(), String> {
        for Step { when, act } in &self.size.script {
            match *when {
                When::Done(percent) => {
                    let done = (self.size.jobs * percent).div_ceil(100);
                    let what = format!("{done} are to complete");
                    stage.until(processes, &what, |it| it.done() >= done).await?;
                }
                When::Noticed(node) => {
                    let what = format!("{node} is to be found lost");
                    stage.until(processes, &what, |it| it.is_lost(node)).await?;
                }
            }
            match act {
                Act::PowerOff(nodes) => {
                    stage.event(&format!("no power: {}", nodes.join(", ")));
                    processes.node(&[&["kill"], *nodes].concat()).await?;
                }
                Act::PowerOn(node) => {
                    stage.event(&format!("power again: {node}"));
                    processes.node(&["revive", node]).await?;
                }
                Act::Remove(node) => {
                    stage.event(&format!("gone for good: {node}"));
                    processes.node(&["remove", node]).await?;
                }
                Act::Add(name, count) => {
                    stage.event(&format!("{count} more: {name}"));
                    let count = count.to_string();
                    let like = ["--cpu", "16", "--memory", "64Gi", "--count", &count];
                    processes.node(&[&["add", name], like.as_slice()].concat()).await?;
                }
                Act::KillOperator => processes.kill_operator(stage).await?,
                Act::KillServer => processes.kill_server(stage).await?,
            }
        }
        Ok(())
    }
}

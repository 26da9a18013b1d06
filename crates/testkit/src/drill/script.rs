//! The disruptions of a cluster during a drill.

use super::processes::Processes;
use super::{DrillContext, Size};

/// One step of a script.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it happens.
    pub when: When,
    /// What happens.
    pub act: Act,
}

/// When a step happens. All steps before it have happened by then.
#[derive(Clone, Debug)]
pub enum When {
    /// This percentage of the AppWrappers is completed.
    Done(u32),
    /// A node is observed to be not ready.
    NodeNotReady(&'static str),
}

/// A disruption.
#[derive(Clone, Debug)]
pub enum Act {
    /// Nodes lose power: they stop responding, and their pods stay as they are.
    PowerOff(&'static [&'static str]),
    /// A node has power again.
    PowerOn(&'static str),
    /// A node is removed for good.
    Remove(&'static str),
    /// Nodes are added.
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
        step(When::NodeNotReady("gpu-0"), Act::PowerOn("gpu-0")),
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

    /// Executes all steps, each at its time.
    pub(super) async fn run(
        &self,
        context: &DrillContext,
        processes: &mut Processes,
    ) -> Result<(), String> {
        for Step { when, act } in &self.size.script {
            match *when {
                When::Done(percent) => {
                    let done = (self.size.jobs * percent).div_ceil(100);
                    let what = format!("{done} are to complete");
                    context.wait_until(processes, &what, |it| it.completed() >= done).await?;
                }
                When::NodeNotReady(node) => {
                    let what = format!("{node} is to be found lost");
                    context.wait_until(processes, &what, |it| it.is_not_ready(node)).await?;
                }
            }
            match act {
                Act::PowerOff(nodes) => {
                    context.print_event(&format!("no power: {}", nodes.join(", ")));
                    processes.run_node_command(&[&["kill"], *nodes].concat()).await?;
                }
                Act::PowerOn(node) => {
                    context.print_event(&format!("power again: {node}"));
                    processes.run_node_command(&["revive", node]).await?;
                }
                Act::Remove(node) => {
                    context.print_event(&format!("gone for good: {node}"));
                    processes.run_node_command(&["remove", node]).await?;
                }
                Act::Add(name, count) => {
                    context.print_event(&format!("{count} more: {name}"));
                    let count = count.to_string();
                    let like = ["--cpu", "16", "--memory", "64Gi", "--count", &count];
                    processes.run_node_command(&[&["add", name], like.as_slice()].concat()).await?;
                }
                Act::KillOperator => processes.kill_operator(context).await?,
                Act::KillServer => processes.kill_server(context).await?,
            }
        }
        Ok(())
    }
}

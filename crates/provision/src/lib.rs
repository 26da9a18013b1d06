//! From an inventory and facts to what is done on hosts: steps, plans, inverses and journals.
//!
//! The crate decides; it opens no file or socket, reads no clock and has no async code. A host is
//! reached through [`Host`], which crate `hands` implements on the other side of two pipes.

mod action;
mod bundle;
mod catalogue;
mod content;
mod conversation;
mod facts;
mod frame;
mod journal;
mod listing;
mod lock;
mod plan;
mod programs;
mod report;
mod settings;
mod state;
mod step;
mod undo;
mod user_step;
mod worker;

pub use action::{Action, Inverse, PARENT_MODE, Reason, Undo};
pub use bundle::{BundleLock, BundledImage, BundledProgram};
pub use catalogue::catalogue;
pub use content::{Content, Digest, Salt};
pub use conversation::{
    Host, HostError, Lost, MAX_PASSES, Run, StageResult, destroy, observe, read_journal, run_stage,
};
pub use facts::{
    Address, Cgroup, CgroupDriver, CgroupVersion, Distribution, FACTS_SCRIPT, Facts, FactsError,
    Family, Firewall, Listener, Network, Sudo, Version,
};
pub use frame::{
    FRAME_VERSION, FrameError, MARKER_BYTES, MAX_BODY_BYTES, MAX_HEADER_BYTES, Reply, Request,
    decode, encode, header_length,
};
pub use journal::{Intent, JOURNAL_VERSION, Journal, JournalError, Outcome, Record};
pub use listing::{explain, list_tags, list_tasks};
pub use lock::{LOCK_RENEW_SECONDS, LOCK_STALE_SECONDS, Lock, LockDecision, decide};
pub use plan::{HostPlan, PlannedStep, Selection, diff, plan_stage, tags, wants};
pub use programs::{PackageTool, image_list, installed, newly_installed, package_tool, unit_state};
pub use report::{Event, EventLine, RecapCounts, recap};
pub use settings::Settings;
pub use state::{Observed, State, Want};
pub use step::{Behavior, Change, Context, Stage, Step, StepHosts, Verdict};
pub use undo::{UndoItem, UndoVerdict, undo, wants as undo_wants};
pub use user_step::{UserStep, UserStepError, user_steps};
pub use worker::{Failure, Machine, serve};

//! The admission webhook of Modules.

use gantry_subsystem::admission::{AdmissionHook, HookCaller};
use gantry_subsystem::start::Host;
use serde_json::Value;

use crate::admission::{ReviewKind, answer_review, configuration};
use crate::labels::FIELD_MANAGER;

/// Answers admission reviews about Modules.
#[derive(Clone, Debug)]
pub(super) struct ModuleHook {
    /// The directories of hosts that Modules may mount; none for no restriction.
    pub(super) allowed_host_paths: Vec<String>,
}

impl AdmissionHook for ModuleHook {
    fn topic(&self) -> &'static str {
        "kernel modules"
    }

    fn handles_path(&self, path: &str) -> bool {
        ReviewKind::from_path(path).is_some()
    }

    fn review(&self, path: &str, review: &Value) -> Value {
        let answer = |kind| answer_review(kind, review, &self.allowed_host_paths);
        ReviewKind::from_path(path).map_or(Value::Null, answer)
    }

    fn manager(&self) -> &'static str {
        FIELD_MANAGER
    }

    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value> {
        let policy = match caller.host {
            // The hook is part of the server. If a server is started without it on the same
            // directory, the controllers report what is wrong.
            Host::Embedded => "Ignore",
            Host::Cluster => "Fail",
        };
        vec![configuration(caller.client, policy)]
    }
}

//! The admission webhook for pods that claim devices and for objects of the device API group.

use gantry_subsystem::admission::{AdmissionHook, HookCaller};
use gantry_subsystem::start::Host;
use serde_json::Value;

use super::{ALLOCATOR_USER, FIELD_MANAGER};
use crate::admission::{self, AdmissionCheck, FailurePolicy, Mode};

/// Answers admission reviews about devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceHook {
    /// How pods are changed that name no scheduler.
    pub(super) mode: Mode,
}

impl AdmissionHook for DeviceHook {
    fn topic(&self) -> &'static str {
        "devices"
    }

    fn handles_path(&self, path: &str) -> bool {
        AdmissionCheck::from_path(path).is_some()
    }

    fn review(&self, path: &str, review: &Value) -> Value {
        AdmissionCheck::from_path(path)
            .map_or(Value::Null, |it| admission::answer_review(self.mode, it, review))
    }

    fn manager(&self) -> &'static str {
        FIELD_MANAGER
    }

    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value> {
        let HookCaller { client, host, user } = caller;
        let (pods, allocator) = match host {
            // The hook is part of the server, so it cannot be absent; if a server is started
            // without it on the same directory, pods are treated as on any other server.
            Host::Embedded => (FailurePolicy::Ignore, ALLOCATOR_USER),
            Host::Cluster => (FailurePolicy::Fail, *user),
        };
        admission::configurations(client, pods, allocator).into_iter().collect()
    }

    /// Only that user may write what drivers trust.
    fn needs_operator_user(&self) -> bool {
        true
    }
}

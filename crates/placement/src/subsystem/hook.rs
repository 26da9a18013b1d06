//! The webhook about pods that claim devices, and about objects of their group.

use gantry_subsystem::admission::{AdmissionHook, HookCaller};
use gantry_subsystem::start::Host;
use serde_json::Value;

use super::{ACCOUNT, MANAGER};
use crate::admission::{self, Failure, Mode, Question};

/// Answers about devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceHook {
    /// What pods get that name no scheduler.
    pub(super) mode: Mode,
}

impl AdmissionHook for DeviceHook {
    fn topic(&self) -> &'static str {
        "devices"
    }

    fn is_called_at(&self, path: &str) -> bool {
        Question::at(path).is_some()
    }

    fn review(&self, path: &str, review: &Value) -> Value {
        Question::at(path).map_or(Value::Null, |it| admission::answer(self.mode, it, review))
    }

    fn manager(&self) -> &'static str {
        MANAGER
    }

    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value> {
        let HookCaller { client, host, user } = caller;
        let (pods, allocator) = match host {
            // It cannot be absent while the server is there; where a server is started without it, on the same
            // directory, pods are as on any other.
            Host::Embedded => (Failure::Ignore, ACCOUNT),
            Host::Cluster => (Failure::Refuse, *user),
        };
        admission::configurations(client, pods, allocator).into_iter().collect()
    }

    /// What drivers trust is written by that user alone.
    fn names_user(&self) -> bool {
        true
    }
}

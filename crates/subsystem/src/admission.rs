//! Admission webhooks of subsystems.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::start::Host;

/// A webhook that an API server calls when objects are written.
pub trait AdmissionHook: fmt::Debug + Send + Sync {
    /// Returns its subject, for a log line.
    fn topic(&self) -> &'static str;

    /// Returns whether reviews that are sent to this path are for it.
    fn handles_path(&self, path: &str) -> bool;

    /// Answers an AdmissionReview. Called only for paths that it handles.
    fn review(&self, path: &str, review: &Value) -> Value;

    /// Returns the field manager of its configurations.
    fn manager(&self) -> &'static str;

    /// Returns the MutatingWebhookConfigurations and ValidatingWebhookConfigurations for it.
    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value>;

    /// Returns whether its configurations contain the operator's user name, which must be looked
    /// up.
    fn needs_operator_user(&self) -> bool {
        false
    }
}

/// A webhook that is shared by several components of a process.
pub type SharedHook = Arc<dyn AdmissionHook>;

/// How a server calls webhooks.
#[derive(Clone, Copy)]
pub struct HookCaller<'a> {
    /// Returns the `clientConfig` for a path.
    pub client: &'a (dyn Fn(&str) -> Value + Sync),
    /// Where the webhooks run.
    pub host: Host,
    /// The user name of the operator; empty on the embedded server, where accounts are constant,
    /// and where no hook [needs](AdmissionHook::needs_operator_user) it.
    pub user: &'a str,
}

impl fmt::Debug for HookCaller<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "HookCaller({:?}, {:?})", self.host, self.user)
    }
}

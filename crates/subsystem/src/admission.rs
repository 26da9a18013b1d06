//! Admission webhooks of subsystems.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::start::Host;

/// A webhook that an API server calls about what is written.
pub trait AdmissionHook: fmt::Debug + Send + Sync {
    /// What it is about, in the words of a log line.
    fn topic(&self) -> &'static str;

    /// Whether reviews that are sent to this path are for it.
    fn is_called_at(&self, path: &str) -> bool;

    /// Answers an AdmissionReview. Called only for paths at which it is called.
    fn review(&self, path: &str, review: &Value) -> Value;

    /// Who owns the fields of its configurations.
    fn manager(&self) -> &'static str;

    /// The MutatingWebhookConfigurations and ValidatingWebhookConfigurations by which a server calls it.
    fn configurations(&self, caller: &HookCaller<'_>) -> Vec<Value>;

    /// Whether its configurations name the user of the operator, which has to be asked for.
    fn names_user(&self) -> bool {
        false
    }
}

/// A webhook that several parts of a process answer by.
pub type SharedHook = Arc<dyn AdmissionHook>;

/// How a server calls webhooks.
#[derive(Clone, Copy)]
pub struct HookCaller<'a> {
    /// The `clientConfig` for a path.
    pub client: &'a (dyn Fn(&str) -> Value + Sync),
    /// Where the webhooks run.
    pub host: Host,
    /// The user of the operator; empty on the embedded server, where accounts are constant, and where no hook
    /// [names](AdmissionHook::names_user) it.
    pub user: &'a str,
}

impl fmt::Debug for HookCaller<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "HookCaller({:?}, {:?})", self.host, self.user)
    }
}

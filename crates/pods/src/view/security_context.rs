//! What containers may do on their node.

use serde::Deserialize;

use super::Container;

impl Container {
    /// Returns whether it may load modules into the kernel of its node.
    #[must_use]
    pub fn may_load_modules(&self) -> bool {
        let Some(context) = &self.security_context else { return false };
        let added =
            |name: &String| matches!(name.as_str(), "SYS_MODULE" | "CAP_SYS_MODULE" | "ALL");
        context.privileged || context.capabilities.add.iter().any(added)
    }
}

/// What a container may do on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecurityContext {
    /// Whether it may do everything.
    pub privileged: bool,
    /// The capabilities it has.
    pub capabilities: Capabilities,
}

/// The capabilities of a container that differ from those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Those it has besides.
    pub add: Vec<String>,
}

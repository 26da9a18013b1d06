//! Roles and bindings: who may do what, why, and what nobody may grant.
//!
//! A [`Policy`] holds roles and bindings and answers questions about them in a few microseconds,
//! however many there are. It is told what is stored, one object at a time, and knows nothing of
//! where that is. Answers and their reasons are those of Kubernetes, word for word; where Kubernetes
//! leaves the order of bindings to chance, it is the order of their names.
//!
//! ```
//! use gantry_rbac::{Attributes, Policy, User};
//! use serde_json::json;
//!
//! let mut policy = Policy::default();
//! let rules = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }]);
//! policy.set_role("default", "reader", &json!({ "rules": rules }));
//! policy.set_binding("default", "bob-reads", &json!({
//!     "roleRef": { "kind": "Role", "name": "reader" },
//!     "subjects": [{ "kind": "User", "name": "bob" }],
//! }));
//! let bob = User { name: "bob", groups: &[] };
//! let decision = policy.decide(bob, &Attributes::resource("get", "", "pods").inside("default"));
//! assert!(decision.allowed);
//! let why = r#"RBAC: allowed by RoleBinding "bob-reads/default" of Role "reader" to User "bob""#;
//! assert_eq!(decision.reason, why);
//! ```

mod aggregation;
mod attributes;
mod binding;
mod bootstrap;
mod escalation;
mod policy;
mod reconcile;
mod rule;

pub use aggregation::Aggregation;
pub use attributes::{Attributes, User, What};
pub use binding::{Binding, RoleRef, Subject};
pub use bootstrap::{Bootstrap, bootstrap};
pub use escalation::{Uncounted, covers, missing};
pub use policy::{Decision, Held, Policy};
pub use reconcile::{Reconciled, reconcile_binding, reconcile_role};
pub use rule::{Rule, rules};

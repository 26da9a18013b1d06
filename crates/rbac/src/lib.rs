//! Role-based access control: decides what users may do, why, and which permissions they may grant.
//!
//! A [`Policy`] holds roles and bindings and decides requests in a few microseconds, however many
//! there are. Its owner adds and removes stored objects one at a time; the policy does not know the
//! storage. Decisions and their reasons are those of Kubernetes, word for word; where Kubernetes
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
//! let decision = policy.decide(bob, &Attributes::resource("get", "",
//! "pods").in_namespace("default"));
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
pub use attributes::{Attributes, AttributesTarget, User};
pub use binding::{Binding, RoleRef, Subject};
pub use bootstrap::{Bootstrap, bootstrap};
pub use escalation::{TooManyPermissions, covers, missing};
pub use policy::{Decision, EffectiveRules, Policy};
pub use reconcile::{Reconciled, reconcile_binding, reconcile_role};
pub use rule::{Rule, rules};

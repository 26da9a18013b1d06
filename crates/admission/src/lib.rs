//! Admission decisions about a write, without I/O: policies, limits and quotas.
//!
//! Read in this order: [`request`] is a write as admission sees it, with the interface to what a
//! decision may ask the server for; [`matching`] decides which requests rules and selectors match,
//! for policies and webhooks alike; [`match_conditions`] narrows that by expressions; [`policy`] is
//! a compiled policy with its bindings, and [`evaluate_policies`] evaluates them all. `scope` has
//! the variables of expressions, [`authorizer`] what they may ask about permissions.
//! [`limit_ranger`] and [`quota`] limit resources.

pub mod authorizer;
pub mod limit_ranger;
pub mod match_conditions;
pub mod matching;
pub mod policy;
pub mod policy_evaluation;
pub mod quota;
pub mod request;
pub mod resources;

mod environment;
mod scope;

pub use policy::{Binding, Policy, validate_policy};
pub use policy_evaluation::{Denial, PolicyDecision, evaluate_policies};
pub use request::{AdmissionContext, Operation, ParamKind, ParamScope, Request, ResourceView};

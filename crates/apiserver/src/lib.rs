//! Serves the Kubernetes API over HTTP from the store.
//!
//! A request is parsed by `route`, authorized by [`access`] and gets its response format from
//! `negotiate`; then one of `read`, `watch`, `change` and `delete` serves it. Every write goes
//! through the steps of `write`. Behaviour of kinds is in `rules`, additions of the server to
//! single kinds in `lifecycle_hooks`; `garbage_collector` and `termination_controller` delete what
//! is no longer owned.
//! Built-in and custom kinds are the same here: a [`resource::Resource`] describes either.

pub mod access;
mod admission;
pub mod api;
mod bootstrap;
mod controllers;
pub mod discovery;
pub mod request;
pub mod resource;
pub mod response;
mod reviews;
mod services;
pub mod streams;
mod tokens;
mod verbs;

pub use access::Caller;
pub use access::authentication::{AnonymousAccess, Authenticator, ClientCertificate};
pub use access::authorizer::AuthorizationMode;
pub use admission::admission_plugins::AdmissionPlugins;
pub use api::{Api, Settings};
pub use request::body::Body;

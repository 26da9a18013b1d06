//! Speaks the Kubernetes HTTP protocol over the store.
//!
//! A request goes one way: [`route`] says what its path means, [`access`] whether the caller may,
//! [`negotiate`] in which form it is answered; then one of `read`, `watch`, `change` and `delete`
//! serves it. Every write passes the steps of `write`, whoever asks for it. What kinds do on the way
//! is in `rules`, what the server adds to single kinds in `hooks`; `collect` and `janitor` end what
//! belongs to nothing.
//! Built-in and custom kinds are the same here: a [`resource::Resource`] describes either.

pub mod access;
pub mod api;
mod authority;
mod identity;
mod impersonation;

pub mod negotiate;
pub mod query;
pub mod route;
pub mod selector;
pub mod status;

pub mod custom;
pub mod discovery;
pub mod resource;
pub mod stored;

pub mod frames;
pub mod nodes;
mod read;
pub mod spdy;
mod streams;
mod watch;
mod websocket;

mod admission;
mod change;
pub mod convert;
mod decode;
mod delete;
mod hooks;
mod parts;
pub mod plugins;
mod policies;
mod quotas;
mod reviews;
mod rules;
mod scale;
mod tokens;
mod views;
mod webhooks;
mod write;

mod addresses;
mod bootstrap;
mod budgets;
mod collect;
mod definitions;
mod grants;
mod janitor;
mod misfit;
mod names;
mod reply;
mod roles;
mod services;

pub mod answer;
pub mod body;
mod documents;
mod openapi;
mod pages;
pub mod paging;
mod render;

pub use access::Caller;
pub use api::{Api, Settings};
pub use authority::Mode;
pub use body::Body;
pub use identity::{Certificate, Identity, Strangers};
pub use plugins::Plugins;

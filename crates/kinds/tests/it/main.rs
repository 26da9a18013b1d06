//! Compares this crate with recorded answers of kube-apiserver.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its own files has failed")]

mod created;
mod golden;
mod refused;
mod updated;

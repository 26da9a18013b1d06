//! What a real server made of objects, against what this crate makes of them.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its own files has failed")]

mod created;
mod golden;
mod refused;
mod updated;

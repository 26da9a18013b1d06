//! Tests of the crate as its users see it.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its own files should fail loudly")]

mod manifests;
mod round_trip;

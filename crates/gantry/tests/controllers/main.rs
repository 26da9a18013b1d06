//! The shell before the real server, in one process, over connections that go wrong.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fan;
mod server;

mod caches;
mod hand_over;
mod passes;

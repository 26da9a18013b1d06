//! Runs one list of cases against any API server; the real one is the reference.
//!
//! A [`case::Case`] is a conversation: requests, and what must be true of the responses. It is
//! proven on a real Kubernetes API server first: a case that the real one fails is a wrong case.
//! While it runs, [`session::Session`] records every exchange. Two transcripts of one case, from
//! two servers, are then normalised ([`normalise`]) and compared ([`compare`]); what is left is a
//! difference a client can see.
//!
//! No case decides by time. Deadlines exist so that a broken server ends a run; no case passes or
//! fails by being quick or slow.

pub mod scenario;
pub mod transcript;

pub mod compare;
pub mod normalise;

pub mod case;
pub mod response;
pub mod session;

pub mod cases;
pub mod run;

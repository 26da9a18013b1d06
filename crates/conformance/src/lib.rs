//! One list of cases, run against any API server; the real one is the judge.
//!
//! A [`case::Case`] is a conversation: requests, and what must be true of the answers. It proves
//! itself on a real Kubernetes API server first: a case the real one fails is a wrong case. While
//! it runs, [`conversation::Conversation`] writes down every exchange. Two transcripts of one case,
//! from two servers, are then brought to a form without accidents ([`normalise`]) and compared
//! ([`compare`]); what is left is a difference a client can see.
//!
//! What is absent on purpose: no case decides by time. Deadlines exist so that a broken server
//! ends a run; no case passes or fails by being quick or slow.

pub mod scenario;
pub mod transcript;

pub mod compare;
pub mod normalise;

pub mod answer;
pub mod case;
pub mod conversation;

pub mod cases;
pub mod run;

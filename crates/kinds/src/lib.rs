//! What Kubernetes does with its own kinds: default, prepare, validate, print.

pub mod print;

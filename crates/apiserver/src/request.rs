//! What a request asks for: its path, its query, its selectors, its body and the form of its
//! answer.

pub mod body;
pub(crate) mod decode;
pub mod negotiate;
pub mod query;
pub mod route;
pub mod selector;

//! Publishes the served kinds as OpenAPI: built-in kinds as they are, custom kinds in the same
//! form.
//!
//! [`custom_document`] turns the custom kinds of one group version into the document that
//! kube-apiserver publishes for them. [`Documents`] keeps every document, built-in and custom, in
//! the form it is sent in, and builds the single document of version 2 from those of version 3.
//! Nothing is built before it is requested.

mod custom;
mod document;
mod documents;
mod routes;
mod schema;
mod shared_definitions;
mod swagger;

pub use custom::{CustomKind, OpenApiVersion, custom_document};
pub use document::{Document, builtin_document, builtin_paths, hash, index};
pub use documents::Documents;
pub use swagger::Swagger;

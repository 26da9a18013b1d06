//! stub
#![allow(missing_docs, dead_code, unused)]
pub mod behaviour; mod faults; mod metadata; mod names; mod tree; pub mod print;
pub use behaviour::{Behaviour, behaviour};
pub use metadata::validate_metadata;
pub fn grace(_: &Behaviour, _: &serde_json::Value, _: Option<i64>) -> Option<i64> { None }
pub mod admit { use serde_json::Value;
 pub fn pod(_: &mut Value, _: Option<&Value>, _: &[Value], _: &str) -> Result<(), String> { Ok(()) }
 pub fn node(_: &mut Value) {} pub fn storage(_: &str, _: &mut Value, _: &[Value]) {} }
pub struct Selectable; 
impl Selectable { pub fn check(&self, f: &str) -> Result<(), String> { if f.starts_with("metadata.") { Ok(()) } else { Err(format!("field label not supported: {f}")) } }
 pub fn values(&self, _: &serde_json::Value) -> std::collections::BTreeMap<String,String> { Default::default() } }
pub fn selectable(_: &str, _: &str) -> Selectable { Selectable }

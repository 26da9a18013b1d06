//! Schemas of custom kinds: compiled when they are used, and only so many kept.
//!
//! A compiled schema takes several times the memory of its text, and a definition may declare
//! thousands of properties in several versions. The text is stored anyway, so a schema is made of it
//! when somebody needs it, and forgotten when others are needed more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gantry_schema::{CompileError, Rules, Schema};
use serde_json::Value;

/// Bytes of compiled schemas that are kept, as they are estimated. The one that was used last is kept
/// in any case.
const KEPT_BYTES: usize = 32 << 20;

/// A compiled schema with its rules.
#[derive(Debug)]
pub struct Compiled {
    /// What objects may look like.
    pub schema: Arc<Schema>,
    /// Its rules in the expression language.
    pub rules: Rules,
}

/// The compiled schemas that are kept.
#[derive(Debug, Default)]
pub struct Schemas {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<u64, Kept>,
    /// Bytes of all that is kept.
    bytes: usize,
    /// Counts uses, to find what was not used for the longest time.
    uses: u64,
    /// The next number of a schema.
    next: u64,
}

#[derive(Debug)]
struct Kept {
    compiled: Arc<Compiled>,
    bytes: usize,
    used: u64,
}

impl Schemas {
    /// The schema of a version of a stored definition. It is compiled once to see that it can be.
    ///
    /// # Errors
    /// It cannot be compiled.
    pub fn add(
        self: &Arc<Self>,
        definition: &Bytes,
        tree: &Value,
        version: &str,
    ) -> Result<LazySchema, CompileError> {
        let compiled = compile(tree, version)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next += 1;
        let id = state.next;
        let unused = state.keep(id, Arc::new(compiled));
        drop(state);
        drop(unused);
        let (definition, version) = (definition.clone(), version.to_owned());
        Ok(LazySchema(Arc::new(Source { schemas: Arc::clone(self), id, definition, version })))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.state.lock().unwrap().kept.len()
    }
}

impl State {
    fn find(&mut self, id: u64) -> Option<Arc<Compiled>> {
        self.uses += 1;
        let kept = self.kept.get_mut(&id)?;
        kept.used = self.uses;
        Some(Arc::clone(&kept.compiled))
    }

    /// Keeps a schema, and returns those that are no longer kept: they are dropped without the lock.
    fn keep(&mut self, id: u64, compiled: Arc<Compiled>) -> Vec<Kept> {
        self.uses += 1;
        let kept = Kept { bytes: compiled.schema.footprint(), compiled, used: self.uses };
        self.bytes += kept.bytes;
        let mut unused: Vec<Kept> = self.kept.insert(id, kept).into_iter().collect();
        self.bytes -= unused.iter().map(|it| it.bytes).sum::<usize>();
        while self.bytes > KEPT_BYTES && self.kept.len() > 1 {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id);
            let Some(kept) = oldest.and_then(|id| self.kept.remove(&id)) else { break };
            self.bytes -= kept.bytes;
            unused.push(kept);
        }
        unused
    }
}

/// The schema of one version of a definition. Clones are the same one.
#[derive(Clone, Debug)]
pub struct LazySchema(Arc<Source>);

#[derive(Debug)]
struct Source {
    schemas: Arc<Schemas>,
    id: u64,
    /// The definition as it is stored; the bytes are the store's.
    definition: Bytes,
    version: String,
}

impl LazySchema {
    /// The compiled schema, with its rules.
    ///
    /// # Panics
    /// Never: the same text was compiled before.
    #[must_use]
    pub fn get(&self) -> Arc<Compiled> {
        let Source { schemas, id, definition, version } = &*self.0;
        let lock = || schemas.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = lock().find(*id) {
            return compiled;
        }
        let tree: Value = serde_json::from_slice(definition).unwrap_or_default();
        let compiled = compile(&tree, version).expect("it compiled when the definition was served");
        drop(tree);
        let compiled = Arc::new(compiled);
        let unused = lock().keep(*id, Arc::clone(&compiled));
        drop(unused);
        compiled
    }

    /// The compiled schema.
    #[must_use]
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.get().schema)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let mut state = self.schemas.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = state.kept.remove(&self.id);
        state.bytes -= kept.as_ref().map_or(0, |kept| kept.bytes);
        drop(state);
        drop(kept);
    }
}

fn compile(definition: &Value, version: &str) -> Result<Compiled, CompileError> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let found = versions.into_iter().find(|it| it["name"] == version);
    let schema = found.map_or(&Value::Null, |it| &it["schema"]["openAPIV3Schema"]);
    let schema = Arc::new(gantry_schema::compile(schema)?);
    Ok(Compiled { rules: Rules::compile(&schema), schema })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// A definition with this many properties.
    fn definition(properties: usize) -> Value {
        let properties: Map<String, Value> =
            (0..properties).map(|nth| (format!("p{nth}"), json!({ "type": "string" }))).collect();
        let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": {
            "spec": { "type": "object", "properties": properties },
        } } });
        json!({ "spec": { "versions": [{ "name": "v1", "schema": schema }] } })
    }

    fn add(schemas: &Arc<Schemas>, tree: &Value) -> LazySchema {
        schemas.add(&Bytes::from(tree.to_string()), tree, "v1").unwrap()
    }

    #[test]
    fn only_so_much_is_kept_and_the_rest_is_compiled_again() {
        let schemas = Arc::new(Schemas::default());
        let tree = definition(5_000);
        let all: Vec<_> = (0..30).map(|_| add(&schemas, &tree)).collect();
        let kept = schemas.len();
        assert!((2..20).contains(&kept), "{kept} of 30 are kept");
        assert!(schemas.state.lock().unwrap().bytes <= KEPT_BYTES);
        // Each is there when it is needed, and what is used is kept.
        for lazy in &all {
            let schema = lazy.schema();
            let spec = schema.entry(schema.root(), "spec").unwrap();
            assert!(schema.entry(spec, "p4999").is_some());
            assert!(Arc::ptr_eq(&schema, &lazy.schema()), "not compiled again at once");
        }
        assert_eq!(schemas.len(), kept);
        drop(all);
        assert_eq!((schemas.len(), schemas.state.lock().unwrap().bytes), (0, 0));
    }

    #[test]
    fn what_cannot_be_compiled_is_refused_when_it_is_added() {
        let schemas = Arc::new(Schemas::default());
        let tree = json!({ "spec": { "versions": [{ "name": "v1" }] } });
        assert!(schemas.add(&Bytes::new(), &tree, "v1").is_err());
    }
}

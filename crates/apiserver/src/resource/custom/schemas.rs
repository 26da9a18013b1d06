//! Schemas of custom kinds: compiled on demand, in a cache of limited size.
//!
//! A compiled schema takes several times the memory of its text, and a definition may declare
//! thousands of properties in several versions. The text is stored anyway, so a schema is compiled
//! when it is needed, and evicted when others are needed more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gantry_schema::{CompileError, Rules, Schema};
use serde_json::Value;

/// The estimated size of compiled schemas that are cached, in bytes. The one that was used last is
/// always kept.
const MAX_CACHED_BYTES: usize = 32 << 20;

/// A compiled schema with its validation rules.
#[derive(Debug)]
pub struct CompiledSchema {
    /// The structural schema.
    pub schema: Arc<Schema>,
    /// Its validation rules (CEL).
    pub rules: Rules,
}

/// A cache of compiled schemas.
#[derive(Debug, Default)]
pub struct SchemaCache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cached: HashMap<u64, CachedSchema>,
    /// The size of all cached schemas, in bytes.
    bytes: usize,
    /// Counts uses, to find the least recently used schema.
    uses: u64,
    /// The next number of a schema.
    next: u64,
}

#[derive(Debug)]
struct CachedSchema {
    compiled: Arc<CompiledSchema>,
    bytes: usize,
    last_used: u64,
}

impl SchemaCache {
    /// Returns the schema of a version of a stored definition. It is compiled once to see that it
    /// can be.
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
        let unused = state.insert(id, Arc::new(compiled));
        drop(state);
        drop(unused);
        let (definition, version) = (definition.clone(), version.to_owned());
        Ok(LazySchema(Arc::new(SchemaSource {
            schemas: Arc::clone(self),
            id,
            definition,
            version,
        })))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.state.lock().unwrap().cached.len()
    }
}

impl State {
    fn find(&mut self, id: u64) -> Option<Arc<CompiledSchema>> {
        self.uses += 1;
        let kept = self.cached.get_mut(&id)?;
        kept.last_used = self.uses;
        Some(Arc::clone(&kept.compiled))
    }

    /// Caches a schema, and returns the evicted ones, which are dropped outside the lock.
    fn insert(&mut self, id: u64, compiled: Arc<CompiledSchema>) -> Vec<CachedSchema> {
        self.uses += 1;
        let kept =
            CachedSchema { bytes: compiled.schema.memory_bytes(), compiled, last_used: self.uses };
        self.bytes += kept.bytes;
        let mut unused: Vec<CachedSchema> = self.cached.insert(id, kept).into_iter().collect();
        self.bytes -= unused.iter().map(|it| it.bytes).sum::<usize>();
        while self.bytes > MAX_CACHED_BYTES && self.cached.len() > 1 {
            let oldest =
                self.cached.iter().min_by_key(|(_, kept)| kept.last_used).map(|(id, _)| *id);
            let Some(kept) = oldest.and_then(|id| self.cached.remove(&id)) else { break };
            self.bytes -= kept.bytes;
            unused.push(kept);
        }
        unused
    }
}

/// The schema of one version of a definition, compiled on demand. Clones share it.
#[derive(Clone, Debug)]
pub struct LazySchema(Arc<SchemaSource>);

#[derive(Debug)]
struct SchemaSource {
    schemas: Arc<SchemaCache>,
    id: u64,
    /// The definition as it is stored; the bytes are the store's.
    definition: Bytes,
    version: String,
}

impl LazySchema {
    /// Returns the compiled schema, with its validation rules.
    ///
    /// # Panics
    /// Never: the same text was compiled before.
    #[must_use]
    pub fn get(&self) -> Arc<CompiledSchema> {
        let SchemaSource { schemas, id, definition, version } = &*self.0;
        let lock = || schemas.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = lock().find(*id) {
            return compiled;
        }
        let tree: Value = serde_json::from_slice(definition).unwrap_or_default();
        let compiled = compile(&tree, version).expect("it compiled when the definition was served");
        drop(tree);
        let compiled = Arc::new(compiled);
        let unused = lock().insert(*id, Arc::clone(&compiled));
        drop(unused);
        compiled
    }

    /// Returns the compiled schema.
    #[must_use]
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.get().schema)
    }
}

impl Drop for SchemaSource {
    fn drop(&mut self) {
        let mut state = self.schemas.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = state.cached.remove(&self.id);
        state.bytes -= kept.as_ref().map_or(0, |kept| kept.bytes);
        drop(state);
        drop(kept);
    }
}

fn compile(definition: &Value, version: &str) -> Result<CompiledSchema, CompileError> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let found = versions.into_iter().find(|it| it["name"] == version);
    let schema = found.map_or(&Value::Null, |it| &it["schema"]["openAPIV3Schema"]);
    let schema = Arc::new(gantry_schema::compile(schema)?);
    Ok(CompiledSchema { rules: Rules::compile(&schema), schema })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Makes a definition with this many properties.
    fn definition(properties: usize) -> Value {
        let properties: Map<String, Value> =
            (0..properties).map(|nth| (format!("p{nth}"), json!({ "type": "string" }))).collect();
        let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": {
            "spec": { "type": "object", "properties": properties },
        } } });
        json!({ "spec": { "versions": [{ "name": "v1", "schema": schema }] } })
    }

    fn add(schemas: &Arc<SchemaCache>, tree: &Value) -> LazySchema {
        schemas.add(&Bytes::from(tree.to_string()), tree, "v1").unwrap()
    }

    #[test]
    fn the_cache_is_bounded_and_evicted_schemas_are_recompiled() {
        let schemas = Arc::new(SchemaCache::default());
        let tree = definition(5_000);
        let all: Vec<_> = (0..30).map(|_| add(&schemas, &tree)).collect();
        let kept = schemas.len();
        assert!((2..20).contains(&kept), "{kept} of 30 are kept");
        assert!(schemas.state.lock().unwrap().bytes <= MAX_CACHED_BYTES);
        // Each is available when it is needed, and the used one stays cached.
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
    fn invalid_schemas_are_refused_when_added() {
        let schemas = Arc::new(SchemaCache::default());
        let tree = json!({ "spec": { "versions": [{ "name": "v1" }] } });
        assert!(schemas.add(&Bytes::new(), &tree, "v1").is_err());
    }
}

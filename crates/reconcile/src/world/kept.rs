//! What is kept beside the objects because it follows from them.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// One value of each type.
#[derive(Default)]
pub(super) struct Kept(RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Kept {
    pub(super) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let id = TypeId::of::<T>();
        let found = |all: &HashMap<TypeId, Arc<dyn Any + Send + Sync>>| {
            all.get(&id).cloned().and_then(|it| it.downcast::<T>().ok())
        };
        // No code of others runs under the lock, so a poisoned one is still good.
        let known = found(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(known) = known {
            return known;
        }
        let new = Arc::new(T::default());
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have been first.
        found(&all).unwrap_or_else(|| {
            let put: Arc<T> = Arc::clone(&new);
            all.insert(id, put);
            new
        })
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        write!(to, "Kept({})", all.len())
    }
}

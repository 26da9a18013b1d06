//! State that is derived from the objects.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// One value of each type.
#[derive(Default)]
pub(super) struct DerivedState(RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl DerivedState {
    pub(super) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let id = TypeId::of::<T>();
        let found = |all: &HashMap<TypeId, Arc<dyn Any + Send + Sync>>| {
            all.get(&id).cloned().and_then(|it| it.downcast::<T>().ok())
        };
        // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
        let known = found(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(known) = known {
            return known;
        }
        let new = Arc::new(T::default());
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have inserted it in between.
        found(&all).unwrap_or_else(|| {
            let put: Arc<T> = Arc::clone(&new);
            all.insert(id, put);
            new
        })
    }
}

impl fmt::Debug for DerivedState {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        write!(to, "Kept({})", all.len())
    }
}

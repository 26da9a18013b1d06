//! The kernels of all nodes of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;

use super::{
    InTreeModule, InsertError, InsertRequest, Kernel, KernelSpec, KernelState, RemoveError,
};
use crate::view::Node;

/// Called with the name of a node whenever its kernel has loaded or removed a module, and without a
/// state when the node is gone.
pub type StateObserver = Box<dyn Fn(&str, Option<KernelState>) + Send + Sync>;

/// The kernels of simulated nodes. Clones share them.
///
/// A kernel is created when it is first used, with the modules that the node's annotation has, and
/// again when the node was rebooted.
#[derive(Clone, Default)]
pub struct NodeKernels(Arc<Shared>);

#[derive(Default)]
struct Shared {
    kernels: Mutex<BTreeMap<String, Arc<NodeKernel>>>,
    observer: OnceLock<StateObserver>,
}

impl fmt::Debug for NodeKernels {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "NodeKernels({})", lock(&self.0.kernels).len())
    }
}

impl NodeKernels {
    /// Sets what is called when a kernel has changed. Only the first call counts.
    pub fn set_observer(&self, observer: StateObserver) {
        let _ = self.0.observer.set(observer);
    }

    /// Returns the kernel of a node; `None` while its annotations cannot be read, which its kubelet
    /// reports.
    #[must_use]
    pub fn of(&self, node: &Node) -> Option<Arc<NodeKernel>> {
        let spec = KernelSpec::of(node).ok()?;
        let known = {
            let mut kernels = lock(&self.0.kernels);
            let known = kernels.get(&node.metadata.name).filter(|it| it.boot_id == spec.boot_id);
            match known.cloned() {
                Some(known) => known,
                None => {
                    let kernel = Arc::new(NodeKernel {
                        node: node.metadata.name.clone(),
                        boot_id: spec.boot_id.clone(),
                        kernel: Mutex::new(spec.kernel()),
                        changes: watch::Sender::new(()),
                        shared: Arc::downgrade(&self.0),
                    });
                    kernels.insert(node.metadata.name.clone(), Arc::clone(&kernel));
                    kernel
                }
            }
        };
        // Without the lock of all kernels: one that changes takes it after its own.
        lock(&known.kernel).set_signature_policy(spec.enforcement, spec.trusted);
        Some(known)
    }

    /// Forgets the kernel of a node that is gone.
    pub fn forget(&self, node: &str) {
        let known = lock(&self.0.kernels).remove(node);
        if known.is_some()
            && let Some(observer) = self.0.observer.get()
        {
            observer(node, None);
        }
    }
}

/// The kernel of one boot of a node.
pub struct NodeKernel {
    node: String,
    boot_id: String,
    kernel: Mutex<Kernel>,
    /// Notifies programs that wait for a module.
    changes: watch::Sender<()>,
    shared: std::sync::Weak<Shared>,
}

impl fmt::Debug for NodeKernel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "NodeKernel({} {})", self.node, self.boot_id)
    }
}

impl NodeKernel {
    /// Returns a copy of the kernel.
    #[must_use]
    pub fn snapshot(&self) -> Kernel {
        lock(&self.kernel).clone()
    }

    /// Loads a module from a file. It takes a moment: call it where that blocks nothing.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn insert(&self, file: &[u8], request: InsertRequest<'_>) -> Result<(), InsertError> {
        self.change(|kernel| kernel.insert(file, request))
    }

    /// Loads a module that is part of the kernel.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn insert_in_tree(
        &self,
        module: &InTreeModule,
        request: InsertRequest<'_>,
    ) -> Result<(), InsertError> {
        self.change(|kernel| kernel.insert_in_tree(module, request))
    }

    /// Removes a module.
    ///
    /// # Errors
    /// It is not loaded or in use.
    pub fn remove(&self, name: &str) -> Result<(), RemoveError> {
        self.change(|kernel| kernel.remove(name))
    }

    /// Returns whether a module is loaded.
    #[must_use]
    pub fn is_loaded(&self, name: &str) -> bool {
        lock(&self.kernel).is_loaded(name)
    }

    /// Completes when a module is loaded, or when it is not. It may be dropped: it only waits.
    pub async fn wait_until_loaded(&self, name: &str, is_loaded: bool) {
        // Before the first look, so that no change is missed.
        let mut changes = self.changes.subscribe();
        while self.is_loaded(name) != is_loaded {
            // The sender is a part of this kernel, so the channel is never closed here.
            let _ = changes.changed().await;
        }
    }

    fn change<E>(&self, change: impl FnOnce(&mut Kernel) -> Result<(), E>) -> Result<(), E> {
        let mut kernel = lock(&self.kernel);
        change(&mut kernel)?;
        self.changes.send_replace(());
        // Under the lock, so that states are observed in their order. A kernel of an earlier boot
        // belongs to programs that are being killed: nobody observes it any more.
        let shared = self.shared.upgrade();
        let is_current = |it: &Arc<Shared>| {
            let kernels = lock(&it.kernels);
            kernels.get(&self.node).is_some_and(|it| std::ptr::eq(&raw const **it, self))
        };
        if let Some(shared) = shared.filter(is_current)
            && let Some(observer) = shared.observer.get()
        {
            observer(&self.node, Some(kernel.state(&self.boot_id)));
        }
        Ok(())
    }
}

/// A kernel, and what a container may do with it.
#[derive(Clone, Debug)]
pub struct KernelAccess {
    /// The kernel.
    pub kernel: Arc<NodeKernel>,
    /// Whether the container has the capability `SYS_MODULE`.
    pub may_load_modules: bool,
}

// A poisoned kernel is still consistent: what is changed is checked before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

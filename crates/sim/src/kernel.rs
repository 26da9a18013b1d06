//! The kernels of simulated nodes: which modules are loaded, and why one is refused.
//!
//! A [`Kernel`] checks a module as Linux does, in the same order and with the same words: its
//! signature ([`kmod::verify_module`](gantry_kmod::verify_module)), whether it is a module, its
//! version magic, and the modules it depends on. Symbols are not resolved: a module that depends on
//! another uses one symbol with that name. Synthetic modules are loaded like others.
//!
//! Nothing here reads a clock or a file. What was loaded survives the process as [`KernelState`];
//! [`NodeKernels`] has the kernel of each node.

mod in_tree;
mod node_kernels;
mod spec;

use std::collections::VecDeque;

use gantry_kmod::verify::{Enforcement, VerifyError};
use gantry_kmod::{Certificate, Compression, Errno, ModuleInfo, WeakDigests, verify_module};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use in_tree::{InTreeModule, in_tree_modules};
pub use node_kernels::{KernelAccess, NodeKernel, NodeKernels, StateObserver};
pub(crate) use spec::{Boot, desired_release, enforcement_text, new_boot_id};
pub use spec::{KernelSpec, boot_id, boot_time, is_rebooting};
pub use spec::{check_release, parse_certificates, parse_enforcement};

/// The most modules that are loaded at once. They are written into an annotation of the node.
pub const MAX_MODULES: usize = 128;
/// The most bytes of a module's name, as Linux has it.
const MAX_NAME_BYTES: usize = 55;
/// The most bytes of a module's parameters that are kept.
const MAX_PARAMETER_BYTES: usize = 512;
/// The most dependencies of one module.
const MAX_DEPENDENCIES: usize = 64;
/// The largest module that is unpacked. Real ones with debug information may be larger.
pub const MAX_MODULE_BYTES: usize = 128 << 20;
/// The most messages that the ring buffer holds.
const MAX_MESSAGES: usize = 512;
/// The most bytes of one message.
const MAX_MESSAGE_BYTES: usize = 1024;
/// The least memory that a module takes, as `lsmod` shows it.
const MIN_MODULE_SIZE: u64 = 16_384;
/// The unit in which memory of modules is allocated.
const PAGE_SIZE: u64 = 4096;
/// What a kernel's version magic has after its release.
const VERSION_MAGIC_OPTIONS: &str = "SMP preempt mod_unload modversions ";

/// The kernel is tainted by a module that has no free license.
pub const TAINT_PROPRIETARY: u32 = 1;
/// The kernel is tainted by a module that is not part of it.
pub const TAINT_OUT_OF_TREE: u32 = 1 << 12;
/// The kernel is tainted by a module without a trusted signature.
pub const TAINT_UNSIGNED: u32 = 1 << 13;

/// Licenses that do not taint, as Linux has them.
const FREE_LICENSES: [&str; 6] =
    ["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"];

/// The kernel of a simulated node.
#[derive(Clone, Debug)]
pub struct Kernel {
    release: String,
    booted_at: Timestamp,
    enforcement: Enforcement,
    trusted: Vec<Certificate>,
    /// In the order in which they were loaded.
    modules: Vec<LoadedModule>,
    taint: u32,
    messages: VecDeque<KernelMessage>,
}

/// A module that is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedModule {
    /// Its name, with underscores.
    pub name: String,
    /// The memory it takes.
    pub size: u64,
    /// The loaded modules that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<String>,
    /// How it taints the kernel.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taint: u32,
    /// The parameters it was loaded with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub parameters: String,
    /// Where it comes from.
    pub origin: ModuleOrigin,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(taint: &u32) -> bool {
    *taint == 0
}

/// Where a module comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModuleOrigin {
    /// It is part of the kernel.
    InTree,
    /// It is a file of a container.
    Container,
}

/// What a kernel keeps while the process that simulates it is restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelState {
    /// The boot that it belongs to: another boot has loaded nothing yet.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// How the kernel is tainted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taint: u32,
    /// The modules in the order in which they were loaded.
    #[serde(default)]
    pub modules: Vec<LoadedModule>,
}

/// A message in the ring buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMessage {
    /// When, since the kernel was booted.
    pub uptime: SignedDuration,
    /// What it says.
    pub text: String,
}

/// Why a module is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// The kernel refuses it with this error number.
    Refused(Errno),
    /// `ENOMEM`: as many modules are loaded as a simulated kernel holds.
    NoMemory,
}

impl InsertError {
    /// Returns what `modprobe` prints after `could not insert 'NAME': `.
    #[must_use]
    pub fn modprobe_message(self) -> &'static str {
        match self {
            Self::Refused(errno) => errno.modprobe_message(),
            Self::NoMemory => "Cannot allocate memory",
        }
    }

    /// Returns what `insmod` prints after `could not insert module FILE: `.
    #[must_use]
    pub fn insmod_message(self) -> &'static str {
        match self {
            Self::Refused(errno) => errno.insmod_message(),
            Self::NoMemory => "Cannot allocate memory",
        }
    }
}

/// Why a module is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveError {
    /// `ENOENT`: it is not loaded.
    NotLoaded,
    /// `EWOULDBLOCK`: another module uses it.
    InUse,
}

/// Who loads a module, and with what.
#[derive(Clone, Copy, Debug)]
pub struct InsertRequest<'a> {
    /// The process, such as `modprobe`: a locked down kernel names it.
    pub process: &'a str,
    /// The name of the file, for modules that do not name themselves.
    pub file_name: &'a str,
    /// The parameters.
    pub parameters: &'a str,
    /// The time.
    pub now: Timestamp,
}

impl Kernel {
    /// Creates a kernel that was booted at this time and has loaded nothing.
    #[must_use]
    pub fn new(release: &str, booted_at: Timestamp) -> Self {
        let mut kernel = Self {
            release: release.to_owned(),
            booted_at,
            enforcement: Enforcement::Off,
            trusted: Vec::new(),
            modules: Vec::new(),
            taint: 0,
            messages: VecDeque::new(),
        };
        kernel.log(booted_at, &format!("Linux version {release} (gantry, simulated)"));
        kernel
    }

    /// Sets how strict the kernel is about signatures, and which certificates it trusts.
    pub fn set_signature_policy(&mut self, enforcement: Enforcement, trusted: Vec<Certificate>) {
        (self.enforcement, self.trusted) = (enforcement, trusted);
    }

    /// Restores what the same boot of the kernel had loaded.
    pub fn restore(&mut self, state: &KernelState) {
        self.taint = state.taint;
        self.modules = state.modules.iter().take(MAX_MODULES).cloned().collect();
    }

    /// Returns what is to be restored when the process is started again.
    #[must_use]
    pub fn state(&self, boot_id: &str) -> KernelState {
        let (boot_id, modules) = (boot_id.to_owned(), self.modules.clone());
        KernelState { boot_id, taint: self.taint, modules }
    }

    /// Returns the release, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns how the kernel is tainted, as `/proc/sys/kernel/tainted` shows it.
    #[must_use]
    pub fn taint(&self) -> u32 {
        self.taint
    }

    /// Returns the loaded modules, the last one first, as `/proc/modules` has them.
    pub fn modules(&self) -> impl Iterator<Item = &LoadedModule> {
        self.modules.iter().rev()
    }

    /// Returns the names of the modules that use a module, the last one first.
    #[must_use]
    pub fn users(&self, name: &str) -> Vec<&str> {
        let name = canonical_name(name);
        let uses = |it: &&LoadedModule| it.depends.contains(&name);
        self.modules().filter(uses).map(|it| it.name.as_str()).collect()
    }

    /// Returns whether a module is loaded.
    #[must_use]
    pub fn is_loaded(&self, name: &str) -> bool {
        let name = canonical_name(name);
        self.modules.iter().any(|it| it.name == name)
    }

    /// Returns the messages of the ring buffer, the oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &KernelMessage> {
        self.messages.iter()
    }

    /// Loads a module from a file, which may be compressed.
    ///
    /// # Errors
    /// The kernel refuses it; the ring buffer has the reason where Linux logs one.
    pub fn insert(&mut self, file: &[u8], request: InsertRequest<'_>) -> Result<(), InsertError> {
        let refused = |errno| Err(InsertError::Refused(errno));
        let unpacked = match Compression::detect(file) {
            Compression::None => std::borrow::Cow::Borrowed(file),
            packed => match packed.decompress(file, MAX_MODULE_BYTES) {
                Ok(module) => std::borrow::Cow::Owned(module),
                Err(_) => return refused(Errno::NoExec),
            },
        };
        let signed = match verify_module(&unpacked, &self.trusted, WeakDigests::Allow) {
            Ok(_) => true,
            Err(error) => {
                self.check_signature(&error, request)?;
                false
            }
        };
        let Ok(info) = ModuleInfo::parse(&unpacked) else { return refused(Errno::NoExec) };
        let name = canonical_name(info.name().unwrap_or(request.file_name));
        if !info.is_relocatable() || !info.has_modinfo() || !is_module_name(&name) {
            self.log(request.now, &format!("{name}: No module found in object"));
            return refused(Errno::NoExec);
        }
        let own = format!("{} {VERSION_MAGIC_OPTIONS}", self.release);
        let magic = info.vermagic().unwrap_or_default();
        // The options after the release differ between distributions; simulated kernels have none.
        if magic.split_ascii_whitespace().next() != Some(self.release.as_str()) {
            let text = format!("{name}: version magic '{magic}' should be '{own}'");
            self.log(request.now, &text);
            return refused(Errno::NoExec);
        }
        let depends: Vec<String> = info.depends().map(canonical_name).collect();
        let new = NewModule {
            name: &name,
            size: module_size(unpacked.len()),
            depends,
            origin: ModuleOrigin::Container,
        };
        self.add(new, request)?;
        self.taint_by(&name, &info, signed, request.now);
        self.log_unknown_parameters(&name, &info, request);
        Ok(())
    }

    /// Loads a module that is part of the kernel and is signed by its vendor.
    ///
    /// # Errors
    /// It is loaded already, or depends on one that is not.
    pub fn insert_in_tree(
        &mut self,
        module: &InTreeModule,
        request: InsertRequest<'_>,
    ) -> Result<(), InsertError> {
        let new = NewModule {
            name: &canonical_name(module.name),
            size: MIN_MODULE_SIZE,
            depends: module.depends.iter().map(|it| canonical_name(it)).collect(),
            origin: ModuleOrigin::InTree,
        };
        self.add(new, request)
    }

    /// Removes a module.
    ///
    /// # Errors
    /// It is not loaded, or another module uses it.
    pub fn remove(&mut self, name: &str) -> Result<(), RemoveError> {
        let name = canonical_name(name);
        if !self.is_loaded(&name) {
            return Err(RemoveError::NotLoaded);
        }
        if !self.users(&name).is_empty() {
            return Err(RemoveError::InUse);
        }
        self.modules.retain(|it| it.name != name);
        Ok(())
    }

    /// Refuses a module whose signature is not accepted, unless the kernel is lenient.
    fn check_signature(
        &mut self,
        error: &VerifyError,
        request: InsertRequest<'_>,
    ) -> Result<(), InsertError> {
        let Some(refusal) = error.kernel_refusal(self.enforcement) else { return Ok(()) };
        if let Some(text) = refusal.log {
            let text = match text.strip_prefix("Lockdown: modprobe:") {
                Some(rest) => {
                    format!("Lockdown: {}:{rest}; see man kernel_lockdown.7", request.process)
                }
                None => text.to_owned(),
            };
            self.log(request.now, &text);
        }
        Err(InsertError::Refused(refusal.errno))
    }

    fn add(&mut self, new: NewModule<'_>, request: InsertRequest<'_>) -> Result<(), InsertError> {
        let NewModule { name, size, mut depends, origin } = new;
        if self.is_loaded(name) {
            return Err(InsertError::Refused(Errno::Exists));
        }
        depends.sort();
        depends.dedup();
        let unknown = depends.iter().find(|it| !self.is_loaded(it)).cloned();
        if let Some(symbol) = unknown {
            self.log(request.now, &format!("{name}: Unknown symbol {symbol} (err -2)"));
            return Err(InsertError::Refused(Errno::NoEntry));
        }
        let fits = request.parameters.len() <= MAX_PARAMETER_BYTES
            && depends.len() <= MAX_DEPENDENCIES
            && self.modules.len() < MAX_MODULES;
        if !fits {
            return Err(InsertError::NoMemory);
        }
        self.modules.push(LoadedModule {
            name: name.to_owned(),
            size,
            depends,
            taint: 0,
            parameters: request.parameters.to_owned(),
            origin,
        });
        Ok(())
    }

    /// Taints the kernel by a module that was just loaded, and logs it the first time.
    fn taint_by(&mut self, name: &str, info: &ModuleInfo, signed: bool, now: Timestamp) {
        let license = info.field("license").unwrap_or("unspecified");
        let in_tree = info.field("intree") == Some("Y");
        let taints = [
            (
                !in_tree,
                TAINT_OUT_OF_TREE,
                format!("{name}: loading out-of-tree module taints kernel."),
            ),
            (
                !FREE_LICENSES.contains(&license),
                TAINT_PROPRIETARY,
                format!("{name}: module license '{license}' taints kernel."),
            ),
            (
                !signed,
                TAINT_UNSIGNED,
                format!(
                    "{name}: module verification failed: signature and/or required key missing - \
                     tainting kernel"
                ),
            ),
        ];
        let mut own = 0;
        for (_, flag, text) in taints.into_iter().filter(|(applies, ..)| *applies) {
            if self.taint & flag == 0 {
                self.log(now, &text);
            }
            self.taint |= flag;
            own |= flag;
        }
        if let Some(module) = self.modules.last_mut() {
            module.taint = own;
        }
    }

    fn log_unknown_parameters(
        &mut self,
        name: &str,
        info: &ModuleInfo,
        request: InsertRequest<'_>,
    ) {
        let known: Vec<&str> = ["parm", "parmtype"]
            .iter()
            .flat_map(|field| info.values(field))
            .filter_map(|it| it.split(':').next())
            .collect();
        for word in request.parameters.split_ascii_whitespace() {
            let parameter = word.split('=').next().unwrap_or(word);
            if !known.contains(&parameter) {
                let text = format!("{name}: unknown parameter '{parameter}' ignored");
                self.log(request.now, &text);
            }
        }
    }

    fn log(&mut self, now: Timestamp, text: &str) {
        if self.messages.len() == MAX_MESSAGES {
            self.messages.pop_front();
        }
        // Texts of modules must not look like lines of their own.
        let text: String = text.chars().filter(|it| !it.is_control()).collect();
        let mut end = text.len().min(MAX_MESSAGE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let uptime = now.duration_since(self.booted_at).max(SignedDuration::ZERO);
        self.messages.push_back(KernelMessage { uptime, text: text[..end].to_owned() });
    }
}

/// A module whose file was checked.
struct NewModule<'a> {
    name: &'a str,
    size: u64,
    depends: Vec<String>,
    origin: ModuleOrigin,
}

/// Returns the name of a module as kernels have it: `-` and `_` mean the same.
#[must_use]
pub fn canonical_name(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns whether a text can be the name of a module.
pub(crate) fn is_module_name(name: &str) -> bool {
    let allowed = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}

fn module_size(bytes: usize) -> u64 {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX - PAGE_SIZE);
    bytes.max(MIN_MODULE_SIZE).next_multiple_of(PAGE_SIZE)
}

#[cfg(test)]
mod tests;

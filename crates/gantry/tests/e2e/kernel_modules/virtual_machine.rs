//! What a driver container does on a node, in a real kernel.

use std::collections::BTreeMap;
use std::path::Path;

use gantry_kmod::ModuleInfo;
use gantry_testkit::kernel::{
    Attempt, Boot, BootOutcome, Enforcement, Identifier, Kernel, SignFile, SigningKey,
};
use serde_json::Value;

/// The parameter that the Module gives the module.
pub(super) const GREETING: &str = "hi";

/// Boots a kernel that loads only modules with a trusted signature, and runs the hooks of a driver
/// container in it: an in-tree module is loaded, the hooks load and unload. Then it tries one of
/// the modules without its signature.
pub(super) async fn run_hooks(
    kernel: &Kernel,
    files: &BTreeMap<String, Vec<u8>>,
    lifecycle: &Value,
    (key, sign_file): (&SigningKey, &SignFile),
) -> BootOutcome {
    let leaf = kernel.leaf_module().unwrap();
    let in_tree = in_tree_name(&leaf);
    let by = Identifier::IssuerAndSerial;
    let leaf = sign_file.sign(&leaf, &key.key, &key.certificate, "sha256", by).unwrap();
    let release = kernel.release();
    let hook = |name: &str| shell_line(&lifecycle[name]["exec"]["command"]);
    let script = format!(
        "set -e\n\
         export PATH=/kmod:/bin\n\
         ln -sf /bin/dash /bin/sh\n\
         loaded() {{ echo \"$1:\" $(cut -d ' ' -f 1 /proc/modules | sort); }}\n\
         depmod\n\
         modprobe {in_tree}\n\
         loaded before\n\
         {load}\n\
         loaded loaded\n\
         cat /sys/module/hello/parameters/greeting\n\
         {unload}\n\
         loaded unloaded\n",
        load = hook("postStart"),
        unload = hook("preStop"),
    );
    let mut boot = Boot::new(Enforcement::Signatures)
        .trust(key.certificate_der())
        // Shells of busybox prefer their own modprobe, which knows no directories.
        .file("/bin/dash", std::fs::read("/bin/dash").unwrap())
        .file("/scenario", script.into_bytes())
        .file(&format!("/lib/modules/{release}/kernel/{in_tree}.ko"), leaf);
    for (path, content) in files {
        boot = boot.file(path, content.clone());
    }
    let unsigned = gantry_testkit::kernel::unsigned(&files[&module_path(release, "hello_base")]);
    let boot = boot
        .attempt("hooks", Attempt::Run("dash /scenario".to_owned()))
        .attempt("unsigned", Attempt::Load(unsigned.to_vec()));
    kernel.boot(&boot).await.unwrap()
}

/// Where a module is in the image.
pub(super) fn module_path(release: &str, name: &str) -> String {
    format!("/opt/lib/modules/{release}/{name}.ko")
}

/// The name of a module as `modprobe` and the kernel have it.
pub(super) fn in_tree_name(module: &[u8]) -> String {
    ModuleInfo::parse(module).unwrap().name().unwrap().to_owned()
}

/// A command as a line of a shell.
fn shell_line(command: &Value) -> String {
    let words = command.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    words.map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
}

/// Whether the shell that the hooks need is there.
pub(super) fn has_shell() -> bool {
    Path::new("/bin/dash").is_file()
}

//! Synthetic kernel modules, in place of those that commands would have built.

use std::rc::Rc;

use gantry_kmod::synthetic::ModuleArch;
use gantry_kmod::{KernelRelease, SyntheticModule};
use gantry_oci::TreePath;

use super::error::StepProblem;
use super::file_system::{FileSystem, Kind, Node, NodeKind};
use super::stage::StageState;
use super::{Build, kernel_of_arguments};

/// Files that say which modules are built in a directory, in the order of the kernel's makefiles.
const MAKEFILES: [&str; 4] = ["Kbuild", "GNUmakefile", "makefile", "Makefile"];

/// The most modules that one makefile may list.
const MAX_LISTED_MODULES: usize = 100;

/// Whether a file is a module, by its name.
pub(super) fn is_module_name(name: &[u8]) -> bool {
    name.len() > 3 && name.ends_with(b".ko")
}

impl<'a> Build<'a> {
    /// Writes a synthetic module.
    pub(super) fn write_module(
        &mut self,
        state: &mut StageState<'a>,
        path: &TreePath,
    ) -> Result<(), StepProblem> {
        let release = self.kernel(state, path)?;
        let file_name = path.file_name().unwrap_or_default();
        let name = String::from_utf8_lossy(file_name.strip_suffix(b".ko").unwrap_or(file_name))
            .replace('-', "_");
        let arch = match self.request.platform.architecture() {
            "arm64" => ModuleArch::Aarch64,
            _ => ModuleArch::X86_64,
        };
        let content = SyntheticModule::new(&name, &release).arch(arch).to_bytes()?;
        let kind = NodeKind::File(Rc::from(content));
        let real = state.file_system.write(path, Node { kind, attributes: self.attributes() })?;
        state.add_module(real);
        self.log(&format!(
            "{}: created {path}, a synthetic module for kernel {release}",
            super::run::SIMULATED_PREFIX
        ));
        Ok(())
    }

    /// The kernel that a module is for.
    pub(super) fn kernel(
        &self,
        state: &StageState<'_>,
        path: &TreePath,
    ) -> Result<KernelRelease, StepProblem> {
        if let Some(release) = self.request.kernel {
            return Ok(release.clone());
        }
        let variable = |name| state.variable(name)?.parse().ok();
        kernel_of_arguments(self.request.args)
            .or_else(|| variable("KERNEL_FULL_VERSION"))
            .or_else(|| variable("KERNEL_VERSION"))
            .or_else(|| kernel_of_path(path))
            .ok_or_else(|| {
                StepProblem::Message(format!(
                    "the kernel of module {path} is not known; set the build argument \
                     KERNEL_FULL_VERSION"
                ))
            })
    }
}

/// The release in a path below `lib/modules`.
fn kernel_of_path(path: &TreePath) -> Option<KernelRelease> {
    let names: Vec<&[u8]> = path.names().collect();
    let at = names.windows(2).position(|pair| pair == [&b"lib"[..], b"modules"])?;
    std::str::from_utf8(names.get(at + 2)?).ok()?.parse().ok()
}

/// The modules that the makefile of a directory lists, as names of files.
pub(super) fn listed_modules(
    files: &FileSystem<'_>,
    directory: &TreePath,
) -> Result<Vec<String>, StepProblem> {
    let (directory, kind) = files.resolve(directory, true)?;
    if kind != Some(Kind::Directory) {
        return Ok(Vec::new());
    }
    let mut modules: Vec<String> = Vec::new();
    for makefile in MAKEFILES {
        let content = files.read_one(&directory.join(makefile.as_bytes()))?;
        let Some(content) = content else { continue };
        let text = String::from_utf8_lossy(&content).replace("\\\n", " ");
        for line in text.lines() {
            modules.extend(modules_of_line(line));
        }
    }
    modules.sort();
    modules.dedup();
    modules.truncate(MAX_LISTED_MODULES);
    Ok(modules)
}

/// The modules of a line such as `obj-m += hello.o`.
fn modules_of_line(line: &str) -> impl Iterator<Item = String> + '_ {
    let line = line.split('#').next().unwrap_or_default().trim();
    let value = line.strip_prefix("obj-m").map(str::trim_start);
    let value = value.and_then(|rest| {
        ["+=", ":=", "?=", "="].iter().find_map(|operator| rest.strip_prefix(operator))
    });
    value.unwrap_or_default().split_whitespace().filter_map(|word| {
        let name = word.strip_suffix(".o")?;
        let plain = name.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-.".contains(&it));
        (plain && !name.is_empty()).then(|| format!("{name}.ko"))
    })
}

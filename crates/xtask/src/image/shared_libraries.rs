//! Finds the dynamic loader and the shared libraries that a program needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader as _};
use object::{Endianness, FileKind};

/// The most libraries a program may need; far more than any has.
const MAX_LIBRARIES: usize = 200;

/// A file of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageFile {
    /// Its absolute path.
    pub(super) path: String,
    /// Its content.
    pub(super) content: Vec<u8>,
}

/// Where libraries are looked for.
#[derive(Clone, Debug)]
pub(super) struct LibraryDirectories {
    /// The directory that stands for `/`.
    root: PathBuf,
}

impl LibraryDirectories {
    /// Those of the machine that builds.
    pub(super) fn of_this_machine() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// Those below a directory.
    #[cfg(test)]
    pub(super) fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directories in which loaders look without further configuration, in their order. Loaders
    /// of Debian look in those with the name of the architecture, others in `lib64`.
    fn searched(architecture: &Architecture) -> [String; 6] {
        let triple = architecture.triple;
        [
            format!("/lib/{triple}"),
            format!("/usr/lib/{triple}"),
            "/lib64".to_owned(),
            "/usr/lib64".to_owned(),
            "/lib".to_owned(),
            "/usr/lib".to_owned(),
        ]
    }

    /// The path of a directory without symbolic links.
    fn resolve(&self, directory: &str) -> anyhow::Result<String> {
        let path = self.root.join(directory.trim_start_matches('/'));
        let resolve = || {
            let resolved = fs::canonicalize(&path)?;
            let below = resolved.strip_prefix(fs::canonicalize(&self.root)?)?;
            anyhow::Ok(format!("/{}", below.to_str().context("it is not text")?))
        };
        resolve().with_context(|| format!("cannot use {}", path.display()))
    }

    /// Reads a file by its path in the image; `None` if there is none.
    fn read(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let file = self.root.join(path.trim_start_matches('/'));
        match fs::read(&file) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not read {}", file.display())),
        }
    }
}

/// An architecture by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Architecture {
    machine: elf::Machine,
    /// Its name in images.
    name: &'static str,
    /// Its name in directories of libraries.
    triple: &'static str,
}

const ARCHITECTURES: [Architecture; 4] = [
    Architecture { machine: elf::EM_X86_64, name: "amd64", triple: "x86_64-linux-gnu" },
    Architecture { machine: elf::EM_AARCH64, name: "arm64", triple: "aarch64-linux-gnu" },
    Architecture { machine: elf::EM_RISCV, name: "riscv64", triple: "riscv64-linux-gnu" },
    Architecture { machine: elf::EM_S390, name: "s390x", triple: "s390x-linux-gnu" },
];

/// What a program or library says about itself.
#[derive(Debug, PartialEq, Eq)]
struct Requirements {
    class: Class,
    machine: elf::Machine,
    /// The dynamic loader; programs that are linked statically have none.
    loader: Option<String>,
    /// The names of libraries.
    needed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Bits32,
    Bits64,
}

/// Returns a program, its loader and all libraries that it needs directly or indirectly, and the
/// name of its architecture. Libraries are in the directories in which the loader looks for them.
pub(super) fn collect(
    path: &str,
    program: Vec<u8>,
    directories: &LibraryDirectories,
) -> anyhow::Result<(Vec<ImageFile>, &'static str)> {
    let requirements = read_requirements(&program)?;
    let machine = requirements.machine;
    let architecture = ARCHITECTURES
        .iter()
        .find(|known| known.machine == machine && requirements.class == Class::Bits64)
        .with_context(|| format!("its architecture, ELF machine {}, is not known", machine.0))?;
    let mut files = BTreeMap::from([(path.to_owned(), program)]);
    let loader = requirements.loader.as_deref();
    if let Some(loader) = loader {
        ensure!(loader.starts_with('/'), "its loader {loader:?} is not an absolute path");
        let content = directories.read(loader)?;
        let missing = || format!("its loader {loader} does not exist on this machine");
        files.insert(loader.to_owned(), content.with_context(missing)?);
    }
    // The loader is loaded already when a library asks for it by name.
    let loader_name = loader.and_then(|loader| Path::new(loader).file_name()?.to_str());
    let mut found: Vec<String> = loader_name.map(str::to_owned).into_iter().collect();
    let mut pending = requirements.needed.clone();
    while let Some(name) = pending.pop() {
        if found.contains(&name) {
            continue;
        }
        ensure!(found.len() < MAX_LIBRARIES, "it needs more than {MAX_LIBRARIES} libraries");
        let (path, content, needed) = find(&name, &requirements, architecture, directories)?;
        files.insert(path, content);
        pending.extend(needed);
        found.push(name);
    }
    let files = files.into_iter().map(|(path, content)| ImageFile { path, content });
    Ok((files.collect(), architecture.name))
}

/// Finds a library for the program's architecture, with its path and what it needs itself.
///
/// The path is the one without symbolic links to directories: loaders look in the directory that
/// `/lib64` is a link to, but not all of them in `/lib64`.
fn find(
    name: &str,
    program: &Requirements,
    architecture: &Architecture,
    directories: &LibraryDirectories,
) -> anyhow::Result<(String, Vec<u8>, Vec<String>)> {
    ensure!(!name.contains('/'), "it needs {name:?}, and a library with a path is not supported");
    let searched = LibraryDirectories::searched(architecture);
    for directory in &searched {
        let path = format!("{directory}/{name}");
        let Some(content) = directories.read(&path)? else { continue };
        // Linker scripts and libraries of other architectures are passed over, as loaders do.
        if class(&content).is_none() {
            continue;
        }
        let library = read_requirements(&content).with_context(|| format!("cannot use {path}"))?;
        if (library.class, library.machine) == (program.class, program.machine) {
            let directory = directories.resolve(directory)?;
            return Ok((format!("{directory}/{name}"), content, library.needed));
        }
    }
    let searched = searched.join(", ");
    bail!("it needs {name}, which is in none of {searched}; install the package that has it")
}

fn read_requirements(data: &[u8]) -> anyhow::Result<Requirements> {
    match class(data).context("it is not an ELF file")? {
        class @ Class::Bits64 => read_elf::<FileHeader64<Endianness>>(data, class),
        class @ Class::Bits32 => read_elf::<FileHeader32<Endianness>>(data, class),
    }
}

/// The class of an ELF file; `None` for other files.
fn class(data: &[u8]) -> Option<Class> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => Some(Class::Bits64),
        Ok(FileKind::Elf32) => Some(Class::Bits32),
        Ok(_) | Err(_) => None,
    }
}

fn read_elf<Elf: FileHeader<Endian = Endianness>>(
    data: &[u8],
    class: Class,
) -> anyhow::Result<Requirements> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let mut loader = None;
    let mut is_dynamic = false;
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            loader = Some(text(path)?);
        }
        is_dynamic |= segment.p_type(endian) == elf::PT_DYNAMIC;
    }
    let table = header.sections(endian, data)?.dynamic_table(endian, data)?;
    ensure!(!is_dynamic || !table.is_empty(), "its section headers were removed");
    let mut needed = Vec::new();
    for entry in &table {
        match entry.tag {
            elf::DT_NEEDED => needed.push(text(table.string(entry)?)?),
            elf::DT_RPATH | elf::DT_RUNPATH => {
                let path = text(table.string(entry)?)?;
                bail!("it looks for libraries in {path:?}; link it without a run path")
            }
            _ => {}
        }
    }
    Ok(Requirements { class, machine: header.e_machine(endian), loader, needed })
}

fn text(bytes: &[u8]) -> anyhow::Result<String> {
    let text = std::str::from_utf8(bytes).context("the name of a library is not text")?;
    ensure!(!text.is_empty(), "the name of a library is empty");
    Ok(text.to_owned())
}

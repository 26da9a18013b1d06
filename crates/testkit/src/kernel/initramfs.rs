//! Writes the file system that a kernel starts with: a few programs of this machine with their
//! libraries, the files of a test, and an `init` that makes the attempts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::requirements::KernelPrograms;

/// Makes the attempts and prints what happened to the second serial port; the first is the
/// kernel's console.
const INIT: &str = include_str!("init.sh");

/// The names under which `kmod` does different things.
const KMOD_NAMES: [&str; 5] = ["insmod", "rmmod", "modprobe", "lsmod", "depmod"];

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// The content of a file system, by path.
#[derive(Debug, Default)]
pub(super) struct Initramfs {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    Directory,
    File(Vec<u8>),
    Link(String),
    /// The console, without which the kernel's first process has no output.
    Console,
}

impl Initramfs {
    /// Returns a file system with the programs and with these attempts, one a line.
    pub(super) fn new(
        programs: &KernelPrograms,
        attempts: &[String],
    ) -> Result<Self, InitramfsError> {
        let mut tree = Self::default();
        for directory in ["dev", "proc", "sys"] {
            tree.nodes.insert(directory.to_owned(), Node::Directory);
        }
        tree.nodes.insert("dev/console".to_owned(), Node::Console);
        tree.add("bin/busybox", read(&programs.busybox)?);
        tree.add("bin/perl", read(&programs.perl)?);
        tree.add("kmod/kmod", read(&programs.kmod)?);
        for name in KMOD_NAMES {
            tree.nodes.insert(format!("kmod/{name}"), Node::Link("kmod".to_owned()));
        }
        for program in [&programs.perl, &programs.kmod] {
            for library in libraries(&programs.ldd, program)? {
                tree.add(&library.to_string_lossy(), read(&library)?);
            }
        }
        tree.add("init", INIT.as_bytes().to_vec());
        let lines: String = attempts.iter().map(|line| format!("{line}\n")).collect();
        tree.add("attempts", lines.into_bytes());
        Ok(tree)
    }

    /// Adds a file, and the directories above it.
    pub(super) fn add(&mut self, path: &str, content: Vec<u8>) {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            self.nodes.entry(path[..end].to_owned()).or_insert(Node::Directory);
        }
        self.nodes.insert(path.to_owned(), Node::File(content));
    }

    /// The file system as an archive that kernels unpack, in the "newc" format of `cpio`.
    pub(super) fn archive(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        let mut number = 0;
        // Sorted by path, so a directory precedes what is in it.
        for (path, node) in &self.nodes {
            number += 1;
            let (mode, data, device) = match node {
                Node::Directory => (DIRECTORY, &[][..], (0, 0)),
                Node::File(content) => (FILE, &content[..], (0, 0)),
                Node::Link(target) => (LINK, target.as_bytes(), (0, 0)),
                Node::Console => (CHARACTER_DEVICE, &[][..], (5, 1)),
            };
            append(&mut archive, number, path, mode, data, device);
        }
        append(&mut archive, 0, "TRAILER!!!", 0, &[], (0, 0));
        archive
    }
}

fn append(
    archive: &mut Vec<u8>,
    number: usize,
    path: &str,
    mode: u32,
    data: &[u8],
    device: (u32, u32),
) {
    let header = format!(
        "070701{number:08x}{mode:08x}{owner:08x}{owner:08x}{links:08x}{time:08x}{size:08x}\
         {zero:08x}{zero:08x}{major:08x}{minor:08x}{name:08x}{zero:08x}{path}\0",
        owner = 0,
        links = 1,
        time = 0,
        size = data.len(),
        zero = 0,
        major = device.0,
        minor = device.1,
        name = path.len() + 1,
    );
    for part in [header.as_bytes(), data] {
        archive.extend(part);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
}

fn read(path: &Path) -> Result<Vec<u8>, InitramfsError> {
    fs::read(path).map_err(|source| InitramfsError::Read { path: path.to_path_buf(), source })
}

/// Returns the libraries that a program is started with, and what loads them.
fn libraries(ldd: &Path, program: &Path) -> Result<Vec<PathBuf>, InitramfsError> {
    let output = Command::new(ldd)
        .arg(program)
        .output()
        .map_err(|source| InitramfsError::Read { path: ldd.to_path_buf(), source })?;
    Ok(library_paths(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads the paths in the output of `ldd`: after the arrow, or alone for the loader.
fn library_paths(output: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
        Some(PathBuf::from(path))
    };
    output.lines().filter_map(path).collect()
}

/// Why a file system cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum InitramfsError {
    /// A program of this machine cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The program or library.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let output = "\tlinux-vdso.so.1 (0x00007fa1)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fa1)\n\
                      \tlibgone.so => not found\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007fa1)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(library_paths(output), expected.map(PathBuf::from));
        assert_eq!(library_paths("\tnot a dynamic executable\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn an_archive_has_directories_before_files_and_is_aligned() {
        let mut tree = Initramfs::default();
        tree.add("/a/b/c", b"12345".to_vec());
        tree.nodes.insert("l".to_owned(), Node::Link("a".to_owned()));
        let archive = tree.archive();
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive);
        let at = |wanted: &str| text.find(wanted).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"), "{text}");
        assert!(text.starts_with("07070100000001000041ed"), "{text}");
        assert!(text.contains("0000000500000000"), "the length of the file");
        assert!(text.contains("TRAILER!!!"));
    }
}

//! Takes modules out of the packages of kernels. A module of the kernel's own package has the right
//! version magic and symbols, so nothing is compiled.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Modules without dependencies that need no device and can be unloaded, the preferred one first.
/// Releases build one or the other into the kernel.
const LEAF_MODULES: [&str; 4] = [
    "kernel/lib/crc-itu-t",
    "kernel/lib/crc7",
    "kernel/lib/math/cordic",
    "kernel/drivers/net/dummy",
];

/// The last bytes of a signed module.
const MAGIC: &[u8] = b"~Module signature appended~\n";

/// What precedes the magic: algorithm, digest, kind, two lengths and padding, then the length of
/// the signature.
const SIGNATURE_INFO: usize = 12;

/// Reads the first of the leaf modules that there is.
pub(super) fn leaf(modules: &Path, xz: &Path) -> Result<Vec<u8>, ModuleError> {
    for name in LEAF_MODULES {
        let plain = modules.join(format!("{name}.ko"));
        if plain.is_file() {
            return Ok(unsigned(&read(&plain)?).to_vec());
        }
        let packed = modules.join(format!("{name}.ko.xz"));
        if packed.is_file() {
            let module = filter(xz, &["--decompress", "--stdout"], &read(&packed)?)?;
            return Ok(unsigned(&module).to_vec());
        }
    }
    Err(ModuleError::NoLeaf { modules: modules.to_path_buf() })
}

/// Returns a module without any of the signatures at its end.
#[must_use]
pub fn unsigned(module: &[u8]) -> &[u8] {
    let mut module = module;
    while let Some(shorter) = without_outermost(module) {
        module = shorter;
    }
    module
}

fn without_outermost(module: &[u8]) -> Option<&[u8]> {
    let rest = module.strip_suffix(MAGIC)?;
    let (rest, info) = rest.split_at_checked(rest.len().checked_sub(SIGNATURE_INFO)?)?;
    let length = u32::from_be_bytes(*info.last_chunk()?);
    let length = usize::try_from(length).ok()?;
    rest.get(..rest.len().checked_sub(length)?)
}

/// Compresses a module with `xz` so that kernels unpack it themselves: they know no checksum but
/// CRC32 and have no memory for the default dictionary.
///
/// # Errors
/// `xz` did not run.
pub fn compressed(xz: &Path, module: &[u8]) -> Result<Vec<u8>, ModuleError> {
    let arguments = ["--compress", "--stdout", "--check=crc32", "--lzma2=dict=1MiB"];
    filter(xz, &arguments, module)
}

fn read(path: &Path) -> Result<Vec<u8>, ModuleError> {
    fs::read(path).map_err(|source| ModuleError::Read { path: path.to_path_buf(), source })
}

/// Sends bytes through a program.
fn filter(program: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, ModuleError> {
    let failed = |source| ModuleError::Read { path: program.to_path_buf(), source };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Its output may fill the pipe before it has read everything.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    });
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(io::Error::other(said)));
    }
    Ok(output.stdout)
}

/// Why a module cannot be taken out of a package.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// None of the modules that tests load is there.
    #[error("cannot find a module without dependencies in {}", modules.display())]
    NoLeaf {
        /// The directory of the kernel's modules.
        modules: PathBuf,
    },
    /// A module cannot be read or unpacked.
    #[error("could not read with {}", path.display())]
    Read {
        /// The file, or the program that unpacks it.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(module: &[u8], signature: &[u8]) -> Vec<u8> {
        let length = u32::try_from(signature.len()).unwrap().to_be_bytes();
        [module, signature, &[0, 0, 2, 0, 0, 0, 0, 0], &length, MAGIC].concat()
    }

    #[test]
    fn all_signatures_are_removed() {
        let once = signed(b"module", b"signature");
        let twice = signed(&once, b"another");
        let mut too_long = once.clone();
        let at = too_long.len() - MAGIC.len() - 1;
        too_long[at] = 200;
        let table = [
            ("none", b"module".to_vec(), &b"module"[..]),
            ("one", once, b"module"),
            ("two", twice, b"module"),
            ("longer than the file", too_long.clone(), &too_long[..]),
            ("only the magic", MAGIC.to_vec(), MAGIC),
            ("nothing", vec![], b""),
        ];
        for (why, module, expected) in table {
            assert_eq!(unsigned(&module), expected, "{why}");
        }
    }
}

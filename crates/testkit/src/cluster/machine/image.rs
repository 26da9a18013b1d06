//! Builds images of one static program. No registry is used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::run::RunError;

/// The image that a real node has: a shell and the usual small tools. Pods that use it must set
/// `imagePullPolicy: Never`.
pub const IMAGE: &str = "gantry.local/busybox:1";

/// The pause image, which holds the namespaces of a pod.
pub(super) const PAUSE: &str = "gantry.local/pause:1";

/// The names of the tools that are links to the one program.
const TOOLS: [&str; 6] = ["sh", "cat", "echo", "nc", "sleep", "true"];

/// The block size of an archive.
const BLOCK: usize = 512;

/// Writes both images as one archive, in the form `docker save` has.
pub(super) fn write(folder: &Path, busybox: &Path) -> Result<PathBuf, RunError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| RunError::Folder { path, source }
    };
    let program = fs::read(busybox).map_err(failed(busybox))?;
    let path = folder.join("layer.tar");
    fs::write(&path, layer(&program)).map_err(failed(&path))?;
    let digest = sha256(&path).map_err(failed(&path))?;
    let layer = fs::read(&path).map_err(failed(&path))?;
    let path = folder.join("images.tar");
    fs::write(&path, images(&layer, &digest)).map_err(failed(&path))?;
    Ok(path)
}

/// The file system of both.
fn layer(program: &[u8]) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.add("bin/", &Entry::Folder);
    archive.add("bin/busybox", &Entry::File(program));
    for tool in TOOLS {
        archive.add(&format!("bin/{tool}"), &Entry::Link("busybox"));
    }
    archive.finish()
}

fn images(layer: &[u8], digest: &str) -> Vec<u8> {
    let config = |command: Value| {
        let rootfs = json!({"type": "layers", "diff_ids": [format!("sha256:{digest}")]});
        let config = json!({"Env": ["PATH=/bin"], "Cmd": command});
        let architecture = architecture();
        json!({"architecture": architecture, "os": "linux", "config": config, "rootfs": rootfs})
            .to_string()
    };
    let manifest = json!([
        {"Config": "pause.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]},
        {"Config": "busybox.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]},
    ]);
    let mut archive = Archive::default();
    archive.add("layer.tar", &Entry::File(layer));
    archive.add("pause.json", &Entry::File(config(json!(["sleep", "infinity"])).as_bytes()));
    archive.add("busybox.json", &Entry::File(config(json!(["sh"])).as_bytes()));
    archive.add("manifest.json", &Entry::File(manifest.to_string().as_bytes()));
    archive.finish()
}

/// Returns the architecture of this machine, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let output = Command::new("sha256sum").arg("--").arg(path).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.split_once(' ') {
        Some((digest, _)) if output.status.success() => Ok(digest.to_owned()),
        _ => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// An archive in the format of `tar`, reproducible byte by byte.
#[derive(Debug, Default)]
struct Archive(Vec<u8>);

#[derive(Debug)]
enum Entry<'data> {
    Folder,
    File(&'data [u8]),
    Link(&'data str),
}

impl Archive {
    fn add(&mut self, name: &str, entry: &Entry<'_>) {
        let (kind, data, target) = match *entry {
            Entry::Folder => (b'5', &[][..], ""),
            Entry::File(data) => (b'0', data, ""),
            Entry::Link(target) => (b'2', &[][..], target),
        };
        let mut header = [0_u8; BLOCK];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, "0000755\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", data.len()));
        put(136, "00000000000\0");
        // The sum of all bytes, with the checksum field counted as spaces.
        put(148, "        ");
        put(157, target);
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    /// Two empty blocks mark the end.
    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists an archive with `tar`: type and mode, size, name, link target.
    fn listed(archive: &[u8]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, archive).unwrap();
        let output = Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(path).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        let words = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [&words[..1], &words[2..3], &words[5..]].concat().join(" ")
        };
        lines.lines().map(words).collect()
    }

    #[test]
    fn tar_reads_what_we_write() {
        let found = listed(&layer(b"program"));
        assert_eq!(
            found[..3],
            ["drwxr-xr-x 0 bin/", "-rwxr-xr-x 7 bin/busybox", "lrwxr-xr-x 0 bin/sh -> busybox"]
        );
        assert_eq!(found.len(), 2 + TOOLS.len());
        let found = listed(&images(b"layer", "abc"));
        let names: Vec<_> = found.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(names, ["layer.tar", "pause.json", "busybox.json", "manifest.json"]);
    }

    #[test]
    fn the_same_program_makes_the_same_image() {
        assert_eq!(layer(b"program"), layer(b"program"));
        assert_ne!(layer(b"program"), layer(b"another"));
    }
}

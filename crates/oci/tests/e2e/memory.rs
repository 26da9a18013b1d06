//! The memory that a large image takes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};

use gantry_oci::layer::{NewEntry, write_layer};
use gantry_oci::tree::{Tree, TreePath};
use gantry_oci::{
    Algorithm, BlobSource, Config, Descriptor, Family, Hasher, Limits, Manifest, MediaType,
};
use serde_json::json;

const FILES: usize = 120_000;
/// Small, since memory must not depend on it: with 17,000 bytes, 2 GB, the peak is the same.
const FILE_BYTES: usize = 3_000;

/// A layer that is made while it is read.
struct Generated;

impl BlobSource for Generated {
    fn open(&self, _: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(GeneratedLayer { number: 0, buffer: Vec::new(), position: 0 }))
    }
}

struct GeneratedLayer {
    number: usize,
    buffer: Vec<u8>,
    position: usize,
}

impl GeneratedLayer {
    /// The entry of one file, cut out of a layer of its own.
    fn template() -> Vec<u8> {
        let entry = NewEntry::file("n".repeat(60).as_str(), vec![7; FILE_BYTES], 0o644);
        let mut tar = Vec::new();
        let layer = write_layer(&[entry]).unwrap().content;
        flate2::read::GzDecoder::new(&layer[..]).read_to_end(&mut tar).unwrap();
        tar.truncate(tar.len() - 1024);
        tar
    }

    fn fill(&mut self) {
        self.position = 0;
        if self.number == FILES {
            self.buffer.clear();
            return;
        }
        if self.buffer.is_empty() {
            self.buffer = Self::template();
        }
        let (directory, file) = (self.number / 500, self.number % 500);
        let name = format!("usr/lib/package-{directory:05}/share/a-file-with-a-name-{file:06}.txt");
        self.buffer[..100].fill(0);
        self.buffer[..name.len()].copy_from_slice(name.as_bytes());
        self.buffer[148..156].fill(b' ');
        let sum: u32 = self.buffer[..512].iter().map(|byte| u32::from(*byte)).sum();
        self.buffer[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.number += 1;
    }
}

impl Read for GeneratedLayer {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.position == self.buffer.len() {
            self.fill();
        }
        let count = out.len().min(self.buffer.len() - self.position);
        out[..count].copy_from_slice(&self.buffer[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}

/// The most memory this process has had, in kilobytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_image_of_many_files_is_read_in_a_hundred_megabytes() {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut layer = Generated.open(&Descriptor::of(MediaType::OciLayer, b"")).unwrap();
    let size = io::copy(&mut layer, &mut hasher).unwrap();
    assert!(size > 400_000_000);
    let digest = hasher.finish();
    let descriptor = Descriptor::new(MediaType::OciLayer, digest.clone(), size);
    let config = json!({ "rootfs": { "diff_ids": [digest.as_str()] } });
    let config = Config::parse(config.to_string().as_bytes()).unwrap();
    let of_config = Descriptor::of(MediaType::OciConfig, config.bytes());
    let manifest = Manifest::new(Family::Oci, &of_config, &[descriptor], &BTreeMap::new());
    let before = peak();
    let tree = Tree::read(&Generated, &manifest, &config, &Limits::default()).unwrap();
    let name = "/usr/lib/package-00100/share/a-file-with-a-name-000499.txt";
    let paths = [TreePath::from_user(name).unwrap()];
    let files = tree.read_files(&Generated, &manifest, &config, &paths).unwrap();
    assert_eq!(files[0].content, vec![7; FILE_BYTES]);
    let taken = (peak() - before) / 1024;
    assert!(taken < 100, "{taken} MB");
    assert!(peak() / 1024 < 150, "{} MB in all", peak() / 1024);
}

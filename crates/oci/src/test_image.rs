//! Images for tests, written block by block so that they can be wrong.

use std::collections::BTreeMap;

use serde_json::json;

use crate::blob::MemoryBlobs;
use crate::digest::Digest;
use crate::layer::{Attributes, write_header};
use crate::manifest::{Config, Descriptor, Manifest};
use crate::media_type::{Family, MediaType};

/// A tar under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    pub(crate) fn entry(mut self, flag: u8, name: &str, link: &str, content: &[u8]) -> Self {
        let attributes = Attributes { mode: 0o644, ..Attributes::default() };
        let (name, link) = (name.as_bytes(), link.as_bytes());
        write_header(&mut self.0, flag, name, link, content.len() as u64, &attributes).unwrap();
        self.data(content)
    }

    pub(crate) fn data(mut self, content: &[u8]) -> Self {
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.entry(b'0', name, "", content.as_bytes())
    }

    pub(crate) fn dir(self, name: &str) -> Self {
        self.entry(b'5', name, "", b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, target, b"")
    }

    /// Changes the last header and corrects its checksum.
    pub(crate) fn patch_header(mut self, offset: usize, bytes: &[u8]) -> Self {
        let start = self.0.len() - 512;
        self.0[start + offset..start + offset + bytes.len()].copy_from_slice(bytes);
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(&self.0[start..]);
        header.set_cksum();
        self.0[start..].copy_from_slice(header.as_bytes());
        self
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

/// An image in memory.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) blobs: MemoryBlobs,
    pub(crate) manifest: Manifest,
    pub(crate) config: Config,
}

/// An image of layers that are not compressed.
pub(crate) fn image(tars: &[Tar]) -> Image {
    let layers: Vec<Vec<u8>> = tars.iter().map(|tar| tar.clone().end()).collect();
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| Digest::sha256(layer)).collect();
    image_of(Family::Oci, &layers, &diff_ids)
}

/// An image of layer blobs.
pub(crate) fn image_of(family: Family, layers: &[Vec<u8>], diff_ids: &[Digest]) -> Image {
    let mut blobs = MemoryBlobs::default();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {
            "type": "layers",
            "diff_ids": diff_ids.iter().map(Digest::as_str).collect::<Vec<_>>(),
        },
        "history": vec![json!({ "created_by": "test" }); diff_ids.len()],
    });
    let config = Config::parse(config.to_string().as_bytes()).unwrap();
    blobs.insert(config.bytes().to_vec());
    let descriptors: Vec<Descriptor> = layers
        .iter()
        .map(|layer| {
            blobs.insert(layer.clone());
            Descriptor::of(MediaType::gzip_layer_of(family), layer)
        })
        .collect();
    let config_descriptor = Descriptor::of(MediaType::config_of(family), config.bytes());
    let manifest = Manifest::new(family, &config_descriptor, &descriptors, &BTreeMap::new());
    blobs.insert(manifest.bytes().to_vec());
    Image { blobs, manifest, config }
}

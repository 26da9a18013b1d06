//! The images that are signed, and what is in them afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use gantry_oci::blob::{read_config, read_document};
use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::NewEntry;
use gantry_oci::layout::Layout;
use gantry_oci::tree::TreePath;
use gantry_oci::{Document, Limits, Manifest, Platform, SelectedFile, Tree};
use jiff::Timestamp;

/// The tag of the images that are signed.
pub(crate) const UNSIGNED: &str = "unsigned";

/// The tag of the signed images.
pub(crate) const SIGNED: &str = "signed";

/// The folder of the modules in images.
pub(crate) const FOLDER: &str = "/opt/lib/modules/bench";

/// The size of files in base images. Images of distributions have about this mean.
const FILE_BYTES: usize = 20_000;

/// The largest layer, in megabytes. Each is composed in memory.
const LAYER_MEGABYTES: usize = 500;

/// What is below the modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Nothing.
    None,
    /// Files of text with so many megabytes, which compress to three quarters.
    Text(usize),
    /// Files with so many megabytes that cannot be compressed, in several layers.
    Random(usize),
}

/// Modules of a real kernel.
#[derive(Clone, Debug)]
pub(crate) struct Modules(Vec<(String, Vec<u8>)>);

impl Modules {
    /// Takes modules of the kernels in this folder, evenly over all that there are.
    pub(crate) fn of_kernels(folder: &Path, count: usize) -> anyhow::Result<Self> {
        let mut by_name = BTreeMap::new();
        find(folder, &mut by_name).with_context(|| format!("could not read {folder:?}"))?;
        let found = by_name.len();
        ensure!(
            found >= count,
            "{} has {found} modules, and {count} are needed; run testbed/kernels",
            folder.display()
        );
        let chosen = by_name.into_iter().enumerate();
        let chosen = chosen.filter(|(at, _)| at * count / found != (at + 1) * count / found);
        let read =
            |(_, (name, path)): (usize, (String, PathBuf))| anyhow::Ok((name, fs::read(path)?));
        Ok(Self(chosen.map(read).collect::<anyhow::Result<_>>()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The names of the files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// Finds modules that are not compressed, by their names.
fn find(folder: &Path, found: &mut BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            find(&path, found)?;
        } else if kind.is_file() && name.ends_with(".ko") {
            found.insert(name, path);
        }
    }
    Ok(())
}

/// Writes an image with modules on a base to a new layout.
pub(crate) fn compose(root: &Path, modules: &Modules, base: Base) -> anyhow::Result<()> {
    let mut layout = Layout::create(root)?;
    let mut random = fastrand::Rng::with_seed(1);
    let (megabytes, alphabet) = match base {
        Base::None => (0, 0..=0),
        Base::Text(megabytes) => (megabytes, b'0'..=b'o'),
        Base::Random(megabytes) => (megabytes, 0..=u8::MAX),
    };
    let mut image: Option<Manifest> = None;
    let mut number = 0;
    for start in (0..megabytes).step_by(LAYER_MEGABYTES) {
        let files = LAYER_MEGABYTES.min(megabytes - start) * 1_000_000 / FILE_BYTES;
        let entries = (0..files).map(|_| {
            number += 1;
            let path = format!("usr/share/folder-{:03}/file-{number:06}", number / 500);
            let byte = |_| random.u8(alphabet.clone());
            NewEntry::file(&path, (0..FILE_BYTES).map(byte).collect(), 0o644)
        });
        let entries = entries.collect();
        image = Some(add_layer(&mut layout, image.as_ref(), entries)?);
    }
    let entries = modules.0.iter();
    let entries = entries
        .map(|(name, content)| NewEntry::file(&format!("{FOLDER}/{name}"), content.clone(), 0o644));
    let image = add_layer(&mut layout, image.as_ref(), entries.collect())?;
    layout.set_image(&image.descriptor(), Some(UNSIGNED))?;
    Ok(())
}

fn add_layer(
    layout: &mut Layout,
    image: Option<&Manifest>,
    entries: Vec<NewEntry>,
) -> anyhow::Result<Manifest> {
    let created = Timestamp::UNIX_EPOCH;
    let builder = match image {
        None => ImageBuilder::from_scratch(Platform::linux("amd64")?, created),
        Some(image) => {
            ImageBuilder::from_image(image, &read_config(&*layout, image.config())?, created)
        }
    };
    Ok(builder.layer(entries, "bench")?.build(layout)?)
}

/// Reads the modules of a signed image.
pub(crate) fn signed(root: &Path, modules: &Modules) -> anyhow::Result<Vec<SelectedFile>> {
    let layout = Layout::open(root)?;
    let document = read_document(&layout, layout.image(Some(SIGNED))?)?;
    let Document::Manifest(manifest) = document else { bail!("it is not a single image") };
    let config = read_config(&layout, manifest.config())?;
    let tree = Tree::read(&layout, &manifest, &config, &Limits::default())?;
    let path = |name| TreePath::from_user(&format!("{FOLDER}/{name}"));
    let paths = modules.names().map(path).collect::<Result<Vec<_>, _>>()?;
    Ok(tree.read_files(&layout, &manifest, &config, &paths)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_the_modules_and_its_base() {
        let folder = tempfile::tempdir().unwrap();
        let kernels = folder.path().join("kernels/6.1/lib");
        fs::create_dir_all(&kernels).unwrap();
        for at in 0..10 {
            fs::write(kernels.join(format!("m{at}.ko")), at.to_string()).unwrap();
        }
        fs::write(kernels.join("other.ko.xz"), "").unwrap();
        let all = folder.path().join("kernels");
        let modules = Modules::of_kernels(&all, 3).unwrap();
        assert_eq!(modules.len(), 3);
        let error = Modules::of_kernels(&all, 11).unwrap_err().to_string();
        assert!(error.contains("has 10 modules, and 11 are needed"), "{error}");
        let root = folder.path().join("layout");
        compose(&root, &modules, Base::Text(1)).unwrap();
        let mut layout = Layout::open(&root).unwrap();
        let image = layout.image(Some(UNSIGNED)).unwrap().clone();
        layout.set_image(&image, Some(SIGNED)).unwrap();
        let contents: Vec<_> =
            signed(&root, &modules).unwrap().into_iter().map(|file| file.content).collect();
        let expected: Vec<_> = modules.0.iter().map(|(_, content)| content.clone()).collect();
        assert_eq!(contents, expected);
    }
}

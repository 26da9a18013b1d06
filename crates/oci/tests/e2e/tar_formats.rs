//! Tars that the system's `tar` writes in all its formats.

use std::fs;
use std::path::Path;

use gantry_oci::layer::{
    EntryKind, LayerEntry, LayerProblem, Limits, NewEntry, read_layer, write_layer,
};
use gantry_oci::{Descriptor, LayerError, MediaType, MemoryBlobs};

use crate::tools::{available, run};

fn read(blob: Vec<u8>) -> Result<Vec<(LayerEntry, Vec<u8>)>, LayerError> {
    let descriptor = Descriptor::of(MediaType::OciLayer, &blob);
    let mut blobs = MemoryBlobs::default();
    blobs.insert(blob);
    let mut entries = Vec::new();
    read_layer(&blobs, &descriptor, None, &Limits::default(), &mut |entry, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).map_err(LayerProblem::Io)?;
        entries.push((entry.clone(), bytes));
        Ok(())
    })?;
    Ok(entries)
}

fn sources(root: &Path) {
    let long = root.join("tree").join("directory-with-a-name-of-some-length/".repeat(4));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("file"), "long").unwrap();
    fs::write(root.join("tree/ümlaut"), "utf-8").unwrap();
    fs::write(root.join("tree/a"), vec![7; 1000]).unwrap();
    fs::hard_link(root.join("tree/a"), root.join("tree/z-hard")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(100), root.join("tree/link")).unwrap();
    fs::write(root.join("tree/empty"), "").unwrap();
}

#[test]
fn all_formats_of_tar_are_read() {
    if !available("all_formats_of_tar_are_read", &["tar", "gzip", "zstd"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    sources(root);
    // The older formats cannot hold the long link.
    for (format, skip, compression) in [
        ("gnu", "nothing", ""),
        ("pax", "nothing", ""),
        ("ustar", "./link", ""),
        ("oldgnu", "nothing", ""),
        ("gnu", "nothing", "--gzip"),
        ("pax", "nothing", "--zstd"),
    ] {
        let format = format!("--format={format}");
        let skip_argument = format!("--exclude={skip}");
        let mut arguments =
            vec!["-C", "tree", "--sort=name", "--mtime=@1700000000", &format, &skip_argument];
        if !compression.is_empty() {
            arguments.push(compression);
        }
        arguments.extend(["-cf", "out.tar", "."]);
        run(root, "tar", &arguments);
        let entries = read(fs::read(root.join("out.tar")).unwrap()).unwrap();
        let find = |end: &str| {
            let found = entries.iter().find(|(entry, _)| entry.name.ends_with(end.as_bytes()));
            found.unwrap_or_else(|| panic!("{format} {end}"))
        };
        assert_eq!(find("length/file").1, b"long", "{format}");
        assert_eq!(find("/ümlaut").1, b"utf-8");
        assert_eq!(find("./a").1, vec![7; 1000]);
        assert_eq!(find("./a").0.attributes.mtime.seconds, 1_700_000_000);
        assert_eq!(find("z-hard").0.kind, EntryKind::HardLink);
        assert_eq!(find("z-hard").0.link, b"./a");
        if skip == "nothing" {
            assert_eq!(find("/link").0.link, "x/".repeat(100).as_bytes());
        }
        let listed = run(root, "tar", &["-tf", "out.tar"]);
        assert_eq!(listed.lines().count(), entries.len(), "{format}");
    }
}

#[test]
fn sparse_files_of_tar_are_refused() {
    if !available("sparse_files_of_tar_are_refused", &["tar"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let file = fs::File::create(root.join("sparse")).unwrap();
    file.set_len(10 << 20).unwrap();
    for format in ["--format=gnu", "--format=pax"] {
        run(root, "tar", &["--sparse", format, "-cf", "out.tar", "sparse"]);
        let error = read(fs::read(root.join("out.tar")).unwrap()).unwrap_err();
        assert!(matches!(*error.problem, LayerProblem::Sparse), "{format}: {error}");
    }
}

#[test]
fn tar_reads_our_layers() {
    if !available("tar_reads_our_layers", &["tar", "gzip"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let long = "d/".repeat(100) + "file";
    let mut old = NewEntry::file("old", b"before 1970".to_vec(), 0o644);
    old.attributes.mtime.seconds = -1000;
    old.attributes.mtime.nanoseconds = 5;
    old.attributes.xattrs = vec![(b"user.binary".to_vec(), b"\n=\0\n".to_vec())];
    let entries =
        [NewEntry::file(&long, b"long".to_vec(), 0o600), NewEntry::symlink("l", &long), old];
    fs::write(root.join("layer.tar.gz"), write_layer(&entries).unwrap().content).unwrap();
    run(root, "tar", &["--warning=no-timestamp", "-xf", "layer.tar.gz"]);
    assert_eq!(fs::read(root.join("l")).unwrap(), b"long");
    let modified = fs::metadata(root.join("old")).unwrap().modified().unwrap();
    let before = std::time::UNIX_EPOCH.duration_since(modified).unwrap();
    assert_eq!(before.as_nanos(), 999_999_999_995);
    assert_eq!(run(root, "tar", &["-tf", "layer.tar.gz"]).lines().count(), 3);
}

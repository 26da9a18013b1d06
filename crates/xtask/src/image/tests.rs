use std::fs;
use std::io::Cursor;

use gantry_oci::blob::{read_config, read_document};
use gantry_oci::layout::Archive;
use gantry_oci::tree::TreeEntry;
use gantry_oci::{Document, Limits, Tree};
use serde_json::Value;

use super::*;

/// A small program that is linked dynamically on every machine that builds.
const SMALL_PROGRAM: &str = "/bin/true";

fn compose_small(created: Timestamp) -> ComposedImage {
    let program = fs::read(SMALL_PROGRAM).unwrap();
    compose(program, &LibraryDirectories::of_this_machine(), created, "1.2.3").unwrap()
}

fn archive(image: &ComposedImage) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("image.tar");
    let size = write(image, "v1", &output).unwrap();
    let bytes = fs::read(&output).unwrap();
    assert_eq!(bytes.len() as u64, size);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    bytes
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let first = archive(&compose_small(Timestamp::UNIX_EPOCH));
    assert!(first == archive(&compose_small(Timestamp::UNIX_EPOCH)), "the archives differ");
    let later = Timestamp::from_second(1_700_000_000).unwrap();
    assert!(first != archive(&compose_small(later)), "the time is not in the image");
}

#[test]
fn the_image_is_read_back() {
    let image = compose_small(Timestamp::UNIX_EPOCH);
    let archive = Archive::open(Cursor::new(archive(&image))).unwrap();
    let descriptor = archive.image(Some("v1")).unwrap();
    assert_eq!(descriptor.digest(), image.manifest.digest());
    let Document::Manifest(manifest) = read_document(&archive, descriptor).unwrap() else {
        panic!("it is a manifest");
    };
    assert_eq!(manifest.layers().len(), 1);
    let config = read_config(&archive, manifest.config()).unwrap();
    let settings = Value::Object(config.object().clone());
    assert_eq!(settings["config"]["Entrypoint"], serde_json::json!([PROGRAM]));
    assert_eq!(settings["config"]["User"], "65532:65532");
    assert_eq!(settings["created"], "1970-01-01T00:00:00Z");
    assert_eq!(settings["os"], "linux");
    assert_eq!(config.labels()["org.opencontainers.image.version"], "1.2.3");
    let tree = Tree::read(&archive, &manifest, &config, &Limits::default()).unwrap();
    let size = fs::metadata(SMALL_PROGRAM).unwrap().len();
    assert_eq!(tree.get(PROGRAM).unwrap(), Some(TreeEntry::File { size }));
}

/// Tools that collect diagnostic data start `/usr/bin/gather`, which is a name of the program: the
/// binary is in the image once, and its command line knows the command.
#[test]
fn kms_91_the_image_gathers_by_another_name_of_its_program() {
    let image = compose_small(Timestamp::UNIX_EPOCH);
    let config = read_config(&image.blobs, image.manifest.config()).unwrap();
    let tree = Tree::read(&image.blobs, &image.manifest, &config, &Limits::default()).unwrap();
    let program = Path::new(PROGRAM).file_name().unwrap().to_str().unwrap();
    let link = TreeEntry::Symlink { target: program.as_bytes() };
    assert_eq!(tree.get(GATHER).unwrap(), Some(link));
    assert_eq!(Path::new(GATHER).parent(), Path::new(PROGRAM).parent(), "the link is relative");
    let name = Path::new(GATHER).file_name().unwrap().to_str().unwrap();
    let command = gantry::cli::command();
    let modules = command.find_subcommand("modules").unwrap();
    assert!(modules.find_subcommand(name).is_some(), "gantry modules {name}");
}

/// What the loader of this machine finds for a program is in its image, whatever links lead there.
#[test]
fn libraries_are_those_that_the_loader_finds() {
    // The second one has libraries that need others.
    for program in [SMALL_PROGRAM, "/bin/ls"] {
        let listed = std::process::Command::new("ldd").arg(program).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let resolved = |path: &str| {
            let path = Path::new(path);
            let directory = fs::canonicalize(path.parent().unwrap()).unwrap();
            directory.join(path.file_name().unwrap())
        };
        let mut expected: Vec<PathBuf> =
            listed.split_whitespace().filter(|word| word.starts_with('/')).map(resolved).collect();
        let machine = LibraryDirectories::of_this_machine();
        let (files, _) = collect(PROGRAM, fs::read(program).unwrap(), &machine).unwrap();
        let files = files.iter().filter(|file| file.path != PROGRAM);
        let mut found: Vec<PathBuf> = files.map(|file| resolved(&file.path)).collect();
        expected.sort();
        found.sort();
        assert!(found.len() >= 2, "a loader and a library: {listed}");
        assert_eq!(found, expected, "{program}");
    }
}

#[test]
fn what_cannot_run_in_an_image_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = LibraryDirectories::below(folder.path());
    let machine = LibraryDirectories::of_this_machine();
    let refused = |program: &[u8], directories| {
        let composed = compose(program.to_vec(), directories, Timestamp::UNIX_EPOCH, "1");
        format!("{:#}", composed.unwrap_err())
    };
    assert_eq!(refused(b"#!/bin/sh\n", &machine), "it is not an ELF file");
    assert_eq!(refused(b"", &machine), "it is not an ELF file");
    let program = fs::read(SMALL_PROGRAM).unwrap();
    let error = refused(&program, &empty);
    assert!(error.ends_with("does not exist on this machine"), "{error}");
    assert!(error.starts_with("its loader /lib"), "{error}");
    // With a loader only, the first library is missing.
    let (files, _) = collect(PROGRAM, program.clone(), &machine).unwrap();
    let loader = files.iter().find(|file| file.path.contains("/ld-")).unwrap();
    let path = folder.path().join(&loader.path[1..]);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, &loader.content).unwrap();
    let error = refused(&program, &empty);
    assert!(error.starts_with("it needs libc.so.6, which is in none of /lib/"), "{error}");
    // A linker script with the name of a library is passed over, as loaders do.
    fs::create_dir_all(folder.path().join("lib")).unwrap();
    fs::write(folder.path().join("lib/libc.so.6"), "INPUT(-lc)").unwrap();
    let error = refused(&program, &empty);
    assert!(error.starts_with("it needs libc.so.6, which is in none of /lib/"), "{error}");
    for length in [20, 64, 100, program.len() / 2] {
        let error = refused(&program[..length], &machine);
        assert!(!error.is_empty(), "{length} bytes of a program");
    }
}

#[test]
fn the_time_is_a_number_of_seconds() {
    let text = |text: &str| created(Some(text.to_owned()));
    assert_eq!(created(None).unwrap(), Timestamp::UNIX_EPOCH);
    assert_eq!(text("1700000000").unwrap().to_string(), "2023-11-14T22:13:20Z");
    for wrong in ["", "-1", "yesterday", "99999999999999999999", "999999999999999"] {
        let error = text(wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("SOURCE_DATE_EPOCH={wrong:?}")), "{error}");
    }
}

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
    let machine = LibraryDirectories::of_this_machine();
    compose(program, &Variant::Program, &machine, created, "1.2.3").unwrap()
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

/// What manifests of the original start, and what tools that collect diagnostic data start, are
/// names of the program: the binary is in the image once, and its command line knows the command.
#[test]
fn kms_91_the_other_names_of_the_program_are_its_commands() {
    let image = compose_small(Timestamp::UNIX_EPOCH);
    let config = read_config(&image.blobs, image.manifest.config()).unwrap();
    let tree = Tree::read(&image.blobs, &image.manifest, &config, &Limits::default()).unwrap();
    let link = TreeEntry::Symlink { target: PROGRAM.as_bytes() };
    let table = [
        ("/ko-app/dual-pods-controller --namespace=x -v=5", "dual-pods-controller"),
        ("/ko-app/launcher-populator --namespace x --v 5 --logtostderr", "launcher-populator"),
        ("/app/requester", "requester"),
        ("/ko-app/test-requester --node n --pod-uid u --namespace x", "requester"),
        ("/ko-app/test-server --startup-delay 22 --port 8000", "engine"),
        ("/app/launcher.py --port 8001", "launcher"),
        ("/app/launcher_pod_notifier.py", "notifier"),
        ("/usr/bin/python3 /app/launcher_pod_notifier.py", "notifier"),
        ("/usr/bin/python3 /app/launcher.py --log-level info", "launcher"),
        ("/usr/bin/python launcher.py --mock-gpus", "launcher"),
        ("/usr/bin/uvicorn --port 8001 --log-level info launcher:app", "launcher"),
        ("/usr/bin/vllm serve m --port 8000 --enable-sleep-mode", "engine"),
        ("/bin/bash -c launcher.py", "launcher"),
        ("/bin/sh -c /app/launcher.py", "launcher"),
        ("/usr/bin/gather", "modules"),
    ];
    for (line, command) in table {
        let name = line.split(' ').next().unwrap();
        assert_eq!(tree.get(name).unwrap(), Some(link), "{name}");
        let words = gantry::cli::translate(line.split(' ').map(Into::into).collect()).unwrap();
        let found = gantry::cli::command().try_get_matches_from(words);
        let found = found.unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(found.subcommand_name(), Some(command), "{line}");
    }
    // No name is without a command.
    for name in NAMES {
        assert!(table.iter().any(|(line, _)| line.split(' ').next() == Some(name)), "{name}");
    }
}

/// What `oc adm must-gather` and `kubectl cp` start in a container runs with nothing but the files
/// of the must-gather image.
#[test]
fn kms_91_the_must_gather_image_has_what_its_clients_start() {
    let machine = LibraryDirectories::of_this_machine();
    let tools = match must_gather::tools(&machine) {
        Ok(tools) => tools,
        Err(error) => return println!("skipped: {error:#}"),
    };
    // A program in Gantry's place that writes what it is asked to.
    let program = fs::read("/bin/cp").unwrap();
    let variant = Variant::MustGather(tools);
    let image = compose(program, &variant, &machine, Timestamp::UNIX_EPOCH, "1").unwrap();
    let config = read_config(&image.blobs, image.manifest.config()).unwrap();
    let settings = Value::Object(config.object().clone());
    assert_eq!(settings["config"]["Entrypoint"], serde_json::json!([GATHER]));
    let folder = tempfile::tempdir().unwrap();
    let (archive, root) = (folder.path().join("image.tar"), folder.path().join("root"));
    write(&image, "v1", &archive).unwrap();
    let unpack = |archive: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        let mut tar = std::process::Command::new("tar");
        assert!(tar.arg("-xf").arg(archive).arg("-C").arg(to).status().unwrap().success());
    };
    unpack(&archive, folder.path());
    let layer = image.manifest.layers()[0].digest().hex().to_owned();
    unpack(&folder.path().join("blobs/sha256").join(layer), &root);
    // The volume of a must-gather pod, and what every container has.
    for directory in ["must-gather", "dev"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("dev/null"), "").unwrap();
    fs::write(root.join("data"), "gathered\n").unwrap();
    let run = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--root"]).arg(&root);
        command.args(["/bin/bash", "-c", script]).env_clear().env("PATH", "/usr/bin:/bin");
        command.output().unwrap()
    };
    let first = run("exit 7");
    if first.status.code() != Some(7) {
        let said = String::from_utf8_lossy(&first.stderr).into_owned();
        assert!(said.contains("unshare"), "the shell does not start: {said}");
        return println!("skipped: no user namespace: {said}");
    }
    let gather = "setsid -w bash <<-MUSTGATHER_EOF\n/usr/bin/gather /data \
                  /must-gather/log\nMUSTGATHER_EOF\nsync && echo 'Caches written to disk'";
    let table = [
        (gather, "Caches written to disk\n"),
        ("trap : TERM INT; sleep 0 & wait; echo copied", "copied\n"),
        ("tar -C /must-gather -cf - . | tar -xOf - ./log", "gathered\n"),
        ("tar cf - /must-gather/log 2>/dev/null | tar tf -", "must-gather/log\n"),
        ("du -s /must-gather | awk '{print ($1 >= 0)}'", "1\n"),
        ("df --version | awk 'NR==1 {print $1}'", "df\n"),
        ("pkill --version | awk '{print $1}'", "pkill\n"),
        ("exec /bin/sh -c 'echo $0'", "/bin/sh\n"),
    ];
    for (script, expected) in table {
        let output = run(script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{script}: {said}");
    }
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
        let program = program.to_vec();
        let composed = compose(program, &Variant::Program, directories, Timestamp::UNIX_EPOCH, "1");
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

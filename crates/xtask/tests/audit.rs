//! `make audit` with and without a tool, a database and advisories: an incomplete check never
//! succeeds.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A fake cargo whose `deny` is this script.
fn run(cargo: &str, copy: bool) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("cargo");
    fs::write(&program, format!("#!/bin/sh\ncase \"$*\" in\n{cargo}\n*) exit 9 ;;\nesac\n"))
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    if copy {
        fs::create_dir_all(folder.path().join("home/advisory-dbs/github.com")).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/audit");
    let output = Command::new(script)
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .env("CARGO_HOME", folder.path().join("home"))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
    (output.status.code(), said)
}

const TOOL: &str = "'deny --version') ;;";
const FETCHED: &str = "'deny fetch db') ;;";
const NO_NETWORK: &str = "'deny fetch db') echo 'could not resolve host'; exit 1 ;;";
const CLEAN: &str = "'deny check --disable-fetch advisories') ;;";
const FOUND: &str = "'deny check --disable-fetch advisories') echo RUSTSEC-2023-0071; exit 1 ;;";

#[test]
fn an_unchecked_audit_fails() {
    let table = [
        ("no tool", vec![], false, 3, "NOT CHECKED: there is no cargo-deny"),
        ("no database", vec![TOOL, NO_NETWORK, CLEAN], false, 3, "NOT CHECKED: the database"),
        ("an old copy", vec![TOOL, NO_NETWORK, CLEAN], true, 0, "which may be old"),
        (
            "an old copy with something in it",
            vec![TOOL, NO_NETWORK, FOUND],
            true,
            1,
            "RUSTSEC-2023",
        ),
        ("all is well", vec![TOOL, FETCHED, CLEAN], false, 0, "audit: no advisory applies"),
        ("something is found", vec![TOOL, FETCHED, FOUND], false, 1, "RUSTSEC-2023-0071"),
    ];
    for (why, cargo, copy, code, text) in table {
        let (found, said) = run(&cargo.join("\n"), copy);
        assert_eq!(found, Some(code), "{why}: {said}");
        assert!(said.contains(text), "{why}: {said}");
        assert_eq!(code == 0, said.contains("no advisory applies"), "{why}: {said}");
    }
}

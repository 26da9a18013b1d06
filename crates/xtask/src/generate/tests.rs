//! Planning is tested as a function; reading and writing in a temporary folder.

use super::*;

fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_plan_changes_only_what_differs() {
    let wanted = files(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let present = files(&[("a", "1"), ("b", "old"), ("a/stale", "x")]);
    let expected = [
        Change::Delete { path: "a/stale".to_owned() },
        Change::Replace { path: "b".to_owned(), old: "old".to_owned(), content: "2".to_owned() },
        Change::Create { path: "c".to_owned(), content: "3".to_owned() },
    ];
    assert_eq!(plan(&wanted, &present), expected);
    assert_eq!(plan(&wanted, &wanted), []);
}

#[test]
fn paths_stay_inside_and_are_made_once() {
    let table = [
        ("a plain path is fine", "docs/a.md", None),
        ("an absolute path is refused", "/etc/a", Some("is not a path inside")),
        ("a way up is refused", "../a", Some("is not a path inside")),
        ("no path is refused", "", Some("is not a path inside")),
        ("a second maker is refused", "taken", Some("is made twice")),
    ];
    for (why, path, expected) in table {
        let mut wanted = files(&[("taken", "")]);
        let made = vec![Generated { path: path.to_owned(), content: String::new() }];
        let problem = collect(&mut wanted, made).err().map(|error| error.to_string());
        match (problem, expected) {
            (None, None) => {}
            (Some(problem), Some(part)) => assert!(problem.contains(part), "{why}: {problem}"),
            (problem, expected) => panic!("{why}: {problem:?}, expected {expected:?}"),
        }
    }
}

/// One generator that owns `out` and makes two files.
fn two_files(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    Ok(vec![
        Generated { path: "out/deep/one.txt".to_owned(), content: "one\n".to_owned() },
        Generated { path: "two.txt".to_owned(), content: "two\n".to_owned() },
    ])
}

const TWO: &[Generator] = &[Generator { name: "pair", owns: &["out"], make: two_files }];

/// Runs [`TWO`] in `root`; the answer and what was printed.
fn run_two(root: &Path, mode: Mode) -> (bool, String) {
    let mut out = Vec::new();
    let tree = Tree::read(root).unwrap();
    let clean = run_these(TWO, &tree, mode, &mut out).unwrap();
    (clean, String::from_utf8(out).unwrap())
}

/// A fresh repository with a stale file in the owned folder, and an old one outside it.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let git = crate::tree::git(folder.path()).args(["init", "--quiet"]).status();
    assert!(git.unwrap().success());
    fs::create_dir(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/old.txt"), "x").unwrap();
    fs::write(folder.path().join("two.txt"), "old\n").unwrap();
    fs::write(folder.path().join("mine.txt"), "kept\n").unwrap();
    folder
}

#[test]
fn check_reports_everything_and_writes_nothing() {
    let folder = repository();
    let (clean, said) = run_two(folder.path(), Mode::Check);
    assert!(!clean);
    let expected = "\
out/deep/one.txt:1: generated file is missing; run `make gen`
out/old.txt:1: generated file is stale; run `make gen`
two.txt:1: generated file is out of date; run `make gen`
--- two.txt
+++ generated
@@ -1 +1 @@
-old
+two
";
    assert_eq!(said, expected);
    assert!(folder.path().join("out/old.txt").exists());
    assert!(!folder.path().join("out/deep").exists());
    assert_eq!(fs::read_to_string(folder.path().join("two.txt")).unwrap(), "old\n");
}

#[test]
fn writing_leaves_nothing_to_report() {
    let folder = repository();
    let (clean, said) = run_two(folder.path(), Mode::Write);
    assert!(clean);
    assert_eq!(said, "wrote out/deep/one.txt\ndeleted out/old.txt\nwrote two.txt\n");
    assert!(!folder.path().join("out/old.txt").exists());
    assert_eq!(fs::read_to_string(folder.path().join("mine.txt")).unwrap(), "kept\n");

    assert_eq!(run_two(folder.path(), Mode::Check), (true, String::new()));
    assert_eq!(run_two(folder.path(), Mode::Write), (true, String::new()), "nothing to rewrite");
}

#[test]
fn a_long_difference_is_cut() {
    let old: String = (0..100).map(|line| format!("{line}\n")).collect();
    let mut out = Vec::new();
    write_diff("a", &old, "", &mut out).unwrap();
    let said = String::from_utf8(out).unwrap();
    assert_eq!(said.lines().count(), DIFF_LINES + 1);
    assert!(said.ends_with("… 73 more lines\n"), "{said}");
}

#[test]
fn a_failing_generator_is_named() {
    let broken = [Generator { name: "thing", owns: &[], make: |_| bail!("no input") }];
    let error = run_these(&broken, &Tree::default(), Mode::Check, &mut Vec::new()).unwrap_err();
    assert_eq!(format!("{error:#}"), "could not make the thing: no input");
}

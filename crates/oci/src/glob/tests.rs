use proptest::prelude::*;

use super::pattern::{PathComponent, matches};
use super::*;
use crate::layer::Limits;
use crate::test_image::{Tar, image};
use crate::tree::{Tree, TreePath};

fn tree(tar: Tar) -> Tree {
    let image = image(&[tar]);
    Tree::read(&image.blobs, &image.manifest, &image.config, &Limits::default()).unwrap()
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn expanded(tree: &Tree, texts: &[&str]) -> Vec<String> {
    let expansion = expand(tree, &patterns(texts)).unwrap();
    assert_eq!(expansion.unmatched, [], "{texts:?}");
    expansion.files.iter().map(ToString::to_string).collect()
}

#[test]
fn patterns_are_read_or_refused_with_the_reason() {
    for text in ["/a", "/a/*.ko", "/a//b", "/./a", "/[a-z]/?", "/\\*", "/[]]", "/[!a]", "/[a-]"] {
        assert!(text.parse::<Pattern>().is_ok(), "{text}");
    }
    let long = "/".to_owned() + &"a".repeat(5000);
    let table = [
        ("", "start with a slash"),
        ("a", "start with a slash"),
        ("/", "names no file"),
        ("/a/", "ends with a slash"),
        ("/a/../b", "contains `..`"),
        ("/**/a", "`**` is not supported"),
        ("/a**", "`**` is not supported"),
        ("/[a", "no closing bracket"),
        ("/[", "no closing bracket"),
        ("/[]", "no closing bracket"),
        ("/[z-a]", "range"),
        ("/a\\", "backslash"),
        ("/a\0", "zero byte"),
        (&*long, "longer than 4096"),
    ];
    for (text, expected) in table {
        let error = text.parse::<Pattern>().unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}

#[test]
fn names_match() {
    let table = [
        ("*", "", true),
        ("*", "abc", true),
        ("*", ".hidden", true),
        ("a*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abd", false),
        ("*.ko", "a.ko", true),
        ("*.ko", "a.ko.xz", false),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXcYb", false),
        ("?", "ä", true),
        ("?", "ab", false),
        ("?", "", false),
        ("[a-c]x", "bx", true),
        ("[a-c]x", "dx", false),
        ("[!a-c]x", "dx", true),
        ("[^a-c]x", "ax", false),
        ("[a-]*", "-x", true),
        ("[]]*", "]x", true),
        ("[\\]]*", "]", true),
        ("\\**", "*x", true),
        ("\\**", "x", false),
        ("[ä-ü]?", "öx", true),
    ];
    for (pattern, name, expected) in table {
        let parsed: Pattern = format!("/{pattern}").parse().unwrap();
        let [PathComponent::Wildcard(tokens)] = parsed.parts() else { panic!("{pattern}") };
        assert_eq!(matches(tokens, name.as_bytes()), expected, "{pattern} {name}");
    }
    let hostile = "*a".repeat(1000) + "b";
    let parsed: Pattern = format!("/{hostile}").parse().unwrap();
    let [PathComponent::Wildcard(tokens)] = parsed.parts() else { panic!("a wildcard") };
    assert!(!matches(tokens, &[b'a'; 255]));
}

fn modules() -> Tree {
    tree(
        Tar::default()
            .file("opt/lib/modules/6.1/a.ko", "1")
            .file("opt/lib/modules/6.1/b.ko", "2")
            .file("opt/lib/modules/6.1/c-d.ko.xz", "3")
            .file("opt/lib/modules/6.1/deep/e.ko", "4")
            .file("opt/lib/modules/6.2/a.ko", "5")
            .symlink("opt/lib/modules/6.1/link.ko", "a.ko")
            .symlink("opt/lib/modules/6.1/far.ko", "/opt/lib/modules/6.2/a.ko")
            .symlink("modules", "opt/lib/modules")
            .hard_link("hard.ko", "opt/lib/modules/6.1/b.ko")
            .symlink("dangling.ko", "nothing")
            .symlink("loop.ko", "loop.ko")
            .symlink("root", "/")
            .dir("dir.ko")
            .entry(b'3', "device.ko", "", b""),
    )
}

#[test]
fn kms_57_patterns_select_files() {
    let tree = modules();
    let six = "/opt/lib/modules/6.1";
    let table: &[(&str, &[&str], &[&str])] = &[
        ("a path", &["/opt/lib/modules/6.1/a.ko"], &["/opt/lib/modules/6.1/a.ko"]),
        (
            "a glob does not cross a slash",
            &["/opt/lib/modules/6.2/*.ko"],
            &["/opt/lib/modules/6.2/a.ko"],
        ),
        (
            "symbolic links are followed, and each file counts once",
            &["/opt/lib/modules/6.1/*.ko", "/opt/lib/modules/6.1/a.ko"],
            &[
                "/opt/lib/modules/6.1/a.ko",
                "/opt/lib/modules/6.1/b.ko",
                "/opt/lib/modules/6.2/a.ko",
            ],
        ),
        (
            "wildcards in directories",
            &["/opt/lib/modules/*/a.ko"],
            &["/opt/lib/modules/6.1/a.ko", "/opt/lib/modules/6.2/a.ko"],
        ),
        ("a linked directory", &["/modules/6.1/[b]*"], &["/opt/lib/modules/6.1/b.ko"]),
        ("a link to the root", &["/root/root/hard.ko"], &["/hard.ko"]),
        ("a hard link is a file of its own", &["/hard.ko"], &["/hard.ko"]),
    ];
    for (why, texts, expected) in table {
        assert_eq!(expanded(&tree, texts), *expected, "{why}");
    }
    let expansion = expand(&tree, &patterns(&[&format!("{six}/c-d.ko")])).unwrap();
    assert_eq!(expansion.files[0].to_string(), format!("{six}/c-d.ko.xz"));
    assert_eq!(expansion.fallbacks[0].suffix, ".xz");
    let expansion = expand(&tree, &patterns(&[&format!("{six}/c*.ko")])).unwrap();
    assert_eq!(expansion.files[0].to_string(), format!("{six}/c-d.ko.xz"));
}

#[test]
fn kms_57_what_is_no_file_cannot_be_selected() {
    let tree = modules();
    let table = [
        ("/dir.ko", "/dir.ko matches /dir.ko, which is a directory"),
        ("/device.ko", "which is a device or a named pipe"),
        ("/dangling.ko", "which is a symbolic link to nothing"),
        ("/loop.ko", "more than 40 symbolic links"),
        ("/opt/*", "which is a directory"),
    ];
    for (pattern, expected) in table {
        let error = expand(&tree, &patterns(&[pattern])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}

#[test]
fn kms_57_two_compressed_forms_are_ambiguous() {
    let tree = tree(Tar::default().file("x.ko.xz", "").file("x.ko.zst", "").file("y.ko.gz", ""));
    let error = expand(&tree, &patterns(&["/x.ko"])).unwrap_err().to_string();
    assert!(error.contains("more than one of /x.ko.xz, /x.ko.zst"), "{error}");
    assert_eq!(expanded(&tree, &["/y.ko"]), ["/y.ko.gz"]);
    // Only modules have such names.
    let expansion = expand(&tree, &patterns(&["/y"])).unwrap();
    assert_eq!(expansion.unmatched.len(), 1);
}

#[test]
fn kms_57_a_pattern_without_match_lists_similar_files() {
    let tree = modules();
    let near = |pattern: &str| {
        let expansion = expand(&tree, &patterns(&[pattern])).unwrap();
        assert!(expansion.files.is_empty());
        expansion.unmatched[0].to_string()
    };
    assert_eq!(
        near("/lib/modules/6.1/e.ko"),
        "/lib/modules/6.1/e.ko matches no file; similar: /opt/lib/modules/6.1/deep/e.ko"
    );
    let text = near("/opt/lib/modules/6.1/c_d.ko");
    assert!(text.contains("similar: /opt/lib/modules/6.1/c-d.ko.xz"), "{text}");
    let text = near("/opt/lib/modules/6.2/aa.ko");
    assert!(text.contains("similar: /opt/lib/modules/6.2/a.ko"), "{text}");
    assert_eq!(near("/*.none"), "/*.none matches no file");
    assert_eq!(near("/hard.ko/x"), "/hard.ko/x matches no file");
}

#[test]
fn links_among_directories_do_not_multiply_work() {
    // Each directory is one link away from itself under ten names.
    let tar = (0..10)
        .fold(Tar::default().file("f", ""), |tar, index| tar.symlink(&format!("l{index}"), "/"));
    let pattern = "/l*".repeat(200) + "/f";
    assert_eq!(expanded(&tree(tar), &[&pattern]), ["/f"]);
}

proptest! {
    #[test]
    fn reading_a_pattern_never_panics(text in "/[a\\[\\]!^*?\\\\/-]{0,12}|.{0,20}") {
        if let Ok(pattern) = text.parse::<Pattern>() {
            for part in pattern.parts() {
                if let PathComponent::Wildcard(tokens) = part {
                    matches(tokens, text.as_bytes());
                }
            }
        }
    }

    #[test]
    fn a_name_matches_itself_when_escaped(name in "[a-z*?\\[\\]!\\\\-]{1,12}") {
        let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
        let pattern: Pattern = format!("/{escaped}").parse().unwrap();
        prop_assert!(pattern.is_literal());
        prop_assert_eq!(pattern.parts(), &[PathComponent::Literal(name)]);
    }
}

#[test]
fn a_pattern_matches_paths_and_their_directories() {
    let pattern: Pattern = "/src/*/[ab].ko".parse().unwrap();
    assert_eq!(pattern.depth(), 3);
    for (path, whole, start) in [
        ("/src/x/a.ko", true, true),
        ("/src/x/c.ko", false, false),
        ("/src/x", false, true),
        ("/", false, true),
        ("/lib/x", false, false),
        ("/src/x/a.ko/b", false, false),
    ] {
        let path = TreePath::from_user(path).unwrap();
        assert_eq!(pattern.matches(&path), whole, "{path}");
        assert_eq!(pattern.matches_start(&path), start, "{path}");
    }
}

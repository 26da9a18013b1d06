use proptest::prelude::*;

use super::*;
use crate::layer::{LayerProblem, LimitKind};
use crate::test_image::{Image, Tar, image};

fn read(tars: &[Tar]) -> Result<(Image, Tree), LayerError> {
    let image = image(tars);
    let tree = Tree::read(&image.blobs, &image.manifest, &image.config, &Limits::default())?;
    Ok((image, tree))
}

/// The paths of all files and links, with their content and targets.
fn listing(tars: &[Tar]) -> Vec<String> {
    let (image, tree) = read(tars).unwrap();
    let mut paths = Vec::new();
    let mut lines = Vec::new();
    tree.walk(&mut |path, entry| {
        match entry {
            TreeEntry::Directory => {}
            TreeEntry::File { .. } => paths.push(path.clone()),
            TreeEntry::Symlink { target } => {
                lines.push(format!("{path} -> {}", String::from_utf8_lossy(target)));
            }
            TreeEntry::Special => lines.push(format!("{path} special")),
        }
        true
    });
    let files = tree.read_files(&image.blobs, &image.manifest, &image.config, &paths).unwrap();
    assert_eq!(files.len(), paths.len());
    for file in files {
        lines.push(format!("{}={}", file.path, String::from_utf8_lossy(&file.content)));
    }
    lines.sort();
    lines
}

fn problem(tars: &[Tar]) -> LayerProblem {
    *read(tars).map(|_| ()).unwrap_err().problem
}

fn tar() -> Tar {
    Tar::default()
}

#[test]
fn kms_57_layers_are_merged_by_the_rules_of_runtimes() {
    let table: &[(&str, &[Tar], &[&str])] = &[
        ("one layer", &[tar().dir("d").file("d/a", "1")], &["/d/a=1"]),
        (
            "a file only in a lower layer",
            &[tar().file("low", "1"), tar().file("top", "2")],
            &["/low=1", "/top=2"],
        ),
        ("the top wins", &[tar().file("a", "1"), tar().file("a", "2")], &["/a=2"]),
        ("the last of a layer wins", &[tar().file("a", "1").file("a", "2")], &["/a=2"]),
        (
            "names are normalised",
            &[
                tar().file("./a", "1").file("/b/./c", "1"),
                tar().file("b//c", "2").file("x/../a", "3"),
            ],
            &["/a=3", "/b/c=2"],
        ),
        (
            "a whiteout removes from lower layers",
            &[tar().file("d/a", "1").file("d/b", "2"), tar().file("d/.wh.a", "")],
            &["/d/b=2"],
        ),
        (
            "a whiteout removes a directory",
            &[tar().file("d/e/a", "1").file("f", "2"), tar().file(".wh.d", "")],
            &["/f=2"],
        ),
        (
            "a whiteout does not hide its own layer",
            &[tar().file("a", "1"), tar().file("a", "2").file(".wh.a", "")],
            &["/a=2"],
        ),
        (
            "nor what its own layer put below",
            &[tar().file("d/a", "1").file("d/b", "1"), tar().file("d/a", "2").file(".wh.d", "")],
            &["/d/a=2"],
        ),
        (
            "an opaque directory hides lower content",
            &[
                tar().file("d/a", "1").file("d/e/b", "1"),
                tar().file("d/.wh..wh..opq", "").file("d/c", "2"),
            ],
            &["/d/c=2"],
        ),
        (
            "wherever the marker stands",
            &[
                tar().file("d/a", "1").file("d/e/b", "1"),
                tar().dir("d").file("d/e/c", "2").file("d/.wh..wh..opq", ""),
            ],
            &["/d/e/c=2"],
        ),
        (
            "an opaque root",
            &[tar().file("a", "1"), tar().file(".wh..wh..opq", "").file("b", "2")],
            &["/b=2"],
        ),
        (
            "a removed file comes back",
            &[tar().file("a", "1"), tar().file(".wh.a", ""), tar().file("a", "3")],
            &["/a=3"],
        ),
        (
            "names of a storage driver are ignored",
            &[tar().file("a", "1").file(".wh..wh.plnk/x", "").file(".wh..wh.aufs", "")],
            &["/.wh..wh.plnk/x=", "/a=1"],
        ),
        (
            "a whiteout of nothing",
            &[tar().file("a", "1"), tar().file("x/y/.wh.z", "").file("a/.wh.b", "")],
            &["/a=1"],
        ),
        ("a file replaces a directory", &[tar().file("d/a", "1"), tar().file("d", "2")], &["/d=2"]),
        (
            "a symbolic link replaces a directory",
            &[tar().file("d/a", "1").file("e/a", "2"), tar().symlink("d", "e")],
            &["/d -> e", "/e/a=2"],
        ),
        (
            "a directory replaces a file",
            &[tar().file("d", "1"), tar().dir("d").file("d/a", "2")],
            &["/d/a=2"],
        ),
        (
            "a directory keeps lower content",
            &[tar().file("d/a", "1"), tar().dir("d").file("d/b", "2")],
            &["/d/a=1", "/d/b=2"],
        ),
        (
            "a linked directory is followed",
            &[tar().dir("usr/lib").symlink("lib", "usr/lib"), tar().file("lib/a", "1")],
            &["/lib -> usr/lib", "/usr/lib/a=1"],
        ),
        (
            "also for whiteouts",
            &[
                tar().file("usr/lib/a", "1").file("usr/lib/b", "1").symlink("lib", "/usr/lib"),
                tar().file("lib/.wh.a", ""),
            ],
            &["/lib -> /usr/lib", "/usr/lib/b=1"],
        ),
        (
            "a link never leads out of the root",
            &[tar().symlink("up", "../../../etc").file("up/a", "1")],
            &["/etc/a=1", "/up -> ../../../etc"],
        ),
        (
            "links through links",
            &[tar().dir("a/b").symlink("x", "a").symlink("y", "x/b/../b").file("y/f", "1")],
            &["/a/b/f=1", "/x -> a", "/y -> x/b/../b"],
        ),
        (
            "a directory entry replaces a link",
            &[tar().file("usr/a", "1").symlink("lib", "usr"), tar().dir("lib").file("lib/b", "2")],
            &["/lib/b=2", "/usr/a=1"],
        ),
        (
            "a hard link has the content",
            &[tar().file("a", "1").hard_link("b", "a").hard_link("c", "./b")],
            &["/a=1", "/b=1", "/c=1"],
        ),
        (
            "a hard link to a lower layer keeps the old content",
            &[tar().file("a", "1"), tar().hard_link("b", "/a").file("a", "2")],
            &["/a=2", "/b=1"],
        ),
        ("a hard link to itself", &[tar().file("a", "1"), tar().hard_link("a", "a")], &["/a=1"]),
        (
            "a hard link to a symbolic link",
            &[tar().symlink("s", "t").hard_link("h", "s")],
            &["/h -> t", "/s -> t"],
        ),
        ("a device", &[tar().entry(b'3', "dev/null", "", b"")], &["/dev/null special"]),
        ("the root itself", &[tar().dir("./").file("a", "1")], &["/a=1"]),
    ];
    for (why, tars, expected) in table {
        assert_eq!(listing(tars), *expected, "{why}");
    }
}

#[test]
fn hostile_entries_are_refused() {
    let long_name = "n".repeat(256);
    let deep = "d/".repeat(300) + "f";
    let chain = (0..50)
        .fold(tar(), |tar, index| tar.symlink(&format!("l{index}"), &format!("l{}", index + 1)));
    let table: Vec<(Tar, &str)> = vec![
        (tar().file("../etc/passwd", ""), "leads out of the root"),
        (tar().file("a/../../b", ""), "leads out of the root"),
        (tar().file("/..", ""), "leads out of the root"),
        (tar().hard_link("a", "../../b"), "leads out of the root"),
        (tar().file(".", ""), "that of the root"),
        (tar().symlink("/", "x"), "that of the root"),
        (tar().file(&long_name, ""), "more than 255 bytes"),
        (tar().file(&deep, ""), "more than 256 directories within one another"),
        (tar().file(".wh.", ""), "hides no file"),
        (tar().file("d/.wh..", ""), "hides no file"),
        (tar().file("d/.wh...", ""), "hides no file"),
        (tar().file("a", "").file("a/b", ""), "\"/a\" is not a directory"),
        (tar().file("a", "").symlink("l", "a").file("l/b", ""), "\"/a\" is not a directory"),
        (tar().symlink("a", "b").symlink("b", "a").file("a/c", ""), "more than 40 symbolic links"),
        (tar().symlink("a", "a/a").file("a/c", ""), "more than 40 symbolic links"),
        (chain.file("l0/f", ""), "more than 40 symbolic links"),
        (tar().hard_link("a", "missing"), "does not exist"),
        (tar().dir("d").hard_link("a", "d"), "is a directory"),
        (tar().hard_link("a", "/"), "is the root"),
    ];
    for (tar, expected) in table {
        let actual = problem(&[tar]).to_string();
        assert!(actual.contains(expected), "{actual:?} lacks {expected:?}");
    }
}

#[test]
fn forty_links_are_followed_and_not_one_more() {
    let chain = |length: usize| {
        let last = tar().dir(&format!("l{length}"));
        let links = (0..length)
            .fold(last, |tar, index| tar.symlink(&format!("l{index}"), &format!("l{}", index + 1)));
        read(&[links.file("l0/f", "")])
    };
    let (_, tree) = chain(40).unwrap();
    assert_eq!(tree.get("/l40/f").unwrap(), Some(TreeEntry::File { size: 0 }));
    assert!(matches!(*chain(41).unwrap_err().problem, LayerProblem::SymlinkLoop(40)));
}

#[test]
fn work_is_bounded() {
    let image = image(&[(0..20).fold(tar(), |tar, index| tar.file(&format!("a/b/c/{index}"), ""))]);
    let limits = Limits { resolution_steps: 50, ..Limits::default() };
    let error = Tree::read(&image.blobs, &image.manifest, &image.config, &limits).unwrap_err();
    let LayerProblem::Limit { kind, .. } = *error.problem else { panic!("{error}") };
    assert_eq!(kind, LimitKind::ResolutionSteps);
    assert_eq!(error.layer, *image.manifest.layers()[0].digest());
    assert!(error.entry.is_some());
}

#[test]
fn the_content_of_files_is_bounded() {
    let image = image(&[tar().file("a", "12345").hard_link("b", "a")]);
    let path = |name: &str| TreePath::root().join(name.as_bytes());
    for (file_bytes, selected_bytes, expected) in [
        (4, 100, Some(LimitKind::FileBytes)),
        (5, 9, Some(LimitKind::SelectedBytes)),
        (5, 10, None),
    ] {
        let limits = Limits { file_bytes, selected_bytes, ..Limits::default() };
        let tree = Tree::read(&image.blobs, &image.manifest, &image.config, &limits).unwrap();
        let paths = [path("a"), path("b")];
        let result = tree.read_files(&image.blobs, &image.manifest, &image.config, &paths);
        match (expected, result) {
            (None, Ok(files)) => assert_eq!(files.len(), 2),
            (Some(expected), Err(error)) => {
                let LayerProblem::Limit { kind, .. } = *error.problem else { panic!("{error}") };
                assert_eq!(kind, expected);
            }
            (expected, result) => panic!("{expected:?} {result:?}"),
        }
    }
}

#[test]
fn repeated_whiteouts_are_cheap() {
    let mut layer = tar();
    for index in 0..1500 {
        layer = layer.file(&format!("d/{index}"), "");
    }
    for _ in 0..1500 {
        layer = layer.file(".wh.d", "").file("d/.wh..wh..opq", "");
    }
    let image = image(&[tar().file("d/low", ""), layer]);
    // Without the memory of what was applied these are four million steps.
    let limits = Limits { resolution_steps: 30_000, ..Limits::default() };
    let tree = Tree::read(&image.blobs, &image.manifest, &image.config, &limits).unwrap();
    assert_eq!(tree.get("/d/low").unwrap(), None);
    assert!(tree.get("/d/1499").unwrap().is_some());
}

#[test]
fn paths_resolve_through_links() {
    let (_, tree) =
        read(&[tar().file("usr/lib/a", "1").symlink("lib", "usr/lib").symlink("l", "lib/a")])
            .unwrap();
    let resolve = |path: &str| {
        let path = TreePath::from_user(path).unwrap();
        tree.resolve(&path).unwrap().map(|(path, _)| path.to_string())
    };
    assert_eq!(resolve("/l").as_deref(), Some("/usr/lib/a"));
    assert_eq!(resolve("/lib/a").as_deref(), Some("/usr/lib/a"));
    assert_eq!(resolve("/").as_deref(), Some("/"));
    assert_eq!(resolve("/missing"), None);
    assert!(matches!(tree.get("/l"), Ok(Some(TreeEntry::Symlink { target: b"lib/a" }))));
    assert!(matches!(tree.get("/l/x"), Err(ResolveError::NotADirectory(_))));
    assert!(matches!(tree.get("relative"), Err(ResolveError::NotAbsolute(_))));
    assert!(matches!(tree.get("/../x"), Err(ResolveError::Malformed { .. })));
}

/// A small world in which names collide often.
fn any_tar() -> impl Strategy<Value = Tar> {
    let name = || "[ab](/[ab]){0,2}";
    let entry = prop_oneof![
        4 => (name(), "[xyz]").prop_map(|(name, content)| tar().file(&name, &content)),
        2 => name().prop_map(|name| tar().dir(&name)),
        1 => (name(), "(/|\\.\\./)?[ab](/[ab])?").prop_map(|(name, to)| tar().symlink(&name, &to)),
        1 => (name(), name()).prop_map(|(name, target)| tar().hard_link(&name, &target)),
        1 => "([ab]/){0,2}\\.wh\\.[ab]".prop_map(|name| tar().file(&name, "")),
        1 => "([ab]/){0,2}\\.wh\\.\\.wh\\.\\.opq".prop_map(|name| tar().file(&name, "")),
    ];
    proptest::collection::vec(entry, 0..6)
        .prop_map(|tars| Tar(tars.into_iter().flat_map(|tar| tar.0).collect()))
}

proptest! {
    /// Whatever layers do, an opaque root on top leaves nothing of them, and an empty layer
    /// changes nothing.
    #[test]
    fn laws_of_merging(tars in proptest::collection::vec(any_tar(), 1..4)) {
        if read(&tars).is_err() {
            return Ok(());
        }
        let before = listing(&tars);
        let mut with_empty = tars.clone();
        with_empty.push(tar());
        prop_assert_eq!(&listing(&with_empty), &before);
        let mut hidden = tars;
        hidden.push(tar().file("new", "n").file(".wh..wh..opq", ""));
        prop_assert_eq!(listing(&hidden), ["/new=n"]);
        for line in &before {
            prop_assert!(!line.contains("/.wh."), "{}", line);
        }
    }
}

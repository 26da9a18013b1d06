use std::io::Write;

use gantry_oci::layer::{NewEntry, write_layer};

use super::*;

fn context(dockerfile: &str) -> TestBuild {
    TestBuild::new(dockerfile)
        .file("a.txt", "a")
        .file("b.txt", "b")
        .file("dir/c.txt", "c")
        .file("dir/sub/d.txt", "d")
}

#[test]
fn files_go_where_docker_puts_them() {
    for (instructions, expected) in [
        ("COPY a.txt /x", &["/x"][..]),
        ("COPY a.txt /x/", &["/x/a.txt"]),
        ("COPY a.txt b.txt /x/", &["/x/a.txt", "/x/b.txt"]),
        ("COPY *.txt /x/", &["/x/a.txt", "/x/b.txt"]),
        ("COPY ?.txt /x/", &["/x/a.txt", "/x/b.txt"]),
        ("COPY [^a].txt /x/", &["/x/b.txt"]),
        ("COPY dir/*/d.txt /x", &["/x"]),
        ("COPY dir /x", &["/x/c.txt", "/x/sub/d.txt"]),
        ("COPY dir/ /x/", &["/x/c.txt", "/x/sub/d.txt"]),
        ("COPY . /", &["/a.txt", "/b.txt", "/dir/c.txt", "/dir/sub/d.txt"]),
        ("COPY d* /x", &["/x/c.txt", "/x/sub/d.txt"]),
        ("WORKDIR /w\nCOPY a.txt .", &["/w/a.txt"]),
        ("WORKDIR /w\nCOPY a.txt x/", &["/w/x/a.txt"]),
        ("WORKDIR /w\nWORKDIR ../v\nCOPY a.txt x", &["/v/x", "/w/"]),
        ("COPY ../../a.txt /../x", &["/x"]),
        ("RUN mkdir /x\nCOPY a.txt /x", &["/x/a.txt"]),
        ("RUN mkdir /x && ln -s x /y\nCOPY a.txt /y", &["/x/a.txt", "/y -> x"]),
        ("RUN ln -s /z /y\nCOPY a.txt /y/b/", &["/y -> /z", "/z/b/a.txt"]),
        ("RUN mkdir /d && ln -s /z /d/y\nCOPY a.txt /d/y/", &["/d/y -> /z", "/z/a.txt"]),
        ("COPY [\"a.txt\", \"/x y\"]", &["/x y"]),
        ("ARG N=b\nCOPY $N.txt /${N}/", &["/b/b.txt"]),
        ("COPY <<one <<two /x/\n1\none\n2\ntwo", &["/x/one", "/x/two"]),
    ] {
        let image = context(&format!("FROM scratch\n{instructions}\n")).build().unwrap();
        assert_eq!(image.paths(), expected, "{instructions}");
    }
}

#[test]
fn links_do_not_lead_out_of_the_image() {
    let text = "FROM scratch\nRUN ln -s ../../../z /y && mkdir /z\nCOPY a.txt /y/\n";
    assert_eq!(context(text).build().unwrap().paths(), ["/y -> ../../../z", "/z/a.txt"]);
}

#[test]
fn copies_that_cannot_be_made_are_refused() {
    for (instruction, expected) in [
        (
            "COPY none.txt /x",
            "Dockerfile line 2: COPY none.txt /x: \"none.txt\" is not in the build context; check",
        ),
        ("COPY *.none /x", "\"*.none\" is not in the build context"),
        ("COPY a.txt b.txt /x", "several files are copied to \"/x\", which is no directory"),
        ("COPY a.txt /x\nCOPY dir /x", "/x is not a directory"),
        ("COPY a.txt /x\nCOPY b.txt /x/y", "/x is not a directory"),
        ("COPY [\"**/d.txt\", \"/x\"]", "`**` is not supported"),
        ("COPY --chmod=rw a.txt /x", "cannot use \"rw\" as permissions"),
        ("COPY --chown=nobody a.txt /x", "/etc/passwd of the image has no user \"nobody\""),
        ("COPY --parents a.txt /x", "--parents is not supported here; build with buildah and push"),
        ("COPY --from=none a /x", "could not open base image none: no such image"),
        ("COPY --from=UPPER a /x", "UPPER"),
        ("COPY ${A a.txt /x", "has no closing brace"),
        ("ADD https://example.org/a.tar /x", "a build here has no network; add the file"),
        ("RUN ln -s a /b && ln -s b /a\nCOPY a.txt /a/x", "too many symbolic links"),
    ] {
        let error = context(&format!("FROM scratch\n{instruction}\n")).error();
        assert!(error.contains(expected), "{instruction}: {error}");
    }
}

#[test]
fn owners_and_permissions_are_set() {
    let image = TestBuild::new(
        "FROM scratch\nCOPY passwd group /etc/\nCOPY --chown=app:staff --chmod=0750 a /a\n\
         COPY --chown=7 a /b\nCOPY a /c\n",
    )
    .file("passwd", "root:x:0:0::/:\napp:x:1000:1000::/:\n")
    .file("group", "staff:x:50:\n")
    .file("a", "")
    .build()
    .unwrap();
    for (path, expected) in
        [("/a", (1000, 50, 0o750)), ("/b", (7, 7, 0o644)), ("/c", (0, 0, 0o644))]
    {
        let attributes = image.selected(path).attributes;
        assert_eq!((attributes.uid, attributes.gid, attributes.mode), expected, "{path}");
        assert_eq!(attributes.mtime.seconds, 1_700_000_000);
    }
}

#[test]
fn a_layer_does_not_change_directories_of_the_base() {
    let base =
        TestBuild::new("FROM scratch\nRUN mkdir -m 1777 /tmp && mkdir /usr && ln -s usr /u\n");
    let image = TestBuild::new("FROM base:1\nCOPY a /tmp/\nCOPY a /u/new/\n")
        .file("a", "a")
        .base("base:1", &base)
        .build()
        .unwrap();
    assert_eq!(image.paths(), ["/tmp/a", "/u -> usr", "/usr/new/a"]);
    let mut names = Vec::new();
    for layer in &image.manifest.layers()[1..] {
        let limits = Limits::default();
        gantry_oci::layer::read_layer(&image.blobs, layer, None, &limits, &mut |entry, _| {
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(names, ["tmp/a", "usr/new/", "usr/new/a"]);
}

#[test]
fn files_are_copied_from_stages_and_images() {
    let base =
        TestBuild::new("FROM scratch\nCOPY --chown=5 a /lib/a.so.1\nRUN ln -s a.so.1 /lib/a.so\n")
            .file("a", "library");
    let image = TestBuild::new(
        "FROM scratch AS One\nCOPY a /one/x\nFROM base:1 AS two\nCOPY a /two\nFROM scratch\n\
         COPY --from=ONE /one /from-name\nCOPY --from=1 /two /from-number\n\
         COPY --from=base:1 /lib/a.so /from-image/\nCOPY --from=two /lib /all\n",
    )
    .file("a", "a")
    .base("base:1", &base)
    .build()
    .unwrap();
    let expected =
        ["/all/a.so -> a.so.1", "/all/a.so.1", "/from-image/a.so", "/from-name/x", "/from-number"];
    assert_eq!(image.paths(), expected);
    // A link that is named is followed, and copies belong to root.
    let file = image.selected("/from-image/a.so");
    assert_eq!((file.content, file.attributes.uid), (b"library".to_vec(), 0));
    assert!(!image.simulated);
}

#[test]
fn here_documents_are_files() {
    let image = TestBuild::new(
        "FROM scratch\nENV A=1\nCOPY --chmod=755 <<EOF /a\necho \"$A\" \\$A\nEOF\n\
         COPY <<'EOF' /b\n$A\nEOF\n",
    )
    .build()
    .unwrap();
    assert_eq!(image.text("/a"), "echo \"1\" $A\n");
    assert_eq!(image.text("/b"), "$A\n");
    assert_eq!(image.selected("/a").attributes.mode, 0o755);
}

fn archive(entries: &[NewEntry]) -> Vec<u8> {
    write_layer(entries).unwrap().content
}

#[test]
fn archives_are_unpacked_by_add_alone() {
    let mut entry = NewEntry::file("x/file", b"content".to_vec(), 0o600);
    entry.attributes.uid = 12;
    let gzip = archive(&[entry, NewEntry::symlink("x/link", "file")]);
    let mut tar = Vec::new();
    flate2::write::GzDecoder::new(&mut tar).write_all(&gzip).unwrap();
    let mut text = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    text.write_all(b"no archive").unwrap();
    let image = TestBuild::new(
        "FROM scratch\nADD a.tar.gz /gzip\nADD a.tar /tar/\nADD text.gz /text.gz\n\
         ADD a.txt /a.txt\nCOPY a.tar /copied\n",
    )
    .file("a.tar.gz", gzip)
    .file("a.tar", tar)
    .file("text.gz", text.finish().unwrap())
    .file("a.txt", "short")
    .build()
    .unwrap();
    let expected = [
        "/a.txt",
        "/copied",
        "/gzip/x/file",
        "/gzip/x/link -> file",
        "/tar/x/file",
        "/tar/x/link -> file",
        "/text.gz",
    ];
    assert_eq!(image.paths(), expected);
    let file = image.selected("/gzip/x/link");
    assert_eq!((file.attributes.uid, file.attributes.mode), (12, 0o600));
}

#[test]
fn hostile_archives_are_refused() {
    let escape = {
        let mut entry = NewEntry::file("a", b"x".to_vec(), 0o644);
        entry.path = b"../../etc/passwd".to_vec();
        archive(&[entry])
    };
    let hard_link = {
        let mut entry = NewEntry::file("a", Vec::new(), 0o644);
        entry.kind = gantry_oci::layer::NewEntryKind::HardLink(b"../../etc/shadow".to_vec());
        archive(&[entry])
    };
    for (content, expected) in [
        (escape, "the path leads out of the root"),
        (hard_link, "the path leads out of the root"),
        (b"BZh91AY".to_vec(), "archives are read plain or compressed with gzip"),
        (b"\xfd7zXZ\0".to_vec(), "archives are read plain or compressed with gzip"),
    ] {
        let error = TestBuild::new("FROM scratch\nADD a /x/\n").file("a", content).error();
        assert!(error.contains(expected), "{error}");
    }
}

use std::io::{self, Read, Write};

use proptest::prelude::*;

use super::*;
use crate::blob::{BlobSource, MemoryBlobs};
use crate::digest::Digest;
use crate::manifest::Descriptor;
use crate::media_type::{Family, MediaType};
use crate::test_image::Tar;

/// Entries with their content, or the error.
fn read(blob: &[u8]) -> Result<Vec<(LayerEntry, Vec<u8>)>, LayerError> {
    read_within(blob, &Limits::default())
}

fn read_within(blob: &[u8], limits: &Limits) -> Result<Vec<(LayerEntry, Vec<u8>)>, LayerError> {
    let mut blobs = MemoryBlobs::default();
    blobs.insert(blob.to_vec());
    let descriptor = Descriptor::of(MediaType::OciLayerGzip, blob);
    let mut entries = Vec::new();
    read_layer(&blobs, &descriptor, None, limits, &mut |entry, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).map_err(LayerProblem::Io)?;
        entries.push((entry.clone(), bytes));
        Ok(())
    })?;
    Ok(entries)
}

fn names(blob: &[u8]) -> Vec<String> {
    let entries = read(blob).unwrap();
    entries.iter().map(|(entry, _)| String::from_utf8_lossy(&entry.name).into_owned()).collect()
}

fn problem(blob: &[u8]) -> String {
    read(blob).unwrap_err().problem.to_string()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(content).unwrap();
    gzip.finish().unwrap()
}

/// A record of an extended header.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let mut length = key.len() + value.len() + 4;
    while format!("{length} ").len() + key.len() + value.len() + 2 != length {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

fn extended(tar: Tar, records: &[(&str, &[u8])]) -> Tar {
    let data: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
    tar.entry(b'x', "PaxHeader", "", &data)
}

#[test]
fn layers_are_plain_or_compressed() {
    let tar = Tar::default().file("a", "hello").dir("d").end();
    let zstd = zstd::encode_all(&tar[..], 3).unwrap();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9][..], &zstd].concat();
    let half = tar.len() / 2;
    let members = [gzip(&tar[..half]), gzip(&tar[half..])].concat();
    let frames =
        [zstd::encode_all(&tar[..half], 3).unwrap(), zstd::encode_all(&tar[half..], 19).unwrap()]
            .concat();
    for blob in [&tar, &gzip(&tar), &zstd, &skippable, &members, &frames] {
        let entries = read(blob).unwrap();
        assert_eq!(entries[0].1, b"hello");
        assert_eq!(entries[1].0.kind, EntryKind::Directory);
        assert_eq!(entries.len(), 2);
    }
    // A layer without any entry.
    assert_eq!(names(&[]), [""; 0]);
    assert_eq!(names(&[0; 1024]), [""; 0]);
    assert_eq!(names(&[0; 512]), [""; 0]);
}

#[test]
fn long_names_and_extended_headers_are_read() {
    let long = "d/".repeat(90) + "file";
    let tar = Tar::default()
        .entry(b'L', "././@LongLink", "", format!("{long}\0").as_bytes())
        .file("short", "1")
        .entry(b'K', "././@LongLink", "", format!("{long}\0").as_bytes())
        .symlink("link", "short")
        .file(&long, "2");
    let binary = b"\x01\n=\n\0x";
    let tar = extended(
        tar,
        &[
            ("path", "ä/b".as_bytes()),
            ("uid", b"4000000"),
            ("gid", b"5000000"),
            ("uname", b"user"),
            ("gname", "grüp".as_bytes()),
            ("mtime", b"1700000000.25"),
            ("SCHILY.xattr.security.capability", binary),
            ("SCHILY.xattr.a", b"1"),
            ("SCHILY.xattr.a", b"2"),
            ("comment", b"ignored"),
            ("atime", b"1"),
            ("linkpath", b"not for files"),
        ],
    )
    .file("x", "3");
    let entries = read(&tar.end()).unwrap();
    assert_eq!(entries[0].0.name, long.as_bytes());
    assert_eq!(entries[1].0.link, long.as_bytes());
    assert_eq!(entries[2].0.name, long.as_bytes());
    let last = &entries[3].0;
    assert_eq!(last.name, "ä/b".as_bytes());
    assert!(last.link.is_empty());
    let attributes = &last.attributes;
    assert_eq!((attributes.uid, attributes.gid, attributes.mode), (4_000_000, 5_000_000, 0o644));
    assert_eq!((&*attributes.user, &*attributes.group), (&b"user"[..], "grüp".as_bytes()));
    assert_eq!(attributes.mtime, Mtime { seconds: 1_700_000_000, nanoseconds: 250_000_000 });
    let capability = (b"security.capability".to_vec(), binary.to_vec());
    assert_eq!(attributes.xattrs, [(b"a".to_vec(), b"2".to_vec()), capability]);
}

#[test]
fn the_extended_size_counts() {
    // The header says nothing, the record says three bytes: a reader that believes the header
    // would see an entry in the content.
    let hidden = Tar::default().file("hidden", "x").0;
    let records = [("size", hidden.len().to_string())];
    let tar = extended(Tar::default(), &[(records[0].0, records[0].1.as_bytes())]);
    let tar = tar.entry(b'0', "outer", "", b"").data(&hidden).file("after", "");
    let entries = read(&tar.end()).unwrap();
    assert_eq!(entries.len(), 2, "nothing is smuggled in");
    assert_eq!(entries[0].1, hidden);
    assert_eq!(entries[1].0.name, b"after");
}

#[test]
fn links_and_directories_have_no_content_whatever_the_header_says() {
    let size = b"00000001000\0";
    let tar =
        Tar::default().dir("d").patch_header(124, size).hard_link("h", "d").patch_header(124, size);
    assert_eq!(
        names(&tar.file("after", "x").end()),
        ["d/", "h", "after"].map(|name| { name.trim_end_matches('/') })
    );
}

#[test]
fn old_formats_are_read() {
    let tar =
        Tar::default().file("d/", "").patch_header(156, &[0]).file("f", "").patch_header(156, &[0]);
    let kinds: Vec<EntryKind> =
        read(&tar.end()).unwrap().iter().map(|(entry, _)| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Directory, EntryKind::File]);
    // Numbers in base 256, and a time before 1970.
    let tar = Tar::default()
        .file("f", "")
        .patch_header(108, &[0x80, 0, 0, 0, 0x80, 0, 0, 1])
        .patch_header(136, &[0xff; 12]);
    let attributes = read(&tar.end()).unwrap()[0].0.attributes.clone();
    assert_eq!(attributes.uid, 0x8000_0001);
    assert_eq!(attributes.mtime, Mtime { seconds: -1, nanoseconds: 0 });
    let sparse_end = Tar::default().file("f", "x").0;
    assert_eq!(names(&sparse_end), ["f"], "the end may be missing");
    let content_only = &sparse_end[..513];
    assert_eq!(names(content_only), ["f"], "so may what fills the last block, as umoci leaves it");
}

#[test]
fn malformed_tars_are_refused_with_the_reason() {
    let file = || Tar::default().file("f", "content");
    let checksum = {
        let mut tar = file().end();
        tar[0] = b'g';
        tar
    };
    let huge =
        |flag: u8| Tar::default().entry(flag, "x", "", b"").patch_header(124, b"77777777777\0");
    let mut base256 = [0xff; 12];
    base256[0] = 0x80;
    let nul = extended(Tar::default(), &[("path", b"a\0b")]).file("x", "");
    let table = [
        (checksum, "checksum"),
        (file().0[..515].to_vec(), "ends within an entry"),
        (file().0[..100].to_vec(), "ends within an entry"),
        (file().entry(b'0', "g", "", &[1; 600]).0[..1600].to_vec(), "ends within an entry"),
        (file().patch_at_header(124, b"zzz").end(), "size is not a number"),
        (file().patch_at_header(124, &base256).end(), "size is out of range"),
        (file().patch_at_header(108, b"zzz").end(), "user id is not a number"),
        (file().patch_at_header(100, b"zzz").end(), "mode is not a number"),
        (Tar::default().entry(b'S', "s", "", b"").end(), "sparse"),
        (extended(Tar::default(), &[("GNU.sparse.major", b"1")]).file("s", "").end(), "sparse"),
        (Tar::default().entry(b'V', "s", "", b"").end(), "unknown type of entry 'V'"),
        (Tar::default().entry(b'x', "s", "", b"3 a").end(), "malformed record"),
        (Tar::default().entry(b'x', "s", "", b"99 a=b\n").end(), "malformed record"),
        (Tar::default().entry(b'x', "s", "", b"5 =b\n").end(), "malformed record"),
        (Tar::default().entry(b'x', "s", "", b"1 \n").end(), "malformed record"),
        (Tar::default().entry(b'x', "s", "", b"7 a=bc\n").end(), "describes no entry"),
        (
            extended(extended(Tar::default(), &[("uid", b"1")]), &[("uid", b"1")]).end(),
            "two extended headers",
        ),
        (extended(Tar::default(), &[("uid", b"-1")]).file("f", "").end(), "not a number"),
        (extended(Tar::default(), &[("mtime", b"x")]).file("f", "").end(), "no number"),
        (huge(b'x').end(), "more than 1048576 bytes of an extended header"),
        (huge(b'L').end(), "more than 1048576 bytes of an extended header"),
        (huge(b'0').end(), "ends within an entry"),
        (nul.end(), "zero byte"),
        (
            Tar::default().entry(b'L', "l", "", &[b'a'; 5000]).file("f", "").end(),
            "longer than 4096 bytes",
        ),
        ([&[0; 512][..], &file().0].concat(), "an entry follows a block of zeros"),
        (gzip(&file().end())[..30].to_vec(), "cannot be decompressed"),
        ([gzip(&file().end()), b"garbage".to_vec()].concat(), "cannot be decompressed"),
        (zstd::encode_all(&file().end()[..], 3).unwrap()[..20].to_vec(), "cannot be decompressed"),
        (b"\x1f\x8bnot gzip at all".to_vec(), "cannot be decompressed"),
        (vec![b'x'; 2000], "checksum"),
    ];
    for (blob, expected) in table {
        let actual = problem(&blob);
        assert!(actual.contains(expected), "{actual:?} lacks {expected:?}");
    }
}

impl Tar {
    /// Changes the first header and corrects its checksum.
    fn patch_at_header(self, offset: usize, bytes: &[u8]) -> Self {
        let rest = self.0[512..].to_vec();
        let mut patched = Self(self.0[..512].to_vec()).patch_header(offset, bytes);
        patched.0.extend_from_slice(&rest);
        patched
    }
}

#[test]
fn errors_name_the_layer_and_the_entry() {
    let tar = Tar::default().file("a/good", "").entry(b'S', "a/bad", "", b"").end();
    let error = read(&tar).unwrap_err();
    assert_eq!(error.layer, Digest::sha256(&tar));
    assert_eq!(error.entry.as_deref(), Some("a/bad"));
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot use layer {}, entry \"a/bad\": ", error.layer)));
}

#[test]
fn limits_hold() {
    let tar = Tar::default().file("aaaa", "1").file("bbbb", "2").file("cccc", "3").end();
    let limits = Limits::default();
    let table = [
        (Limits { entries: 2, ..limits.clone() }, LimitKind::Entries, 2),
        (Limits { name_bytes: 11, ..limits.clone() }, LimitKind::NameBytes, 11),
        (Limits { uncompressed_bytes: 3000, ..limits }, LimitKind::UncompressedBytes, 3000),
    ];
    for (limits, expected_kind, expected_limit) in table {
        for blob in [&tar, &gzip(&tar)] {
            let error = read_within(blob, &limits).unwrap_err();
            let LayerProblem::Limit { kind, limit } = *error.problem else {
                panic!("{error}");
            };
            assert_eq!((kind, limit), (expected_kind, expected_limit));
        }
    }
    let bomb = gzip(&Tar::default().entry(b'0', "zeros", "", &vec![0; 3 << 20]).end());
    assert!(read(&bomb).is_ok(), "some zeros are no attack");
    let strict = Limits { ratio_free_bytes: 1 << 20, ratio: 100, ..Limits::default() };
    let error = read_within(&bomb, &strict).unwrap_err();
    assert!(
        matches!(*error.problem, LayerProblem::Limit { kind: LimitKind::Ratio, .. }),
        "{error}"
    );
    // A frame that asks for a window of 64 MiB and more.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x80, 0x01, 0x00, 0x00];
    assert!(problem(&window).contains("cannot be decompressed"));
}

/// Content other than promised.
struct Changed(Vec<u8>);

impl BlobSource for Changed {
    fn open(&self, _: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(&self.0[..]))
    }
}

/// Fails in the middle.
struct Failing(Vec<u8>);

impl BlobSource for Failing {
    fn open(&self, _: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("connection reset"))
            }
        }
        Ok(Box::new(self.0[..700].chain(Broken)))
    }
}

#[test]
fn content_is_verified() {
    let tar = Tar::default().file("f", "content").end();
    let descriptor = Descriptor::of(MediaType::OciLayerGzip, &tar);
    let limits = Limits::default();
    let read = |source: &dyn BlobSource, diff_id: Option<&Digest>| {
        read_layer(source, &descriptor, diff_id, &limits, &mut |_, _| Ok(()))
            .map_err(|error| error.problem)
    };
    let mut tampered = tar.clone();
    tampered[513] ^= 1;
    let mut broken_header = tar.clone();
    broken_header[1] ^= 1;
    for blob in [tampered, broken_header, tar[..1000].to_vec(), [&tar[..], b"x"].concat()] {
        let problem = read(&Changed(blob), None).unwrap_err();
        assert!(matches!(*problem, LayerProblem::Wrong(_)), "{problem}");
    }
    let good = Changed(tar.clone());
    assert!(read(&good, Some(&Digest::sha256(&tar))).is_ok());
    let problem = read(&good, Some(&Digest::sha256(b"other"))).unwrap_err();
    assert!(matches!(*problem, LayerProblem::DiffId { .. }), "{problem}");
    let problem = read(&Failing(tar), None).unwrap_err();
    assert!(matches!(*problem, LayerProblem::Io(_)), "{problem}");
    let problem = read(&MemoryBlobs::default(), None).unwrap_err();
    assert!(problem.to_string().contains("could not find the blob"), "{problem}");
    let other = Descriptor::of(MediaType::from("application/x+encrypted"), b"");
    let error = read_layer(&good, &other, None, &limits, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(*error.problem, LayerProblem::MediaType(_)), "{error}");
}

fn any_attributes() -> impl Strategy<Value = Attributes> {
    let xattrs = proptest::collection::btree_map("[a-z]{1,8}\\.[a-z]{1,8}", any::<Vec<u8>>(), 0..4);
    let ids = prop_oneof![0_u64..5, 2_097_150_u64..2_097_155, Just(u64::from(u32::MAX))];
    (0_u32..0o10000, ids.clone(), ids, ".{0,40}", "[a-z]{0,33}", any_mtime(), xattrs).prop_map(
        |(mode, uid, gid, user, group, mtime, xattrs)| Attributes {
            mode,
            uid,
            gid,
            user: user.replace('\0', "").into_bytes(),
            group: group.into_bytes(),
            mtime,
            xattrs: xattrs
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (name.into_bytes(), value))
                .collect(),
        },
    )
}

fn any_mtime() -> impl Strategy<Value = Mtime> {
    let seconds = prop_oneof![-3_i64..3, 8_589_934_590_i64..8_589_934_594, 0_i64..2_000_000_000];
    let nanoseconds = prop_oneof![Just(0_u32), 0_u32..1_000_000_000];
    (seconds, nanoseconds).prop_map(|(seconds, nanoseconds)| Mtime { seconds, nanoseconds })
}

fn any_entry() -> impl Strategy<Value = NewEntry> {
    let path = "[a-zä]{1,60}(/[a-z0-9 ]{1,60}){0,3}";
    let kind = prop_oneof![
        any::<Vec<u8>>().prop_map(NewEntryKind::File),
        Just(NewEntryKind::Directory),
        "[a-z/.]{1,150}".prop_map(|target| NewEntryKind::Symlink(target.into_bytes())),
        "[a-z/]{1,150}".prop_map(|target| NewEntryKind::HardLink(target.into_bytes())),
    ];
    (path, kind, any_attributes()).prop_map(|(path, kind, attributes)| NewEntry {
        path: path.into_bytes(),
        kind,
        attributes,
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(entries in proptest::collection::vec(any_entry(), 0..6)) {
        let layer = write_layer(&entries).unwrap();
        let descriptor = layer.descriptor(Family::Oci);
        let mut blobs = MemoryBlobs::default();
        blobs.insert(layer.content.clone());
        let mut read = Vec::new();
        let limits = Limits::default();
        read_layer(&blobs, &descriptor, Some(&layer.diff_id), &limits, &mut |entry, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).unwrap();
            let kind = match entry.kind {
                EntryKind::File => NewEntryKind::File(bytes),
                EntryKind::Directory => NewEntryKind::Directory,
                EntryKind::Symlink => NewEntryKind::Symlink(entry.link.clone()),
                EntryKind::HardLink => NewEntryKind::HardLink(entry.link.clone()),
                EntryKind::Special => panic!("none was written"),
            };
            let path = entry.name.strip_suffix(b"/").unwrap_or(&entry.name).to_vec();
            read.push(NewEntry { path, kind, attributes: entry.attributes.clone() });
            Ok(())
        }).unwrap();
        let mut sorted = entries.clone();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        prop_assert_eq!(&read, &sorted);
        let mut reversed = sorted;
        reversed.reverse();
        if entries.iter().collect::<std::collections::BTreeSet<_>>().len() == entries.len() {
            prop_assert_eq!(write_layer(&reversed).unwrap(), layer, "order of input counts not");
        }
    }

    #[test]
    fn damaged_layers_never_panic(
        place in 0_usize..3000, byte: u8, length in 0_usize..4000, compress: bool,
    ) {
        let tar = Tar::default().file("a", "x").symlink("b", "a").entry(b'x', "p", "", b"7 a=bc\n");
        let mut tar = tar.file("c", "y").end();
        tar.truncate(length);
        if let Some(slot) = tar.get_mut(place) {
            *slot = byte;
        }
        let _ = read(&if compress { gzip(&tar) } else { tar });
    }
}

#[test]
fn gzip_has_no_time_and_no_name() {
    let layer = write_layer(&[]).unwrap();
    assert_eq!(layer.content[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
}

#[test]
fn mtimes_are_printed_as_extended_headers_have_them() {
    for (seconds, nanoseconds, text) in [
        (0, 0, "0"),
        (1, 500_000_000, "1.5"),
        (-1, 0, "-1"),
        (-1, 500_000_000, "-0.5"),
        (-2, 750_000_000, "-1.25"),
        (5, 1, "5.000000001"),
    ] {
        assert_eq!(Mtime { seconds, nanoseconds }.to_string(), text);
    }
}

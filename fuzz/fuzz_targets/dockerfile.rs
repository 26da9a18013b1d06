//! Dockerfiles: no panic, no endless work; what is built is an image that can be read, and is the
//! same when it is built again.
#![no_main]

use gantry_dockerfile::{BuildRequest, MemoryContext, MissingBases, NoBaseImages, build, check};
use gantry_oci::blob::read_config;
use gantry_oci::{Limits, MemoryBlobs, Tree};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let is_valid = check(text).is_ok();
    let context = MemoryContext::default()
        .with("a", "content")
        .with("src/Makefile", "obj-m := hello.o\n")
        .with("src/a.tar", &include_bytes!("dockerfile.rs")[..]);
    let args = [("KERNEL_FULL_VERSION".to_owned(), "6.1.0-55-cloud-amd64".to_owned())];
    let platform = "linux/amd64".parse().expect("it is a platform");
    let request = BuildRequest {
        dockerfile: text,
        args: &args,
        context: &context,
        platform: &platform,
        created: jiff::Timestamp::UNIX_EPOCH,
        labels: &[],
        kernel: None,
        expected_modules: &["/opt/lib/modules/6.1.0-55-cloud-amd64/hello.ko".to_owned()],
        run_files: &[("/run/secrets/a/b".to_owned(), b"secret".to_vec())],
        missing_bases: MissingBases::Empty,
    };
    let mut blobs = MemoryBlobs::default();
    let Ok(first) = build(&request, &NoBaseImages, &mut blobs, &mut |_| {}) else { return };
    assert!(is_valid);
    let config = read_config(&blobs, first.manifest.config()).expect("it was written");
    Tree::read(&blobs, &first.manifest, &config, &Limits::default()).expect("it was written");
    let second =
        build(&request, &NoBaseImages, &mut blobs, &mut |_| {}).expect("it was built once");
    assert_eq!(first.manifest.digest(), second.manifest.digest());
});

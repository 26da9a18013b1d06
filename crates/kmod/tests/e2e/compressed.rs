//! Compressed modules: unpacked by others, and by us.

use gantry_kmod::{
    Compression, ExistingSignatures, SignOutcome, SignerOptions, WeakDigests, sign_module,
    verify_module,
};

use crate::tools::{Workbench, installed, need, output};

/// Compression, its program, and the options to pack with.
const PROGRAMS: [(Compression, &str, &[&str]); 3] = [
    (Compression::Gzip, "gzip", &["-k"]),
    (Compression::Xz, "xz", &["-k", "-9e"]),
    (Compression::Zstd, "zstd", &["-k", "-q", "-19"]),
];

#[test]
fn kms_56_packed_modules_are_signed_inside_their_stream() {
    need!(installed("openssl"), installed("modinfo"));
    for (compression, program, options) in PROGRAMS {
        if let Err(reason) = installed(program) {
            println!("skipped: {reason}");
            continue;
        }
        let bench = Workbench::new(&["rsa2048"]);
        output(bench.folder(), program, &[options, &["m.ko"]].concat());
        let name = format!("m.ko{}", compression.suffix());
        let signer = bench.signer("rsa2048", SignerOptions::default());
        let outcome = sign_module(&bench.read(&name), &signer, ExistingSignatures::Append).unwrap();
        let SignOutcome::Signed { file, .. } = outcome else { panic!("{outcome:?}") };
        bench.write(&name, &file);

        let unpacked = output(bench.folder(), program, &["-d", "-c", &name]);
        assert!(bench.openssl_verifies(&unpacked, "rsa2048.pem"), "{program}");
        let trusted = [bench.certificate("rsa2048")];
        verify_module(&file, &trusted, WeakDigests::Refuse).unwrap();
        verify_module(&unpacked, &trusted, WeakDigests::Refuse).unwrap();
        // Debian's kmod is built without gzip.
        if compression != Compression::Gzip {
            let signer = bench.modinfo(&name, "signer");
            assert_eq!(signer.as_deref(), Some("rsa2048 signer"), "{program}");
        }
    }
}

#[test]
fn kms_56_xz_has_the_settings_of_the_kernel() {
    need!(installed("xz"));
    let bench = Workbench::new(&[]);
    bench.write("m.ko.xz", &Compression::Xz.compress(&bench.read("m.ko")).unwrap());
    let listed = output(bench.folder(), "xz", &["--list", "-vv", "m.ko.xz"]);
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.contains("CRC32") && listed.contains("--lzma2=dict=1MiB"), "{listed}");
    assert!(!listed.contains("x86"), "{listed}");
}

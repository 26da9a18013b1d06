//! The programs to compare with, and keys made by one of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gantry_kmod::{Certificate, PrivateKey, Signer, SignerOptions, SyntheticModule};
use tempfile::TempDir;

/// Ends a test whose tools are missing, and prints which.
macro_rules! need {
    ($($tool:expr),+) => {
        $(if let Err(reason) = $tool {
            println!("skipped: {reason}");
            return;
        })+
    };
}
pub(crate) use need;

/// Whether a program is installed.
pub(crate) fn installed(program: &str) -> Result<(), String> {
    match Command::new(program).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{program} cannot be run: {error}")),
    }
}

/// The kernel's `sign-file`, wherever packages of kernel headers put it.
pub(crate) fn sign_file() -> Result<PathBuf, String> {
    let below = |folder: &str, rest: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(rest)).collect()
    };
    [
        below("/usr/lib", "scripts/sign-file"),
        below("/usr/src", "scripts/sign-file"),
        below("/lib/modules", "build/scripts/sign-file"),
    ]
    .into_iter()
    .flatten()
    .find(|path| path.is_file())
    .ok_or_else(|| "sign-file is not installed (Debian: linux-kbuild-*)".to_owned())
}

/// Runs a program in a folder.
pub(crate) fn run(folder: &Path, program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    let program = program.as_ref();
    let output = Command::new(program).current_dir(folder).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// Runs a program that must succeed, and returns what it prints.
pub(crate) fn output(folder: &Path, program: impl AsRef<Path>, arguments: &[&str]) -> Vec<u8> {
    let program = program.as_ref();
    let output = run(folder, program, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {error}", program.display());
    output.stdout
}

/// A folder with a module `m.ko`, keys and certificates that `openssl` made.
pub(crate) struct Workbench {
    folder: TempDir,
}

/// All pairs of a key and a certificate, `NAME.key` and `NAME.pem`.
pub(crate) const NAMES: [&str; 6] = ["rsa2048", "rsa3072", "rsa4096", "p256", "p384", "issued"];

impl Workbench {
    /// A folder with these keys and certificates, of [`NAMES`].
    pub(crate) fn new(names: &[&str]) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        for name in names {
            match *name {
                "p256" => bench.elliptic(name, "prime256v1"),
                "p384" => bench.elliptic(name, "secp384r1"),
                "issued" => bench.issued(),
                rsa => bench.rsa(rsa, &rsa["rsa".len()..]),
            }
        }
        let release = "6.12.111+deb12-cloud-amd64".parse().unwrap();
        let module = SyntheticModule::new("sample", &release).depends_on("crc-itu-t");
        bench.write("m.ko", &module.to_bytes().unwrap());
        bench
    }

    fn rsa(&self, name: &str, bits: &str) {
        let pkcs1 = format!("{name}.pkcs1");
        self.openssl(&["genrsa", "-traditional", "-out", &pkcs1, bits]);
        self.pkcs8(&pkcs1, name);
        self.self_signed(name);
    }

    fn elliptic(&self, name: &str, curve: &str) {
        let sec1 = format!("{name}.sec1");
        self.openssl(&["ecparam", "-genkey", "-name", curve, "-out", &sec1]);
        self.pkcs8(&sec1, name);
        self.self_signed(name);
    }

    fn pkcs8(&self, from: &str, name: &str) {
        let to = format!("{name}.key");
        self.openssl(&["pkcs8", "-topk8", "-nocrypt", "-in", from, "-out", &to]);
    }

    fn self_signed(&self, name: &str) {
        let (key, pem, der) = (format!("{name}.key"), format!("{name}.pem"), format!("{name}.der"));
        let subject = format!("/O=Gantry tests/OU=live/CN={name} signer");
        let create = ["req", "-new", "-x509", "-sha256", "-batch", "-days", "2"];
        let rest = ["-key", &key, "-subj", &subject, "-out", &pem];
        self.openssl(&[&create[..], &rest[..]].concat());
        self.openssl(&["x509", "-in", &pem, "-outform", "DER", "-out", &der]);
    }

    /// A certificate that an authority of its own issued.
    fn issued(&self) {
        self.elliptic("authority", "prime256v1");
        self.openssl(&["genrsa", "-out", "issued.key", "2048"]);
        let subject = ["-subj", "/CN=issued leaf", "-out", "request"];
        self.openssl(&[&["req", "-new", "-key", "issued.key"][..], &subject[..]].concat());
        self.write("extensions", b"subjectKeyIdentifier=hash\n");
        let authority = ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"];
        let rest = ["-extfile", "extensions", "-days", "2", "-out", "issued.pem"];
        self.openssl(&[&["x509", "-req", "-in", "request"][..], &authority, &rest].concat());
    }

    pub(crate) fn openssl(&self, arguments: &[&str]) -> Vec<u8> {
        output(self.folder(), "openssl", arguments)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder().join(name), bytes).unwrap();
    }

    pub(crate) fn certificate(&self, name: &str) -> Certificate {
        Certificate::parse(&self.read(&format!("{name}.pem"))).unwrap()
    }

    pub(crate) fn signer(&self, name: &str, options: SignerOptions) -> Signer {
        let key = PrivateKey::parse(&self.read(&format!("{name}.key")), None).unwrap();
        Signer::new(key, self.certificate(name), options).unwrap()
    }

    /// What `modinfo` shows of a file for a field, with continued lines joined.
    pub(crate) fn modinfo(&self, file: &str, field: &str) -> Option<String> {
        let text =
            String::from_utf8(output(self.folder(), "modinfo", &[&self.path(file)])).unwrap();
        let text = text.replace("\n\t\t", "");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")))?;
        Some(line.trim().to_owned())
    }

    /// Whether `openssl` accepts the outermost signature of a file, by this certificate.
    pub(crate) fn openssl_verifies(&self, file: &[u8], certificate: &str) -> bool {
        let signed = gantry_kmod::signature::split(file).unwrap().unwrap();
        self.write("signature", signed.cms);
        self.write("payload", signed.payload);
        let message = ["cms", "-verify", "-inform", "DER", "-in", "signature", "-binary"];
        let content = ["-content", "payload", "-out", "/dev/null", "-certfile", certificate];
        let arguments = [&message[..], &content, &["-nointern", "-noverify"]].concat();
        run(self.folder(), "openssl", &arguments).status.success()
    }
}

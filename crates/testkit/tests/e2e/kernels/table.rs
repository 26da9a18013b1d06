//! The attempts that are made in kernels, each with what is expected of it.

use gantry_testkit::kernel::{Attempt, AttemptOutcome, Kernel, SigningKey};

/// The first kernels of Debian with ECDSA and SHA-512 built in, and that unpack modules themselves.
pub(super) const MODERN: (u32, u32) = (6, 12);

const UNSIGNED: &str = "Loading of unsigned module is rejected";
const UNAVAILABLE_KEY: &str = "Loading of module with unavailable key is rejected";
const UNSUPPORTED: &str = "Loading of module with unsupported crypto is rejected";
const LOCKED_DOWN: &str = "unsigned module loading is restricted";

/// `EPERM`, `EBADMSG`, `EOPNOTSUPP` and `EKEYREJECTED`, with the words that users see.
const NOT_PERMITTED: (i32, &str) = (1, "Operation not permitted");
const BAD_MESSAGE: (i32, &str) = (74, "Bad message");
const NOT_SUPPORTED: (i32, &str) = (95, "Operation not supported");
const KEY_REJECTED: (i32, &str) = (129, "Key was rejected by service");

/// The length of the magic at the end of a signed module, and of the description before it.
const MAGIC: usize = 28;
const DESCRIPTION: usize = 12;

/// Signs a module: its bytes, the key and the certificate as PEM, and the name of a digest.
pub(super) type Sign = Box<dyn Fn(&[u8], &str, &str, &str) -> Vec<u8>>;

/// Compresses a module.
pub(super) type Compress = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A program or a library that signs modules.
pub(super) struct Signer {
    pub(super) name: &'static str,
    /// Names the certificate by issuer and serial number.
    pub(super) sign: Sign,
    /// Names the certificate by its key identifier.
    pub(super) sign_by_key_identifier: Sign,
    /// Compresses a module for the kernel to unpack.
    pub(super) compress: Compress,
}

/// One attempt, and what is expected of it.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) attempt: Attempt,
    pub(super) expected: Expected,
}

/// What a kernel makes of a module.
#[derive(Debug)]
pub(super) enum Expected {
    Loaded,
    /// Refused with this error number and its words; and what the kernel writes to its log, which
    /// for a damaged module is nothing.
    Refused((i32, &'static str), Option<&'static str>),
    /// Refused by `insmod`, which always exits with 1, with these words.
    RefusedByInsmod(&'static str),
}

impl Expected {
    pub(super) fn matches(&self, attempt: &AttemptOutcome) -> bool {
        match *self {
            Self::Loaded => attempt.status == 0 && attempt.is_loaded(),
            Self::Refused((status, words), message) => {
                let said = match message {
                    Some(message) => attempt.has_message(message),
                    None => attempt.messages.is_empty(),
                };
                !attempt.is_loaded() && attempt.status == status && attempt.output == words && said
            }
            Self::RefusedByInsmod(words) => {
                !attempt.is_loaded()
                    && attempt.status == 1
                    && attempt.output.ends_with(words)
                    && attempt.output.starts_with("insmod: ERROR: could not insert module")
            }
        }
    }
}

/// The keys of all rows.
pub(super) struct Keys {
    pub(super) enrolled: SigningKey,
    pub(super) stranger: SigningKey,
    expired: SigningKey,
    without_identifier: SigningKey,
    ecdsa: SigningKey,
    authority: SigningKey,
    issued: SigningKey,
}

impl Keys {
    pub(super) fn new() -> Self {
        let authority = SigningKey::authority("authority").unwrap();
        Self {
            enrolled: SigningKey::rsa("enrolled").unwrap(),
            stranger: SigningKey::rsa("stranger").unwrap(),
            expired: SigningKey::expired("expired").unwrap(),
            without_identifier: SigningKey::without_identifier("bare").unwrap(),
            ecdsa: SigningKey::ecdsa("ecdsa").unwrap(),
            issued: authority.issue("issued").unwrap(),
            authority,
        }
    }

    /// The certificates that the firmware has; not the stranger's, and not the issued one.
    pub(super) fn trusted(&self) -> Vec<Vec<u8>> {
        let keys =
            [&self.enrolled, &self.expired, &self.without_identifier, &self.ecdsa, &self.authority];
        keys.map(SigningKey::certificate_der).to_vec()
    }
}

/// How a kernel refuses what is not signed.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    Enforced,
    LockedDown,
}

/// The rows that hold wherever signatures matter: the same files, refused with other words.
///
/// Kernels log at most ten refusals by lockdown in five seconds, so these rows stay few.
pub(super) fn essential(
    kernel: &Kernel,
    keys: &Keys,
    signers: &[Signer],
    refusal: Refusal,
) -> Vec<Row> {
    let module = kernel.leaf_module().unwrap();
    let refused = |message| match refusal {
        Refusal::Enforced => Expected::Refused(KEY_REJECTED, Some(message)),
        Refusal::LockedDown => Expected::Refused(NOT_PERMITTED, Some(LOCKED_DOWN)),
    };
    let words = match refusal {
        Refusal::Enforced => KEY_REJECTED.1,
        Refusal::LockedDown => NOT_PERMITTED.1,
    };
    let mut rows = vec![
        row("", "unsigned", Attempt::Load(module.clone()), refused(UNSIGNED)),
        row(
            "",
            "unsigned, insmod",
            Attempt::Insmod(module.clone()),
            Expected::RefusedByInsmod(words),
        ),
    ];
    for signer in signers {
        let sign = |key: &SigningKey| (signer.sign)(&module, &key.key, &key.certificate, "sha256");
        let signed = sign(&keys.enrolled);
        let damaged = with_byte(&signed, module.len() / 2, |byte| byte ^ 1);
        rows.extend([
            row(signer.name, "trusted", Attempt::Load(signed.clone()), Expected::Loaded),
            row(signer.name, "trusted, insmod", Attempt::Insmod(signed), Expected::Loaded),
            row(
                signer.name,
                "unknown key",
                Attempt::Load(sign(&keys.stranger)),
                refused(UNAVAILABLE_KEY),
            ),
            row(
                signer.name,
                "damaged",
                Attempt::Load(damaged),
                Expected::Refused(KEY_REJECTED, None),
            ),
        ]);
    }
    rows
}

/// All rows for a kernel that enforces signatures.
pub(super) fn enforced(kernel: &Kernel, keys: &Keys, signers: &[Signer]) -> Vec<Row> {
    let mut rows = essential(kernel, keys, signers, Refusal::Enforced);
    let module = kernel.leaf_module().unwrap();
    for signer in signers {
        rows.extend(variants(kernel, keys, signer, &module));
        let signed =
            (signer.sign)(&module, &keys.enrolled.key, &keys.enrolled.certificate, "sha256");
        rows.extend(malformed(signer.name, &signed));
    }
    rows
}

/// Digests, keys, certificates, stacks and compression.
fn variants(kernel: &Kernel, keys: &Keys, signer: &Signer, module: &[u8]) -> Vec<Row> {
    let modern = kernel.version() >= MODERN;
    let unless_modern = |number, message| {
        if modern { Expected::Loaded } else { Expected::Refused(number, message) }
    };
    let sign = |module: &[u8], key: &SigningKey, digest: &str| {
        (signer.sign)(module, &key.key, &key.certificate, digest)
    };
    let load = |module| Attempt::Load(module);
    let signed = sign(module, &keys.enrolled, "sha256");
    let foreign = sign(module, &keys.stranger, "sha256");
    let by_identifier = (signer.sign_by_key_identifier)(
        module,
        &keys.enrolled.key,
        &keys.enrolled.certificate,
        "sha256",
    );
    let unavailable = || Expected::Refused(KEY_REJECTED, Some(UNAVAILABLE_KEY));
    let rows = [
        (
            "SHA-384",
            load(sign(module, &keys.enrolled, "sha384")),
            unless_modern(KEY_REJECTED, Some(UNSUPPORTED)),
        ),
        (
            "SHA-512",
            load(sign(module, &keys.enrolled, "sha512")),
            unless_modern(KEY_REJECTED, Some(UNSUPPORTED)),
        ),
        (
            "ECDSA",
            load(sign(module, &keys.ecdsa, "sha256")),
            unless_modern(KEY_REJECTED, Some(UNAVAILABLE_KEY)),
        ),
        (
            "ECDSA, SHA-512",
            load(sign(module, &keys.ecdsa, "sha512")),
            unless_modern(KEY_REJECTED, Some(UNSUPPORTED)),
        ),
        ("key identifier", load(by_identifier), Expected::Loaded),
        (
            "certificate without key identifier",
            load(sign(module, &keys.without_identifier, "sha256")),
            Expected::Loaded,
        ),
        ("expired certificate", load(sign(module, &keys.expired, "sha256")), Expected::Loaded),
        (
            "only the authority is trusted",
            load(sign(module, &keys.issued, "sha256")),
            unavailable(),
        ),
        // Only the outermost signature counts.
        ("trusted over unknown", load(sign(&foreign, &keys.enrolled, "sha256")), Expected::Loaded),
        ("unknown over trusted", load(sign(&signed, &keys.stranger, "sha256")), unavailable()),
        (
            "compressed",
            Attempt::LoadCompressed((signer.compress)(&signed)),
            unless_modern(NOT_SUPPORTED, None),
        ),
        (
            "compressed, unknown key",
            Attempt::LoadCompressed((signer.compress)(&foreign)),
            if modern { unavailable() } else { Expected::Refused(NOT_SUPPORTED, None) },
        ),
    ];
    rows.map(|(name, attempt, expected)| row(signer.name, name, attempt, expected)).into()
}

/// Digests that kernels accept although they are weak. That ours is no such signer is policy.
pub(super) fn weak_digests(kernel: &Kernel, keys: &Keys, signer: &Signer) -> Vec<Row> {
    let module = kernel.leaf_module().unwrap();
    let row = |digest| {
        let key = &keys.enrolled;
        let signed = (signer.sign)(&module, &key.key, &key.certificate, digest);
        row(signer.name, digest, Attempt::Load(signed), Expected::Loaded)
    };
    ["sha1", "sha224"].map(row).into()
}

/// Signed modules whose description of the signature was changed.
fn malformed(signer: &str, signed: &[u8]) -> Vec<Row> {
    let description = signed.len() - MAGIC - DESCRIPTION;
    let set = |offset: usize, value: u8| {
        Attempt::Load(with_byte(signed, description + offset, |_| value))
    };
    let rows = [
        (
            "algorithm not zero",
            set(0, 1),
            Expected::Refused(
                BAD_MESSAGE,
                Some("PKCS#7 signature info has unexpected non-zero params"),
            ),
        ),
        (
            "another kind of signature",
            set(2, 1),
            Expected::Refused(KEY_REJECTED, Some(UNSUPPORTED)),
        ),
        ("signature longer than the file", set(8, 0xff), Expected::Refused(BAD_MESSAGE, None)),
    ];
    rows.map(|(name, attempt, expected)| row(signer, name, attempt, expected)).into()
}

pub(super) fn row(signer: &str, name: &str, attempt: Attempt, expected: Expected) -> Row {
    let name = if signer.is_empty() { name.to_owned() } else { format!("{signer}: {name}") };
    Row { name, attempt, expected }
}

fn with_byte(module: &[u8], index: usize, change: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut module = module.to_vec();
    module[index] = change(module[index]);
    module
}

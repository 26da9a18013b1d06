use std::sync::Arc;

use gantry_kmod::{
    ExistingSignatures, KernelRelease, PrivateKey, SignOutcome, Signer, SignerOptions,
    SyntheticModule, sign_module,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kubelet::annotation;
use crate::view::Node;

const RELEASE: &str = "6.1.0-55-cloud-amd64";

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../kmod/tests/fixtures/", $name))
    };
}

fn certificate() -> Certificate {
    Certificate::parse(fixture!("certificates/rsa2048.pem")).unwrap()
}

fn synthetic(name: &str) -> SyntheticModule {
    SyntheticModule::new(name, &RELEASE.parse::<KernelRelease>().unwrap())
}

fn file(name: &str) -> Vec<u8> {
    synthetic(name).to_bytes().unwrap()
}

fn signed(module: &[u8]) -> Vec<u8> {
    let key = PrivateKey::parse(fixture!("keys/rsa2048.pkcs8.pem"), None).unwrap();
    let signer = Signer::new(key, certificate(), SignerOptions::default()).unwrap();
    match sign_module(module, &signer, ExistingSignatures::Append).unwrap() {
        SignOutcome::Signed { file, .. } => file,
        SignOutcome::AlreadySigned | SignOutcome::Skipped => panic!("it was signed already"),
    }
}

fn signed_by_other(module: &[u8]) -> Vec<u8> {
    let key = PrivateKey::parse(fixture!("keys/rsa3072.pkcs8.pem"), None).unwrap();
    let certificate = Certificate::parse(fixture!("certificates/rsa3072.pem")).unwrap();
    let signer = Signer::new(key, certificate, SignerOptions::default()).unwrap();
    match sign_module(module, &signer, ExistingSignatures::Append).unwrap() {
        SignOutcome::Signed { file, .. } => file,
        SignOutcome::AlreadySigned | SignOutcome::Skipped => panic!("it was signed already"),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn request(process: &'static str) -> InsertRequest<'static> {
    InsertRequest { process, file_name: "file", parameters: "", now: at(5) }
}

fn kernel(enforcement: Enforcement) -> Kernel {
    let mut kernel = Kernel::new(RELEASE, at(0));
    kernel.set_signature_policy(enforcement, vec![certificate()]);
    kernel.insert_in_tree(&in_tree_modules()[0], request("modprobe")).unwrap();
    kernel.insert_in_tree(&in_tree_modules()[3], request("modprobe")).unwrap();
    kernel
}

/// Returns the error and the new messages.
fn insert(kernel: &mut Kernel, file: &[u8]) -> (Result<(), InsertError>, Vec<String>) {
    let before = kernel.messages().count();
    let result = kernel.insert(file, request("modprobe"));
    (result, kernel.messages().skip(before).map(|it| it.text.clone()).collect())
}

/// The table of what kernels really said, by file and by how strict they were.
#[test]
fn modules_are_refused_as_kernels_refused_them() {
    use Enforcement::{Enforce, Lockdown, Off};
    let plain = file("hello");
    let ours = signed(&plain);
    let others = signed_by_other(&plain);
    let mut damaged = ours.clone();
    damaged[100] ^= 1;
    let trailer = |offset: usize, value: u8| {
        let mut file = ours.clone();
        // The trailer of 12 bytes, before 28 bytes of magic.
        let at = file.len() - 40 + offset;
        file[at] = value;
        file
    };
    let out_of_tree = "hello: loading out-of-tree module taints kernel.";
    let unverified = "hello: module verification failed: signature and/or required key missing - \
                      tainting kernel";
    let unsigned_log = "Loading of unsigned module is rejected";
    let key_log = "Loading of module with unavailable key is rejected";
    let lockdown_log = "Lockdown: modprobe: unsigned module loading is restricted; see man \
                        kernel_lockdown.7";
    let sample = "sample: loading out-of-tree module taints kernel.";
    let sha1 = fixture!("signed/sha1.ko").to_vec();
    let key_identifier = fixture!("signed/keyid.ko").to_vec();
    let issued = fixture!("signed/issued.ko").to_vec();
    let attributes = fixture!("signed/attributes.ko").to_vec();
    let (rejected, bad) = (Some((Errno::KeyRejected, 129)), Some((Errno::BadMessage, 74)));
    let refused = Some((Errno::NotPermitted, 1));
    type Row<'a> = (&'a str, Enforcement, Vec<u8>, Option<(Errno, u8)>, Vec<&'a str>, u32);
    let table: Vec<Row<'_>> = vec![
        ("unsigned", Enforce, plain.clone(), rejected, vec![unsigned_log], 0),
        ("not enrolled", Enforce, others.clone(), rejected, vec![key_log], 0),
        ("ours", Enforce, ours.clone(), None, vec![out_of_tree], 4096),
        ("damaged", Enforce, damaged.clone(), rejected, vec![], 0),
        ("other's, then ours", Enforce, signed(&others), None, vec![out_of_tree], 4096),
        ("ours, then other's", Enforce, signed_by_other(&ours), rejected, vec![key_log], 0),
        (
            "algo byte not zero",
            Enforce,
            trailer(0, 1),
            bad,
            vec!["PKCS#7 signature info has unexpected non-zero params"],
            0,
        ),
        ("signature length too large", Enforce, trailer(8, 0xff), bad, vec![], 0),
        (
            "signed attributes",
            Enforce,
            attributes,
            rejected,
            vec!["PKCS7: Invalid module sig (has authattrs)"],
            0,
        ),
        ("weak digest", Enforce, sha1, None, vec![sample], 4096),
        ("by key identifier", Enforce, key_identifier, None, vec![sample], 4096),
        ("issued certificate", Enforce, issued, rejected, vec![key_log], 0),
        ("unsigned", Lockdown, plain.clone(), refused, vec![lockdown_log], 0),
        ("not enrolled", Lockdown, others.clone(), refused, vec![lockdown_log], 0),
        ("ours", Lockdown, ours.clone(), None, vec![out_of_tree], 4096),
        ("damaged", Lockdown, damaged, rejected, vec![], 0),
        ("unsigned", Off, plain, None, vec![out_of_tree, unverified], 12288),
        ("not enrolled", Off, others, None, vec![out_of_tree, unverified], 12288),
        ("ours", Off, ours, None, vec![out_of_tree], 4096),
    ];
    for (what, enforcement, file, expected, log, taint) in table {
        let mut kernel = kernel(enforcement);
        let (result, messages) = insert(&mut kernel, &file);
        let errno = match result {
            Ok(()) => None,
            Err(InsertError::Refused(errno)) => Some((errno, errno.number())),
            Err(InsertError::NoMemory) => panic!("{what}"),
        };
        assert_eq!(errno, expected, "{what}, {enforcement:?}");
        assert_eq!(messages, log, "{what}, {enforcement:?}");
        assert_eq!(kernel.taint(), taint, "{what}, {enforcement:?}");
        assert_eq!(kernel.modules().count(), if expected.is_none() { 3 } else { 2 });
    }
    let mut kernel = kernel(Lockdown);
    kernel.insert(&file("hello"), request("insmod")).unwrap_err();
    let text = "Lockdown: insmod: unsigned module loading is restricted; see man \
                kernel_lockdown.7";
    assert_eq!(kernel.messages().last().unwrap().text, text);
}

#[test]
fn files_that_are_no_module_for_this_kernel_are_refused() {
    let other: KernelRelease = "6.1.0-54-cloud-amd64".parse().unwrap();
    let other = SyntheticModule::new("hello", &other).to_bytes().unwrap();
    let magic = "hello: version magic '6.1.0-54-cloud-amd64 SMP preempt mod_unload modversions ' \
                 should be '6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions '";
    let needs = synthetic("hello").depends_on("hello-base").to_bytes().unwrap();
    let no_exec = Err(InsertError::Refused(Errno::NoExec));
    let table = [
        (other, no_exec, vec![magic]),
        (b"#!/bin/sh".to_vec(), no_exec, vec![]),
        (vec![], no_exec, vec![]),
        (vec![0x1f, 0x8b, 0, 0], no_exec, vec![]),
        (file("a/b"), no_exec, vec!["a/b: No module found in object"]),
        (file(&"x".repeat(56)), no_exec, vec![]),
        (
            needs,
            Err(InsertError::Refused(Errno::NoEntry)),
            vec!["hello: Unknown symbol hello_base (err -2)"],
        ),
    ];
    for (file, expected, log) in table {
        let mut kernel = kernel(Enforcement::Off);
        let (result, messages) = insert(&mut kernel, &file);
        assert_eq!(result, expected, "{log:?}");
        if !log.is_empty() {
            assert_eq!(messages, log);
        }
        assert_eq!(kernel.modules().count(), 2);
    }
}

#[test]
fn modules_in_use_stay() {
    let mut kernel = kernel(Enforcement::Off);
    let needs = synthetic("hello-c").depends_on("crc-itu-t").to_bytes().unwrap();
    assert_eq!(insert(&mut kernel, &needs).0, Ok(()));
    let again = insert(&mut kernel, &needs);
    assert_eq!(again, (Err(InsertError::Refused(Errno::Exists)), vec![]));
    assert_eq!(kernel.users("crc-itu-t"), ["hello_c"]);
    assert_eq!(kernel.remove("crc_itu_t"), Err(RemoveError::InUse));
    assert_eq!(kernel.remove("hello-c"), Ok(()));
    assert_eq!(kernel.remove("hello-c"), Err(RemoveError::NotLoaded));
    assert_eq!(kernel.remove("crc_itu_t"), Ok(()));
    // What a module did to the kernel outlives it.
    assert_eq!(kernel.taint(), TAINT_OUT_OF_TREE | TAINT_UNSIGNED);
    assert_eq!(insert(&mut kernel, &file("second")).1, Vec::<String>::new());
}

#[test]
fn compressed_modules_and_parameters_are_read() {
    for packed in
        [fixture!("compressed/signed.ko.gz").as_slice(), fixture!("compressed/signed.ko.xz")]
    {
        let mut kernel = kernel(Enforcement::Enforce);
        let with = InsertRequest { parameters: "level=3 other=1", ..request("modprobe") };
        assert_eq!(kernel.insert(packed, with), Ok(()));
        let log = kernel.messages().last().unwrap();
        assert_eq!(log.text, "sample: unknown parameter 'other' ignored");
        assert_eq!(log.uptime, SignedDuration::from_secs(5));
        let module = kernel.modules().next().unwrap();
        assert_eq!(module.depends, ["crc_itu_t", "libcrc32c"]);
        assert_eq!((module.size, module.parameters.as_str()), (16_384, "level=3 other=1"));
    }
}

#[test]
fn a_kernel_is_bounded() {
    let mut kernel = kernel(Enforcement::Off);
    for number in 0..2 * MAX_MODULES {
        let fits = kernel.modules().count() < MAX_MODULES;
        let result = insert(&mut kernel, &file(&format!("m{number}"))).0;
        assert_eq!(result.is_ok(), fits, "{number}");
    }
    for _ in 0..2 * MAX_MESSAGES {
        let long = synthetic("m").field("license", &"ä\n".repeat(9_000)).to_bytes().unwrap();
        kernel.remove("m0").ok();
        kernel.remove("m").ok();
        kernel.taint = 0;
        insert(&mut kernel, &long).0.unwrap();
    }
    assert_eq!(kernel.messages().count(), MAX_MESSAGES);
    assert!(kernel.messages().all(|it| it.text.len() <= MAX_MESSAGE_BYTES));
    assert!(!kernel.messages().any(|it| it.text.contains('\n')));
    let text = serde_json::to_string(&kernel.state("b")).unwrap();
    assert!(text.len() < 32 << 10, "{}", text.len());
}

fn node(annotations: &serde_json::Value, info: &serde_json::Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n", "uid": "u", "annotations": annotations},
        "status": {"nodeInfo": info},
    }))
    .unwrap()
}

/// A kernel is restored from the node's annotation, and a reboot loads nothing.
#[test]
fn a_restarted_process_is_no_reboot() {
    let info = json!({"kernelVersion": RELEASE, "bootID": "one"});
    let kernels = NodeKernels::default();
    let states = Arc::new(std::sync::Mutex::new(Vec::new()));
    let observed = Arc::clone(&states);
    kernels.set_observer(Box::new(move |node, state| {
        assert_eq!(node, "n");
        observed.lock().unwrap().push(state.unwrap());
    }));
    let plain = node(&json!({}), &info);
    let first = kernels.of(&plain).unwrap();
    first.insert(&file("hello"), request("modprobe")).unwrap();
    let state = states.lock().unwrap().pop().unwrap();
    assert_eq!(state.boot_id, "one");
    let annotated = json!({annotation::LOADED_MODULES: serde_json::to_string(&state).unwrap()});

    let restarted = NodeKernels::default().of(&node(&annotated, &info)).unwrap().snapshot();
    assert_eq!(restarted.state("one"), first.snapshot().state("one"));
    assert_eq!(restarted.taint(), 12288);

    let rebooted = json!({"kernelVersion": RELEASE, "bootID": "two"});
    let rebooted = node(&annotated, &rebooted);
    assert_eq!(NodeKernels::default().of(&rebooted).unwrap().snapshot().modules().count(), 0);
    // In the same process, too; and what still runs on the earlier boot is not observed.
    let second = kernels.of(&rebooted).unwrap();
    first.insert(&file("late"), request("modprobe")).unwrap();
    assert!(states.lock().unwrap().is_empty());
    assert_eq!(second.snapshot().modules().count(), 0);
}

#[test]
fn annotations_of_nodes_decide_about_signatures() {
    let certificate = std::str::from_utf8(fixture!("certificates/rsa2048.pem")).unwrap();
    let two = format!("{certificate}\n# another\n{certificate}");
    let table = [
        (json!({}), Ok((Enforcement::Off, 0))),
        (json!({annotation::MODULE_SIGNATURES: "enforce"}), Ok((Enforcement::Enforce, 0))),
        (json!({annotation::MODULE_SIGNATURES: "lockdown"}), Ok((Enforcement::Lockdown, 0))),
        (json!({annotation::TRUSTED_KEYS: two}), Ok((Enforcement::Off, 2))),
        (json!({annotation::MODULE_SIGNATURES: "on"}), Err("write off, enforce or lockdown")),
        (json!({annotation::TRUSTED_KEYS: "x"}), Err("it has no certificate")),
        (json!({annotation::TRUSTED_KEYS: "-----BEGIN X"}), Err("write certificates in PEM")),
        (json!({annotation::LOADED_MODULES: "["}), Err("remove it")),
    ];
    for (annotations, expected) in table {
        let read = KernelSpec::of(&node(&annotations, &json!({})));
        let read = read.map(|it| (it.enforcement, it.trusted.len()));
        match (read, expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected),
            (Err(read), Err(expected)) => assert!(read.contains(expected), "{read}"),
            (read, expected) => panic!("{read:?} instead of {expected:?}"),
        }
    }
}

proptest! {
    /// However modules are loaded and removed, nothing that is used is missing, and a restored
    /// kernel is the same.
    #[test]
    fn what_is_used_is_loaded(steps in prop::collection::vec((0_u8..6, any::<bool>()), 1..40)) {
        let mut kernel = kernel(Enforcement::Off);
        for (number, load) in steps {
            let name = format!("m{number}");
            if load {
                let mut module = synthetic(&name);
                if number > 0 {
                    module = module.depends_on(&format!("m{}", number / 2));
                }
                let _ = kernel.insert(&module.to_bytes().unwrap(), request("modprobe"));
            } else {
                let _ = kernel.remove(&name);
            }
            for module in kernel.modules() {
                prop_assert!(module.depends.iter().all(|it| kernel.is_loaded(it)));
            }
            let text = serde_json::to_string(&kernel.state("b")).unwrap();
            let mut restored = Kernel::new(RELEASE, at(0));
            restored.restore(&serde_json::from_str(&text).unwrap());
            prop_assert_eq!(restored.state("b"), kernel.state("b"));
        }
    }

    #[test]
    fn no_file_panics(file in prop::collection::vec(any::<u8>(), 0..300), at: prop::sample::Index) {
        let mut module = self::file("hello");
        let at = at.index(module.len());
        for (place, byte) in module[at..].iter_mut().zip(&file) {
            *place = *byte;
        }
        for file in [&file, &module] {
            let _ = kernel(Enforcement::Off).insert(file, request("modprobe"));
        }
    }
}

/// A container that starts in the second of the boot was not started before it.
#[test]
fn the_time_of_a_boot_has_whole_seconds_as_those_of_containers() {
    let boot = json!({"kernel": "6.9", "begunAt": "2026-01-01T00:00:29.9Z"}).to_string();
    let node: Node = serde_json::from_value(json!({
        "metadata": {"annotations": {annotation::BOOT: boot}},
        "status": {"nodeInfo": {"kernelVersion": "6.9"}},
    }))
    .unwrap();
    assert_eq!(boot_time(&node), Some("2026-01-01T00:00:31Z".parse().unwrap()));
}

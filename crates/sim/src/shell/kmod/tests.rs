//! The words are those of kmod 30 and of the kernels that were measured.

use bytes::Bytes;
use gantry_process::clock::FakeClock;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::options::parse_options;
use super::*;
use crate::image::RootFiles;
use crate::image::tests::{RELEASE, module, root};
use crate::kernel::{KernelAccess, NodeKernels};
use crate::programs::Mounts;
use crate::shell::{ShellContext, Stdio, run};
use crate::view::Node;

const TREE: &str = "/opt/lib/modules/6.1.0-55-cloud-amd64";

struct Container {
    context: ShellContext,
}

impl Container {
    fn new(root: RootFiles, annotations: &serde_json::Value, may_load_modules: bool) -> Self {
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": "n", "uid": "u", "annotations": annotations,
                "creationTimestamp": "2026-11-06T05:06:10Z",
            },
            "status": {"nodeInfo": {"kernelVersion": RELEASE, "bootID": "b"}},
        }))
        .unwrap();
        let kernel = NodeKernels::default().of(&node).unwrap();
        let clock = FakeClock::at("2026-11-06T05:06:20Z".parse::<Timestamp>().unwrap());
        let context = ShellContext {
            hostname: "driver-0".to_owned(),
            variables: Vec::new(),
            tty: false,
            clock: clock.clock(),
            files: Mounts::default(),
            root,
            kernel: Some(KernelAccess { kernel, may_load_modules }),
        };
        Self { context }
    }

    /// Runs a line, and returns its exit code and all of its output.
    async fn run(&self, line: &str) -> (u8, String) {
        let (sender, mut output) = mpsc::channel::<Bytes>(8);
        let stdio = Stdio { stdin: None, stdout: Some(sender.clone()), stderr: Some(sender) };
        let command = ["sh", "-c", line].map(str::to_owned);
        let stop = CancellationToken::new();
        let all = async {
            let mut all = Vec::new();
            while let Some(bytes) = output.recv().await {
                all.extend_from_slice(&bytes);
            }
            String::from_utf8(all).unwrap()
        };
        let (code, output) = tokio::join!(run(&command, &self.context, stdio, &stop), all);
        (code.unwrap(), output)
    }

    async fn expect(&self, table: &[(&str, u8, &str)]) {
        for (line, code, output) in table {
            let (real_code, real) = self.run(line).await;
            assert_eq!((real_code, real.as_str()), (*code, *output), "{line}");
        }
    }

    async fn loaded(&self) -> String {
        let lines = self.run("lsmod").await.1;
        let names = lines.lines().skip(1).map(|it| it.split_whitespace().next().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }
}

fn path(file: &str) -> String {
    format!("{TREE}/{file}")
}

async fn driver_root(host_paths: &[(&str, &str)]) -> RootFiles {
    let compressed =
        gantry_kmod::Compression::Gzip.compress(&module("hello_a", &["crc-itu-t"])).unwrap();
    let soft = |name: &str, depends: &[&str], soft: &str| {
        let release = RELEASE.parse().unwrap();
        let module = gantry_kmod::SyntheticModule::new(name, &release).field("softdep", soft);
        depends.iter().fold(module, |it, name| it.depends_on(name)).to_bytes().unwrap()
    };
    let other = gantry_kmod::SyntheticModule::new("other", &"6.1.0-54-amd64".parse().unwrap());
    let files = [
        ("hello.ko", module("hello", &[])),
        ("extra/hello-a.ko.gz", compressed),
        ("hello_b.ko", module("hello_b", &["hello-a"])),
        ("lonely.ko", module("lonely", &["nowhere"])),
        ("other.ko", other.to_bytes().unwrap()),
        ("broken.ko", b"text".to_vec()),
        // As measured: b needs a, a is loaded before b, and d before a.
        ("b.ko", soft("b", &["a"], "pre: a")),
        ("a.ko", soft("a", &[], "pre: d")),
        ("d.ko", module("d", &[])),
        ("late.ko", soft("late", &[], "post: hello missing")),
        ("configured.ko", module("configured", &[])),
        ("modules.dep", b"".to_vec()),
    ];
    let files: Vec<(String, Vec<u8>)> =
        files.into_iter().map(|(name, content)| (path(name), content)).collect();
    let mut files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    let config = "# comment\nsoftdep configured pre: \\\n d\noptions configured level=2\n\
                  alias nickname hello\ninstall hello /bin/true\n";
    files.push(("/etc/modprobe.d/softdep.conf", config.as_bytes().to_vec()));
    files.push(("/etc/modprobe.d/README", b"softdep hello pre: d".to_vec()));
    files.push(("/opt/notes", b"text\n".to_vec()));
    root(files, host_paths).await
}

const HOST: &[(&str, &str)] = &[("/lib/modules", "/lib/modules")];

#[tokio::test]
async fn modules_are_loaded_and_removed_as_kmod_does() {
    let container = Container::new(driver_root(HOST).await, &json!({}), true);
    let warning = "modprobe: WARNING: not simulated: install hello /bin/true\n";
    let file = |name: &str| path(name);
    let host = format!("/lib/modules/{RELEASE}/kernel/lib/crc-itu-t.ko");
    let quiet = |text: &str| format!("{warning}{text}");
    let rows: Vec<(&str, u8, String)> = vec![
        ("modprobe -qd /opt hello", 0, String::new()),
        ("modprobe -d /opt -q hello", 0, String::new()),
        ("modprobe -vd /opt hello", 0, quiet("")),
        (
            "modprobe --first-time -d /opt hello",
            1,
            quiet("modprobe: ERROR: could not insert 'hello': Module already in kernel\n"),
        ),
        (
            "modprobe -nvd /opt hello_b a=1 b='x y'",
            0,
            quiet(&format!(
                "insmod {host} \ninsmod {} \ninsmod {} a=1 b=x y\n",
                file("extra/hello-a.ko.gz"),
                file("hello_b.ko")
            )),
        ),
        (
            "modprobe -vd /opt hello-b",
            0,
            quiet(&format!(
                "insmod {host} \ninsmod {} \ninsmod {} \n",
                file("extra/hello-a.ko.gz"),
                file("hello_b.ko")
            )),
        ),
        (
            "lsmod",
            0,
            "Module                  Size  Used by\n\
             hello_b                16384  0\n\
             hello_a                16384  1 hello_b\n\
             crc_itu_t              16384  1 hello_a\n\
             hello                  16384  0\n"
                .to_owned(),
        ),
        ("modprobe -rd /opt hello_a", 1, quiet("modprobe: FATAL: Module hello_a is in use.\n")),
        ("rmmod hello-a", 1, "rmmod: ERROR: Module hello_a is in use by: hello_b\n".to_owned()),
        (
            "modprobe -rvd /opt hello_b hello",
            0,
            quiet("rmmod hello_b\nrmmod hello_a\nrmmod crc_itu_t\nrmmod hello\n"),
        ),
        ("modprobe -rvd /opt hello", 0, quiet("")),
        (
            "modprobe --first-time -rd /opt hello",
            1,
            quiet("modprobe: FATAL: Module hello is not in kernel.\n"),
        ),
        (
            "modprobe -vd /opt nothere",
            1,
            quiet(&format!("modprobe: FATAL: Module nothere not found in directory {TREE}\n")),
        ),
        ("modprobe -qd /opt nothere", 1, String::new()),
        ("modprobe -rd /opt nothere", 1, quiet("modprobe: FATAL: Module nothere not found.\n")),
        (
            "modprobe -d /opt lonely",
            1,
            quiet(
                "modprobe: ERROR: could not insert 'lonely': Unknown symbol in module, or unknown \
                 parameter (see dmesg)\n",
            ),
        ),
        (
            "modprobe -d /opt other",
            1,
            quiet("modprobe: ERROR: could not insert 'other': Exec format error\n"),
        ),
        ("modprobe -vd /opt nickname", 0, quiet(&format!("insmod {} \n", file("hello.ko")))),
        (
            "modprobe -vd /opt configured",
            0,
            quiet(&format!("insmod {} \ninsmod {} level=2\n", file("d.ko"), file("configured.ko"))),
        ),
        (
            "modprobe -ad /opt hello nothere",
            1,
            quiet(&format!("modprobe: WARNING: Module nothere not found in directory {TREE}\n")),
        ),
        (
            "modprobe -v dummy",
            0,
            quiet(&format!("insmod /lib/modules/{RELEASE}/kernel/drivers/net/dummy.ko \n")),
        ),
        ("rmmod dummy", 0, String::new()),
        (
            "modprobe -S 6.1.0 -d /opt hello",
            1,
            quiet("modprobe: FATAL: Module hello not found in directory /opt/lib/modules/6.1.0\n"),
        ),
        ("modprobe", 1, "modprobe: ERROR: missing parameters. See -h.\n".to_owned()),
        ("modprobe -z a", 1, "modprobe: invalid option -- 'z'\n".to_owned()),
        ("modprobe -d", 1, "modprobe: option requires an argument -- 'd'\n".to_owned()),
        ("modprobe --foo a", 1, "modprobe: unrecognized option '--foo'\n".to_owned()),
        ("modprobe -f a", 1, "modprobe: option -f is not simulated\n".to_owned()),
    ];
    for (line, code, output) in rows {
        assert_eq!(container.run(line).await, (code, output), "{line}");
    }
}

/// The order of soft dependencies, and the one that stays, were measured.
#[tokio::test]
async fn soft_dependencies_are_loaded_before_and_after() {
    let container = Container::new(driver_root(HOST).await, &json!({}), true);
    let inserts = |names: &[&str]| -> String {
        names.iter().map(|it| format!("insmod {} \n", path(&format!("{it}.ko")))).collect()
    };
    container
        .expect(&[
            ("modprobe -qvd /opt b", 0, &inserts(&["d", "a", "b"])),
            ("modprobe -qrvd /opt b", 0, "rmmod b\nrmmod a\n"),
        ])
        .await;
    assert_eq!(container.loaded().await, "d");
    container
        .expect(&[
            ("modprobe -qd /opt b", 0, ""),
            ("modprobe -qrvd /opt b a d", 0, "rmmod b\nrmmod a\nrmmod d\n"),
            ("modprobe -qvd /opt late", 0, &inserts(&["late", "hello"])),
            ("modprobe -qrvd /opt late", 0, "rmmod hello\nrmmod late\n"),
        ])
        .await;
    assert_eq!(container.loaded().await, "");
}

#[tokio::test]
async fn in_tree_modules_need_the_mount_of_the_host() {
    let container = Container::new(driver_root(&[]).await, &json!({}), true);
    let why = "modprobe: ERROR: could not insert 'hello_b': Unknown symbol in module, or unknown \
               parameter (see dmesg)\n";
    let (code, output) = container.run("modprobe -d /opt hello_b").await;
    assert!(code == 1 && output.ends_with(why), "{output}");
    let dmesg = container.run("dmesg").await.1;
    assert!(
        dmesg.contains("[   10.000000] hello_a: Unknown symbol crc_itu_t (err -2)\n"),
        "{dmesg}"
    );
    let missing =
        format!("modprobe: FATAL: Module dummy not found in directory /lib/modules/{RELEASE}\n");
    let (code, output) = container.run("modprobe dummy").await;
    assert!(code == 1 && output.ends_with(&missing), "{output}");
}

#[tokio::test]
async fn kernels_refuse_what_is_not_signed() {
    let table = [
        ("enforce", "Key was rejected by service", "Loading of unsigned module is rejected"),
        (
            "lockdown",
            "Operation not permitted",
            "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        ),
    ];
    for (signatures, why, log) in table {
        let annotations = json!({"sim.gantry.dev/module-signatures": signatures});
        let container = Container::new(driver_root(HOST).await, &annotations, true);
        let expected = format!("modprobe: ERROR: could not insert 'hello': {why}\n");
        let (code, output) = container.run("modprobe -d /opt hello").await;
        assert!(code == 1 && output.ends_with(&expected), "{output}");
        assert!(container.run("dmesg").await.1.ends_with(&format!("{log}\n")));
        let expected = format!("insmod: ERROR: could not insert module hello.ko: {why}\n");
        let line = format!("cd {TREE}; insmod hello.ko");
        assert_eq!(container.run(&line).await, (1, expected));
        // The kernel's own modules are signed by its vendor.
        assert_eq!(container.run("modprobe -q dummy").await, (0, String::new()));
    }
}

#[tokio::test]
async fn containers_need_the_capability() {
    let container = Container::new(driver_root(HOST).await, &json!({}), false);
    container
        .expect(&[(
            "modprobe -d /opt nothere; lsmod; uname -r",
            0,
            &format!(
                "modprobe: WARNING: not simulated: install hello /bin/true\n\
                 modprobe: FATAL: Module nothere not found in directory {TREE}\n\
                 Module                  Size  Used by\n{RELEASE}\n"
            ),
        )])
        .await;
    let (code, output) = container.run("modprobe -d /opt hello").await;
    let expected = "modprobe: ERROR: could not insert 'hello': Operation not permitted\n";
    assert!(code == 1 && output.ends_with(expected), "{output}");
    let line = format!("insmod {TREE}/hello.ko");
    let expected = format!(
        "insmod: ERROR: could not insert module {TREE}/hello.ko: Operation not permitted\n"
    );
    assert_eq!(container.run(&line).await, (1, expected));
}

#[tokio::test]
async fn tools_look_at_files_and_at_the_kernel() {
    let container = Container::new(driver_root(HOST).await, &json!({}), true);
    let not_exec =
        format!("insmod: ERROR: could not insert module {TREE}/broken.ko: Invalid module format\n");
    let missing = "No such file or directory";
    let modules = "hello 16384 0 - Live 0x0000000000000000 (OE)\n12288\n";
    container
        .expect(&[
            ("insmod", 1, "insmod: ERROR: missing filename.\n"),
            ("insmod x.ko", 1, &format!("insmod: ERROR: could not load module x.ko: {missing}\n")),
            ("insmod /opt", 1, "insmod: ERROR: could not insert module /opt: Is a directory\n"),
            (&format!("insmod {TREE}/broken.ko"), 1, &not_exec),
            (&format!("insmod {TREE}/hello.ko"), 0, ""),
            (
                &format!("insmod {TREE}/hello.ko"),
                1,
                &format!("insmod: ERROR: could not insert module {TREE}/hello.ko: File exists\n"),
            ),
            ("cat /proc/modules /proc/sys/kernel/tainted", 0, modules),
            ("rmmod", 1, "rmmod: ERROR: missing module name.\n"),
            ("rmmod foo", 1, "rmmod: ERROR: Module foo is not currently loaded\n"),
            ("rmmod ./a.ko", 1, "rmmod: ERROR: Module a is not currently loaded\n"),
            ("lsmod x", 1, "Usage: lsmod\n"),
            ("modinfo", 1, "modinfo: ERROR: missing module or filename.\n"),
            ("modinfo nothere", 1, "modinfo: ERROR: Module nothere not found.\n"),
            ("modinfo -b /opt -F depends hello_b", 0, "hello-a\n"),
            (
                "modinfo -b /opt -F vermagic hello",
                0,
                "6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions \n",
            ),
            ("modinfo -F intree dummy", 0, "Y\n"),
            ("modinfo -n -b /opt hello-a", 0, &format!("{}\n", path("extra/hello-a.ko.gz"))),
            ("depmod x", 1, "depmod: ERROR: Bad version passed x\n"),
            ("depmod -a -b /opt", 0, ""),
            (
                "depmod -b /opt 9.9",
                1,
                &format!(
                    "depmod: ERROR: could not open directory /opt/lib/modules/9.9: {missing}\n\
                     depmod: FATAL: could not search modules: {missing}\n"
                ),
            ),
            ("uname", 0, "Linux\n"),
            ("uname -sr", 0, &format!("Linux {RELEASE}\n")),
            ("uname -z", 1, "uname: invalid option -- 'z'\n"),
            ("dmesg -w", 1, "dmesg: option -w is not simulated\n"),
            ("pwd; ls; cat notes", 0, "/opt\nlib\nnotes\ntext\n"),
            ("set -e; false || true; false && true; false; echo no", 1, ""),
            ("exec echo a; echo b", 0, "a\n"),
            ("set -o pipefail", 2, "sh: set: -o is not simulated\n"),
        ])
        .await;
}

/// What `modinfo` of kmod printed about the same files.
#[test]
fn modinfo_prints_what_kmod_prints() {
    macro_rules! golden {
        ($($name:literal),*) => {
            [$((
                $name,
                &include_bytes!(concat!("../../../../kmod/tests/fixtures/signed/", $name, ".ko"))[..],
                include_str!(concat!("../../../../kmod/tests/fixtures/signed/", $name, ".modinfo")),
            )),*]
        };
    }
    for (name, file, expected) in golden!["rsa2048.sha256", "keyid", "stacked", "p256.sha384"] {
        let text = modinfo::describe("/x.ko", file, None, '\n').unwrap();
        let text = text.strip_prefix("filename:       /x.ko\n").unwrap();
        assert_eq!(text, expected, "{name}");
    }
    assert_eq!(modinfo::describe("/x.ko", b"text", None, '\n'), None);
}

#[test]
fn options_are_parsed_as_getopt_does() {
    let spec = OptionSpec { short: "rvd:", long: &[("--dirname", 'd'), ("--remove", 'r')] };
    let table: [(&[&str], _); 9] = [
        (&["-rvd", "/opt", "a", "b"], Ok(("/opt", "a b"))),
        (&["-rv", "a", "-d/opt"], Ok(("/opt", "a"))),
        (&["--remove", "--dirname=/opt", "a"], Ok(("/opt", "a"))),
        (&["-r", "--dirname", "/opt", "--", "-a"], Ok(("/opt", "-a"))),
        (&["-r", "-", "-d", "-v"], Ok(("-v", "-"))),
        (&["-rx"], Err("invalid option -- 'x'")),
        (&["-r:"], Err("invalid option -- ':'")),
        (&["--dirname"], Err("option '--dirname' requires an argument")),
        (&["--remove=x"], Err("option '--remove' doesn't allow an argument")),
    ];
    for (arguments, expected) in table {
        let parsed = parse_options(spec, arguments);
        let parsed = parsed.map(|(options, words)| {
            assert!(options.has('r'), "{arguments:?}");
            (options.last_value('d').unwrap().to_owned(), words.join(" "))
        });
        let expected = expected.map(|(one, two)| (one.to_owned(), two.to_owned()));
        assert_eq!(parsed, expected.map_err(str::to_owned), "{arguments:?}");
    }
}

#[test]
fn configuration_is_read() {
    let mut config = Config::default();
    config.add("softdep a pre: b-c post: d\n\noptions  x-y  k=v k2=v2\nblacklist z\nremove q w");
    assert_eq!(config.soft_dependencies[0].pre, ["b_c"]);
    assert_eq!(config.soft_dependencies[0].post, ["d"]);
    assert_eq!(config.parameters("x_y"), ["k=v k2=v2"]);
    assert_eq!(config.ignored, ["remove q w"]);
    assert_eq!(config.resolve("a-b"), "a_b");
}

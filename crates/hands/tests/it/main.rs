//! Hands on a scratch root: files, programs that are scripts, a journal on disk, and a process that
//! dies after every action.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use gantry_hands::{HostMachine, run};
use gantry_process::clock::Clock;
use gantry_provision::{
    Action, Change, Content, Digest, Host, Lock, Lost, Reply, Request, State, Undo, UndoVerdict,
    Want, decode, destroy, encode, header_length, observe,
};

const MARKER: [u8; 32] = [b'm'; 32];

/// A host below a scratch folder, spoken to in frames.
struct Scratch {
    root: PathBuf,
    machine: HostMachine,
}

fn script(root: &Path, path: &str, text: &str) {
    let at = root.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&at, format!("#!/bin/sh\ncd \"$GANTRY_ROOT\" || exit 9\n{text}")).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Programs of the host: packages and units are files below `/state`.
fn prepare(root: &Path) {
    for folder in ["etc", "proc/sys/net/ipv4", "state/packages", "state/units", "sys/module"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("etc/os-release"), "ID=debian\n").unwrap();
    fs::write(root.join("etc/motd"), "before\n").unwrap();
    fs::set_permissions(root.join("etc/motd"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(root.join("proc/sys/net/ipv4/ip_forward"), "0\n").unwrap();
    fs::write(root.join("proc/swaps"), "Filename Type\n/swap file\n").unwrap();
    fs::write(root.join("state/packages/curl"), "7.88\n").unwrap();
    script(
        root,
        "usr/bin/dpkg-query",
        "for p in state/packages/*; do echo \"ii  ${p##*/} $(cat $p)\"; done\n",
    );
    script(
        root,
        "usr/bin/apt-get",
        "simulate=; for w; do [ \"$w\" = --simulate ] && simulate=1; done\n\
         while [ \"$1\" != -- ]; do shift; done; shift\n\
         for p in \"$@\" libnew; do [ -e state/packages/$p ] && continue\n\
         if [ $simulate ]; then echo \"Inst $p (1 x)\"; else echo 1 > state/packages/$p\n\
         [ $p = chrony ] && printf 'disabled inactive' > state/units/chrony.service; fi; done\n\
         exit 0\n",
    );
    script(
        root,
        "usr/bin/dpkg",
        "[ $3 = libnew ] && [ -e state/packages/chrony ] && { echo \"$3 is needed\"; exit 1; }\n\
         rm state/packages/$3; [ $3 = chrony ] && rm state/units/chrony.service; exit 0\n",
    );
    script(
        root,
        "usr/bin/systemctl",
        "verb=$1; [ $verb = daemon-reload ] && exit 0; while [ \"$1\" != -- ]; do shift; done\n\
         u=state/units/$2; [ -e $u ] || { echo LoadState=not-found; exit 0; }\n\
         read e a < $u\n\
         case $verb in show) printf 'LoadState=loaded\\nUnitFileState=%s\\nActiveState=%s\\n' $e $a;;\n\
         enable) echo \"enabled $a\" > $u;; disable) echo \"disabled $a\" > $u;;\n\
         start|restart) echo \"$e active\" > $u; echo $verb >> state/starts;;\n\
         stop) echo \"$e inactive\" > $u;; esac; exit 0\n",
    );
    script(root, "usr/bin/make-key", "echo key > etc/key\n");
    script(root, "usr/bin/drop-key", "rm etc/key\n");
    script(root, "usr/sbin/swapoff", "echo Filename > proc/swaps\n");
    script(root, "usr/sbin/swapon", "printf 'Filename Type\\n/swap file\\n' > proc/swaps\n");
}

impl Scratch {
    fn open(root: &Path) -> Self {
        let machine = HostMachine::new(root.to_owned(), Clock::system()).unwrap();
        Self { root: root.to_owned(), machine }
    }

    fn act(&mut self, change: &Change) -> Reply {
        let request = Request::Act {
            cluster: "mls".to_owned(),
            run: "01".to_owned(),
            step: "test".to_owned(),
            action: change.action.clone(),
        };
        let body = change.content.as_ref().map(Content::bytes).unwrap_or_default();
        self.ask(&request, body).unwrap()
    }
}

impl Host for Scratch {
    fn ask(&mut self, request: &Request, body: &[u8]) -> Result<Reply, Lost> {
        let mut input = encode(request, body.len() as u64).unwrap();
        input.extend(body);
        let mut output = Vec::new();
        run(&mut self.machine, &MARKER, input.as_slice(), &mut output).unwrap();
        let rest = output.strip_prefix(&MARKER).unwrap();
        let frame = |bytes: &[u8]| -> (Reply, usize) {
            let length = header_length(bytes[..4].try_into().unwrap()).unwrap();
            (decode(&bytes[4..4 + length]).unwrap().0, 4 + length)
        };
        let (hello, length) = frame(rest);
        assert_eq!(hello, Reply::Hello { version: 1 });
        Ok(frame(&rest[length..]).0)
    }

    fn bundled(&self, _: &Digest) -> Option<Vec<u8>> {
        None
    }
}

/// Every kind of action that a scratch root can carry.
fn changes() -> Vec<Change> {
    let text = |text: &str| text.to_owned();
    vec![
        Change::file("/etc/motd", 0o644, Content::public("after\n")),
        Change::file("/etc/site/deep/secret", 0o600, Content::secret("hunter2")),
        Change::of(Action::Directory { path: text("/srv/a"), mode: 0o750 }),
        Change::of(Action::Link { path: text("/etc/current"), target: text("motd") }),
        Change::of(Action::Packages { names: vec![text("chrony")] }),
        Change::of(Action::Unit {
            name: text("chrony.service"),
            enabled: true,
            active: true,
            config: Some(Digest::of(b"1")),
        }),
        Change::of(Action::Sysctl { key: text("net.ipv4.ip_forward"), value: text("1") }),
        Change::of(Action::Swap { on: false }),
        Change::of(Action::Run {
            argv: vec![text("/usr/bin/make-key")],
            creates: Want::Path(text("/etc/key")),
            undo: Undo::Argv(vec![text("/usr/bin/drop-key")]),
        }),
    ]
}

/// Every file below a folder: its permissions, its owner and its content.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if found.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let below = path.strip_prefix(root).unwrap().to_owned();
            // The record of starts is of the test.
            if below != Path::new("state/starts") {
                let content = content.trim_ascii().to_vec();
                all.insert(below, (found.mode(), found.uid(), content));
            }
        }
    }
    all
}

/// What is there without what is ours.
fn host_tree(root: &Path) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
    let mut all = tree(root);
    all.retain(|path, _| !path.starts_with("var"));
    all
}

fn done(reply: &Reply) {
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}

fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    // The folder of the state of programs is there before.
    fs::create_dir_all(folder.path().join("var/lib")).unwrap();
    folder
}

#[test]
fn pvs_11_actions_on_a_scratch_root_are_done_once_and_undone() {
    let folder = scratch();
    let root = folder.path();
    let first = tree(root);
    let mut host = Scratch::open(root);
    for change in changes() {
        done(&host.act(&change));
    }
    let second = tree(root);
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "after\n");
    assert_eq!(fs::read_to_string(root.join("state/starts")).unwrap(), "start\n");
    for change in changes() {
        done(&host.act(&change));
    }
    assert_eq!(tree(root), second, "twice is once, also in the journal");
    let journal = fs::read_to_string(root.join("var/lib/gantry/journal/mls.jsonl")).unwrap();
    assert!(!journal.contains("hunter2"));
    assert!(!journal.contains(Digest::of(b"hunter2").as_str()));
    assert_eq!(journal.lines().count(), 1 + 2 * changes().len());
    // Another configuration restarts the unit.
    let unit = Action::Unit {
        name: "chrony.service".to_owned(),
        enabled: true,
        active: true,
        config: Some(Digest::of(b"2")),
    };
    done(&host.act(&Change::of(unit)));
    assert_eq!(fs::read_to_string(root.join("state/starts")).unwrap(), "start\nrestart\n");
    let items = destroy(&mut host, "mls").unwrap();
    let is_played =
        |item: &gantry_provision::UndoItem| matches!(item.verdict, UndoVerdict::Play(_));
    assert!(items.iter().all(is_played), "{items:?}");
    assert_eq!(tree(root), first, "the first host, byte for byte");
}

#[test]
fn pvs_18_a_process_that_dies_after_any_action_is_followed_by_another() {
    let expected = {
        let folder = scratch();
        let mut host = Scratch::open(folder.path());
        changes().iter().for_each(|change| done(&host.act(change)));
        host_tree(folder.path())
    };
    for dies_after in 0..changes().len() {
        let folder = scratch();
        let root = folder.path();
        let first = tree(root);
        let mut host = Scratch::open(root);
        changes().iter().take(dies_after + 1).for_each(|change| done(&host.act(change)));
        // The process dies before the end of its last action is on disk: the last line is torn.
        let path = root.join("var/lib/gantry/journal/mls.jsonl");
        let journal = fs::read(&path).unwrap();
        fs::write(&path, &journal[..journal.len() - 7]).unwrap();
        drop(host);
        let mut host = Scratch::open(root);
        changes().iter().for_each(|change| done(&host.act(change)));
        assert_eq!(host_tree(root), expected, "died after action {dies_after}");
        destroy(&mut host, "mls").unwrap();
        assert_eq!(tree(root), first, "died after action {dies_after}, destroyed");
    }
}

#[test]
fn pvs_47_a_lock_is_a_file_that_goes_when_it_is_released() {
    let folder = scratch();
    let first = tree(folder.path());
    let mut host = Scratch::open(folder.path());
    let lock = |run: &str| Lock {
        run: run.to_owned(),
        user: "ops".to_owned(),
        controller: "desk".to_owned(),
        acquired: 0,
        renewed: 0,
    };
    let cluster = || "mls".to_owned();
    let take = |run: &str| Request::Lock { cluster: cluster(), lock: lock(run) };
    done(&host.ask(&take("a"), &[]).unwrap());
    done(&host.ask(&take("a"), &[]).unwrap());
    let mut other = Scratch::open(folder.path());
    let reply = other.ask(&take("b"), &[]).unwrap();
    assert!(matches!(reply, Reply::Held { holder, .. } if holder.run == "a"));
    done(&host.ask(&Request::Unlock { cluster: cluster(), run: "a".to_owned() }, &[]).unwrap());
    assert_eq!(tree(folder.path()), first);
    done(&other.ask(&take("b"), &[]).unwrap());
}

#[test]
fn pvs_11_what_cannot_be_done_says_why_and_is_in_the_journal() {
    let folder = scratch();
    let mut host = Scratch::open(folder.path());
    let text = |text: &str| text.to_owned();
    let run = |program: &str| Action::Run {
        argv: vec![text(program)],
        creates: Want::Path(text("/etc/never")),
        undo: Undo::Argv(vec![text("/usr/bin/drop-key")]),
    };
    let table = [
        (run("/usr/bin/missing"), "could not start"),
        (run("/usr/bin/drop-key"), "ended with 1"),
        (run("/usr/bin/make-key"), "did not make /etc/never"),
        (
            Action::Unit { name: text("no.service"), enabled: true, active: true, config: None },
            "there is no unit no.service",
        ),
        (Action::Sysctl { key: text("../x"), value: text("1") }, "is not the key of a setting"),
        (Action::Directory { path: text("/etc/motd/a"), mode: 0o755 }, "could not make"),
    ];
    for (action, expected) in table {
        let reply = host.act(&Change::of(action));
        let Reply::Failed { error, .. } = reply else { panic!("{expected}: {reply:?}") };
        assert!(error.contains(expected), "{error}");
    }
    let observed = observe(&mut host, vec![Want::Package(text("curl")), Want::Swap]).unwrap();
    assert_eq!(*observed.get(&Want::Swap), State::Present);
    let request = Request::Journal { cluster: text("../../etc/motd") };
    assert!(matches!(host.ask(&request, &[]), Ok(Reply::Failed { .. })), "no way out of the root");
    assert!(host.root.join("etc/motd").exists());
}

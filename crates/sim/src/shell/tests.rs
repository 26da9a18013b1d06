use gantry_process::clock::FakeClock;
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

/// The exit code and the output of a command.
#[derive(Debug, PartialEq, Eq)]
struct CommandResult {
    code: Result<u8, String>,
    out: String,
    err: String,
}

fn hand() -> FakeClock {
    FakeClock::at("2026-11-06T05:06:20Z".parse::<Timestamp>().unwrap())
}

fn context(tty: bool, clock: Clock) -> ShellContext {
    let variables = [("A", "one"), ("B", "two words")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    ShellContext {
        hostname: "web-0".to_owned(),
        variables,
        tty,
        clock,
        files: Mounts::default(),
        root: RootFiles::default(),
        kernel: None,
    }
}

/// Runs a command that gets all of its input at once.
async fn run_with(command: &[&str], input: &[&'static str], tty: bool) -> CommandResult {
    let command: Vec<String> = command.iter().map(|&it| it.to_owned()).collect();
    let (typed, stdin) = mpsc::channel(16);
    for piece in input {
        typed.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
    }
    drop(typed);
    let (stdout, mut out) = mpsc::channel(64);
    let (stderr, mut err) = mpsc::channel(64);
    let stdio = Stdio { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) };
    let context = context(tty, hand().clock());
    let stop = CancellationToken::new();
    // Both outputs are read all the time: a command waits for its reader.
    let running = async { run(&command, &context, stdio, &stop).await };
    let (code, out, err) = tokio::join!(running, read_all(&mut out), read_all(&mut err));
    CommandResult { code, out, err }
}

/// Returns everything that is sent until the other end is gone.
async fn read_all(output: &mut mpsc::Receiver<Bytes>) -> String {
    let mut all = Vec::new();
    while let Some(bytes) = output.recv().await {
        all.extend_from_slice(&bytes);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn programs_do_what_they_are_known_for() {
    let table: [(&[&str], u8, &str, &str); 21] = [
        (&["true"], 0, "", ""),
        (&["false"], 1, "", ""),
        (&["/bin/echo", "a", "b  c"], 0, "a b  c\n", ""),
        (&["echo", "-n", "a"], 0, "a", ""),
        (&["echo"], 0, "\n", ""),
        (&["cat"], 0, "typed\nmore", ""),
        (&["cat", "/etc/hostname", "-"], 0, "web-0\ntyped\nmore", ""),
        (&["cat", "x"], 1, "", "cat: can't open 'x': No such file or directory\n"),
        (&["cat", "/tmp"], 1, "", "cat: read error: Is a directory\n"),
        (&["env"], 0, "A=one\nB=two words\n", ""),
        (&["printenv", "B", "C"], 1, "two words\n", ""),
        (&["ls", "/etc"], 0, "hostname\n", ""),
        (&["ls", "-a", "usr", "/etc/hostname"], 0, "usr:\nbin\n/etc/hostname\n", ""),
        (&["ls", "/x"], 1, "", "ls: /x: No such file or directory\n"),
        (&["ls", "-l"], 1, "", "ls: option -l is not simulated\n"),
        (&["pwd"], 0, "/\n", ""),
        (&["/usr/bin/hostname"], 0, "web-0\n", ""),
        (&["date"], 0, "Fri Nov  6 05:06:20 UTC 2026\n", ""),
        (&["date", "-u", "+%Y-%m"], 0, "2026-11\n", ""),
        (&["date", "+%"], 1, "", "date: invalid format '%'\n"),
        (&["sleep", "x"], 1, "", "sleep: invalid number 'x'\n"),
    ];
    for (command, code, out, err) in table {
        let ended = run_with(command, &["typed\n", "more"], false).await;
        let expected = CommandResult { code: Ok(code), out: out.to_owned(), err: err.to_owned() };
        assert_eq!(ended, expected, "{command:?}");
    }
}

#[tokio::test]
async fn a_missing_program_is_a_runtime_error() {
    let start = "OCI runtime exec failed: exec failed: unable to start container process: exec: ";
    let table: [(&[&str], &str); 4] = [
        (&["tar", "cf"], "\"tar\": executable file not found in $PATH"),
        (&["exit", "3"], "\"exit\": executable file not found in $PATH"),
        (&["/opt/x"], "\"/opt/x\": stat /opt/x: no such file or directory"),
        (&[], "no command"),
    ];
    for (command, words) in table {
        let ended = run_with(command, &[], false).await;
        assert_eq!(ended.code, Err(format!("{start}{words}")), "{command:?}");
        assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    }
}

#[tokio::test]
async fn a_shell_runs_lists() {
    let table: [(&str, u8, &str, &str); 32] = [
        ("echo a; echo b", 0, "a\nb\n", ""),
        ("true && echo yes || echo no", 0, "yes\n", ""),
        ("false && echo yes || echo no", 0, "no\n", ""),
        ("false; echo $?", 0, "1\n", ""),
        ("false || exit 3; echo never", 3, "", ""),
        ("exit 300", 44, "", ""),
        ("exit x", 2, "", "sh: exit: Illegal number: x\n"),
        ("false; exit", 1, "", ""),
        ("foo bar", 127, "", "sh: foo: not found\n"),
        ("foo; echo after", 0, "after\n", "sh: foo: not found\n"),
        ("if true; then echo a; else echo b; fi", 0, "a\n", ""),
        ("if [ -e /none ]; then echo a; else echo b; fi && echo c", 0, "b\nc\n", ""),
        ("if [ -d /etc ]; then false; fi || echo failed", 0, "failed\n", ""),
        ("if false; then echo a; fi && echo none", 0, "none\n", ""),
        ("false && if true; then echo a; fi || echo b", 0, "b\n", ""),
        ("if true; then\nif false; then echo a; fi\necho b\nfi", 0, "b\n", ""),
        ("set -e; if false; then echo a; fi; echo b; false; echo c", 1, "b\n", ""),
        ("[ ! -f /etc ] && test a = a && [ -n b ] && [ a != b ]", 0, "", ""),
        ("echo 'if' then", 0, "if then\n", ""),
        (
            "if true; then echo a",
            2,
            "",
            "sh: syntax error: unexpected end of file (expecting \"fi\")\n",
        ),
        ("echo a; fi", 2, "", "sh: syntax error: unexpected \"fi\"\n"),
        ("if true; else echo a; fi", 2, "", "sh: syntax error: unexpected \"else\"\n"),
        ("[ -e /etc", 2, "", "sh: missing ]\n"),
        ("[ -x /etc ]", 2, "", "sh: [: -x: this test is not simulated\n"),
        ("echo \"$A $B\" '$A'", 0, "one two words $A\n", ""),
        ("X='a  b'; echo $X \"$X\"; unset X; echo [$X]", 0, "a b a  b\n[]\n", ""),
        ("export X=1; printenv X", 0, "1\n", ""),
        ("cd /usr && pwd; cd bin; pwd; cd ../..; pwd", 0, "/usr\n/usr/bin\n/\n", ""),
        ("cd x", 2, "", "sh: cd: can't cd to x: No such file or directory\n"),
        ("cat", 0, "typed\nmore", ""),
        ("echo 'a", 2, "", "sh: syntax error: unterminated quoted string\n"),
        ("echo a | cat", 2, "", "sh: \"|\" is not simulated\n"),
    ];
    for (text, code, out, err) in table {
        let ended = run_with(&["/bin/sh", "-c", text], &["typed\n", "more"], false).await;
        let expected = CommandResult { code: Ok(code), out: out.to_owned(), err: err.to_owned() };
        assert_eq!(ended, expected, "{text}");
    }
    let ended = run_with(&["sh", "-c"], &[], false).await;
    assert_eq!((ended.code, ended.err.as_str()), (Ok(2), "sh: -c requires an argument\n"));
    let ended = run_with(&["sh", "x.sh"], &[], false).await;
    assert_eq!(ended.err, "sh: can't open 'x.sh': No such file or directory\n");
}

#[tokio::test]
async fn a_shell_runs_what_is_typed() {
    let input = ["echo a\nec", "ho b\ncat\nrest ", "of it"];
    let ended = run_with(&["sh"], &input, false).await;
    assert_eq!((ended.code, ended.out.as_str()), (Ok(0), "a\nb\nrest of it"));
    let ended = run_with(&["sh"], &["false\n", "exit\n", "echo never\n"], false).await;
    assert_eq!((ended.code, ended.out.as_str()), (Ok(1), ""));
}

#[tokio::test]
async fn a_terminal_shows_what_is_typed() {
    let ended = run_with(&["sh"], &["pwx\x7fd\r", "\x03", "foo\rexit 4\r"], true).await;
    let shown =
        "/ # pwx\x08 \x08d\r\n/\r\n/ # ^C\r\n/ # foo\r\nexit 4\r\nsh: foo: not found\r\n/ # ";
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Ok(4), shown, ""));
    let ended = run_with(&["sh"], &["cat\rhi\r\x04\x04"], true).await;
    assert_eq!(ended.out, "/ # cat\r\nhi\r\nhi\r\n/ # ");
    assert_eq!(ended.code, Ok(0));
}

#[tokio::test]
async fn sleeping_ends_with_its_time_a_key_or_the_client() {
    enum How {
        Time,
        Key,
        Stop,
    }
    for (how, expected) in [(How::Time, 0), (How::Key, 130), (How::Stop, KILLED_EXIT_CODE)] {
        let (hand, stop) = (hand(), CancellationToken::new());
        let context = context(true, hand.clock());
        let (typed, stdin) = mpsc::channel(4);
        let stdio = Stdio { stdin: Some(stdin), ..Stdio::default() };
        let command = ["sleep", "1.5m"].map(str::to_owned);
        let run = run(&command, &context, stdio, &stop);
        let (code, ()) = tokio::join!(run, async {
            tokio::task::yield_now().await;
            match how {
                How::Time => hand.advance(std::time::Duration::from_secs(90)).await,
                How::Key => typed.send(Bytes::from_static(b"x\x03")).await.unwrap(),
                How::Stop => stop.cancel(),
            }
        });
        assert_eq!(code, Ok(expected));
    }
}

#[tokio::test]
async fn a_reader_that_stops_reading_stops_the_writer() {
    let (stdout, mut out) = mpsc::channel(1);
    let (typed, stdin) = mpsc::channel(1);
    let stdio = Stdio { stdin: Some(stdin), stdout: Some(stdout), stderr: None };
    let (context, stop) = (context(false, hand().clock()), CancellationToken::new());
    let command = ["cat".to_owned()];
    let copied = run(&command, &context, stdio, &stop);
    let client = async {
        let mut sent = 0;
        // One chunk is with the reader, one in each channel: no more is accepted than that.
        while typed.try_send(Bytes::from_static(b"x")).is_ok() {
            sent += 1;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        assert!(sent <= 4, "{sent} chunks were read without a reader");
        drop(typed);
        let mut heard = 0;
        while out.recv().await.is_some() {
            heard += 1;
        }
        (sent, heard)
    };
    let (code, (sent, heard)) = tokio::join!(copied, client);
    assert_eq!((code, heard), (Ok(0), sent));
}

#[tokio::test]
async fn variables_do_not_grow_without_end() {
    let doubling = "A=$A$A;".repeat(200);
    let ended = run_with(&["sh", "-c", &doubling], &[], false).await;
    assert_eq!((ended.code, ended.err.as_str()), (Ok(2), "sh: argument list too long\n"));
    let many: String = (0..1_100).map(|it| format!("X{it}=1;")).collect();
    let ended = run_with(&["sh", "-c", &many], &[], false).await;
    assert_eq!(ended.code, Ok(2));
    assert!(ended.err.starts_with("sh: too many variables\n"), "{}", ended.err);
}

proptest! {
    /// No script makes the shell panic, and every one ends.
    #[test]
    fn any_script_ends(text in r#"([a-z $"';&|\\\n=]|echo|cat|exit |cd |ls |date \+%){0,30}"#) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = runtime.block_on(run_with(&["sh", "-c", &text], &["typed"], false));
        prop_assert!(ended.code.is_ok());
    }
}

/// Commands in a container that is a program see its volumes, and no other files.
#[tokio::test]
async fn files_of_volumes_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("password"), "s3cret\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", volume.join("out")).unwrap();
    let files = Mounts::with_root(folder.path()).with_mount("/etc/sec", &volume, "");
    let mut context = context(false, Clock::system());
    context.files = files.unwrap();
    let ask = async |command: &[&str]| {
        let (sender, mut output) = mpsc::channel(64);
        let stdio = Stdio { stdin: None, stdout: Some(sender.clone()), stderr: Some(sender) };
        let command: Vec<String> = command.iter().map(|it| (*it).to_owned()).collect();
        let never = CancellationToken::new();
        let code = run(&command, &context, stdio, &never).await.unwrap();
        let mut said = String::new();
        while let Ok(bytes) = output.try_recv() {
            said.push_str(&String::from_utf8_lossy(&bytes));
        }
        (code, said)
    };
    assert_eq!(ask(&["cat", "/etc/sec/password"]).await, (0, "s3cret\n".to_owned()));
    assert_eq!(ask(&["ls", "/etc/sec"]).await, (0, "out\npassword\n".to_owned()));
    assert_eq!(ask(&["ls", "/etc/sec/password"]).await.0, 0);
    let missing = "cat: can't open '/etc/sec/none': No such file or directory\n".to_owned();
    assert_eq!(ask(&["cat", "/etc/sec/none"]).await, (1, missing));
    let (code, said) = ask(&["cat", "/etc/sec/out"]).await;
    assert!(code == 1 && !said.contains("root:"), "a link leads out of the volume: {said}");
    assert_eq!(ask(&["cat", "/etc/passwd"]).await.0, 1, "no file of this machine");
}

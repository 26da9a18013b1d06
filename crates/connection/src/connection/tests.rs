//! Tests of local commands, and of `ssh` and `sudo` replaced by scripts that behave like them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;
use crate::secret::Secret;
use crate::target::SshTarget;

/// Programs that are found before those of the system.
struct Programs {
    folder: TempDir,
}

impl Programs {
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in("/tmp").unwrap() }
    }

    fn with(self, name: &str, script: &str) -> Self {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn connection(&self, transport: Transport) -> Connection {
        let folder = self.folder.path();
        let mut random = fastrand::Rng::with_seed(5);
        let control_folder = ControlFolder::create(&[folder.to_path_buf()], &mut random).unwrap();
        let settings = Settings {
            environment: [
                ("PATH".to_owned(), format!("{}:/usr/bin:/bin", folder.display())),
                ("HOME".to_owned(), folder.display().to_string()),
            ]
            .into(),
            control_folder: Arc::new(control_folder),
            clock: Clock::system(),
        };
        let target = Target { name: "a".to_owned(), transport };
        Connection::new(target, settings, random).unwrap()
    }
}

fn ssh() -> Transport {
    Transport::Ssh(SshTarget { host: "a".to_owned(), ..SshTarget::default() })
}

fn request(words: &[&str]) -> Request<'static> {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Request { words, ..Request::default() }
}

fn password(text: &str) -> Become {
    let password = Secret::new(Zeroizing::new(text.as_bytes().to_vec()));
    Become { user: "root".to_owned(), password: Some(password) }
}

/// `ssh` as this crate uses it: the last argument is a command for the login shell, which greets.
const SSH: &str = "for command; do :; done; echo Welcome; echo warning >&2; eval \"$command\"";

/// `sudo` with the password `right`: it reads single bytes, as the real one does.
const SUDO: &str = r#"
while :; do
    case $1 in
        -p) prompt=$2; shift 2 ;;
        -u) shift 2 ;;
        -n) echo 'sudo: a password is required' >&2; exit 1 ;;
        --) shift; break ;;
        *) shift ;;
    esac
done
for attempt in 1 2 3; do
    printf %s "$prompt" >&2
    read -r password || { echo 'sudo: no password was provided' >&2; exit 1; }
    if [ "$password" = right ]; then exec "$@"; fi
    echo 'Sorry, try again.' >&2
done
exit 1
"#;

#[tokio::test]
async fn words_output_messages_and_codes_are_exact() {
    let programs = Programs::new().with("ssh", SSH);
    for transport in [Transport::Local, ssh()] {
        let is_local = matches!(transport, Transport::Local);
        let connection = programs.connection(transport);
        let words = ["printf", "%s|", "it's", "a b", "", "$HOME", "\\n", "!x", "ä\nö"];
        let result = connection.run(&request(&words)).await.unwrap();
        let expected = "it's|a b||$HOME|\\n|!x|ä\nö|";
        assert_eq!((result.code, String::from_utf8(result.stdout).unwrap()), (0, expected.into()));
        let preamble = if is_local { "" } else { "Welcome\nwarning\n" };
        assert_eq!(result.preamble, preamble);
        for code in [0, 1, 2, 127, 255] {
            let script = format!("echo out; echo err >&2; exit {code}");
            let result = connection.run(&request(&["sh", "-c", &script])).await.unwrap();
            assert_eq!((result.code, &result.stdout[..]), (code, &b"out\n"[..]));
            assert_eq!(result.stderr, "err\n");
        }
        let killed = connection.run(&request(&["sh", "-c", "kill -9 $$"])).await.unwrap();
        assert_eq!(killed.code, 137);
    }
}

#[tokio::test]
async fn a_connection_that_is_lost_is_no_exit_code() {
    let lost = "for c; do :; done; case $c in *1234*) (eval \"$c\"); exit 255 ;; esac";
    let programs = Programs::new().with("ssh", &format!("{lost}\n{SSH}"));
    let connection = programs.connection(ssh());
    // The script ends before the trailer, as when the network goes away.
    let words = ["sh", "-c", "echo some; : 1234; kill -9 $PPID"];
    let error = connection.run(&request(&words)).await.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("ConnectionLost", 4), "{error}");
    assert_eq!(error.line(), connection.line().as_deref());
}

#[tokio::test]
async fn input_of_any_size_arrives() {
    let programs = Programs::new().with("ssh", SSH).with("sudo", SUDO);
    let right = password("right");
    for r#become in [None, Some(&right)] {
        let connection = programs.connection(ssh());
        let input: Vec<u8> = (0..400_000_u32).map(|it| it.to_le_bytes()[0]).collect();
        let request = Request { r#become, ..request(&["cat"]) };
        let mut output = Vec::new();
        let result = connection.transfer(&request, &mut &input[..], Some(&mut output)).await;
        assert_eq!(result.unwrap().code, 0);
        assert!(output == input, "{} of {} bytes", output.len(), input.len());
    }
}

#[tokio::test]
async fn pvs_4_sudo_asks_once_for_the_password() {
    let programs = Programs::new().with("sudo", SUDO);
    let connection = programs.connection(Transport::Local);
    let right = password("right");
    let request = Request { r#become: Some(&right), ..request(&["echo", "in"]) };
    let result = connection.run(&request).await.unwrap();
    assert_eq!((result.code, &result.stdout[..]), (0, &b"in\n"[..]));
    assert_eq!(result.preamble, "", "the prompt is not shown");
    let wrong = password("wrong");
    let none = Become { user: "root".to_owned(), password: None };
    let table = [(&wrong, "SudoWrongPassword"), (&none, "SudoPasswordRequired")];
    for (r#become, reason) in table {
        let request = Request { r#become: Some(r#become), ..request.clone() };
        let error = connection.run(&request).await.unwrap_err();
        assert_eq!((error.reason(), error.exit_code()), (reason, 2), "{error}");
    }
    let odd = Become { user: "-x".to_owned(), password: None };
    let request = Request { r#become: Some(&odd), ..request };
    assert_eq!(connection.run(&request).await.unwrap_err().reason(), "InvalidTarget");
}

/// What the programs are started with: their arguments and environments, through every layer.
#[tokio::test]
async fn pvs_46_no_argument_or_environment_has_the_password() {
    let record = "tr '\\0' '\\n' </proc/$$/cmdline >>\"$HOME/record\"; \
                  tr '\\0' '\\n' </proc/$$/environ >>\"$HOME/record\"; ";
    let programs = Programs::new()
        .with("ssh", &format!("{record}{SSH}"))
        .with("sudo", &format!("{record}{}", SUDO.replace("right", "s3cr3t-$((1+1))")));
    let connection = programs.connection(ssh());
    let secret = password("s3cr3t-2");
    let words = ["sh", "-c", &format!("{record} echo done")];
    let request = Request { r#become: Some(&secret), ..request(&words) };
    let result = connection.run(&request).await.unwrap();
    assert_eq!(result.stdout, b"done\n");
    let recorded = fs::read_to_string(programs.folder.path().join("record")).unwrap();
    assert!(recorded.contains("sudo") && recorded.contains("LC_ALL=C"), "{recorded}");
    assert!(!recorded.contains("s3cr3t-2"), "{recorded}");
    assert!(!format!("{secret:?}{connection:?}{request:?}").contains("s3cr3t"));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_left() {
    let programs = Programs::new();
    let connection = programs.connection(Transport::Local);
    let limit = Some(Duration::from_millis(1));
    let request = Request { limit, ..request(&["sleep", "1000"]) };
    let error = connection.run(&request).await.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("CommandTimedOut", 2));
}

#[tokio::test]
async fn frames_go_both_ways() {
    let programs = Programs::new().with("ssh", SSH);
    let connection = programs.connection(ssh());
    let mut session = connection.session(&request(&["cat"])).await.unwrap();
    assert_eq!(session.preamble(), "Welcome\nwarning\n");
    for message in [&b"one"[..], b"", &[7; 100_000]] {
        session.send_frame(message).await.unwrap();
        assert_eq!(session.receive_frame().await.unwrap().as_deref(), Some(message));
    }
    let (end, messages) = session.finish(&Clock::system(), Duration::from_secs(60)).await.unwrap();
    assert_eq!((end.code(), messages.as_str()), (0, ""));
    let mut session = connection.session(&request(&["echo", "Hello"])).await.unwrap();
    let error = session.receive_frame().await.unwrap_err();
    assert_eq!(error.reason(), "ProtocolError");
}

#[tokio::test]
async fn programs_that_are_missing_are_named() {
    let programs = Programs::new();
    let connection = programs.connection(ssh());
    let mut settings = connection.settings.clone();
    settings.environment.insert("PATH".to_owned(), "/missing".to_owned());
    let random = fastrand::Rng::with_seed(1);
    let connection = Connection::new(connection.target.clone(), settings, random).unwrap();
    let error = connection.run(&request(&["true"])).await.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("ProgramMissing", 1));
    assert_eq!(error.to_string(), "could not start ssh");
    assert!(Path::new("/bin/sh").exists());
}

//! Runs the tests and prints which of them took longest.
//!
//! Cargo starts each test program through a runner, which is this program again. The runner asks
//! the test program for the time of each test, passes its output on, and records the times.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context as _;
use regex::Regex;

/// How many of the slowest tests are printed.
const SLOWEST: usize = 10;
/// The variable with the file in which runners record times.
const TIMES_FILE: &str = "GANTRY_TEST_TIMES";
/// The word by which cargo starts this program as a runner.
pub(crate) const RUNNER: &str = "test-runner";

/// The time that one test took.
#[derive(Debug, Clone, PartialEq)]
struct TestTime {
    /// The test program, without the hash that cargo appends.
    program: String,
    /// The path of the test in its program.
    test: String,
    /// Its time in seconds.
    seconds: f64,
}

/// Runs `cargo test` with these arguments, or for the whole workspace; false if a test fails.
pub(crate) fn run(root: &Path, words: &[String], out: &mut impl Write) -> anyhow::Result<bool> {
    let folder = std::env::temp_dir().join(format!("gantry-test-times-{}", std::process::id()));
    File::create(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    let runner = std::env::current_exe().context("could not find this program")?;
    let mut command = Command::new("cargo");
    command.arg("test").current_dir(root).env(TIMES_FILE, &folder);
    command.env(runner_variable()?, format!("{} {RUNNER}", runner.display()));
    match words {
        [] => command.arg("--workspace"),
        words => command.args(words),
    };
    let status = command.status().context("could not run cargo test");
    let times = std::fs::read_to_string(&folder);
    std::fs::remove_file(&folder).with_context(|| format!("could not remove {folder:?}"))?;
    let times = times.context("could not read the times of tests")?;
    write!(out, "{}", summary(&parse_records(&times)))?;
    Ok(status?.success())
}

/// Runs one test program as cargo's runner, and records the times of its tests.
pub(crate) fn run_program(words: &[OsString]) -> anyhow::Result<ExitStatus> {
    let (program, arguments) = words.split_first().context("no program to run")?;
    let program = PathBuf::from(program);
    let mut command = Command::new(&program);
    command.args(arguments);
    #[expect(clippy::disallowed_methods, reason = "cargo passes nothing but variables to a runner")]
    let times_file = std::env::var_os(TIMES_FILE);
    let Some(times_file) = times_file.filter(|_| prints_times(&program)) else {
        return command.status().with_context(|| format!("could not run {}", program.display()));
    };
    // The option for times is not stable. The variable permits it to the test program alone: were
    // it set for the compiler, everything would be built again.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
    if std::io::stdout().is_terminal() {
        command.arg("--color=always");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not run {}", program.display()))?;
    let output = child.stdout.take().context("the test program has no output")?;
    let text = pass_on(output, &mut std::io::stdout())?;
    let status = child.wait().context("could not wait for the test program")?;
    let mut file = OpenOptions::new().append(true).open(times_file)?;
    for time in parse_output(&name_of(&program), &text)? {
        writeln!(file, "{}\t{}\t{}", time.seconds, time.program, time.test)?;
    }
    Ok(status)
}

/// Whether a program understands the option for times. Programs of doc tests do not; only the
/// others are in the folder `deps`.
fn prints_times(program: &Path) -> bool {
    program.parent().is_some_and(|folder| folder.ends_with("deps"))
}

/// Copies `input` to `out` as it comes, and returns all of it.
fn pass_on(mut input: impl Read, out: &mut impl Write) -> anyhow::Result<String> {
    let mut all = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(String::from_utf8_lossy(&all).into_owned()),
            count => {
                let part = buffer.get(..count).unwrap_or_default();
                out.write_all(part)?;
                out.flush()?;
                all.extend_from_slice(part);
            }
        }
    }
}

/// Returns the name of a test program without folder and hash.
fn name_of(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 => name.to_owned(),
        _ => name,
    }
}

/// Finds the times in the output of a test program.
fn parse_output(program: &str, text: &str) -> anyhow::Result<Vec<TestTime>> {
    // A test that panics as it should has a remark behind its name; colours are escape sequences.
    let line = Regex::new(
        r"(?m)^test (\S+)(?: - should panic)? \.\.\. .*?<([0-9]+\.[0-9]+)s>(?:\x1b\[\S*)?\r?$",
    )?;
    let time = |found: regex::Captures<'_>| {
        let seconds = found[2].parse().ok()?;
        Some(TestTime { program: program.to_owned(), test: found[1].to_owned(), seconds })
    };
    Ok(line.captures_iter(text).filter_map(time).collect())
}

/// Reads what runners recorded.
fn parse_records(text: &str) -> Vec<TestTime> {
    let record = |line: &str| {
        let mut fields = line.split('\t');
        let seconds = fields.next()?.parse().ok()?;
        let (program, test) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some(TestTime { program, test, seconds })
    };
    text.lines().filter_map(record).collect()
}

/// Describes the slowest tests, slowest first; nothing if there are no times.
fn summary(times: &[TestTime]) -> String {
    if times.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<&TestTime> = times.iter().collect();
    sorted.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let total: f64 = times.iter().map(|time| time.seconds).sum();
    let shown = sorted.len().min(SLOWEST);
    let mut text = format!("the {shown} slowest of {} tests ({total:.0} s in all):\n", times.len());
    for time in sorted.iter().take(SLOWEST) {
        text += &format!("{:>8.1} s  {} {}\n", time.seconds, time.program, time.test);
    }
    text
}

/// Returns the variable that names cargo's runner on this machine.
fn runner_variable() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("could not run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(test: &str, seconds: f64) -> TestTime {
        TestTime { program: "it".to_owned(), test: test.to_owned(), seconds }
    }

    #[test]
    fn times_are_found_in_output() {
        let text = "\nrunning 4 tests\ntest a::quick ... ok <0.001s>\n\
                    test b - should panic ... ok <0.250s>\n\
                    test c ... \x1b[31mFAILED\x1b[m <12.345s>\n\
                    test d ... ignored\nsome test said ... ok <1.000s>\n";
        let found = parse_output("it", text).unwrap();
        assert_eq!(found, [time("a::quick", 0.001), time("b", 0.25), time("c", 12.345)]);
    }

    #[test]
    fn the_slowest_come_first() {
        let times: Vec<TestTime> =
            (0..12).map(|it| time(&format!("t{it}"), f64::from(it))).collect();
        let text = summary(&times);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "the 10 slowest of 12 tests (66 s in all):");
        assert_eq!(lines[1], "    11.0 s  it t11");
        assert_eq!(lines.len(), 11);
        assert_eq!(summary(&[]), "");
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        assert_eq!(parse_records("0.5\tit\ta::b\nnonsense\n"), [time("a::b", 0.5)]);
    }

    #[test]
    fn programs_are_named_without_their_hash() {
        let table = [
            // why                       path                                     name
            ("a hash is left out", "/t/debug/deps/it-0123456789abcdef", "it"),
            ("dashes stay", "/t/debug/deps/unread-watches-0123456789abcdef", "unread-watches"),
            ("no hash", "/t/debug/deps/plain", "plain"),
        ];
        for (why, path, name) in table {
            assert_eq!(name_of(Path::new(path)), name, "{why}");
        }
        assert!(prints_times(Path::new("/t/debug/deps/it-0123456789abcdef")));
        assert!(!prints_times(Path::new("/tmp/rustdoctest/rust_out")));
    }

    #[test]
    fn output_is_passed_on_unchanged() {
        let mut out = Vec::new();
        let text = pass_on(&b"one\ntwo"[..], &mut out).unwrap();
        assert_eq!((text.as_str(), out.as_slice()), ("one\ntwo", &b"one\ntwo"[..]));
    }
}

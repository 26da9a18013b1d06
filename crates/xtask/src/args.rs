//! Parses the command line.

use std::path::PathBuf;

use crate::generate::Mode;
use crate::image::{self, ImageOptions};

/// The text of `cargo xtask --help`.
pub(crate) const HELP: &str = "\
The chores of this repository.

Usage: cargo xtask <command>

Commands:
  gen            Write every generated file, and delete stale ones
  gen --check    Write nothing; show what differs and fail if anything does
  freeze GROUP/VERSION
                 Publish a version: freeze a copy of it that tidy compares from then on
  tidy           Check the rules of this repository that no compiler checks
  kubernetes-schemas FILE
                 Take the schemas of embedded Kubernetes types from FILE, the merged OpenAPI v3
                 documents of an API server of the pinned release
  test [ARGS…]   Run `cargo test` for the workspace or with ARGS, and print the slowest tests
  image [--binary FILE] [--output FILE] [--tag NAME] [--must-gather]
                 Write the container image of the release binary, or of FILE, as an OCI archive;
                 with --must-gather the one for `oc adm must-gather`, which has a shell and tar
  crates         Check that every crate builds alone
  ci             Run every step of CI in order; stop at the first that fails
  help           Print this text

Exit status: 0 when all is well, 1 when something was found, 2 for an unknown command.
";

/// One command, with its options checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print [`HELP`].
    Help,
    /// Bring generated files up to date, or say which are not.
    Gen(Mode),
    /// Keep a copy of this version, which never changes from then on.
    Freeze(String),
    /// Check the repository's rules.
    Tidy,
    /// Refresh the schemas of embedded Kubernetes types from this file.
    KubernetesSchemas(PathBuf),
    /// Run the tests with these arguments of `cargo test`.
    Test(Vec<String>),
    /// Write the container image.
    Image(ImageOptions),
    /// Build every crate alone.
    Crates,
    /// Run every step of CI.
    Ci,
}

/// Reads the words after the program's name; the error is a sentence for the user.
pub(crate) fn parse(words: &[String]) -> Result<Command, String> {
    if let [command, rest @ ..] = words
        && command == "test"
    {
        return Ok(Command::Test(rest.to_vec()));
    }
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return Ok(Command::Help);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => Err("which command?".to_owned()),
        ["help"] => Ok(Command::Help),
        ["gen"] => Ok(Command::Gen(Mode::Write)),
        ["gen", "--check"] => Ok(Command::Gen(Mode::Check)),
        ["freeze", version] => Ok(Command::Freeze((*version).to_owned())),
        ["freeze"] => Err("which version? Say GROUP/VERSION".to_owned()),
        ["tidy"] => Ok(Command::Tidy),
        ["kubernetes-schemas", file] => Ok(Command::KubernetesSchemas(PathBuf::from(file))),
        ["kubernetes-schemas"] => {
            Err("which file? See the help on `kubernetes-schemas`".to_owned())
        }
        ["image", rest @ ..] => image::parse(rest).map(Command::Image),
        ["crates"] => Ok(Command::Crates),
        ["ci"] => Ok(Command::Ci),
        ["gen" | "freeze" | "tidy" | "crates" | "ci" | "help", rest @ ..] => {
            Err(format!("cannot read `{}` after `{}`", rest.join(" "), words[0]))
        }
        [other, ..] => Err(format!("unknown command `{other}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_commands() {
        let table = [
            // why                                words                    expected
            ("gen writes by default", "gen", Ok(Command::Gen(Mode::Write))),
            ("gen can only look", "gen --check", Ok(Command::Gen(Mode::Check))),
            ("tidy takes nothing", "tidy", Ok(Command::Tidy)),
            ("freeze takes a version", "freeze a/v1", Ok(Command::Freeze("a/v1".to_owned()))),
            ("and needs one", "freeze", Err("which version? Say GROUP/VERSION".to_owned())),
            ("ci takes nothing", "ci", Ok(Command::Ci)),
            ("crates takes nothing", "crates", Ok(Command::Crates)),
            ("image takes nothing", "image", Ok(Command::Image(ImageOptions::default()))),
            (
                "image takes files and a name",
                "image --binary a --output b --tag v1",
                Ok(Command::Image(ImageOptions {
                    binary: Some("a".into()),
                    output: Some("b".into()),
                    tag: Some("v1".to_owned()),
                    must_gather: false,
                })),
            ),
            (
                "there is another image",
                "image --must-gather --tag v1",
                Ok(Command::Image(ImageOptions {
                    tag: Some("v1".to_owned()),
                    must_gather: true,
                    ..ImageOptions::default()
                })),
            ),
            ("with values", "image --binary", Err("--binary needs a value".to_owned())),
            (
                "and nothing else",
                "image --binari a",
                Err("cannot read `--binari` after `image`".to_owned()),
            ),
            (
                "names are checked",
                "image --tag a:b:c",
                Err("--tag \"a:b:c\" is neither a tag nor the name of an image".to_owned()),
            ),
            ("test takes nothing", "test", Ok(Command::Test(Vec::new()))),
            (
                "test passes everything on",
                "test -p gantry-queue -- --help",
                Ok(Command::Test(["-p", "gantry-queue", "--", "--help"].map(String::from).into())),
            ),
            ("help wins wherever it stands", "gen --help", Ok(Command::Help)),
            ("the short flag works", "-h", Ok(Command::Help)),
            ("help is a command too", "help", Ok(Command::Help)),
            ("nothing is a mistake", "", Err("which command?".to_owned())),
            (
                "a stray option is refused",
                "gen --chekc",
                Err("cannot read `--chekc` after `gen`".to_owned()),
            ),
            ("an unknown command is named", "lint", Err("unknown command `lint`".to_owned())),
        ];
        for (why, words, expected) in table {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(parse(&words), expected, "{why}");
        }
    }

    #[test]
    fn help_names_every_command() {
        let commands =
            ["gen", "gen --check", "freeze", "tidy", "test", "image", "crates", "ci", "help"];
        for command in commands {
            assert!(HELP.contains(&format!("\n  {command} ")), "{command}");
        }
    }
}

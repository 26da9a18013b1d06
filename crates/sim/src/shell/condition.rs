//! `if`, `then`, `else` and `fi`, and the program `test`.

use super::commands::{self, exists};
use super::parser::{RunCondition, ShellCommand};
use super::{Shell, USAGE_EXIT_CODE};

/// A reserved word of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservedWord {
    If,
    Then,
    Else,
    Fi,
}

impl ReservedWord {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "if" => Some(Self::If),
            "then" => Some(Self::Then),
            "else" => Some(Self::Else),
            "fi" => Some(Self::Fi),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Then => "then",
            Self::Else => "else",
            Self::Fi => "fi",
        }
    }
}

/// The branch of an `if` that is read, or its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfBranch {
    Condition,
    Then,
    Else,
}

/// An `if` that has begun.
#[derive(Debug)]
struct IfBlock {
    branch: IfBranch,
    /// Whether it is run at all.
    is_run: bool,
    /// Whether its condition holds.
    holds: bool,
}

/// The `if`s around a command, from the outside in.
#[derive(Debug, Default)]
pub(super) struct IfBlocks(Vec<IfBlock>);

impl IfBlocks {
    /// Whether a command here is run, as far as the `if`s around it decide.
    pub(super) fn are_run(&self) -> bool {
        self.0.iter().all(|block| {
            block.is_run
                && match block.branch {
                    IfBranch::Condition => true,
                    IfBranch::Then => block.holds,
                    IfBranch::Else => !block.holds,
                }
        })
    }

    /// Whether a command here is part of a condition: its failure is none of the script.
    pub(super) fn is_condition(&self) -> bool {
        self.0.iter().any(|block| block.branch == IfBranch::Condition)
    }

    /// Takes the reserved words before a command. `code` is the exit code of the last command, and
    /// of the `if` when it has ended.
    pub(super) fn enter(
        &mut self,
        command: &mut ShellCommand,
        code: &mut u8,
    ) -> Result<(), String> {
        while let Some(word) = command.take_reserved_word() {
            let unexpected = || format!("syntax error: unexpected \"{}\"", word.as_str());
            if word == ReservedWord::If {
                let is_run = self.are_run() && command.when.is_met(*code);
                self.0.push(IfBlock { branch: IfBranch::Condition, is_run, holds: false });
                command.when = RunCondition::Always;
                continue;
            }
            let block = self.0.last_mut().ok_or_else(unexpected)?;
            let follows = command.when == RunCondition::Always;
            match (word, block.branch) {
                (ReservedWord::Then, IfBranch::Condition) if follows => {
                    block.branch = IfBranch::Then;
                    block.holds = *code == 0;
                    if block.is_run {
                        // Of an `if` whose commands are not run.
                        *code = 0;
                    }
                }
                (ReservedWord::Else, IfBranch::Then) if follows => block.branch = IfBranch::Else,
                (ReservedWord::Fi, IfBranch::Then | IfBranch::Else) if follows => {
                    self.0.pop();
                }
                (
                    ReservedWord::If | ReservedWord::Then | ReservedWord::Else | ReservedWord::Fi,
                    IfBranch::Condition | IfBranch::Then | IfBranch::Else,
                ) => return Err(unexpected()),
            }
        }
        Ok(())
    }

    /// Checks that the `if`s of a list are complete, before any of it is run.
    pub(super) fn check(commands: &[ShellCommand]) -> Result<(), String> {
        let mut blocks = Self::default();
        for command in commands {
            blocks.enter(&mut command.clone(), &mut 0)?;
        }
        match blocks.0.is_empty() {
            true => Ok(()),
            false => Err("syntax error: unexpected end of file (expecting \"fi\")".to_owned()),
        }
    }
}

impl Shell<'_> {
    /// Runs `test`, or `[` whose last argument is `]`.
    pub(super) async fn test(&mut self, name: &str, arguments: &[&str]) -> u8 {
        let arguments = match (name, arguments) {
            ("[", [arguments @ .., "]"]) => arguments,
            ("[", _) => return self.fail("sh: missing ]", USAGE_EXIT_CODE).await,
            (_, arguments) => arguments,
        };
        let (is_negated, arguments) = match arguments {
            ["!", arguments @ ..] if !arguments.is_empty() => (true, arguments),
            arguments => (false, arguments),
        };
        let holds = match arguments {
            [] => false,
            [text] | ["-n", text] => !text.is_empty(),
            ["-z", text] => text.is_empty(),
            ["-e", path] => self.is_file(path).await || self.is_directory(path).await,
            ["-f", path] => self.is_file(path).await && !self.is_directory(path).await,
            ["-d", path] => self.is_directory(path).await,
            [left, "=" | "==", right] => left == right,
            [left, "!=", right] => left != right,
            [other, ..] => {
                let message = format!("sh: {name}: {other}: this test is not simulated");
                return self.fail(&message, USAGE_EXIT_CODE).await;
            }
        };
        u8::from(holds == is_negated)
    }

    async fn is_file(&self, path: &str) -> bool {
        let path = self.resolve(path);
        exists(&path)
            || self.context.root.is_file(&path)
            || self.proc_file(&path).is_some()
            || self.context.files.exists(&path).await
    }

    async fn is_directory(&self, path: &str) -> bool {
        let path = self.resolve(path);
        commands::directory(&path).is_some()
            || self.context.root.is_directory(&path)
            || path.strip_prefix("/sys/module/").is_some_and(|name| self.has_module(name))
            || self.context.files.list(&path).await.is_some()
    }
}

//! Which program a command line means: by the names that manifests of the original project use.

/// A program of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The stub that holds an allocation of accelerators.
    Requester,
    /// The requester that allocates accelerators by ConfigMaps.
    TestRequester,
    /// Starts engines.
    Launcher,
    /// Publishes the states of engines.
    Notifier,
    /// The small engine.
    Engine,
    /// The engine with the behaviour of the original's test server.
    TestServer,
    /// The process of an engine that holds its memory.
    EngineCore,
    /// The stand-in of the vendor tool.
    VendorTool,
}

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The program.
    pub program: Program,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
}

/// Why a command line means no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// No program has this name.
    #[error("{0}: no such program; use requester, launcher, notifier, engine or nvidia-smi")]
    Unknown(String),
    /// The line of a shell does more than start a program.
    #[error("cannot run the line {0:?}: write one program with its arguments")]
    Shell(String),
    /// There are no words.
    #[error("no command: set `command` or `args` of the container")]
    Empty,
}

impl Program {
    /// Returns the program of an executable, by the last part of its path.
    #[must_use]
    pub fn by_executable(path: &str) -> Option<Self> {
        Some(match path.rsplit('/').next()? {
            "requester" => Self::Requester,
            "test-requester" => Self::TestRequester,
            "launcher" | "launcher.py" => Self::Launcher,
            "notifier" | "launcher_pod_notifier.py" => Self::Notifier,
            "engine" => Self::Engine,
            "test-server" => Self::TestServer,
            "engine-core" => Self::EngineCore,
            "nvidia-smi" => Self::VendorTool,
            _ => return None,
        })
    }
}

/// Returns the program that the words of a command line mean. Beside the names of executables:
///
/// - `python3 /app/launcher.py …`, with options of the interpreter before it,
/// - `python3 -m vllm.entrypoints.openai.api_server …` and `vllm serve MODEL …`: the engine,
/// - `uvicorn … launcher:app` and `python3 -m uvicorn …`: the launcher, with the server's options,
/// - `gantry launcher …`: a command of the binary,
/// - `/bin/bash -c "…"`: one line with any of these.
///
/// # Errors
/// They mean none.
pub fn resolve(words: &[String]) -> Result<Invocation, CommandLineError> {
    let Some((first, rest)) = words.split_first() else { return Err(CommandLineError::Empty) };
    let name = first.rsplit('/').next().unwrap_or_default();
    match name {
        "sh" | "bash" | "ash" | "dash" => shell(first, rest),
        "python" | "python3" => python(first, rest),
        "uvicorn" => uvicorn(first, rest),
        "vllm" => match rest.split_first() {
            Some((verb, rest)) if verb == "serve" => Ok(serve(rest)),
            Some(_) | None => Err(CommandLineError::Unknown(words.join(" "))),
        },
        "gantry" => match rest.split_first() {
            Some((command, rest)) => by_name(command, rest),
            None => Err(CommandLineError::Unknown(first.clone())),
        },
        _ => by_name(first, rest),
    }
}

fn by_name(name: &str, arguments: &[String]) -> Result<Invocation, CommandLineError> {
    let program = Program::by_executable(name);
    let program = program.ok_or_else(|| CommandLineError::Unknown(name.to_owned()))?;
    Ok(Invocation { program, arguments: arguments.to_vec() })
}

fn python(name: &str, words: &[String]) -> Result<Invocation, CommandLineError> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-m" => {
                let module = rest.next().map_or("", String::as_str);
                return match module {
                    "uvicorn" => uvicorn(module, rest.as_slice()),
                    "vllm.entrypoints.openai.api_server" => Ok(Invocation {
                        program: Program::Engine,
                        arguments: rest.as_slice().to_vec(),
                    }),
                    _ => Err(CommandLineError::Unknown(format!("{name} -m {module}"))),
                };
            }
            "-u" | "-O" | "-B" | "-I" | "-s" | "-E" => {}
            script => return by_name(script, rest.as_slice()),
        }
    }
    Err(CommandLineError::Unknown(name.to_owned()))
}

/// The launcher as an application of a server: the options are the server's.
fn uvicorn(name: &str, words: &[String]) -> Result<Invocation, CommandLineError> {
    let is_application = |it: &&String| *it == "launcher:app";
    if !words.iter().any(|it| is_application(&it)) {
        return Err(CommandLineError::Unknown(format!("{name} {}", words.join(" "))));
    }
    let mut arguments: Vec<String> =
        words.iter().filter(|it| !is_application(it)).cloned().collect();
    let named = |name: &str| words.iter().any(|it| it.split('=').next() == Some(name));
    // The server's own defaults.
    for (option, default) in [("--host", "127.0.0.1"), ("--port", "8000")] {
        if !named(option) {
            arguments.extend([option.to_owned(), default.to_owned()]);
        }
    }
    Ok(Invocation { program: Program::Launcher, arguments })
}

/// `vllm serve`: a first word that is no option is the model.
fn serve(words: &[String]) -> Invocation {
    let mut arguments = words.to_vec();
    let at = positional(words);
    if let Some(at) = at {
        arguments.insert(at, "--model".to_owned());
    }
    Invocation { program: Program::Engine, arguments }
}

/// The place of the model among the words of `vllm serve`: the first word that is neither an option
/// nor the value of one. An option without `=` takes the next word, unless that is an option too.
fn positional(words: &[String]) -> Option<usize> {
    let mut may_be_value = false;
    for (at, word) in words.iter().enumerate() {
        if word.starts_with('-') {
            may_be_value = !word.contains('=') && !word.starts_with("--enable-");
        } else if may_be_value {
            may_be_value = false;
        } else {
            return Some(at);
        }
    }
    None
}

fn shell(name: &str, words: &[String]) -> Result<Invocation, CommandLineError> {
    let flags = words.iter().position(|it| !it.starts_with('-'));
    let (flags, rest) = words.split_at(flags.unwrap_or(words.len()));
    let runs_line = flags.iter().any(|it| it.ends_with('c'));
    match (runs_line, rest.first()) {
        (true, Some(line)) => {
            let words = shell_words(line).ok_or_else(|| CommandLineError::Shell(line.clone()))?;
            let words = match words.first().map(String::as_str) {
                Some("exec") => &words[1..],
                Some(_) | None => &words[..],
            };
            // A line that is a shell again is no program.
            match words.first().and_then(|it| it.rsplit('/').next()) {
                Some("sh" | "bash" | "ash" | "dash") => Err(CommandLineError::Shell(line.clone())),
                Some(_) | None => resolve(words),
            }
        }
        (_, Some(_) | None) => Err(CommandLineError::Unknown(name.to_owned())),
    }
}

/// Splits a line into words as a shell does; `None` if it needs more than that.
fn shell_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.trim().trim_end_matches(';').chars();
    while let Some(character) = rest.next() {
        match character {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => word.push(rest.next()?),
                        '$' | '`' => return None,
                        other => word.push(other),
                    }
                }
            }
            '\\' => match rest.next()? {
                '\n' => {}
                other => word.get_or_insert_default().push(other),
            },
            '$' | '`' | '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '#' | '\n' => {
                return None;
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_manifests_are_understood() {
        use Program::*;
        let table: &[(&[&str], Program, &str)] = &[
            (&["/app/requester"], Requester, ""),
            (&["/ko-app/test-requester", "--node=n"], TestRequester, "--node=n"),
            (&["/ko-app/test-server", "--port", "9"], TestServer, "--port 9"),
            (&["python3", "/app/launcher.py", "--port", "8001"], Launcher, "--port 8001"),
            (&["/usr/bin/python3", "-u", "launcher.py"], Launcher, ""),
            (&["python3", "/app/launcher_pod_notifier.py"], Notifier, ""),
            (&["/bin/bash", "-c", "python3 launcher.py --mock-gpus"], Launcher, "--mock-gpus"),
            (
                &["sh", "-ec", "exec python3 launcher.py \\\n --port '80 01'"],
                Launcher,
                "--port 80 01",
            ),
            (
                &["uvicorn", "--port", "8001", "--log-level", "info", "launcher:app"],
                Launcher,
                "--port 8001 --log-level info --host 127.0.0.1",
            ),
            (
                &["python3", "-m", "uvicorn", "launcher:app", "--host=0.0.0.0"],
                Launcher,
                "--host=0.0.0.0 --port 8000",
            ),
            (&["vllm", "serve", "--port=8", "/m/a"], Engine, "--port=8 --model /m/a"),
            (&["vllm", "serve", "m", "--port", "8"], Engine, "--model m --port 8"),
            (&["vllm", "serve", "--port", "8", "m"], Engine, "--port 8 --model m"),
            (
                &["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"],
                Engine,
                "--model m",
            ),
            (&["gantry", "engine", "--model", "m"], Engine, "--model m"),
            (&["nvidia-smi", "-L"], VendorTool, "-L"),
        ];
        for (words, program, arguments) in table {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            let found = resolve(&words).unwrap();
            assert_eq!((found.program, found.arguments.join(" ").as_str()), (*program, *arguments));
        }
    }

    #[test]
    fn other_lines_are_refused_with_the_reason() {
        let table: &[(&[&str], &str)] = &[
            (&[], "no command"),
            (&["rm", "-rf"], "rm: no such program"),
            (&["python3"], "python3: no such program"),
            (&["python3", "-m", "http.server"], "python3 -m http.server"),
            (&["bash", "script"], "bash: no such program"),
            (&["bash", "-c", "launcher.py & sleep 1"], "cannot run the line"),
            (&["bash", "-c", "launcher.py $(id)"], "cannot run the line"),
            (&["bash", "-c", "echo \"$X\""], "cannot run the line"),
            (&["bash", "-c", "bash -c launcher.py"], "cannot run the line"),
            (&["bash", "-c", "'launcher.py"], "cannot run the line"),
            (&["uvicorn", "other:app"], "uvicorn other:app"),
            (&["vllm", "bench"], "vllm bench"),
        ];
        for (words, expected) in table {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            let error = resolve(&words).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

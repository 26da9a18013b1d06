//! Reads instructions.

mod settings;
#[cfg(test)]
pub(crate) mod tests;

use crate::MAX_STAGES;
use crate::error::DockerfileError;
use crate::instruction::{Command, CopySources, Dockerfile, Flags, Instruction, Stage, Step};
use crate::lines::{self, LogicalLine, is_heredoc};
use crate::words::{json_list, split_words, take_flags, unquote};

/// What is wrong with a Dockerfile without `FROM`.
pub(crate) const NO_FROM: &str = "no FROM instruction; start with FROM image or FROM scratch";

/// Flags of `COPY` and `ADD` that change which files are copied, or how they are verified.
const UNSUPPORTED_COPY_FLAGS: [&str; 5] =
    ["checksum", "exclude", "keep-git-dir", "parents", "unpack"];

/// Reads a whole Dockerfile.
pub(crate) fn parse(text: &str) -> Result<Dockerfile, DockerfileError> {
    let lines = lines::read(text)?;
    let mut dockerfile = Dockerfile {
        escape: lines.escape,
        syntax: lines.syntax,
        global: Vec::new(),
        stages: Vec::new(),
    };
    for line in &lines.lines {
        if line.keyword == "FROM" {
            let stage = parse_from(line, lines.escape).map_err(|why| line.error(why))?;
            if dockerfile.stages.len() >= MAX_STAGES {
                return Err(line.error(format!("more than {MAX_STAGES} stages; split the build")));
            }
            dockerfile.stages.push(stage);
            continue;
        }
        let instruction = parse_line(line, lines.escape).map_err(|why| line.error(why))?;
        let (line_number, text) = (line.number, line.text());
        let step = Step { line: line_number, text, instruction };
        match (dockerfile.stages.last_mut(), &step.instruction) {
            (Some(stage), _) => stage.steps.push(step),
            (None, Instruction::Arg(_)) => dockerfile.global.push(step),
            (None, _) => {
                let why = "only ARG may come before FROM; start with FROM image or FROM scratch";
                return Err(line.error(why));
            }
        }
    }
    if dockerfile.stages.is_empty() {
        return Err(DockerfileError::of_file(NO_FROM));
    }
    check_stage_numbers(&dockerfile)?;
    Ok(dockerfile)
}

/// Refuses `--from` with the number of a stage that does not come before.
fn check_stage_numbers(dockerfile: &Dockerfile) -> Result<(), DockerfileError> {
    for (number, stage) in dockerfile.stages.iter().enumerate() {
        for step in &stage.steps {
            let (Instruction::Copy(copy) | Instruction::Add(copy)) = &step.instruction else {
                continue;
            };
            let from = copy.from.as_deref().and_then(|from| from.parse::<usize>().ok());
            if from.is_some_and(|from| from >= number) {
                return Err(DockerfileError::new(
                    step.line,
                    &step.text,
                    "--from names a stage that does not come before this one; stages count from 0",
                ));
            }
        }
    }
    Ok(())
}

fn parse_from(line: &LogicalLine, escape: char) -> Result<Stage, String> {
    let (flags, rest) = take_flags(&line.rest, escape);
    let mut flags = Flags::new(flags);
    let platform = flags.value("platform")?;
    flags.finish("FROM")?;
    let words = split_words(rest, escape);
    let (base, name) = match words.as_slice() {
        [base] => (base, None),
        [base, keyword, name] if keyword.eq_ignore_ascii_case("as") => {
            (base, Some(name.to_ascii_lowercase()))
        }
        _ => return Err("write FROM image, or FROM image AS name".to_owned()),
    };
    if let Some(name) = &name {
        let mut chars = name.chars();
        let valid = chars.next().is_some_and(|first| first.is_ascii_lowercase())
            && chars.all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it));
        if !valid {
            return Err(format!(
                "cannot use {name:?} as the name of a stage; start with a letter, and use \
                 letters, digits, -, _ and . only"
            ));
        }
    }
    let (base, text) = (base.clone(), line.text());
    Ok(Stage { line: line.number, text, base, platform, name, steps: Vec::new() })
}

fn parse_line(line: &LogicalLine, escape: char) -> Result<Instruction, String> {
    let keyword = line.keyword.as_str();
    let (flags, rest) = take_flags(&line.rest, escape);
    let mut flags = Flags::new(flags);
    let needs_text = |what: &str| match rest.trim() {
        "" => Err(format!("{keyword} has no value; write {keyword} {what}")),
        text => Ok(text.to_owned()),
    };
    let instruction = match keyword {
        "ARG" => Instruction::Arg(parse_arguments(rest, escape)?),
        "ENV" => Instruction::Env(parse_pairs(keyword, rest, escape)?),
        "LABEL" => Instruction::Label(parse_pairs(keyword, rest, escape)?),
        "MAINTAINER" => Instruction::Maintainer(needs_text("name")?),
        "WORKDIR" => Instruction::Workdir(needs_text("/directory")?),
        "USER" => Instruction::User(needs_text("user")?),
        "STOPSIGNAL" => Instruction::StopSignal(needs_text("SIGTERM")?),
        "ONBUILD" => Instruction::OnBuild(needs_text("instruction")?),
        "ENTRYPOINT" => Instruction::Entrypoint(parse_command(rest)?),
        "CMD" => Instruction::Cmd(parse_command(rest)?),
        "SHELL" => match json_list(rest)? {
            Some(words) if !words.is_empty() => Instruction::Shell(words),
            Some(_) | None => {
                return Err("write a list, as in SHELL [\"/bin/bash\", \"-c\"]".to_owned());
            }
        },
        "EXPOSE" => Instruction::Expose(split_words(&needs_text("8080/tcp")?, escape)),
        "VOLUME" => Instruction::Volume(parse_volumes(&needs_text("/directory")?, escape)?),
        "HEALTHCHECK" => Instruction::Healthcheck(settings::parse_healthcheck(rest, &mut flags)?),
        "COPY" => Instruction::Copy(parse_copy(line, rest, &mut flags, escape)?),
        "ADD" => Instruction::Add(parse_copy(line, rest, &mut flags, escape)?),
        "RUN" => {
            let mounts = flags.values("mount")?;
            flags.names(&["network", "security"]);
            let command = parse_command(&needs_text("command")?)?;
            if command == Command::Exec(Vec::new()) {
                return Err("RUN has no command; write RUN command".to_owned());
            }
            Instruction::Run { command, mounts, heredocs: line.heredocs.clone() }
        }
        _ => {
            return Err(format!(
                "{keyword:?} is not an instruction; a line that goes on ends with {escape}"
            ));
        }
    };
    flags.finish(keyword)?;
    Ok(instruction)
}

fn parse_command(text: &str) -> Result<Command, String> {
    match json_list(text)? {
        Some(words) => Ok(Command::Exec(words)),
        None => Ok(Command::Shell(text.trim().to_owned())),
    }
}

fn parse_arguments(text: &str, escape: char) -> Result<Vec<(String, Option<String>)>, String> {
    let words = split_words(text, escape);
    if words.is_empty() {
        return Err("ARG has no name; write ARG NAME or ARG NAME=default".to_owned());
    }
    let split = |word: &String| match word.split_once('=') {
        Some((name, value)) => (unquote(name, escape), Some(value.to_owned())),
        None => (unquote(word, escape), None),
    };
    let arguments: Vec<_> = words.iter().map(split).collect();
    match arguments.iter().find(|(name, _)| name.is_empty()) {
        Some(_) => Err("an argument has no name; write ARG NAME=default".to_owned()),
        None => Ok(arguments),
    }
}

/// Reads `name=value` pairs, or the old form `name value`.
fn parse_pairs(keyword: &str, text: &str, escape: char) -> Result<Vec<(String, String)>, String> {
    let words = split_words(text, escape);
    let Some(first) = words.first() else {
        return Err(format!("{keyword} has no name; write {keyword} NAME=value"));
    };
    if !first.contains('=') {
        let value = text.trim_start()[first.len()..].trim();
        if value.is_empty() {
            return Err(format!("{first} has no value; write {keyword} {first}=value"));
        }
        return Ok(vec![(first.clone(), value.to_owned())]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some(("", _)) => Err(format!("{word:?} has no name; write NAME=value")),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("{word:?} has no `=`; write NAME=value, with quotes around spaces")),
    };
    words.iter().map(pair).collect()
}

fn parse_volumes(text: &str, escape: char) -> Result<Vec<String>, String> {
    let volumes = json_list(text)?.unwrap_or_else(|| split_words(text, escape));
    if volumes.is_empty() || volumes.iter().any(|volume| volume.trim().is_empty()) {
        return Err("a volume has no path; write VOLUME /directory".to_owned());
    }
    Ok(volumes)
}

fn parse_copy(
    line: &LogicalLine,
    rest: &str,
    flags: &mut Flags,
    escape: char,
) -> Result<CopySources, String> {
    let keyword = line.keyword.as_str();
    let from = if keyword == "COPY" { flags.value("from")? } else { None };
    let (chown, chmod) = (flags.value("chown")?, flags.value("chmod")?);
    // How layers are stored is all that `--link` changes.
    flags.names(&["link"]);
    let unsupported_flags = flags.names(&UNSUPPORTED_COPY_FLAGS);
    let mut sources = match json_list(rest)? {
        // Texts of a list have no quotes, so theirs are characters.
        Some(words) => words,
        None => split_words(rest, escape),
    };
    let destination = sources.pop().filter(|_| !sources.is_empty());
    let Some(destination) = destination else {
        return Err(format!(
            "{keyword} needs a source and a destination; write {keyword} file /directory/"
        ));
    };
    if !line.heredocs.is_empty() {
        sources.retain(|source| !is_heredoc(source, escape));
    }
    let heredocs = line.heredocs.clone();
    Ok(CopySources { from, chown, chmod, sources, heredocs, destination, unsupported_flags })
}

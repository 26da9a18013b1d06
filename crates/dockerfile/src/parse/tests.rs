use proptest::prelude::*;

use super::settings::parse_duration;
use super::*;
use crate::check;
use crate::instruction::{Healthcheck, Heredoc};

/// The instructions of the last stage.
fn steps(text: &str) -> Vec<Instruction> {
    let dockerfile = check(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let stage = dockerfile.stages.last().unwrap();
    stage.steps.iter().map(|step| step.instruction.clone()).collect()
}

fn step(text: &str) -> Instruction {
    steps(&format!("FROM scratch\n{text}")).pop().unwrap()
}

fn run(text: &str) -> Instruction {
    Instruction::Run {
        command: Command::Shell(text.to_owned()),
        mounts: Vec::new(),
        heredocs: Vec::new(),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn copy(sources: &[&str], destination: &str) -> CopySources {
    CopySources {
        from: None,
        chown: None,
        chmod: None,
        sources: sources.iter().map(|it| (*it).to_owned()).collect(),
        heredocs: Vec::new(),
        destination: destination.to_owned(),
        unsupported_flags: Vec::new(),
    }
}

#[test]
fn lines_are_joined_and_comments_are_left_out() {
    let text = "\u{feff}# a comment\r\n\r\n  from scratch\r\n# one\r\nRUN a \\\r\n  # inside\r\n\r\n  \
                b \\  \r\n&& c\r\nRUN d\\\\\r\nRUN #e";
    assert_eq!(steps(text), [run("a   b && c"), run("d\\\\"), run("#e")]);
    let dockerfile = check("FROM scratch\n\nRUN a \\\n b\n\n RUN c").unwrap();
    let lines: Vec<usize> = dockerfile.stages[0].steps.iter().map(|step| step.line).collect();
    assert_eq!(lines, [3, 6]);
}

#[test]
fn directives_are_read_before_anything_else() {
    let text = "# syntax=docker/dockerfile:1\n# escape=`\nFROM scratch\nRUN a `\nb\\\n";
    assert_eq!(steps(text), [run("a b\\")]);
    assert_eq!(check(text).unwrap().syntax.as_deref(), Some("docker/dockerfile:1"));
    // After a comment it is a comment.
    assert_eq!(steps("# x\n# escape=`\nFROM scratch\nRUN a \\\nb"), [run("a b")]);
}

#[test]
fn stages_have_names_bases_and_platforms() {
    let text = "ARG V=1\nFROM --platform=$BUILDPLATFORM debian:$V AS Build\nRUN a\nFROM scratch";
    let dockerfile = check(text).unwrap();
    let [first, last] = dockerfile.stages() else { panic!("{dockerfile:?}") };
    assert_eq!(first.name.as_deref(), Some("build"));
    assert_eq!((first.base.as_str(), first.line), ("debian:$V", 2));
    assert_eq!(first.platform.as_deref(), Some("$BUILDPLATFORM"));
    assert_eq!((last.base.as_str(), &last.name), ("scratch", &None));
    assert!(dockerfile.has_run());
    assert!(!check("FROM scratch").unwrap().has_run());
}

#[test]
fn every_instruction_is_read() {
    let shell = |text: &str| Command::Shell(text.to_owned());
    let exec = |words: &[&str]| Command::Exec(words.iter().map(|it| (*it).to_owned()).collect());
    let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let table = [
        (
            "ARG A B=c D=\"e f\"",
            Instruction::Arg(vec![
                ("A".to_owned(), None),
                ("B".to_owned(), Some("c".to_owned())),
                ("D".to_owned(), Some("\"e f\"".to_owned())),
            ]),
        ),
        ("ENV A b  c", Instruction::Env(pairs(&[("A", "b  c")]))),
        ("ENV A=b C='d e'", Instruction::Env(pairs(&[("A", "b"), ("C", "'d e'")]))),
        ("LABEL a.b=c", Instruction::Label(pairs(&[("a.b", "c")]))),
        ("MAINTAINER a b", Instruction::Maintainer("a b".to_owned())),
        ("WORKDIR /a b", Instruction::Workdir("/a b".to_owned())),
        ("USER 1:2", Instruction::User("1:2".to_owned())),
        ("ENTRYPOINT [\"a\", \"b\"]", Instruction::Entrypoint(exec(&["a", "b"]))),
        ("CMD a b", Instruction::Cmd(shell("a b"))),
        ("CMD [a]", Instruction::Cmd(shell("[a]"))),
        ("CMD []", Instruction::Cmd(exec(&[]))),
        ("SHELL [\"bash\", \"-c\"]", Instruction::Shell(texts(&["bash", "-c"]))),
        ("EXPOSE 80 53/udp", Instruction::Expose(texts(&["80", "53/udp"]))),
        ("VOLUME [\"/a b\"]", Instruction::Volume(texts(&["/a b"]))),
        ("VOLUME /a /b", Instruction::Volume(texts(&["/a", "/b"]))),
        ("STOPSIGNAL 9", Instruction::StopSignal("9".to_owned())),
        ("ONBUILD RUN a", Instruction::OnBuild("RUN a".to_owned())),
        ("HEALTHCHECK NONE", Instruction::Healthcheck(Healthcheck::None)),
        (
            "HEALTHCHECK --interval=1m30s --retries=3 CMD a b",
            Instruction::Healthcheck(Healthcheck::Test {
                command: shell("a b"),
                settings: vec![("Interval", 90_000_000_000), ("Retries", 3)],
            }),
        ),
        ("COPY a b /c/", Instruction::Copy(copy(&["a", "b"], "/c/"))),
        ("COPY [\"a b\", \"/c\"]", Instruction::Copy(copy(&["a b"], "/c"))),
        (
            "COPY --link --from=x --chown=1 --chmod=600 a /b",
            Instruction::Copy(CopySources {
                from: Some("x".to_owned()),
                chown: Some("1".to_owned()),
                chmod: Some("600".to_owned()),
                ..copy(&["a"], "/b")
            }),
        ),
        (
            "ADD --checksum=sha256:1 a /b",
            Instruction::Add(CopySources {
                unsupported_flags: texts(&["checksum"]),
                ..copy(&["a"], "/b")
            }),
        ),
        (
            "RUN --mount=type=secret,id=a --network=none [\"b\"]",
            Instruction::Run {
                command: exec(&["b"]),
                mounts: texts(&["type=secret,id=a"]),
                heredocs: Vec::new(),
            },
        ),
    ];
    for (text, expected) in table {
        assert_eq!(step(text), expected, "{text}");
    }
}

#[test]
fn here_documents_are_read() {
    let heredoc = |name: &str, expand: bool, content: &str| Heredoc {
        name: name.to_owned(),
        expand,
        content: content.to_owned(),
    };
    let text = "FROM scratch\nCOPY <<a.txt <<-'B' x /d/\n1 \\\n# 2\na.txt\n\t3\n\tB\nRUN <<EOF\nFROM x\nEOF\nRUN c";
    let steps = steps(text);
    let expected = CopySources {
        heredocs: vec![heredoc("a.txt", true, "1 \\\n# 2\n"), heredoc("B", false, "3\n")],
        ..copy(&["x"], "/d/")
    };
    assert_eq!(steps[0], Instruction::Copy(expected));
    let Instruction::Run { heredocs, .. } = &steps[1] else { panic!("{steps:?}") };
    assert_eq!(*heredocs, [heredoc("EOF", true, "FROM x\n")]);
    assert_eq!(steps[2], run("c"));
    // Neither a here-string nor a shift is one.
    assert_eq!(step("RUN a <<<b $((1<<2))"), run("a <<<b $((1<<2))"));
}

#[test]
fn errors_name_line_instruction_and_remedy() {
    let many = format!("FROM scratch\n{}", "RUN a\n".repeat(crate::MAX_INSTRUCTIONS));
    let stages = "FROM scratch\n".repeat(MAX_STAGES + 1);
    let large = " ".repeat(crate::MAX_DOCKERFILE_BYTES + 1);
    let long = format!("FROM scratch\nNO{}", "x".repeat(300));
    for (text, expected) in [
        ("", "no FROM instruction; start with FROM image or FROM scratch"),
        ("# a\nARG A", "no FROM instruction; start with FROM image or FROM scratch"),
        (
            "\nRUN make",
            "Dockerfile line 2: RUN make: only ARG may come before FROM; start with FROM image \
             or FROM scratch",
        ),
        ("FROM", "Dockerfile line 1: FROM: write FROM image, or FROM image AS name"),
        ("FROM a b", "write FROM image, or FROM image AS name"),
        ("FROM a AS 1", "cannot use \"1\" as the name of a stage"),
        ("FROM --as=b a", "FROM has no flag --as that is supported; remove it"),
        ("FROM --platform= a", "--platform has no value; write --platform=…"),
        ("FROM a\nFRO b", "Dockerfile line 2: FRO b: \"FRO\" is not an instruction"),
        ("FROM a\nCOPY b", "COPY needs a source and a destination"),
        ("FROM a\nCOPY --from=0 b c", "--from names a stage that does not come before this one"),
        ("FROM a\nCOPY --from=b --from=c d e", "--from is set twice"),
        ("FROM a\nADD --from=b c d", "ADD has no flag --from"),
        ("FROM a\nCOPY <<E /b\nx", "the here-document has no end; write E alone in a line"),
        ("FROM a\nENV", "ENV has no name; write ENV NAME=value"),
        ("FROM a\nENV B", "B has no value; write ENV B=value"),
        ("FROM a\nENV B=c D", "\"D\" has no `=`"),
        ("FROM a\nLABEL =b", "\"=b\" has no name"),
        ("FROM a\nARG", "ARG has no name"),
        ("FROM a\nARG =b", "an argument has no name"),
        ("FROM a\nRUN", "RUN has no value; write RUN command"),
        ("FROM a\nRUN []", "RUN has no command"),
        ("FROM a\nRUN [1]", "every item of the list must be a text in double quotes"),
        ("FROM a\nSHELL bash", "write a list, as in SHELL"),
        ("FROM a\nVOLUME []", "a volume has no path"),
        ("FROM a\nHEALTHCHECK a", "write HEALTHCHECK CMD command, or HEALTHCHECK NONE"),
        ("FROM a\nHEALTHCHECK --interval=1 CMD a", "cannot use --interval=1 as a duration"),
        ("FROM a\nHEALTHCHECK --retries=x CMD a", "cannot use --retries=x"),
        ("# escape=x\nFROM a", "Dockerfile line 1: # escape=x: escape must be \\ or `"),
        ("# escape=`\n# escape=`\nFROM a", "Dockerfile line 2: # escape=`: two directives"),
        ("FROM a\0b", "a zero byte is in this line"),
        (&many, "more than 2000 instructions"),
        (&stages, "more than 100 stages"),
        (&large, "the Dockerfile has 1048577 bytes, and 1048576 is the limit"),
        (&long, "…: \"NOX"),
    ] {
        let error = check(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn durations_are_those_of_go() {
    for (text, expected) in [
        ("0", Some(0)),
        ("1s", Some(1_000_000_000)),
        ("1.5s", Some(1_500_000_000)),
        ("1h2m3s4ms5us6ns", Some(3_723_004_005_006)),
        ("", None),
        ("1", None),
        ("s", None),
        (".s", None),
        ("1.2.3s", None),
        ("-1s", None),
        ("99999999999h", None),
    ] {
        assert_eq!(parse_duration(text), expected, "{text}");
    }
}

/// Texts that look like Dockerfiles.
pub(crate) fn dockerfiles() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("FROM scratch\n".to_owned()),
        Just("FROM scratch AS a\n".to_owned()),
        Just("ARG A=${B:-1}\n".to_owned()),
        Just("ENV A=$A$A B=\"${A\n".to_owned()),
        Just("COPY --from=0 /a*.ko ./b/\n".to_owned()),
        Just("COPY <<EOF /a\nx\nEOF\n".to_owned()),
        Just("WORKDIR ../../a\n".to_owned()),
        Just("RUN cd /a && make modules_install INSTALL_MOD_PATH=/o; echo $A >> b\n".to_owned()),
        Just(
            "RUN install -Dm644 a.ko /lib/modules/6.1.0/x/ && ln -s / b/c && mv /b /c\n".to_owned()
        ),
        "[A-Z]{3,6} [ -~]{0,30}\n",
        "[ -~\\\\\n\t]{0,20}",
        any::<String>(),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn reading_never_panics(text in dockerfiles()) {
        if let Err(error) = check(&text) {
            prop_assert!(!error.problem.is_empty());
        }
    }
}

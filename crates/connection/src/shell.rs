//! Words for shells: quoting, and commands that every login shell passes on unchanged.

use std::fmt::Write as _;

/// The longest script: Linux accepts arguments of 128 KiB, and an encoded byte takes five.
pub const MAX_SCRIPT_BYTES: usize = 24 << 10;

/// The script is longer than an argument of a program can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command has {bytes} bytes, and at most {MAX_SCRIPT_BYTES} can be given to a host")]
pub struct ScriptTooLong {
    /// Its length.
    pub bytes: usize,
}

/// Quotes a word for a POSIX shell; a word of ordinary characters stays as it is.
#[must_use]
pub fn quote(word: &str) -> String {
    let is_ordinary = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(is_ordinary) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes words for a POSIX shell, with blanks between them.
#[must_use]
pub fn quote_words<Word: AsRef<str>>(words: &[Word]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word.as_ref())).collect();
    words.join(" ")
}

/// Returns the command with which a login shell of any kind runs a script in `/bin/sh`.
///
/// sh, csh and fish disagree about quotes, backslashes, line breaks and exclamation marks inside
/// single quotes, and about nothing else. A script that has one of these is encoded without them.
///
/// # Errors
/// The script is too long.
pub fn login_command(script: &str) -> Result<String, ScriptTooLong> {
    if script.len() > MAX_SCRIPT_BYTES {
        return Err(ScriptTooLong { bytes: script.len() });
    }
    if script.bytes().all(is_portable) {
        return Ok(format!("exec /bin/sh -c '{script}'"));
    }
    let mut encoded = String::with_capacity(script.len() * 2);
    for byte in script.bytes() {
        if is_portable(byte) {
            encoded.push(char::from(byte));
        } else {
            // `printf %b` reads an octal number after `\0`; writing to a text cannot fail.
            let _ = write!(encoded, "\\0{byte:03o}");
        }
    }
    Ok(format!("exec /bin/sh -c 'eval \"$(printf %b \"$1\")\"' sh '{encoded}'"))
}

/// Whether all shells read this byte inside single quotes as itself.
fn is_portable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\' | b'!')
}

#[cfg(test)]
mod tests {
    use super::*;
    use gantry_process::children::{Command, Input};
    use proptest::prelude::*;

    #[test]
    fn words_are_quoted_only_where_needed() {
        let table = [
            (vec!["ssh", "-p", "22", "ops@10.0.0.1"], "ssh -p 22 ops@10.0.0.1"),
            (vec!["a b", "", "it's"], r"'a b' '' 'it'\''s'"),
            (vec!["$HOME", "*", "~", "a\nb"], "'$HOME' '*' '~' 'a\nb'"),
        ];
        for (words, expected) in table {
            assert_eq!(quote_words(&words), expected);
        }
    }

    #[test]
    fn a_plain_script_stays_readable() {
        assert_eq!(login_command("uptime -p").unwrap(), "exec /bin/sh -c 'uptime -p'");
        let encoded = login_command("echo 'a'").unwrap();
        let expected = r#"exec /bin/sh -c 'eval "$(printf %b "$1")"' sh 'echo \0047a\0047'"#;
        assert_eq!(encoded, expected);
        let long = "x".repeat(MAX_SCRIPT_BYTES + 1);
        assert_eq!(login_command(&long), Err(ScriptTooLong { bytes: MAX_SCRIPT_BYTES + 1 }));
    }

    /// The output of a command in a shell.
    async fn output(shell: &str, command: &str) -> Vec<u8> {
        let command = Command {
            program: shell.into(),
            args: vec!["-c".to_owned(), command.to_owned()],
            environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            directory: "/".into(),
            input: Input::Null,
        };
        let (mut child, mut pipes) = command.start_piped().unwrap();
        let mut all = Vec::new();
        while let Some(bytes) = pipes.stdout.next().await {
            all.extend(bytes);
        }
        child.wait().await.unwrap();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// A shell prints the very words that it was given, quoted and encoded.
        #[test]
        fn a_shell_reads_the_same_words(words in prop::collection::vec("[^\u{0}]{0,12}", 0..4)) {
            let quoted = quote_words(&words);
            let script = format!("for word in {quoted}; do printf '%s|' \"$word\"; done");
            let command = login_command(&script).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let printed = runtime.unwrap().block_on(output("/bin/sh", &command));
            let expected: String = words.iter().map(|word| format!("{word}|")).collect();
            prop_assert_eq!(String::from_utf8(printed).unwrap(), expected);
        }

        /// Nothing in an encoded script means something else to another shell.
        #[test]
        fn an_encoded_script_has_no_special_character(script in any::<String>()) {
            let Ok(command) = login_command(&script) else { return Ok(()) };
            let encoded = "exec /bin/sh -c 'eval \"$(printf %b \"$1\")\"' sh '";
            let plain = command.strip_prefix("exec /bin/sh -c '");
            let inner = command.strip_prefix(encoded).or(plain).unwrap();
            let inner = inner.strip_suffix('\'').unwrap();
            prop_assert!(inner.bytes().all(|it| is_portable(it) || it == b'\\'));
            prop_assert!(!inner.contains("\\\\"));
        }
    }
}

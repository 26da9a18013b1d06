//! Parses options as `getopt_long` does. Pure.

/// The options that a command knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionSpec {
    /// Letters; a colon after one means that it has an argument.
    pub(super) short: &'static str,
    /// Long names, with the letter that each stands for.
    pub(super) long: &'static [(&'static str, char)],
}

impl OptionSpec {
    /// Returns whether an option has an argument; `None` if it is unknown.
    fn has_argument(self, letter: char) -> Option<bool> {
        let at = self.short.find(letter).filter(|_| letter != ':')?;
        Some(self.short[at + letter.len_utf8()..].starts_with(':'))
    }
}

/// The options that were given, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenOptions(Vec<(char, String)>);

impl GivenOptions {
    /// Returns whether an option was given.
    pub(super) fn has(&self, letter: char) -> bool {
        self.0.iter().any(|(it, _)| *it == letter)
    }

    /// Returns the last argument of an option.
    pub(super) fn last_value(&self, letter: char) -> Option<&str> {
        let mut found = self.0.iter().rev().filter(|(it, _)| *it == letter);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Splits arguments into options and words. Options may stand after words.
///
/// # Errors
/// The message about an unknown option or a missing argument.
pub(super) fn parse_options(
    spec: OptionSpec,
    arguments: &[&str],
) -> Result<(GivenOptions, Vec<String>), String> {
    let (mut given, mut words) = (GivenOptions::default(), Vec::new());
    let mut rest = arguments.iter().copied();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            words.extend(rest.by_ref().map(str::to_owned));
        } else if argument.starts_with("--") {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
            let known = spec.long.iter().find(|(known, _)| *known == name);
            let Some((_, letter)) = known else {
                return Err(format!("unrecognized option '{argument}'"));
            };
            let value = match (spec.has_argument(*letter) == Some(true), value) {
                (true, None) => Some(
                    rest.next().ok_or_else(|| format!("option '{name}' requires an argument"))?,
                ),
                (false, Some(_)) => {
                    return Err(format!("option '{name}' doesn't allow an argument"));
                }
                (_, value) => value,
            };
            given.0.push((*letter, value.unwrap_or_default().to_owned()));
        } else if let Some(letters) = argument.strip_prefix('-').filter(|it| !it.is_empty()) {
            let mut letters = letters.chars();
            while let Some(letter) = letters.next() {
                let value = match spec.has_argument(letter) {
                    None => return Err(format!("invalid option -- '{letter}'")),
                    Some(false) => String::new(),
                    Some(true) => {
                        let attached = letters.as_str().to_owned();
                        letters = "".chars();
                        match attached.is_empty() {
                            false => attached,
                            true => match rest.next() {
                                Some(next) => next.to_owned(),
                                None => {
                                    return Err(format!(
                                        "option requires an argument -- '{letter}'"
                                    ));
                                }
                            },
                        }
                    }
                };
                given.0.push((letter, value));
            }
        } else {
            words.push(argument.to_owned());
        }
    }
    Ok((given, words))
}

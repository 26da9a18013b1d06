//! The rules for names, with upstream's words for each.

/// What is wrong with a DNS-1123 subdomain: names of most objects, groups.
#[must_use]
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if !text.split('.').all(|part| is_label(part, false)) {
        faults.push(example(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            &["example.com"],
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        ));
    }
    faults
}

/// What is wrong with a DNS-1123 label: namespaces.
#[must_use]
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !is_label(text, false) {
        // For a name with dots, the dots are reported as what is wrong with it.
        if dns1123_subdomain(text).is_empty() {
            faults.push("must not contain dots".to_owned());
        } else {
            faults.push(example(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                 '-', and must start and end with an alphanumeric character",
                &["my-name", "123-abc"],
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
            ));
        }
    }
    faults
}

/// What is wrong with a DNS-1035 label: versions, plurals, kinds in lower case.
#[must_use]
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !is_label(text, true) {
        faults.push(example(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character",
            &["my-name", "abc-123"],
            "[a-z]([-a-z0-9]*[a-z0-9])?",
        ));
    }
    faults
}

/// What is wrong with a qualified name: keys of labels and annotations, finalizers.
#[must_use]
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let words = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character";
    let shape = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let explained = || example(words, &["MyName", "my.name", "123-abc"], shape);
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                let wrong = dns1123_subdomain(prefix).into_iter();
                faults.extend(wrong.map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        (_, _, _) => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                explained()
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_word(name) {
        faults.push(format!("name part {}", explained()));
    }
    faults
}

/// What is wrong with the value of a label.
#[must_use]
pub fn label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !text.is_empty() && !is_word(text) {
        faults.push(example(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ));
    }
    faults
}

/// What is wrong with a name that becomes a part of a path.
#[must_use]
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let wrong = ["/", "%"].into_iter().filter(|part| text.contains(part));
    wrong.map(|part| format!("may not contain '{part}'")).collect()
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    let is_long = text.len() > most;
    is_long.then(|| format!("must be no more than {most} characters")).into_iter().collect()
}

fn example(words: &str, examples: &[&str], shape: &str) -> String {
    let examples: Vec<String> = examples.iter().map(|it| format!("'{it}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{shape}')", examples.join(" or "))
}

fn is_label(text: &str, starts_with_letter: bool) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let first = |byte: u8| if starts_with_letter { byte.is_ascii_lowercase() } else { inner(byte) };
    bytes.first().copied().is_some_and(first)
        && bytes.last().copied().is_some_and(inner)
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

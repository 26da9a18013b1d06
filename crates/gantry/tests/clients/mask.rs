//! What two servers cannot say alike: when, how long ago, under which number, on which port.

use std::path::Path;

use regex::Regex;

/// Replaces what differs between any two runs, and nothing else.
#[derive(Debug)]
pub(super) struct Masks(Vec<(Regex, &'static str)>);

const MASKS: &[(&str, &str)] = &[
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( [+-]\d{4}|Z)", "TIME"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    // The log lines of client-go.
    (r"[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "LOG "),
    (r#"(resourceVersion"?: )"\d+""#, "${1}\"REVISION\""),
    (r"(Resource Version: +)\d+", "${1}REVISION"),
    (r"127\.0\.0\.1:\d+", "SERVER"),
    (r"(LIVE|MERGED)-\d+", "${1}-N"),
    (r"\b10\.96\.\d+\.\d+", "ADDRESS"),
    // Ports of nodes that the server chose; those that a test chose end in 123.
    (r"\b3[0-2](?:[03-9]\d\d|1[013-9]\d|12[0-24-9]|2\d\d)(/TCP)", "PORT$1"),
    (r"(NodePort: .*?)\d{5}(/TCP)", "${1}PORT$2"),
    (r"(nodePort: )\d{5}", "${1}PORT"),
    // The generated end of a name, behind a hyphen, may look like an age.
    (r"(?m)(^|[^-\w])(?:\d+[dhm])*\d+s\b", "${1}AGE"),
    (r"(?m)(^|[^-\w])\d+m\b(\s*)$", "${1}AGE$2"),
    // Columns are as wide as their widest cell.
    (r"(?m)(\S) {2,}", "$1 "),
    (r"(?m)[ \t]+$", ""),
];

impl Masks {
    /// Compiles them.
    pub(super) fn new() -> Self {
        Self(MASKS.iter().map(|(mask, by)| (Regex::new(mask).unwrap(), *by)).collect())
    }

    /// The text without what differs between runs; `home` is where the run took place.
    pub(super) fn apply(&self, text: &str, home: &Path) -> String {
        let text = text.replace(&home.display().to_string(), "HOME");
        let replaced =
            self.0.iter().fold(text, |text, (mask, by)| mask.replace_all(&text, *by).into_owned());
        without_order_of_owners(&replaced)
    }
}

/// Owners of fields stand in the order of their last second, which is chance where two of them
/// wrote within one.
fn without_order_of_owners(text: &str) -> String {
    let mut lines = text.split_inclusive('\n').peekable();
    let mut sorted = String::new();
    while let Some(line) = lines.next() {
        sorted.push_str(line);
        let Some(indent) = line.strip_suffix("managedFields:\n") else { continue };
        let first = format!("{indent}- ");
        let inside = format!("{indent}  ");
        let mut owners: Vec<String> = Vec::new();
        while let Some(line) =
            lines.next_if(|line| line.starts_with(&first) || line.starts_with(&inside))
        {
            match owners.last_mut() {
                Some(owner) if line.starts_with(&inside) => owner.push_str(line),
                Some(_) | None => owners.push(line.to_owned()),
            }
        }
        owners.sort();
        sorted.extend(owners);
    }
    sorted
}

#[test]
fn masks_hide_what_differs_and_keep_the_rest() {
    let masks = Masks::new();
    let table = [
        ("an age", "pod   Running   0     3m12s", "pod Running 0 AGE"),
        ("an age in minutes", "pod   3m", "pod AGE"),
        ("a generated name", "pod/web-1-24m5s ", "pod/web-1-24m5s"),
        ("ages side by side", "1s 2m3s", "AGE AGE"),
        ("an amount is no age", "cpu: 100m # of 1", "cpu: 100m # of 1"),
        ("a revision", r#"  resourceVersion: "1234""#, r#"  resourceVersion: "REVISION""#),
        ("a generation stays", "  generation: 2", "  generation: 2"),
        ("a chosen port", "80:31234/TCP", "80:PORT/TCP"),
        ("a given port stays", "80:30123/TCP", "80:30123/TCP"),
        ("a time", "at: \"2024-01-02T03:04:05Z\"", "at: \"TIME\""),
        (
            "owners of one second",
            "  managedFields:\n  - b\n    c\n  - a\n  name: x",
            "  managedFields:\n  - a\n  - b\n    c\n  name: x",
        ),
        ("how deep a field is stays", "    a:\n            b: c", "    a:\n            b: c"),
        ("the place", "could not open /home/x/files/a", "could not open HOME/files/a"),
    ];
    for (why, text, expected) in table {
        assert_eq!(masks.apply(text, Path::new("/home/x")), expected, "{why}");
    }
}

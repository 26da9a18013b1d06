//! What became of a command on each host, as Ansible prints it for a single command.

use gantry_connection::{CommandResult, ConnectionError, EXIT_FAILED, EXIT_UNREACHABLE};
use serde::Serialize as _;
use serde_json::{Value, json};

use super::super::CommandOutcome;

/// The outcomes of all hosts, of which the worst decides the exit code.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    worst: u8,
}

impl Outcomes {
    /// Counts an exit code. A host that was not reached wins over one that failed.
    pub(super) fn add(&mut self, code: u8) {
        let rank = |code: u8| match code {
            0 => 0,
            EXIT_FAILED => 2,
            EXIT_UNREACHABLE => 3,
            _ => 1,
        };
        if rank(code) > rank(self.worst) {
            self.worst = code;
        }
    }

    pub(super) fn outcome(&self) -> CommandOutcome {
        match self.worst {
            0 => CommandOutcome::Success,
            code => CommandOutcome::FailureWithCode(code),
        }
    }
}

/// The text for a command that ran, and the exit code it stands for.
pub(super) fn command(host: &str, result: &CommandResult) -> (String, u8) {
    let state = if result.is_success() { "CHANGED" } else { "FAILED" };
    let mut text = format!("{host} | {state} | rc={} >>\n", result.code);
    text.push_str(&String::from_utf8_lossy(&result.stdout));
    if result.dropped_bytes > 0 {
        end_line(&mut text);
        text.push_str(&format!("({} more bytes of output were dropped)", result.dropped_bytes));
    }
    if !result.stderr.is_empty() {
        end_line(&mut text);
        text.push_str(&result.stderr);
    }
    if !result.is_success() {
        end_line(&mut text);
        text.push_str("non-zero return code");
    }
    (text.trim_end_matches('\n').to_owned(), if result.is_success() { 0 } else { EXIT_FAILED })
}

fn end_line(text: &mut String) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

/// The text for what did not happen, and the exit code it stands for.
pub(super) fn failure(host: &str, error: &ConnectionError) -> (String, u8) {
    let code = error.exit_code();
    let is_unreachable = code == EXIT_UNREACHABLE;
    let state = if is_unreachable { "UNREACHABLE!" } else { "FAILED!" };
    let mut value = json!({
        "changed": false,
        "msg": gantry_process::error_chain(error).trim_end(),
        "reason": error.reason(),
        "fix": error.next_step(),
    });
    if let Some(line) = error.line() {
        value["ssh"] = line.into();
    }
    if is_unreachable {
        value["unreachable"] = true.into();
    }
    (format!("{host} | {state} => {}", pretty(&value)), code)
}

/// The text for a file that was copied.
pub(super) fn copied(host: &str, path: &str, changed_bytes: Option<u64>) -> String {
    let state = if changed_bytes.is_some() { "CHANGED" } else { "SUCCESS" };
    let mut value = json!({ "changed": changed_bytes.is_some(), "dest": path });
    if let Some(bytes) = changed_bytes {
        value["size"] = bytes.into();
    }
    format!("{host} | {state} => {}", pretty(&value))
}

/// JSON with the indentation of the original.
fn pretty(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gantry_connection::{SshReason, SudoReason};

    #[test]
    fn pvs_4_the_worst_host_decides_the_exit_code() {
        let table = [
            (vec![], 0),
            (vec![0, 0], 0),
            (vec![0, 2, 0], 2),
            (vec![2, 4, 2], 4),
            (vec![4, 1], 4),
            (vec![1, 2], 2),
            (vec![0, 1], 1),
        ];
        for (codes, expected) in table {
            let mut outcomes = Outcomes::default();
            codes.iter().for_each(|code| outcomes.add(*code));
            let code = match outcomes.outcome() {
                CommandOutcome::Success => 0,
                CommandOutcome::Failure => 1,
                CommandOutcome::FailureWithCode(code) => code,
            };
            assert_eq!(code, expected, "{codes:?}");
        }
    }

    #[test]
    fn pvs_4_outcomes_have_the_form_of_ansible() {
        let result = CommandResult { stdout: b"a\nb\n".to_vec(), ..CommandResult::default() };
        assert_eq!(command("h", &result), ("h | CHANGED | rc=0 >>\na\nb".to_owned(), 0));
        let result = CommandResult { code: 3, stderr: "bad\n".to_owned(), ..result };
        let expected = "h | FAILED | rc=3 >>\na\nb\nbad\nnon-zero return code".to_owned();
        assert_eq!(command("h", &result), (expected, 2));
        let error = ConnectionError::Ssh {
            reason: SshReason::ConnectionRefused,
            messages: "ssh: Connection refused\n".to_owned(),
            line: "ssh h true".to_owned(),
        };
        let (text, code) = failure("h", &error);
        assert_eq!(code, 4);
        let expected = "h | UNREACHABLE! => {\n    \"changed\": false,\n    \"msg\": \"nothing \
                        listens on the port of ssh: ssh: Connection refused\",\n    \"reason\": \
                        \"ConnectionRefused\",\n    \"fix\": \"start sshd on the host, or set \
                        ansible_port to its port\",\n    \"ssh\": \"ssh h true\",\n    \
                        \"unreachable\": true\n}";
        assert_eq!(text, expected);
        let error = ConnectionError::Sudo {
            reason: SudoReason::WrongPassword,
            messages: "Sorry, try again.".to_owned(),
        };
        let (text, code) = failure("h", &error);
        assert!(text.starts_with("h | FAILED! => {") && code == 2, "{text}");
        let text = copied("h", "/a", None);
        assert_eq!(text, "h | SUCCESS => {\n    \"changed\": false,\n    \"dest\": \"/a\"\n}");
    }
}

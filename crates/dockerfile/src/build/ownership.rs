//! Owners and permissions of copied files.

use gantry_oci::TreePath;

use super::error::StepProblem;
use super::file_system::FileSystem;

/// A user and a group by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u64,
    pub(super) gid: u64,
}

/// Reads `user`, `user:group` or numbers, with the names of the image.
pub(super) fn parse_owner(text: &str, files: &FileSystem<'_>) -> Result<Owner, StepProblem> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = find_number(user, "/etc/passwd", "user", files)?;
    let gid = match group {
        Some(group) if !group.is_empty() => find_number(group, "/etc/group", "group", files)?,
        // As Docker has it: the group with the number of the user.
        Some(_) | None => uid,
    };
    Ok(Owner { uid, gid })
}

fn find_number(
    name: &str,
    file: &str,
    what: &str,
    files: &FileSystem<'_>,
) -> Result<u64, StepProblem> {
    if let Ok(number) = name.parse::<u32>() {
        return Ok(number.into());
    }
    let path =
        TreePath::from_user(file).map_err(|error| StepProblem::Message(error.to_string()))?;
    let content = files.read_one(&path)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let number = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let own = fields.next()?;
        let number = fields.nth(1)?;
        (own == name && !name.is_empty()).then(|| number.parse::<u32>().ok()).flatten()
    });
    number.map(u64::from).ok_or_else(|| {
        StepProblem::Message(format!("{file} of the image has no {what} {name:?}; use a number"))
    })
}

/// Reads permissions in octal digits.
pub(super) fn parse_mode(text: &str) -> Result<u32, StepProblem> {
    let valid = (1..=5).contains(&text.len()) && text.bytes().all(|it| matches!(it, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| valid && *mode <= 0o7777);
    mode.ok_or_else(|| {
        StepProblem::Message(format!("cannot use {text:?} as permissions; write for instance 0644"))
    })
}

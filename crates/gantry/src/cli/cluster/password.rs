//! Reads the password of `sudo`: from a file, or from the terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use gantry_connection::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Bytes of a password.
const MAX_PASSWORD_BYTES: usize = 4096;

/// What a terminal sends for Ctrl-C, Ctrl-D, Ctrl-U and its two keys for erasing.
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const ERASE_LINE: u8 = 21;
const ERASE: [u8; 2] = [8, 127];

/// Reads the first line of a file that only its owner may read.
pub(super) fn file(path: &Path) -> anyhow::Result<Secret> {
    let shown = path.display();
    let file = File::open(path)
        .with_context(|| format!("could not open {shown}; check the path and its permissions"))?;
    let mode = file.metadata().with_context(|| format!("could not read {shown}"))?.permissions();
    if mode.mode() & 0o077 != 0 {
        bail!("{shown}: other users can read the password; run: chmod 600 {shown}");
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD_BYTES + 1));
    let mut file = file.take(MAX_PASSWORD_BYTES as u64 + 1);
    file.read_to_end(&mut bytes).with_context(|| format!("could not read {shown}"))?;
    if bytes.len() > MAX_PASSWORD_BYTES {
        bail!("{shown}: longer than {MAX_PASSWORD_BYTES} bytes; it has to have the password alone");
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        bail!("{shown}: the first line has no password");
    }
    Ok(Secret::new(Zeroizing::new(line.to_vec())))
}

/// Asks on the terminal, which does not show what is typed.
pub(super) fn ask(prompt: &str) -> anyhow::Result<Secret> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
    let mut terminal = terminal
        .context("there is no terminal to ask for the password; use --become-password-file")?;
    let before = tcgetattr(&terminal).context("could not read the settings of the terminal")?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    write!(terminal, "{prompt}").context("could not write to the terminal")?;
    tcsetattr(&terminal, OptionalActions::Flush, &hidden)
        .context("could not change the settings of the terminal")?;
    let line = read_line(&mut terminal);
    restore(&terminal, &before)?;
    writeln!(terminal).context("could not write to the terminal")?;
    match line.context("could not read from the terminal")? {
        Some(line) if line.is_empty() => bail!("no password was typed"),
        Some(line) => Ok(Secret::new(line)),
        None => bail!("interrupted"),
    }
}

fn restore(terminal: &File, before: &Termios) -> anyhow::Result<()> {
    tcsetattr(terminal, OptionalActions::Flush, before)
        .context("could not restore the settings of the terminal; run: stty sane")
}

/// Reads to the end of a line; none if it was interrupted.
fn read_line(from: &mut impl io::Read) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    // It does not grow, because memory that it leaves would not be erased.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD_BYTES));
    let mut byte = Zeroizing::new([0]);
    loop {
        let read = match from.read(&mut *byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        match byte[0] {
            _ if read == 0 => return Ok(Some(line)),
            INTERRUPT => return Ok(None),
            b'\n' | b'\r' | END => return Ok(Some(line)),
            ERASE_LINE => line.clear(),
            erase if ERASE.contains(&erase) => drop(line.pop()),
            byte if line.len() < MAX_PASSWORD_BYTES => line.push(byte),
            _ => return Err(io::Error::other("the password is too long")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_typed() {
        let table: [(&[u8], Option<&[u8]>); 7] = [
            (b"secret\n", Some(b"secret")),
            (b"secret\rrest", Some(b"secret")),
            (b"secret", Some(b"secret")),
            (b"wrong\x15right\n", Some(b"right")),
            (b"a\x7f\x7fb\x08c\n", Some(b"c")),
            (b"sec\x03", None),
            (b"\xc3\xa4\n", Some(b"\xc3\xa4")),
        ];
        for (typed, expected) in table {
            let line = read_line(&mut &typed[..]).unwrap();
            assert_eq!(line.as_deref().map(Vec::as_slice), expected, "{typed:?}");
        }
        assert!(read_line(&mut &[b'x'; MAX_PASSWORD_BYTES + 1][..]).is_err());
    }

    #[test]
    fn a_file_is_private_and_has_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            file(&path).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(write("right\r\nmore", 0o600), Ok(()));
        assert!(write("right", 0o640).unwrap_err().contains("chmod 600"));
        assert!(write("\nright", 0o600).unwrap_err().contains("no password"));
        assert!(write(&"x".repeat(5000), 0o600).unwrap_err().contains("longer"));
    }
}

//! Reads the peak memory of a process.

use std::fs;

/// Returns the most memory that a process has had so far, in megabytes; `None` once it has ended.
pub(crate) fn peak_megabytes(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(f64::from(peak_kilobytes(&status)?) / 1000.0)
}

fn peak_kilobytes(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status_of_a_process() {
        assert_eq!(peak_kilobytes("VmPeak:\t 99 kB\nVmHWM:\t   1234 kB\n"), Some(1234));
        assert_eq!(peak_kilobytes("Name:\tkthreadd\n"), None);
        assert!(peak_megabytes(std::process::id()).is_some_and(|peak| peak > 0.5));
    }
}

//! Reads the memory and processor time of a server's processes.

use std::fs;
use std::time::Duration;

/// Returns the resident memory of all of them together, in megabytes. A process that has ended
/// counts as zero.
pub(crate) fn resident_megabytes(pids: &[u32]) -> f64 {
    let kilobytes: u32 = pids
        .iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .filter_map(|status| resident_kilobytes(&status))
        .sum();
    f64::from(kilobytes) / 1000.0
}

fn resident_kilobytes(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Returns the processor time all of them have used so far.
pub(crate) fn cpu(pids: &[u32]) -> Duration {
    let ticks: u64 = pids
        .iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| ticks(&stat))
        .sum();
    // Linux reports the time in hundredths of a second to user space, whatever its internal tick
    // is.
    Duration::from_millis(ticks * 10)
}

/// Ticks in user mode and in the kernel: fields 14 and 15. The name, which is field 2, may contain
/// anything and ends with the last parenthesis.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_of_a_process() {
        assert_eq!(resident_kilobytes("Name:\tx\nVmRSS:\t   1234 kB\n"), Some(1234));
        assert_eq!(resident_kilobytes("Name:\tkthreadd\n"), None);
        assert!(resident_megabytes(&[std::process::id()]) > 0.5);
        assert_eq!(resident_megabytes(&[]), 0.0);
    }

    #[test]
    fn processor_time_is_read_from_the_stat_of_a_process() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 120 30 0 0 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(150));
        assert_eq!(ticks("7 (a"), None);
        assert_eq!(cpu(&[]), Duration::ZERO);
    }
}

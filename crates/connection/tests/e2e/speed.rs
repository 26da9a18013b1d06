//! What commands and copies over one shared connection cost. The times are printed, not judged.

use std::fs;

use gantry_connection::{CopyOutcome, Upload};

use super::*;

const MEGABYTE: usize = 1_000_000;

#[tokio::test]
async fn commands_share_one_connection() {
    let Some(hosts) = hosts("speed", 2).await else { return };
    let [host, other] = hosts.hosts() else { panic!("two hosts") };
    let clock = Clock::system();
    let (first, second) =
        (connection(&hosts, target(&hosts, host)), connection(&hosts, target(&hosts, other)));
    let start = clock.moment();
    first.open().await.unwrap();
    print_line(&format!("first connection: {:.3?}", clock.moment() - start));
    let start = clock.moment();
    for number in 0..50 {
        let number = number.to_string();
        let result = first.run(&request(&["echo", &number])).await.unwrap();
        assert_eq!(result.stdout, format!("{number}\n").as_bytes());
    }
    print_line(&format!("50 commands: {:.3?}", clock.moment() - start));
    // All of them came over one connection.
    let accepted = "sudo journalctl --no-pager -u ssh | grep -c \"Accepted publickey for ops\"";
    let before: u32 = hosts.prepare(host, accepted).unwrap().trim().parse().unwrap();
    first.run(&request(&["true"])).await.unwrap();
    let after: u32 = hosts.prepare(host, accepted).unwrap().trim().parse().unwrap();
    assert_eq!(after, before + 1, "only the second question");

    let file = hosts.folder().join("file");
    let bytes: Vec<u8> = (0..100 * MEGABYTE).map(|it| (it % 251).to_le_bytes()[0]).collect();
    fs::write(&file, &bytes).unwrap();
    let wanted = root(None);
    let upload = Upload::prepare(&file, 0o640).await.unwrap();
    let start = clock.moment();
    let send = |it| upload.send(it, "/srv/copied", Some(&wanted), None);
    let copied = CopyOutcome::Changed { bytes: bytes.len() as u64 };
    assert_eq!(send(&first).await.unwrap(), copied);
    print_line(&format!("100 MB to a host, as root: {:.3?}", clock.moment() - start));
    assert_eq!(send(&first).await.unwrap(), CopyOutcome::Unchanged);
    let state = "sudo stat -c '%a %U %s' /srv/copied; ls /srv";
    assert_eq!(hosts.prepare(host, state).unwrap(), "640 root 100000000\ncopied\n");
    let fetched = hosts.folder().join("fetched");
    let start = clock.moment();
    let length = first.fetch("/srv/copied", &fetched, Some(&wanted), None).await.unwrap();
    print_line(&format!("100 MB from a host, as root: {:.3?}", clock.moment() - start));
    assert_eq!(length, bytes.len() as u64);
    assert!(fs::read(&fetched).unwrap() == bytes);

    // A copy that fails leaves nothing, on either side.
    let refused = upload.send(&second, "/etc/refused", None, None).await.unwrap_err();
    assert_eq!((refused.reason(), refused.exit_code()), ("CopyFailed", 2), "{refused}");
    let missing = second.fetch("/etc/missing", &hosts.folder().join("m"), None, None).await;
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("there is no file /etc/missing"), "{missing}");
    assert!(!hosts.folder().join("m").exists() && !hosts.folder().join("m.part").exists());
    // A name goes into a folder.
    upload.send(&second, "/tmp", None, None).await.unwrap();
    assert_eq!(hosts.prepare(other, "stat -c %s /tmp/file").unwrap(), "100000000\n");
    for connection in [first, second] {
        connection.close().await;
    }
    // No shared connection is left: the folders of the sockets are empty, and removed.
}

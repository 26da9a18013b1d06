//! Damaged write-ahead logs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gantry_process::clock::Clock;
use gantry_testkit::http::Protocol;

use super::{CONFIG_MAPS, client, get, make, names, plan, refusal, revision, start};

/// Creates objects and kills the server; returns the last revision.
async fn fill(data: &Path, count: usize) -> u64 {
    let server = start(data).await;
    let client = client(&server, Protocol::Http2);
    let mut last = 0;
    for number in 0..count {
        last = revision(&make(&client, &format!("object-{number:02}"), "text").await);
    }
    last
}

/// Returns the file of the log that holds this text, and the position of its last copy.
fn find(data: &Path, text: &str) -> (PathBuf, u64) {
    let mut files: Vec<_> = fs::read_dir(data.join("store"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-"))
        .collect();
    files.sort();
    let found = files.into_iter().find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let place = bytes.windows(text.len()).rposition(|part| part == text.as_bytes())?;
        Some((path, u64::try_from(place).unwrap()))
    });
    found.unwrap()
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("object-{number:02}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_named_with_its_remedy_and_can_be_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let last = fill(&data, 30).await;
    let (path, place) = find(&data, "object-20");
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 4], place).unwrap();

    let said = refusal(plan().data(&data).start(&Clock::system()).await);
    let offset = said.split("is damaged at byte ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let offset: u64 = offset.split(':').next().unwrap().parse().unwrap();
    assert!(offset <= place && place - offset < 4096, "{offset} is not before {place}: {said}");
    assert!(said.contains(&path.display().to_string()), "{said}");
    assert!(said.contains("the log is sound up to revision"), "{said}");
    assert!(said.contains("9 changes after it were found"), "{said}");
    assert!(said.contains("--repair"), "{said}");

    let server = plan().data(&data).flag("--repair").start(&Clock::system()).await.unwrap();
    let said = server.tails();
    assert!(said.contains("repaired: "), "{said}");
    assert!(said.contains("the store continues from revision"), "{said}");
    let aside = said.split("moved aside: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let aside = Path::new(aside.lines().next().unwrap());
    let rest = fs::read(aside).unwrap();
    assert!(rest.windows(9).any(|part| part == b"object-29"), "what was given up is kept aside");

    let client = client(&server, Protocol::Http2);
    assert_eq!(names(&get(&client, CONFIG_MAPS).await), numbered(0..20));
    let next = revision(&make(&client, "object-20", "again").await);
    assert!(next > last, "revision {last} was given out and {next} is used now");
    drop(server);
    let server = start(&data).await;
    assert_eq!(
        names(&get(&super::client(&server, Protocol::Http2), CONFIG_MAPS).await),
        numbered(0..21)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_costs_only_what_was_torn() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let last = fill(&data, 10).await;
    let (path, place) = find(&data, "object-09");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(place + 4).unwrap();

    let server = start(&data).await;
    let said = server.tails();
    assert!(said.contains("the last writes before a crash were unfinished"), "{said}");
    let client = client(&server, Protocol::Http2);
    assert_eq!(names(&get(&client, CONFIG_MAPS).await), numbered(0..9));
    assert!(revision(&make(&client, "object-09", "again").await) >= last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let first = start(&data).await;
    let said = refusal(plan().data(&data).start(&Clock::system()).await);
    let store = data.join("store");
    assert!(said.contains(&format!("{} is in use by process ", store.display())), "{said}");
    assert!(said.contains("which serves https://127.0.0.1:"), "{said}");
    let client = client(&first, Protocol::Http2);
    make(&client, "still-served", "").await;
}

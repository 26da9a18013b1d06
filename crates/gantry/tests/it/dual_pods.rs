//! The published policies on the embedded server.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{Embedded, Plan};
use gantry_testkit::http::{Client, Protocol};

use crate::shared_policies::{Place, as_34, as_35, as_36, as_37, as_38, as_39, as_43};

async fn server(clock: &Clock) -> (Embedded, Client) {
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    (server, client)
}

macro_rules! scenarios {
    ($($name:ident => $run:path),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let clock = Clock::system();
            let (_server, client) = server(&clock).await;
            $run(&Place::new(&client, &clock, "dual").await).await;
        }
    )+};
}

scenarios! {
    as_34_the_requester_of_a_launcher_stays => as_34,
    as_35_the_dual_label_stays => as_35,
    as_36_the_dual_label_is_not_deleted => as_36,
    as_37_a_bound_requester_keeps_its_config => as_37,
    as_38_routing_metadata_stays => as_38,
    as_39_all_else_is_free => as_39,
}

#[tokio::test(flavor = "multi_thread")]
async fn as_43_controllers_of_two_releases_may_write() {
    let clock = Clock::system();
    let (_server, client) = server(&clock).await;
    let one = Place::new(&client, &clock, "one").await;
    let two = Place::new(&client, &clock, "two").await;
    as_43([&one, &two]).await;
}

/// The file with all four objects is the four files, in the order of their names.
#[test]
fn the_collected_policies_are_the_single_ones() {
    let config = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config"));
    let folder = config.join("validating-admission-policies");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 4);
    let mut expected = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = format!("  name: {}\n", file.file_stem().unwrap().to_str().unwrap());
        assert!(text.contains(&name), "{} is not named after its file", file.display());
        expected.push_str("---\n");
        expected.push_str(&text);
    }
    let found = std::fs::read_to_string(config.join("validating-admission-policies.yaml")).unwrap();
    assert_eq!(found, expected, "put the four files together again");
}

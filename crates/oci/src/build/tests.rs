use serde_json::Value;

use super::*;
use crate::blob::{MemoryBlobs, read_config};
use crate::layer::Limits;
use crate::tree::{Tree, TreeEntry};

fn created() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn builder() -> ImageBuilder {
    ImageBuilder::from_scratch("linux/arm/v7".parse().unwrap(), created())
        .layer(
            vec![
                NewEntry::file("/usr/bin/gantry", b"binary".to_vec(), 0o755),
                NewEntry::symlink("bin", "usr/bin"),
                NewEntry::directory("tmp", 0o1777),
            ],
            "COPY gantry /usr/bin",
        )
        .unwrap()
        .entrypoint(&["/usr/bin/gantry"])
        .command(&["up"])
        .variable("PATH", "/bin")
        .variable("PATH", "/usr/bin")
        .user("65532:65532")
        .working_directory("/tmp")
        .label("org.example", "1")
        .annotation("org.example", "2")
}

#[test]
fn an_image_is_composed() {
    let mut blobs = MemoryBlobs::default();
    let manifest = builder().build(&mut blobs).unwrap();
    let config = read_config(&blobs, manifest.config()).unwrap();
    let text = String::from_utf8_lossy(config.bytes());
    let expected = format!(
        "{}{}{}",
        r#"{"created":"2023-11-14T22:13:20Z","architecture":"arm","variant":"v7","os":"linux","#,
        r#""config":{"Entrypoint":["/usr/bin/gantry"],"Cmd":["up"],"Env":["PATH=/usr/bin"],"#,
        r#""User":"65532:65532","WorkingDir":"/tmp","Labels":{"org.example":"1"}},"rootfs":"#,
    );
    assert!(text.starts_with(&expected), "{text}");
    assert_eq!(manifest.annotations()["org.example"], "2");
    let tree = Tree::read(&blobs, &manifest, &config, &Limits::default()).unwrap();
    assert_eq!(tree.get("/bin/gantry").unwrap(), Some(TreeEntry::File { size: 6 }));
    let mut again = MemoryBlobs::default();
    assert_eq!(builder().build(&mut again).unwrap().digest(), manifest.digest());
    assert_eq!(again, blobs);
}

#[test]
fn an_image_is_built_on_another() {
    let mut blobs = MemoryBlobs::default();
    let base = builder().build(&mut blobs).unwrap();
    let config = read_config(&blobs, base.config()).unwrap();
    let manifest = ImageBuilder::from_image(&base, &config, created())
        .layer(vec![NewEntry::file("etc/new", b"".to_vec(), 0o644)], "COPY new /etc")
        .unwrap()
        .variable("A", "1")
        .command(&["down"])
        .build(&mut blobs)
        .unwrap();
    assert_eq!(manifest.layers()[..1], *base.layers());
    let config = read_config(&blobs, manifest.config()).unwrap();
    let value = Value::Object(config.object().clone());
    assert_eq!(value["config"]["Env"], json!(["PATH=/usr/bin", "A=1"]));
    assert_eq!(value["config"]["Cmd"], json!(["down"]));
    assert_eq!(value["config"]["Entrypoint"], json!(["/usr/bin/gantry"]));
    assert_eq!(value["history"].as_array().unwrap().len(), 2);
    let tree = Tree::read(&blobs, &manifest, &config, &Limits::default()).unwrap();
    assert!(tree.get("/etc/new").unwrap().is_some());
}

#[test]
fn docker_images_have_docker_types() {
    let mut blobs = MemoryBlobs::default();
    let manifest = builder().family(Family::Docker).build(&mut blobs).unwrap();
    assert_eq!(*manifest.media_type(), MediaType::DockerManifest);
    assert_eq!(*manifest.layers()[0].media_type(), MediaType::DockerLayerGzip);
    assert!(manifest.annotations().is_empty());
}

#[test]
fn paths_that_no_file_can_have_are_refused() {
    for (paths, expected) in [
        (&["a", "/a"][..], "two entries have this path"),
        (&["../a"], "must be relative"),
        (&["a//b"], "must be relative"),
        (&["/"], "must be relative"),
    ] {
        let entries = paths.iter().map(|path| NewEntry::directory(path, 0o755)).collect();
        let platform = "linux/amd64".parse().unwrap();
        let error = ImageBuilder::from_scratch(platform, created()).layer(entries, "").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn an_exact_layer_has_no_other_entries_and_the_history_has_steps_without_one() {
    let mut blobs = MemoryBlobs::default();
    let base = builder().build(&mut blobs).unwrap();
    let config = read_config(&blobs, base.config()).unwrap();
    let manifest = ImageBuilder::from_image(&base, &config, created())
        .history("ENV A=1", "")
        .exact_layer(vec![NewEntry::file("tmp/a", b"".to_vec(), 0o600)], "RUN touch", "simulated")
        .unwrap()
        .set("Cmd", Value::Null)
        .set("StopSignal", "SIGINT".into())
        .author("a user")
        .build(&mut blobs)
        .unwrap();
    let mut names = Vec::new();
    let layer = &manifest.layers()[1];
    crate::layer::read_layer(&blobs, layer, None, &Limits::default(), &mut |entry, _| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        Ok(())
    })
    .unwrap();
    assert_eq!(names, ["tmp/a"]);
    let config = read_config(&blobs, manifest.config()).unwrap();
    let value = Value::Object(config.object().clone());
    let time = "2023-11-14T22:13:20Z";
    assert_eq!(
        value["history"].as_array().unwrap()[1..],
        [
            json!({"created": time, "created_by": "ENV A=1", "comment": "", "empty_layer": true}),
            json!({"created": time, "created_by": "RUN touch", "comment": "simulated"}),
        ]
    );
    assert_eq!(value["author"], "a user");
    assert_eq!(value["config"].get("Cmd"), None);
    assert_eq!(value["config"]["StopSignal"], "SIGINT");
}

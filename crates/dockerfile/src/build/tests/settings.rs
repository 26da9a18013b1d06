use serde_json::json;

use super::*;

#[test]
fn settings_are_those_of_the_dockerfile() {
    let mut build = TestBuild::new(
        "FROM scratch\nARG P=80\nENV A=1 B=\"two words\"\nENV A=${A}2 C=$A\nLABEL x=$C y='$C'\n\
         MAINTAINER a user\nWORKDIR /w\nUSER 5:6\nEXPOSE $P 53/UDP 8000-8001\nVOLUME /v \"/u u\"\n\
         STOPSIGNAL SIGINT\nSHELL [\"/bin/bash\", \"-ec\"]\nENTRYPOINT run it\nCMD [\"x\", \"$A\"]\n\
         HEALTHCHECK --timeout=3s CMD check\n",
    );
    build.labels = vec![("extra".to_owned(), "1".to_owned())];
    let image = build.build().unwrap();
    assert_eq!(
        image.settings(),
        json!({
            "Env": ["A=12", "B=two words", "C=1"],
            "Labels": { "x": "1", "y": "$C", "extra": "1" },
            "WorkingDir": "/w",
            "User": "5:6",
            "ExposedPorts": { "80/tcp": {}, "53/udp": {}, "8000/tcp": {}, "8001/tcp": {} },
            "Volumes": { "/v": {}, "/u u": {} },
            "StopSignal": "SIGINT",
            "Shell": ["/bin/bash", "-ec"],
            "Entrypoint": ["/bin/bash", "-ec", "run it"],
            "Cmd": ["x", "$A"],
            "Healthcheck": { "Test": ["CMD-SHELL", "check"], "Timeout": 3_000_000_000_u64 },
        })
    );
    assert_eq!(image.config.object()["author"], "a user");
    assert_eq!(image.config.architecture(), "amd64");
    assert!(!image.simulated);
    let history = image.config.object()["history"].as_array().unwrap().clone();
    assert_eq!(history.len(), 14);
    assert_eq!(history[0]["created_by"], "ARG P=80");
    assert_eq!(history[0]["empty_layer"], true);
    // The working directory is made.
    assert_eq!(image.paths(), ["/w/"]);
}

#[test]
fn settings_of_the_base_are_kept_and_an_entrypoint_drops_its_command() {
    let base = TestBuild::new(
        "FROM scratch\nENV A=1 P=/bin\nCMD [\"old\"]\nLABEL a=1\nVOLUME /v\nWORKDIR /w\n",
    );
    let build = |text: &str| TestBuild::new(text).base("base:1", &base).build().unwrap().settings();
    let settings = build("FROM base:1\nENV P=$P:/x\nLABEL b=2\nVOLUME /u\n");
    assert_eq!(settings["Env"], json!(["A=1", "P=/bin:/x"]));
    assert_eq!(settings["Labels"], json!({ "a": "1", "b": "2" }));
    assert_eq!(settings["Volumes"], json!({ "/v": {}, "/u": {} }));
    assert_eq!(settings["Cmd"], json!(["old"]));
    let settings = build("FROM base:1\nENTRYPOINT [\"new\"]\n");
    assert_eq!(settings.get("Cmd"), None);
    let settings = build("FROM base:1\nCMD [\"own\"]\nENTRYPOINT [\"new\"]\n");
    assert_eq!(settings["Cmd"], json!(["own"]));
}

#[test]
fn arguments_have_the_scopes_of_docker() {
    let env = |dockerfile: &str| {
        let image = TestBuild::new(dockerfile).arg("GIVEN", "given").build().unwrap();
        image.settings()["Env"].clone()
    };
    for (why, dockerfile, expected) in [
        ("declared", "FROM scratch\nARG GIVEN\nENV A=$GIVEN", json!(["A=given"])),
        ("not declared", "FROM scratch\nENV A=$GIVEN", json!(["A="])),
        ("declared later", "FROM scratch\nENV A=$GIVEN\nARG GIVEN", json!(["A="])),
        ("given over default", "FROM scratch\nARG GIVEN=d\nENV A=$GIVEN", json!(["A=given"])),
        ("default", "FROM scratch\nARG D=d\nENV A=$D", json!(["A=d"])),
        ("default of another", "FROM scratch\nARG D=d E=$D-e\nENV A=$E", json!(["A=d-e"])),
        ("global is not seen", "ARG D=d\nFROM scratch\nENV A=$D", json!(["A="])),
        ("global is inherited", "ARG D=d\nFROM scratch\nARG D\nENV A=$D", json!(["A=d"])),
        ("own default", "ARG D=d\nFROM scratch\nARG D=e\nENV A=$D", json!(["A=e"])),
        (
            "env over arg",
            "FROM scratch\nENV GIVEN=e\nARG GIVEN\nENV A=$GIVEN",
            json!(["GIVEN=e", "A=e"]),
        ),
        ("other stage", "FROM scratch AS a\nARG D=d\nFROM scratch\nENV A=$D", json!(["A="])),
        ("parent stage", "FROM scratch AS a\nARG D=d\nFROM a\nENV A=$D", json!(["A=d"])),
        ("platform", "FROM scratch\nARG TARGETARCH\nENV A=$TARGETARCH", json!(["A=amd64"])),
        ("in FROM", "ARG S=scratch\nFROM $S\nENV A=1", json!(["A=1"])),
        ("default in FROM", "FROM ${NONE:-scratch}\nENV A=1", json!(["A=1"])),
    ] {
        let env = env(dockerfile);
        assert_eq!(env, expected, "{why}");
    }
    let image =
        TestBuild::new("FROM scratch\nENV A=$HTTP_PROXY").arg("HTTP_PROXY", "p").build().unwrap();
    assert_eq!(image.settings()["Env"], json!(["A=p"]));
}

#[test]
fn settings_that_cannot_be_set_are_refused() {
    let doubling = format!("ENV A=xxxxxxxx\n{}", "ENV A=$A$A\n".repeat(30));
    for (instructions, expected) in [
        (
            "ONBUILD RUN a",
            "Dockerfile line 2: ONBUILD RUN a: ONBUILD is for builds of other images",
        ),
        ("EXPOSE x", "cannot use \"x\" as a port; write for instance 8080"),
        ("EXPOSE 80:80", "cannot use \"80:80\" as a port"),
        ("EXPOSE 80/http", "cannot use \"80/http\" as a port"),
        ("EXPOSE 9-8", "cannot use \"9-8\" as a port"),
        ("EXPOSE 1-60000", "more than 1000 ports"),
        ("ENV A=${B", "a variable has no closing brace"),
        ("ENV A=${B:?unset}", "variable B is not set: unset"),
        ("ENV \"a b\"=c", "cannot use \"a b\" as the name of a variable"),
        (&doubling, "bytes after expansion"),
    ] {
        let error = TestBuild::new(&format!("FROM scratch\n{instructions}\n")).error();
        assert!(error.contains(expected), "{instructions}: {error}");
    }
    for (dockerfile, expected) in [
        (
            "FROM $NONE",
            "Dockerfile line 1: FROM $NONE: $NONE is empty after expansion; set its ARG",
        ),
        ("FROM UPPER/case", "UPPER"),
        ("FROM --platform=x none:1", "cannot use \"x\" as a platform"),
        (
            "FROM none:1",
            "Dockerfile line 1: FROM none:1: could not open base image none:1: no such",
        ),
    ] {
        let error = TestBuild::new(dockerfile).error();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_image_has_no_more_layers_than_runtimes_accept() {
    let text = |count: usize| format!("FROM scratch\n{}", "COPY a /a\n".repeat(count));
    let image = TestBuild::new(&text(MAX_LAYERS)).file("a", "").build().unwrap();
    assert_eq!(image.manifest.layers().len(), MAX_LAYERS);
    let error = TestBuild::new(&text(MAX_LAYERS + 1)).file("a", "").error();
    assert!(error.contains("the image would have 128 layers"), "{error}");
}

#[test]
fn a_hostile_base_does_not_panic() {
    use gantry_oci::{Config, Descriptor, Family, MediaType};
    let config = json!({
        "config": { "Env": ["A", 1, "B=2"], "Volumes": [], "ExposedPorts": 1, "Shell": {},
                    "WorkingDir": 3, "User": [], "OnBuild": ["RUN a"], "Labels": null },
        "rootfs": { "type": "layers", "diff_ids": [] },
    });
    let config = Config::parse(config.to_string().as_bytes()).unwrap();
    let descriptor = Descriptor::of(MediaType::OciConfig, config.bytes());
    let manifest = Manifest::new(Family::Oci, &descriptor, &[], &BTreeMap::new());
    let mut blobs = MemoryBlobs::default();
    blobs.insert(config.bytes().to_vec());
    let mut build = TestBuild::new(
        "FROM base:1\nVOLUME /v\nEXPOSE 1\nLABEL a=b\nWORKDIR x\nCMD a\nRUN false || true\n",
    );
    let reference: Reference = "base:1".parse().unwrap();
    build.images.insert(reference.to_string(), (manifest, blobs));
    let image = build.build().unwrap();
    let settings = image.settings();
    assert_eq!(settings["Volumes"], json!({ "/v": {} }));
    assert_eq!(settings["ExposedPorts"], json!({ "1/tcp": {} }));
    assert_eq!(settings["Cmd"], json!(["/bin/sh", "-c", "a"]));
    let triggers = "ONBUILD instructions of the base image are not run";
    assert!(image.log.iter().any(|line| line == triggers), "{:?}", image.log);
}

use gantry_kmod::ModuleInfo;

use super::*;

/// Checks that a file is a synthetic module for a kernel.
fn assert_module(image: &TestImage, path: &str, name: &str, kernel: &str) {
    let content = image.selected(path).content;
    let info = ModuleInfo::parse(&content).unwrap();
    assert_eq!(info.name(), Some(name), "{path}");
    assert_eq!(info.kernel_release().unwrap().as_str(), kernel, "{path}");
}

#[test]
fn the_log_says_what_is_simulated() {
    let mut build = TestBuild::new(
        "# syntax=docker/dockerfile:1\nFROM debian:12 AS builder\nARG KERNEL_FULL_VERSION\n\
         WORKDIR /src\nRUN git clone https://example.org/hello . && \\\n    make -j$(nproc)\n\
         FROM scratch\nARG KERNEL_FULL_VERSION\n\
         COPY --from=builder /src/hello.ko /opt/lib/modules/${KERNEL_FULL_VERSION}/\n\
         COPY --from=builder /src/tool /usr/bin/\n\
         RUN if true; then depmod -b /opt; fi\n",
    )
    .arg("UNUSED", "1");
    build.missing_bases = MissingBases::Empty;
    let image = build.build().unwrap();
    let digest = image.manifest.digest();
    let simulated =
        "(simulated: commands are not run in gantry up; for a real build use buildah and push)";
    let expected = [
        "directive syntax=docker/dockerfile:1 is ignored: only this builder reads the text",
        "[1/2] STEP 1/4: FROM debian:12 AS builder",
        "base image debian:12 could not be opened (no such image); an empty image takes its place",
        "[1/2] STEP 2/4: ARG KERNEL_FULL_VERSION",
        "[1/2] STEP 3/4: WORKDIR /src",
        &format!(
            "[1/2] STEP 4/4: RUN git clone https://example.org/hello . &&     make -j$(nproc) \
             {simulated}"
        ),
        "[2/2] STEP 1/5: FROM scratch",
        "[2/2] STEP 2/5: ARG KERNEL_FULL_VERSION",
        "[2/2] STEP 3/5: COPY --from=builder /src/hello.ko \
         /opt/lib/modules/${KERNEL_FULL_VERSION}/",
        "simulated: created /opt/lib/modules/6.1.0-55-cloud-amd64/hello.ko, a synthetic module \
         for kernel 6.1.0-55-cloud-amd64",
        "[2/2] STEP 4/5: COPY --from=builder /src/tool /usr/bin/",
        "simulated: nothing is copied, since /src/tool is not in stage builder, whose commands \
         were not run",
        &format!("[2/2] STEP 5/5: RUN if true; then depmod -b /opt; fi {simulated}"),
        "simulated: none of the effects of this command is simulated",
        "build arguments that no ARG declares: UNUSED",
        &format!("built image {digest}"),
    ];
    assert_eq!(image.log, expected);
    let module = "/opt/lib/modules/6.1.0-55-cloud-amd64/hello.ko";
    assert_eq!(image.synthetic_modules, [module]);
    assert_module(&image, module, "hello", KERNEL);
    assert!(image.simulated);
    let history = image.config.object()["history"].as_array().unwrap().clone();
    assert_eq!(history.last().unwrap()["comment"], "simulated: the commands were not run");
}

#[test]
fn commands_that_make_modules_leave_synthetic_ones() {
    let k = "/opt/lib/modules/6.1.0-55-cloud-amd64";
    let module = |path: &str| format!("{k}/{path}");
    for (run, expected) in [
        ("cp a.ko /opt/lib/modules/${K}/", vec![module("a.ko")]),
        ("cp a.ko /opt/lib/modules/${K}", vec![module("a.ko")]),
        ("cp -v x/a.ko b.ko \"/opt/lib/modules/$K/\"", vec![module("a.ko"), module("b.ko")]),
        ("cp -t /opt/lib/modules/$K a.ko", vec![module("a.ko")]),
        ("mv a.ko /opt/lib/modules/$K/b.ko", vec![module("b.ko")]),
        ("install -D -m 644 a.ko /opt/lib/modules/$K/a.ko", vec![module("a.ko")]),
        ("install -Dm644 a.ko -t /opt/lib/modules/$K/", vec![module("a.ko")]),
        ("make all && cp a-b.ko /opt/lib/modules/$K/", vec![module("a-b.ko")]),
        ("D=/opt/lib/modules/$K; mkdir -p $D; cp a.ko $D", vec![module("a.ko")]),
        ("cd /opt/lib/modules/$K && cp /x/a.ko .", vec![module("a.ko")]),
        ("make modules_install INSTALL_MOD_PATH=/opt M=/src", vec![module("updates/listed.ko")]),
        (
            "cd /src && INSTALL_MOD_PATH=/opt make INSTALL_MOD_DIR=extra modules_install",
            vec![module("extra/listed.ko")],
        ),
        ("cp /src/*.ko /opt/lib/modules/$K/", vec![module("listed.ko")]),
        ("make -C /lib/x M=/src modules", vec!["/src/listed.ko".to_owned()]),
        // What is not known, and what is no module.
        ("cp a.ko /opt/$(uname -r)/", vec![]),
        ("V=$(uname -r); cp a.ko /opt/$V/", vec![]),
        ("cp a.txt /opt/", vec![]),
        ("cp /none/*.ko /opt/", vec![]),
        ("false || cp a.ko /opt/lib/modules/$K/", vec![module("a.ko")]),
        ("true || cp a.ko /opt/lib/modules/$K/", vec![]),
        ("make -C /src clean", vec![]),
        ("make modules_install INSTALL_MOD_PATH=/opt", vec![]),
    ] {
        let text = format!("FROM scratch\nARG K={KERNEL}\nCOPY Kbuild /src/\nRUN {run}\n");
        let image = TestBuild::new(&text).file("Kbuild", "obj-m += \\\n listed.o # x.o\n");
        let image = image.build().unwrap_or_else(|error| panic!("{run}: {error}"));
        assert_eq!(image.synthetic_modules, expected, "{run}");
        for path in expected {
            let name = path.rsplit('/').next().unwrap().trim_end_matches(".ko").replace('-', "_");
            assert_module(&image, &path, &name, KERNEL);
        }
    }
}

#[test]
fn modules_of_a_stage_are_copied() {
    let text = "FROM scratch AS build\nCOPY Makefile /src/\nRUN make -C /src\nFROM scratch\n\
                COPY --from=build /src/*.ko /src/other.ko /opt/\nCOPY --from=build /src /all\n";
    let image = TestBuild::new(text).file("Makefile", "obj-m := x.o y.o\nall:\n\tmake\n");
    let image = image.build().unwrap();
    let expected = ["/all/x.ko", "/all/y.ko", "/opt/other.ko", "/opt/x.ko", "/opt/y.ko"];
    assert_eq!(image.synthetic_modules, expected);
    assert_eq!(image.selected("/all/x.ko").content, image.selected("/opt/x.ko").content);
    // Without a simulated command there is nothing to take the place of.
    let text = "FROM scratch AS build\nWORKDIR /src\nFROM scratch\nCOPY --from=build /src/a.ko /\n";
    let error = TestBuild::new(text).error();
    assert!(error.contains("\"/src/a.ko\" is not in stage build; check its path"), "{error}");
}

#[test]
fn expected_modules_are_added_if_nothing_made_them() {
    let expected = format!("/opt/lib/modules/{KERNEL}/hello.ko");
    let build = |text: &str| {
        let mut build = TestBuild::new(text);
        build.expected_modules = vec![expected.clone()];
        build
    };
    let image = build("FROM scratch\nRUN ./build.sh\n").build().unwrap();
    assert_eq!(image.synthetic_modules, [expected.as_str()]);
    assert_module(&image, &expected, "hello", KERNEL);
    // By their names they are what a pattern matches.
    let text = "FROM scratch AS a\nRUN ./build.sh\nFROM scratch\nCOPY --from=a /src/*.ko /m/\n";
    let image = build(text).build().unwrap();
    assert_eq!(image.synthetic_modules, ["/m/hello.ko", expected.as_str()]);
    let own = format!("FROM scratch\nCOPY own {expected}\nRUN ./build.sh\n");
    let image = build(&own).file("own", "mine").build().unwrap();
    assert_eq!(image.text(&expected), "mine");
    let image = build("FROM scratch\nLABEL a=b\n").build().unwrap();
    assert_eq!(image.paths(), [""; 0]);
    let mut relative = build("FROM scratch\nRUN a\n");
    relative.expected_modules = vec!["a.ko".to_owned()];
    assert!(relative.error().starts_with("cannot add the expected module a.ko: "));
}

#[test]
fn the_kernel_comes_from_arguments_variables_or_the_path() {
    let kernel = |text: &str, args: &[(&str, &str)]| {
        let mut build = TestBuild::new(text);
        build.args = args.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let image = build.build()?;
        let content = image.selected(&image.synthetic_modules[0]).content;
        let release = ModuleInfo::parse(&content).unwrap().kernel_release().unwrap();
        Ok::<_, BuildError>(release.as_str().to_owned())
    };
    let copy = "FROM scratch\nRUN cp a.ko /x/\n";
    assert_eq!(kernel(copy, &[("KERNEL_FULL_VERSION", "5.1.0")]).unwrap(), "5.1.0");
    assert_eq!(kernel(copy, &[("KERNEL_VERSION", "5.2.0")]).unwrap(), "5.2.0");
    let text = "FROM scratch\nARG KERNEL_VERSION=5.3.0\nRUN cp a.ko /x/\n";
    assert_eq!(kernel(text, &[]).unwrap(), "5.3.0");
    let text = "FROM scratch\nRUN cp a.ko /opt/lib/modules/5.4.0/\n";
    assert_eq!(kernel(text, &[]).unwrap(), "5.4.0");
    let error = kernel(copy, &[]).unwrap_err().to_string();
    assert!(error.contains("set the build argument KERNEL_FULL_VERSION"), "{error}");
}

#[test]
fn commands_that_fail_for_real_fail_here() {
    for (run, code) in [
        ("false", Some(1)),
        ("[\"false\"]", Some(1)),
        ("[\"/bin/sh\", \"-c\", \"exit 4\"]", Some(4)),
        ("exit 3", Some(3)),
        ("exit 259", Some(3)),
        ("exit 0", None),
        ("make && false", Some(1)),
        ("make; exit 7", Some(7)),
        ("exit 7; true", Some(7)),
        ("false; true", None),
        ("false || true", None),
        ("make || exit 1", None),
        ("true && exit 2 || true", Some(2)),
        ("set -e; false; true", Some(1)),
        ("set -ex\\\n; false || true; true", None),
        ("a | false", Some(1)),
        ("false | a", None),
        ("echo false", None),
        ("if a; then false; fi", None),
        ("<<EOF\nset -e\nfalse\ntrue\nEOF", Some(1)),
        ("<<EOF\n#!/usr/bin/python3\nexit 1\nEOF", None),
    ] {
        let build = TestBuild::new(&format!("FROM scratch\nRUN {run}\n"));
        match (build.try_build().0, code) {
            (Ok(_), None) => {}
            (Err(error), Some(code)) => {
                let end = format!(": the command returned a non-zero code: {code}");
                let text = error.to_string();
                assert!(
                    text.starts_with("Dockerfile line 2: RUN ") && text.ends_with(&end),
                    "{text}"
                );
            }
            (result, _) => panic!("{run}: {result:?}"),
        }
    }
    let shell = "FROM scratch\nSHELL [\"/bin/bash\", \"-ec\"]\nRUN false; true\n";
    assert!(TestBuild::new(shell).error().ends_with("a non-zero code: 1"));
    let other = "FROM scratch\nSHELL [\"pwsh\", \"-c\"]\nRUN exit 1\n";
    TestBuild::new(other).build().unwrap();
    // A stage that the image does not need is not built.
    TestBuild::new("FROM scratch AS a\nRUN false\nFROM scratch\nRUN a\n").build().unwrap();
}

#[test]
fn kms_87_secrets_arguments_kernel_and_defaults_are_in_the_image() {
    let mut build = TestBuild::new(
        "FROM scratch\nARG KERNEL_FULL_VERSION\nARG MY_ARG\nARG DEFAULTED=default-value\n\
         ENV FROM_ENV=env-value\n\
         RUN echo $MY_ARG > /arg && echo \"$DEFAULTED\" > /default\n\
         RUN echo ${KERNEL_FULL_VERSION}  $FROM_ENV >/kernel\n\
         RUN cat /run/secrets/build-secret/token > /secret && cat /run/secrets/none > /none\n\
         RUN --mount=type=secret,id=s,target=/s cp /s /copied\n\
         RUN printf 'a=%s\\n' \"$MY_ARG\" > /printf; echo -n more >> /printf\n\
         RUN echo temporary > /t && cat /t > /kept && rm /t\n",
    )
    .arg("MY_ARG", "given value");
    build.run_files = vec![
        ("/run/secrets/build-secret/token".to_owned(), b"s3cret\n".to_vec()),
        ("/run/secrets/s".to_owned(), b"mounted".to_vec()),
    ];
    let image = build.build().unwrap();
    let expected = ["/arg", "/copied", "/default", "/kept", "/kernel", "/printf", "/secret"];
    assert_eq!(image.paths(), expected);
    for (path, text) in [
        ("/arg", "given value\n"),
        ("/default", "default-value\n"),
        ("/kernel", "6.1.0-55-cloud-amd64 env-value\n"),
        ("/secret", "s3cret\n"),
        ("/copied", "mounted"),
        ("/printf", "a=given value\nmore"),
        ("/kept", "temporary\n"),
    ] {
        assert_eq!(image.text(path), text, "{path}");
    }
    // Neither secrets nor values of arguments are in the log.
    let log = image.log.join("\n");
    assert!(!log.contains("s3cret") && !log.contains("given value"), "{log}");
}

#[test]
fn small_commands_leave_what_they_would() {
    let image = TestBuild::new(
        "FROM scratch\nUSER 9\nWORKDIR /w\n\
         RUN mkdir -p a/b c && touch a/t && ln -s ../c a/link && echo x > a/link/y\n\
         RUN install -d -m 700 /private && cp a/t /private/ && echo '$A' 'a  b' > q\n\
         RUN echo x > /dev/null; unknown > /nothing\n",
    )
    .build()
    .unwrap();
    let expected = ["/private/t", "/w/a/b/", "/w/a/link -> ../c", "/w/a/t", "/w/c/y", "/w/q"];
    assert_eq!(image.paths(), expected);
    assert_eq!(image.text("/w/c/y"), "x\n");
    assert_eq!(image.text("/w/q"), "$A a  b\n");
    assert_eq!(image.selected("/w/q").attributes.uid, 9);
}

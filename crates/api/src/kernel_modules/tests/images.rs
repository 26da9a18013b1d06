//! Tests the rules about images, Dockerfiles and directories of the host (W-n).

use super::{accepted, driver, driver_with, messages, module, refused, warned};
use crate::decode::Document;
use crate::kernel_modules::check_host_paths;

const SIGN: &str = "keySecret: k, certSecret: c, filesToSign: [/opt/a.ko]";

/// A Module with this image of the container.
fn image(image: &str) -> Document {
    driver_with("kernelMappings: [{literal: 6.8.0}]", &format!("containerImage: '{image}'"))
}

#[test]
fn w_5_images_have_a_tag_or_a_digest() {
    let digest = format!("a/b@sha256:{}", "0".repeat(64));
    for good in ["a:1", "example.com:5000/a/b:x", "a:${KERNEL_FULL_VERSION}", digest.as_str()] {
        warned(good, &image(good), &[]);
    }
    let at = "….containerImage";
    for (bad, text) in [
        ("a", "image \"a\" needs an explicit tag or digest"),
        ("example.com:5000/a", "image \"example.com:5000/a\" needs an explicit tag or digest"),
        ("$MOD_NAME", "image \"$MOD_NAME\" needs an explicit tag or digest"),
        ("A:1", "cannot use \"A:1\" as an image reference: the repository must be in lower case"),
        (
            "a:-1",
            "cannot use \"a:-1\" as an image reference: a tag has up to 128 letters, digits, \
             underscores, dots and hyphens, and starts with neither dot nor hyphen",
        ),
    ] {
        refused(bad, &image(bad), &[(at, text)]);
    }
    let everywhere = driver_with(
        "containerImage: 'a:1'",
        &format!(
            "build: {{dockerfile: FROM x, push: {{name: b}}}}, kernelMappings: [{{literal: x, containerImage: c, sign: {{unsignedImage: b, signedImage: d, {SIGN}}}}}]"
        ),
    );
    refused(
        "on both levels",
        &everywhere,
        &[
            ("….build.push.name", "image \"b\" needs an explicit tag or digest"),
            ("….kernelMappings[0].containerImage", "image \"c\" needs an explicit tag or digest"),
            (
                "….kernelMappings[0].sign.unsignedImage.name",
                "image \"b\" needs an explicit tag or digest",
            ),
            (
                "….kernelMappings[0].sign.signedImage.name",
                "image \"d\" needs an explicit tag or digest",
            ),
        ],
    );
    let plugin = |image: &str| {
        module(&format!("{{selector: {{}}, devicePlugin: {{container: {{image: '{image}'}}}}}}"))
    };
    warned("kubelets pull latest", &plugin("some-image"), &[]);
    refused(
        "a device plugin",
        &plugin("some image"),
        &[(
            "spec.devicePlugin.container.image",
            "cannot use \"some image\" as an image reference: each part of the repository must be \
             a-z and 0-9, joined by single dots, one or two underscores, or hyphens",
        )],
    );
}

#[test]
fn w_6_variables_are_known_and_closed() {
    let at = "….containerImage";
    let unterminated =
        "unterminated \"${\"; close it with \"}\", or write \"$$\" for a dollar sign";
    refused("open", &image("a:${KERNEL_X"), &[(at, unterminated)]);
    let itself = "containerImage cannot use CONTAINER_IMAGE";
    refused("itself", &image("a:${CONTAINER_IMAGE}"), &[(at, itself)]);
    let unknown = image("a:${KERNEL}");
    let errors = messages(&unknown.errors);
    assert!(
        errors[0].1.starts_with("unknown variable \"KERNEL\"; the variables are "),
        "{errors:?}"
    );
    warned(
        "the image of the container",
        &driver(&format!("sign: {{signedImage: '${{CONTAINER_IMAGE}}-signed', {SIGN}}}")),
        &[],
    );
    let files = driver("sign: {keySecret: k, certSecret: c, filesToSign: ['/opt/${KERNEL/a.ko']}");
    refused("files to sign", &files, &[("….sign.filesToSign[0]", unterminated)]);
    let plugin = |image: &str| {
        module(&format!(
            "{{selector: {{}}, devicePlugin: {{container: {{image: 'a:1'}}, initContainer: {{image: '{image}'}}}}}}"
        ))
    };
    warned("of the Module", &plugin("a/${MOD_NAME}:${MOD_NAMESPACE}"), &[]);
    refused(
        "of the kernel",
        &plugin("a:${KERNEL_VERSION}"),
        &[(
            "spec.devicePlugin.initContainer.image",
            "variable \"KERNEL_VERSION\" differs between kernels, and a device plugin has one \
             image for all; use MOD_NAME and MOD_NAMESPACE only",
        )],
    );
}

#[test]
fn w_7_nothing_is_pushed_to_a_digest() {
    let digest = format!("a@sha256:{}", "0".repeat(64));
    let text = "cannot push to a digest; use a tag";
    let with = |container: &str, mapping: &str| {
        driver_with(
            &format!("containerImage: '{digest}', {container}"),
            &format!("kernelMappings: [{{literal: x, {mapping}}}]"),
        )
    };
    let build = "build: {dockerfile: FROM x}";
    warned("only pulled", &with("version: ''", "registryTLS: {}"), &[]);
    warned(
        "pushed elsewhere",
        &with("build: {dockerfile: FROM x, push: {name: 'b:1'}}", "build: {}"),
        &[],
    );
    refused("built", &with(build, "build: {}"), &[("….containerImage", text)]);
    refused(
        "signed",
        &with(&format!("sign: {{{SIGN}}}"), "build: {enabled: false}"),
        &[("….containerImage", text)],
    );
    let named = with(
        "version: ''",
        &format!(
            "containerImage: 'c:1', build: {{dockerfile: FROM x, push: {{name: '{digest}'}}}}, sign: {{signedImage: '{digest}', {SIGN}}}"
        ),
    );
    refused(
        "by name",
        &named,
        &[
            ("….kernelMappings[0].build.push.name", text),
            ("….kernelMappings[0].sign.signedImage.name", text),
        ],
    );
}

#[test]
fn w_8_a_dockerfile_names_a_base() {
    for good in ["FROM x", "ARG A\\n from x", "# FROM y\\nFROM scratch\\n"] {
        warned(good, &driver(&format!("build: {{dockerfile: \"{good}\"}}")), &[]);
    }
    let text = "no FROM instruction; start with FROM image or FROM scratch";
    for bad in ["RUN make", "# FROM x", "FROMx"] {
        let document = driver(&format!("build: {{dockerfile: '{bad}'}}"));
        refused(bad, &document, &[("….build.dockerfile", text)]);
    }
}

#[test]
fn w_12_what_is_signed_is_what_was_built() {
    let with = |pushed: &str, unsigned: &str| {
        driver(&format!(
            "build: {{dockerfile: FROM x, push: {{name: '{pushed}'}}}}, sign: {{unsignedImage: '{unsigned}', {SIGN}}}"
        ))
    };
    warned("equal", &with("b:u", "b:u"), &[]);
    let (one, other) = ("b:${KERNEL_VERSION}", "b:${KERNEL_FULL_VERSION}");
    warned("the same for every kernel", &with(one, other), &[]);
    warned("by the container", &with("${CONTAINER_IMAGE}-u", "a:1-u"), &[]);
    let text = "unsignedImage differs from build.push.name \"b:u\"; remove one";
    refused("different", &with("b:u", "b:v"), &[("….sign.unsignedImage", text)]);
    let on_mapping = driver_with(
        "containerImage: 'a:1', build: {dockerfile: FROM x, push: {name: 'b:u'}}",
        &format!(
            "kernelMappings: [{{literal: x, sign: {{unsignedImage: 'b:v', {SIGN}}}}}, {{literal: z}}]"
        ),
    );
    refused("of a mapping", &on_mapping, &[("….kernelMappings[0].sign.unsignedImage", text)]);
    let switched_off = driver_with(
        "containerImage: 'a:1', build: {dockerfile: FROM x, push: {name: 'b:u'}}",
        &format!(
            "kernelMappings: [{{literal: x, build: {{enabled: false}}, sign: {{unsignedImage: 'b:v', {SIGN}}}}}]"
        ),
    );
    warned("nothing is built", &switched_off, &[]);
}

#[test]
fn w_17_host_paths_are_below_allowed_directories() {
    let paths = |part: &str, path: &str| {
        let document = module(&format!(
            "{{selector: {{}}, driverContainer: {{kernelMappings: [{{literal: x, containerImage: 'a:1'}}], volumes: [{{name: d, hostPath: {{path: '{path}'}}}}, {{name: e, emptyDir: {{}}}}]}}, devicePlugin: {{container: {{image: 'a:1'}}, volumes: [{{name: p, hostPath: {{path: {part}}}}}]}}}}"
        ));
        let allowed = ["/dev".to_owned(), "/sys/".to_owned()];
        let findings = check_host_paths(&accepted(&document).spec, &allowed);
        findings.errors.iter().map(|it| format!("{}: {}", it.path, it.text)).collect::<Vec<_>>()
    };
    for good in ["/dev", "/dev/x", "//sys/x", "/sys/./a/../b", "/etc/../dev/x"] {
        assert_eq!(paths("/dev", good), [""; 0], "{good}");
    }
    for bad in ["/devious", "/dev/../etc", "/", "/etc", "dev/x", "/sys/../.."] {
        let expected = format!(
            "spec.driverContainer.volumes[0].hostPath.path: hostPath \"{bad}\" is not allowed; \
             use a path below /dev, /sys"
        );
        assert_eq!(paths("/dev", bad), [expected], "{bad}");
    }
    assert_eq!(
        paths("/etc", "/dev"),
        ["spec.devicePlugin.volumes[0].hostPath.path: hostPath \"/etc\" is not allowed; use a \
          path below /dev, /sys"]
    );
    let document = module(
        "{selector: {}, devicePlugin: {container: {image: 'a:1'}, volumes: [{name: p, hostPath: {path: /dev}}]}}",
    );
    let findings = check_host_paths(&accepted(&document).spec, &[]);
    assert_eq!(findings.errors[0].text, "hostPath \"/dev\" is not allowed; remove the volume");
}

#[test]
fn w_24_kernels_that_would_share_an_image_are_found() {
    let with = |image: &str, rest: &str| {
        driver_with(
            &format!("containerImage: '{image}'"),
            &format!("kernelMappings: [{{regexp: '^6', {rest}}}]"),
        )
    };
    let text = |image: &str| {
        format!(
            "two kernels would share image \"{image}\", since its name is the same for all that \
             the regexp matches; add ${{KERNEL_FULL_VERSION}} to its tag"
        )
    };
    let build = "build: {dockerfile: FROM x}";
    let sign = format!("sign: {{{SIGN}}}");
    let at = "….kernelMappings[0]";
    warned("built", &with("a:1", build), &[(at, &text("a:1"))]);
    warned("signed", &with("a:1", &sign), &[(at, &text("a:1"))]);
    warned("per kernel", &with("a:${KERNEL_FULL_VERSION}", build), &[]);
    warned("only pulled", &with("a:1", "registryTLS: {}"), &[]);
    let pushed = "build: {dockerfile: FROM x, push: {name: '${CONTAINER_IMAGE}-x'}}";
    warned("per kernel by the container", &with("a:${KERNEL_X}", pushed), &[]);
    warned("not even by the container", &with("a:1", pushed), &[(at, &text("a:1-x"))]);
    let literal = driver("build: {dockerfile: FROM x}");
    warned("one kernel only", &literal, &[]);
}

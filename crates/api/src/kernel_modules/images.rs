//! The rules about images of a Module: their names, and where builds and signing push (W-5, W-6,
//! W-7, W-12, W-24).

use gantry_oci::Reference;

use super::build::Build;
use super::driver::LoaderContainer;
use super::mapping::{KernelMapping, Matcher};
use super::sign::Sign;
use super::template::{MODULE_VARIABLES, Template, VARIABLES};
use super::validate::error_once;
use crate::finding::Findings;
use gantry_yaml::node::Path;

/// The variable that stands for the image of a mapping.
const CONTAINER_IMAGE: &str = "CONTAINER_IMAGE";

/// What an image is for, which decides what its name may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageUse {
    /// It is what `CONTAINER_IMAGE` stands for.
    ContainerImage,
    /// It is built, signed, or the source of either.
    Intermediate,
    /// It is that of the device plugin, which is one for all kernels.
    DevicePlugin,
}

/// Rules W-5 and W-6, for one image.
pub(super) fn check_image(text: &str, image_use: ImageUse, path: &Path, findings: &mut Findings) {
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(error) => return findings.error(path, error.to_string()),
    };
    for name in template.variables() {
        match image_use {
            ImageUse::ContainerImage if name == CONTAINER_IMAGE => {
                return findings.error(path, "containerImage cannot use CONTAINER_IMAGE");
            }
            ImageUse::DevicePlugin if !MODULE_VARIABLES.contains(&name) => {
                let list = MODULE_VARIABLES.join(" and ");
                let text = format!(
                    "variable \"{name}\" differs between kernels, and a device plugin has one \
                     image for all; use {list} only"
                );
                return findings.error(path, text);
            }
            ImageUse::ContainerImage | ImageUse::Intermediate | ImageUse::DevicePlugin => {}
        }
    }
    let Some(rendered) = render(&template, None) else { return };
    match rendered.parse::<Reference>() {
        Err(error) => findings.error(path, error.to_string()),
        // Only kubelets pull the image of a device plugin, and to them no tag is `latest`.
        Ok(reference)
            if image_use != ImageUse::DevicePlugin
                && reference.tag().is_none()
                && reference.digest().is_none() =>
        {
            findings.error(path, format!("image \"{text}\" needs an explicit tag or digest"));
        }
        Ok(_) => {}
    }
}

/// Rules W-5 and W-6, for the images that one level sets.
pub(super) fn check_level(
    image: Option<&str>,
    build: Option<&Build>,
    sign: Option<&Sign>,
    path: &Path,
    findings: &mut Findings,
) {
    if let Some(image) = set(image) {
        let path = path.key("containerImage");
        check_image(image, ImageUse::ContainerImage, &path, findings);
    }
    if let Some(image) = build.and_then(push_name) {
        let path = path.join("build.push.name");
        check_image(image, ImageUse::Intermediate, &path, findings);
    }
    let Some(sign) = sign else { return };
    let path = path.key("sign");
    for (field, image) in
        [("unsignedImage", unsigned_name(sign)), ("signedImage", signed_name(sign))]
    {
        if let Some(image) = image {
            let path = path.key(field).key("name");
            check_image(image, ImageUse::Intermediate, &path, findings);
        }
    }
    for (index, file) in sign.files_to_sign.iter().enumerate() {
        if let Err(error) = Template::parse(file) {
            findings.error(&path.key("filesToSign").index(index), error.to_string());
        }
    }
}

/// An image that a build or signing pushes to.
struct Output<'a> {
    image: &'a str,
    path: Path,
}

/// Rules W-7, W-12 and W-24, for the merged settings of a mapping. Errors are reported where the
/// image is set, and there only once.
pub(super) fn check_outputs(
    container: &LoaderContainer,
    mapping: &KernelMapping,
    container_path: &Path,
    path: &Path,
    findings: &mut Findings,
) {
    let Some(own_image) = container.image_of(mapping) else { return };
    let level = |on_mapping: bool| if on_mapping { path } else { container_path };
    let (build, sign) = (container.build_of(mapping), container.sign_of(mapping));
    let of_container = |set_here: Option<&str>| Output {
        image: own_image,
        path: level(set_here.is_some()).key("containerImage"),
    };
    let mut outputs = Vec::new();
    if let Some(build) = &build {
        match push_name(build) {
            Some(image) => {
                let here = mapping.build.as_ref().and_then(push_name).is_some();
                outputs.push(Output { image, path: level(here).join("build.push.name") });
            }
            None if sign.is_none() => {
                outputs.push(of_container(set(mapping.container_image.as_deref())));
            }
            // An image that is signed afterwards gets a name of its own.
            None => {}
        }
    }
    if let Some(sign) = &sign {
        outputs.push(match signed_name(sign) {
            Some(image) => {
                let here = mapping.sign.as_ref().and_then(signed_name).is_some();
                Output { image, path: level(here).join("sign.signedImage.name") }
            }
            None => of_container(set(mapping.container_image.as_deref())),
        });
    }
    for output in &outputs {
        let reference =
            rendered(output.image, own_image).and_then(|it| it.parse::<Reference>().ok());
        if reference.is_some_and(|reference| reference.digest().is_some()) {
            error_once(&output.path, "cannot push to a digest; use a tag".to_owned(), findings);
        }
    }
    if let (Some(build), Some(sign)) = (&build, &sign)
        && let (Some(pushed), Some(unsigned)) = (push_name(build), unsigned_name(sign))
        && rendered(pushed, own_image) != rendered(unsigned, own_image)
    {
        let here = mapping.build.is_some() || mapping.sign.is_some();
        let text = format!("unsignedImage differs from build.push.name \"{pushed}\"; remove one");
        error_once(&level(here).join("sign.unsignedImage"), text, findings);
    }
    if let Ok(Matcher::Regexp(_)) = mapping.matcher()
        && let Some(output) = outputs.iter().find(|it| !names_kernel(it.image, own_image))
    {
        let image = output.image.replace("${CONTAINER_IMAGE}", own_image);
        let text = format!(
            "two kernels would share image \"{image}\", since its name is the same for all that \
             the regexp matches; add ${{KERNEL_FULL_VERSION}} to its tag"
        );
        findings.warn(path, text);
    }
}

fn set(image: Option<&str>) -> Option<&str> {
    image.filter(|image| !image.is_empty())
}

fn push_name(build: &Build) -> Option<&str> {
    set(build.push.as_ref()?.name.as_deref())
}

fn unsigned_name(sign: &Sign) -> Option<&str> {
    set(sign.unsigned_image.as_ref().map(|image| image.name.as_str()))
}

fn signed_name(sign: &Sign) -> Option<&str> {
    set(sign.signed_image.as_ref().map(|image| image.name.as_str()))
}

/// Whether the name of an image depends on the kernel. A malformed one is reported elsewhere.
fn names_kernel(image: &str, own_image: &str) -> bool {
    let Ok(template) = Template::parse(image) else { return true };
    template.variables().any(|name| match name {
        CONTAINER_IMAGE => image != own_image && names_kernel(own_image, own_image),
        name => name.starts_with("KERNEL_"),
    })
}

/// The name of an image with sample values of all variables.
fn rendered(image: &str, own_image: &str) -> Option<String> {
    let own = Template::parse(own_image).ok().and_then(|template| render(&template, None));
    render(&Template::parse(image).ok()?, own.as_deref())
}

fn render(template: &Template, own_image: Option<&str>) -> Option<String> {
    let sample = |name: &str| match own_image {
        Some(image) if name == CONTAINER_IMAGE => Some(image.to_owned()),
        _ => VARIABLES.iter().find(|(own, _)| *own == name).map(|(_, it)| (*it).to_owned()),
    };
    template.render(sample).ok()
}

//! The image of a device plugin, which is the same for every kernel.

use gantry_api::kernel_modules::Template;
use gantry_reconcile::Key;

/// Replaces the variables of a device plugin's image.
///
/// # Errors
/// It is no template, or it names a variable that depends on the kernel.
pub(crate) fn plugin_image(module: &Key, image: &str) -> Result<String, String> {
    let template = Template::parse(image).map_err(|error| error.to_string())?;
    let value = |name: &str| match name {
        "MOD_NAME" => Some(module.name().to_owned()),
        "MOD_NAMESPACE" => Some(module.namespace().to_owned()),
        _ => None,
    };
    template.render(value).map_err(|error| {
        format!(
            "{error}; one device plugin serves all kernels, so only MOD_NAME and MOD_NAMESPACE \
                 have values here"
        )
    })
}

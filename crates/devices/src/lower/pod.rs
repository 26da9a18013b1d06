//! Resolves the claims that a pod refers to.

use std::collections::BTreeMap;

use gantry_api::devices::{
    ClaimSource, ClaimSpec, DeviceClaim, DeviceClaimTemplate, DevicePrivilegedClaim, PodClaims,
    PrivilegedClaimSpec, TemplateMetadata, TemplateSource,
};

/// The objects that a pod's claims can refer to, in its namespace and by name.
#[derive(Clone, Copy, Debug)]
pub struct ClaimObjects<'a> {
    /// Claims.
    pub claims: &'a BTreeMap<String, DeviceClaim>,
    /// Privileged claims.
    pub privileged: &'a BTreeMap<String, DevicePrivilegedClaim>,
    /// Templates.
    pub templates: &'a BTreeMap<String, DeviceClaimTemplate>,
}

/// One of a pod's claims, and what must be done for it.
#[derive(Clone, Debug, PartialEq)]
pub enum PodClaimEntry<'a> {
    /// It exists, and other pods may use it too.
    Claim {
        /// Name of the claim.
        name: &'a str,
        /// What it requests.
        spec: &'a ClaimSpec,
    },
    /// It exists and is privileged.
    Privileged {
        /// Name of the claim.
        name: &'a str,
        /// What it requests.
        spec: &'a PrivilegedClaimSpec,
    },
    /// It must be created for the pod.
    Generate {
        /// The name of the claim in the pod.
        entry: String,
        /// Labels and annotations that it gets.
        metadata: Option<&'a TemplateMetadata>,
        /// What it requests.
        spec: &'a ClaimSpec,
        /// Whether it is a copy of a claim instead of a template's, which its author should know.
        copied: bool,
    },
    /// It must be created for the pod and is privileged.
    GeneratePrivileged {
        /// The name of the claim in the pod.
        entry: String,
        /// Labels and annotations that it gets.
        metadata: Option<&'a TemplateMetadata>,
        /// What it requests.
        spec: &'a PrivilegedClaimSpec,
    },
}

/// Why a pod's claims cannot be resolved. The missing object may be created later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is no claim of that name.
    #[error("claim \"{0}\" not found")]
    NoClaim(String),
    /// There is neither a template nor a claim of that name.
    #[error("claim template \"{0}\" not found")]
    NoTemplate(String),
}

/// Resolves each of a pod's claims, in the pod's order.
///
/// # Errors
/// The first claim or template that is missing.
pub fn resolve<'a>(
    pod: &'a PodClaims,
    objects: &ClaimObjects<'a>,
) -> Result<Vec<PodClaimEntry<'a>>, ResolveError> {
    let entries = pod.device_claims.iter().enumerate().map(|(place, claim)| {
        let entry = claim.name.clone().unwrap_or_else(|| place.to_string());
        match &claim.source {
            ClaimSource::ClaimName(name) => existing(name, objects),
            ClaimSource::ClaimTemplateName(name) => from_template(entry, name, objects),
            ClaimSource::Claim(spec) => {
                Ok(PodClaimEntry::Generate { entry, metadata: None, spec, copied: false })
            }
            ClaimSource::Template(template) => {
                let metadata = template.metadata.as_ref();
                Ok(PodClaimEntry::Generate { entry, metadata, spec: &template.spec, copied: false })
            }
        }
    });
    entries.collect()
}

fn existing<'a>(
    name: &'a str,
    objects: &ClaimObjects<'a>,
) -> Result<PodClaimEntry<'a>, ResolveError> {
    if let Some(claim) = objects.claims.get(name) {
        return Ok(PodClaimEntry::Claim { name, spec: &claim.spec });
    }
    let claim =
        objects.privileged.get(name).ok_or_else(|| ResolveError::NoClaim(name.to_owned()))?;
    Ok(PodClaimEntry::Privileged { name, spec: &claim.spec })
}

fn from_template<'a>(
    entry: String,
    name: &str,
    objects: &ClaimObjects<'a>,
) -> Result<PodClaimEntry<'a>, ResolveError> {
    if let Some(template) = objects.templates.get(name) {
        let metadata = template.spec.metadata.as_ref();
        return Ok(match &template.spec.source {
            TemplateSource::ClaimSpec(spec) => {
                PodClaimEntry::Generate { entry, metadata, spec, copied: false }
            }
            TemplateSource::PrivilegedClaimSpec(spec) => {
                PodClaimEntry::GeneratePrivileged { entry, metadata, spec }
            }
        });
    }
    let claim =
        objects.claims.get(name).ok_or_else(|| ResolveError::NoTemplate(name.to_owned()))?;
    Ok(PodClaimEntry::Generate { entry, metadata: None, spec: &claim.spec, copied: true })
}

/// The longest prefix of a generated name; the server appends five letters to it.
const MAX_GENERATED_PREFIX: usize = 57;

/// Returns the prefix of the name of a claim that is created for a pod: `<pod>-<entry>-`, both cut
/// in proportion if that is too long.
///
/// ```
/// use gantry_devices::lower::generated_name;
///
/// assert_eq!(generated_name("web-0", "gpu"), "web-0-gpu-");
/// assert!(generated_name(&"p".repeat(200), &"e".repeat(60)).len() <= 57);
/// ```
#[must_use]
pub fn generated_name(pod: &str, entry: &str) -> String {
    let available = MAX_GENERATED_PREFIX - 2;
    let whole = pod.len() + entry.len();
    if whole <= available {
        return format!("{pod}-{entry}-");
    }
    // Each keeps its share, and at least one letter.
    let pod_length = (pod.len() * available / whole).clamp(1, available - 1);
    let pod_length = pod_length.max(available.saturating_sub(entry.len()));
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let (pod, entry) = (cut(pod, pod_length), cut(entry, available - pod_length));
    let tidy = |text: &str| text.trim_end_matches(['-', '.']).to_owned();
    format!("{}-{}-", tidy(&pod), tidy(&entry))
}

//! Programs and images of a bundle.

use std::borrow::Cow;

use gantry_inventory::Backend;

use super::{built_in, makes_cluster};
use crate::action::Action;
use crate::bundle::{BundleLock, BundledImage, BundledProgram};
use crate::state::{Observed, State, Want};
use crate::step::{Behavior, Change, Context, Stage, Step, Verdict};

const CURRENT: &str = "/opt/gantry/current";
const NO_BUNDLE: &str = "there is no bundle; name one with --bundle or gantry_bundle";

pub(super) fn steps() -> Vec<Step> {
    vec![
        Step {
            about: Cow::Borrowed("Installs the programs of the bundle, each version by itself."),
            owns: Cow::Borrowed("/opt/gantry/VERSION/bin, /opt/gantry/current, /usr/local/bin"),
            ..built_in(
                "binaries",
                Stage::AllHosts,
                &["binaries"],
                Behavior::BuiltIn {
                    when: makes_cluster,
                    wants: program_wants,
                    plan: plan_programs,
                },
            )
        },
        Step {
            about: Cow::Borrowed("Imports the images of the bundle into the runtime."),
            owns: Cow::Borrowed("images in the namespace k8s.io"),
            ..built_in(
                "images",
                Stage::AllHosts,
                &["images"],
                Behavior::BuiltIn { when: when_images, wants: image_wants, plan: plan_images },
            )
        },
    ]
}

fn when_images(context: &Context<'_>) -> Result<(), String> {
    if context.settings.backend == Backend::Kind {
        return Err("gantry_backend: images are in the node of kind".to_owned());
    }
    makes_cluster(context)
}

fn programs<'a>(context: &Context<'a>) -> Vec<&'a BundledProgram> {
    let fits = |it: &&BundledProgram| it.architecture == context.facts.architecture;
    let all = context.bundle.map(|it| it.binaries.as_slice()).unwrap_or_default();
    all.iter().filter(fits).collect()
}

fn images<'a>(context: &Context<'a>) -> Vec<&'a BundledImage> {
    let fits = |it: &&BundledImage| it.architecture == context.facts.architecture;
    let all = context.bundle.map(|it| it.images.as_slice()).unwrap_or_default();
    all.iter().filter(fits).collect()
}

fn folder(bundle: &BundleLock) -> String {
    format!("/opt/gantry/{}", bundle.kubernetes)
}

fn program_wants(context: &Context<'_>) -> Vec<Want> {
    let Some(bundle) = context.bundle else { return Vec::new() };
    let folder = folder(bundle);
    let paths = programs(context).into_iter().flat_map(|it| {
        [format!("{folder}/bin/{}", it.name), format!("/usr/local/bin/{}", it.name)]
    });
    paths.chain([CURRENT.to_owned()]).map(Want::Path).collect()
}

fn plan_programs(context: &Context<'_>, observed: &Observed) -> Verdict {
    let Some(bundle) = context.bundle else { return Verdict::Held(NO_BUNDLE.to_owned()) };
    let programs = programs(context);
    if programs.is_empty() {
        return Verdict::Failed {
            message: format!("the bundle has no programs for {}", context.facts.architecture),
            remedy: "make a bundle for that processor".to_owned(),
        };
    }
    let folder = folder(bundle);
    let state = |path: &str| observed.get(&Want::Path(path.to_owned()));
    let mut changes = Vec::new();
    for program in &programs {
        let path = format!("{folder}/bin/{}", program.name);
        let has = matches!(state(&path), State::File { digest, mode: 0o755, owner: _ }
            if *digest == program.sha256);
        if !has {
            let digest = program.sha256.clone();
            changes.push(Change::of(Action::File { path, digest, mode: 0o755, secret: false }));
        }
    }
    let leads =
        |path: &str, to: &str| matches!(state(path), State::Link { target } if target == to);
    let link = |path: &str, target: &str| {
        Change::of(Action::Link { path: path.to_owned(), target: target.to_owned() })
    };
    if !leads(CURRENT, &folder) {
        changes.push(link(CURRENT, &folder));
    }
    let mut foreign = Vec::new();
    for program in &programs {
        let path = format!("/usr/local/bin/{}", program.name);
        let target = format!("{CURRENT}/bin/{}", program.name);
        if *state(&path) == State::Absent {
            changes.push(link(&path, &target));
        } else if !leads(&path, &target) {
            foreign.push(path);
        }
    }
    if !changes.is_empty() {
        return Verdict::Change(changes);
    }
    let note = match foreign.as_slice() {
        [] => String::new(),
        paths => format!("; left as it is: {}", paths.join(", ")),
    };
    Verdict::Satisfied(format!("{} of {}{note}", programs.len(), bundle.kubernetes))
}

fn image_wants(context: &Context<'_>) -> Vec<Want> {
    images(context).iter().map(|it| Want::Image(it.reference.clone())).collect()
}

fn plan_images(context: &Context<'_>, observed: &Observed) -> Verdict {
    if context.bundle.is_none() {
        return Verdict::Held(NO_BUNDLE.to_owned());
    }
    let images = images(context);
    let is_missing = |it: &&&BundledImage| {
        !matches!(observed.get(&Want::Image(it.reference.clone())),
            State::Image { digest } if *digest == it.digest)
    };
    let change = |it: &&BundledImage| {
        Change::of(Action::Image {
            reference: it.reference.clone(),
            digest: it.digest.clone(),
            archive: it.sha256.clone(),
        })
    };
    let changes: Vec<Change> = images.iter().filter(is_missing).map(change).collect();
    if changes.is_empty() {
        return Verdict::Satisfied(format!("{} images are there", images.len()));
    }
    Verdict::Change(changes)
}

//! Pulls the images of containers, and ends containers that a reboot of their node has ended.

use gantry_kube_controllers::deterministic_random;
use gantry_reconcile::{Event, World};
use jiff::Timestamp;

use super::Settings;
use super::container::{INITIAL_BACKOFF, PodSync, running_since, waiting};
use super::health::ProgramExit;
use crate::image::pull_of;
use crate::programs;
use crate::view::{Container, ContainerStatus, Pod, PulledImage};

/// The exit code of a container of which nobody knows how it ended.
const UNKNOWN_EXIT_CODE: i64 = 255;

/// Whether the image of a container is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImageState {
    /// Nodes have all images of its registry.
    Assumed,
    /// It was pulled, with this digest.
    Pulled(String),
    /// It is being pulled.
    Pending,
    /// It cannot be pulled, for this reason.
    Unavailable(String),
}

impl ImageState {
    /// Returns whether the image of a container of a pod is available.
    pub(super) fn of(world: &World, settings: &Settings, pod: &Pod, container: &Container) -> Self {
        if !settings.pulls(container) {
            return Self::Assumed;
        }
        let Some(state) = world.facts::<PulledImage>().get(&pull_of(pod, container)) else {
            return Self::Pending;
        };
        match (state.value(), &state.failure) {
            (_, Some(failure)) => Self::Unavailable(failure.message.clone()),
            (Some(PulledImage::Present { digest }), None) => Self::Pulled(digest.clone()),
            (Some(PulledImage::Unavailable { message }), None) => {
                Self::Unavailable(message.clone())
            }
            (None, None) => Self::Pending,
        }
    }
}

impl PodSync<'_> {
    /// Returns the ID of a container's image; without it, the container waits.
    pub(super) fn pull(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        from: Timestamp,
    ) -> Option<String> {
        let repository = programs::repository(&container.image);
        match (self.pulled)(container) {
            ImageState::Assumed => {
                let digest = deterministic_random::digest(&[&container.image]);
                Some(format!("{repository}@sha256:{digest}"))
            }
            ImageState::Pulled(digest) => Some(format!("{repository}@{digest}")),
            ImageState::Pending => None,
            ImageState::Unavailable(why) => {
                self.fail_to_pull(container, status, &why, from);
                None
            }
        }
    }

    /// Records the event about an image that a container starts with.
    pub(super) fn record_pulled(&mut self, container: &Container) {
        let image = &container.image;
        let message = match (self.pulled)(container) {
            ImageState::Pulled(_) => format!("Successfully pulled image {image:?}"),
            ImageState::Assumed | ImageState::Pending | ImageState::Unavailable(_) => {
                format!("Container image {image:?} already present on machine")
            }
        };
        self.record_event(container, "Pulled", message);
    }

    /// Ends a container that ran when its node was rebooted.
    pub(super) fn end_before_boot(&self, status: &mut ContainerStatus) {
        let Some(booted_at) = self.booted_at else { return };
        if running_since(status).is_some_and(|it| it < booted_at) {
            let message = String::new();
            Self::end(status, ProgramExit { code: UNKNOWN_EXIT_CODE, at: booted_at, message });
            if let Some(end) = &mut status.state.terminated {
                "Unknown".clone_into(&mut end.reason);
            }
        }
    }

    pub(super) fn fail_to_pull(
        &mut self,
        container: &Container,
        status: &mut ContainerStatus,
        why: &str,
        from: Timestamp,
    ) {
        let image = &container.image;
        let reason = status.state.waiting.as_ref().map(|it| it.reason.as_str());
        // The registry may say something else by now.
        let waiting_for = status.state.waiting.as_ref();
        let is_same = waiting_for.is_some_and(|it| it.message.contains(why));
        match reason {
            Some("ImagePullBackOff") if is_same => {}
            Some("ErrImagePull") if is_same => {
                if self.is_due(from, INITIAL_BACKOFF) {
                    let message = format!("Back-off pulling image {image:?}: ErrImagePull: {why}");
                    status.state = waiting("ImagePullBackOff", message);
                    let note = self.container_event(
                        container,
                        "BackOff",
                        format!("Back-off pulling image {image:?}"),
                    );
                    self.notes.push(Event {
                        event_type: gantry_reconcile::plan::EventType::Normal,
                        ..note
                    });
                    self.record_warning(container, "Failed", "Error: ImagePullBackOff".to_owned());
                }
            }
            Some(_) | None => {
                status.state = waiting("ErrImagePull", why.to_owned());
                self.record_event(container, "Pulling", format!("Pulling image {image:?}"));
                let failed = format!("Failed to pull image {image:?}: {why}");
                self.record_warning(container, "Failed", failed);
                self.record_warning(container, "Failed", "Error: ErrImagePull".to_owned());
                self.is_due(from, INITIAL_BACKOFF);
            }
        }
    }
}

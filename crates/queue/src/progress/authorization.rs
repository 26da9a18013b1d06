//! Applies the permissions of the author to one AppWrapper.

use gantry_reconcile::{Key, Step, World};
use jiff::Timestamp;

use super::{ItemPresence, ObservedItem, failure};
use crate::access::{self, AuthorizationProblem};
use crate::app_wrapper::AppWrapper;
use crate::author::Author;
use crate::item_objects::ItemObject;
use crate::settings::UserAccess;
use crate::state;

/// Returns why the author of an AppWrapper may not create it, where that matters: it is pending, or
/// items of it are still to be created and could be.
pub(super) fn authorization_problem(
    world: &World,
    wrapper: &AppWrapper,
    items: &[ObservedItem],
    access: UserAccess,
    now: Timestamp,
) -> Option<AuthorizationProblem> {
    if wrapper.is_queued() {
        return access::may_admit(world, wrapper, access, now).err();
    }
    let arrives = wrapper.is_pending() && state::removal_outcome(wrapper).is_none();
    let whole = items.iter().all(|it| it.object.is_ok());
    let missing = items.iter().any(|it| it.presence != ItemPresence::Owned);
    let asks = arrives && whole && missing;
    asks.then(|| access::may_create(world, wrapper, access, now).err()).flatten()
}

/// Returns the step that creates an item, with the permissions it is created with. An item that
/// must be created as an author that was not recorded is not created: the permissions of the queue
/// are no substitute.
pub(super) fn create_step(
    wrapper: &AppWrapper,
    made: &ItemObject,
    access: UserAccess,
) -> Option<Step> {
    let step = Step::new(made.clone().create());
    match access {
        UserAccess::Unchecked | UserAccess::Reviewed => Some(step),
        UserAccess::OnBehalf => {
            let author = Author::read(wrapper.author()?)?;
            Some(step.impersonate(author.into_user()))
        }
    }
}

/// Returns why a pending AppWrapper has failed, where its author may not create it. Nothing was
/// reserved for it yet, so there is nothing to release.
pub(super) fn denial_message(
    wrapper: &AppWrapper,
    kept_back: Option<&AuthorizationProblem>,
) -> Option<String> {
    let denied =
        matches!(kept_back, Some(AuthorizationProblem::Denied { .. })) && wrapper.is_queued();
    kept_back.filter(|_| denied).map(|it| failure(wrapper, it))
}

/// Returns the AppWrappers whose authors are checked.
pub(super) fn needing_access_review(world: &World) -> Vec<Key> {
    let wrappers = world.store::<AppWrapper>().list();
    let undecided = wrappers.iter().filter(|it| it.is_queued() || it.is_pending());
    undecided.map(|it| it.metadata.key()).collect()
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Key, Resource};
    use serde_json::json;

    use super::*;

    #[test]
    fn ds_9_an_item_is_created_with_the_rights_of_its_author() {
        let by = |author: Option<&str>| -> AppWrapper {
            let annotations = author.map(|it| json!({crate::app_wrapper::AUTHOR_ANNOTATION: it}));
            let metadata = json!({"name": "a", "namespace": "n", "annotations": annotations.unwrap_or(json!({}))});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let made = ItemObject {
            resource: Resource::namespaced("batch", "v1", "jobs", "Job"),
            key: Key::new("n", "j"),
            body: json!({"metadata": {"name": "j", "namespace": "n"}}),
        };
        let alice = Some(r#"{"username":"alice","uid":"7","groups":["team"],"extra":{"k":["v"]}}"#);
        let whose = |author, access| {
            let step = create_step(&by(author), &made, access);
            step.map(|it| it.impersonate.map(|it| (it.name, it.uid, it.groups, it.extra.len())))
        };
        let user = ("alice".to_owned(), "7".to_owned(), vec!["team".to_owned()], 1);
        let table = [
            ("with the rights of the queue", alice, UserAccess::Unchecked, Some(None)),
            ("which was asked before", alice, UserAccess::Reviewed, Some(None)),
            ("in the author's name", alice, UserAccess::OnBehalf, Some(Some(user))),
            ("no author recorded", None, UserAccess::OnBehalf, None),
            ("unreadable author", Some("alice"), UserAccess::OnBehalf, None),
        ];
        for (why, author, access, expected) in table {
            assert_eq!(whose(author, access), expected, "{why}");
        }
    }
}

//! Reviews what the authors of pending AppWrappers may create, with the permissions of the user who
//! runs the command.

use std::collections::{BTreeMap, BTreeSet};

use gantry_process::clock::Clock;
use gantry_queue::UserAccess;
use gantry_queue::access::{
    self, AccessQuestion, AccessReview, AuthorRecording, RequiredPermission, ResourceAttributes,
};
use gantry_queue::app_wrapper::{AppWrapper, TypeName};
use gantry_queue::author::{Author, CONFIGURATION};
use gantry_reconcile::{ApiPath, Resource, World};
use gantry_sharing::inventory::ObjectKind;
use jiff::Timestamp;

use super::find_served_resource;
use crate::cli::cluster_client::{ClusterClient, ClusterRequestError};
use crate::output::Output;

/// The maximum number of access reviews; more would keep the user waiting too long.
const MOST: usize = 200;

/// Records what the server says about the permissions of authors. If the user may not create access
/// reviews, authors are assumed to be allowed to create what they wrap: the operator fails the
/// other AppWrappers within seconds.
pub(super) async fn record_author_access(
    cluster: &ClusterClient,
    world: &World,
    access: UserAccess,
    output: &mut Output,
) -> anyhow::Result<()> {
    let now = Clock::system().now();
    let recording = author_recording(cluster, output).await?;
    // Changes are not followed.
    let _ = world.facts::<AuthorRecording>().record((), recording, now);
    let wrappers = world.store::<AppWrapper>().list();
    let questions: BTreeSet<AccessQuestion> =
        wrappers.iter().flat_map(|it| access::questions(it, access)).collect();
    let mut kinds: BTreeMap<TypeName, Option<Resource>> = BTreeMap::new();
    let mut trusts = None;
    for (at, question) in questions.into_iter().enumerate() {
        if at == MOST && trusts.is_none() {
            trusts = Some(format!("more than {MOST} access reviews would be needed"));
        }
        let answer = match &trusts {
            Some(_) => AccessReview::Allowed,
            None => match review_access(cluster, &question, &mut kinds).await {
                Ok(answer) => answer,
                Err(ClusterRequestError::Forbidden { .. }) => {
                    trusts = Some("you may not create SubjectAccessReviews".to_owned());
                    AccessReview::Allowed
                }
                Err(error) => return Err(error.into()),
            },
        };
        let _ = world.facts::<AccessReview>().record(question, answer, now);
    }
    if let Some(why) = trusts {
        output.warning(format_args!(
            "{why}: authors are assumed to have the permissions they need; the operator checks them"
        ));
    }
    Ok(())
}

async fn author_recording(
    cluster: &ClusterClient,
    output: &mut Output,
) -> anyhow::Result<AuthorRecording> {
    let path = ObjectKind::MutatingWebhookConfiguration.path(CONFIGURATION)?;
    match cluster.get(&path).await {
        Ok(object) => Ok(AuthorRecording::read(&object)),
        Err(ClusterRequestError::NotFound { .. }) => Ok(AuthorRecording { since: None }),
        Err(ClusterRequestError::Forbidden { .. }) => {
            output.warning(format_args!(
                "may not read {path}: the authors of all AppWrappers are assumed to be recorded"
            ));
            Ok(AuthorRecording { since: Some(Timestamp::MIN) })
        }
        Err(error) => Err(error.into()),
    }
}

async fn review_access(
    cluster: &ClusterClient,
    question: &AccessQuestion,
    kinds: &mut BTreeMap<TypeName, Option<Resource>>,
) -> Result<AccessReview, ClusterRequestError> {
    let AccessQuestion { author, namespace, permission: need } = question;
    let Some(author) = Author::read(author) else { return Ok(AccessReview::NoSuchKind) };
    let asked = match need {
        RequiredPermission::Privilege(privilege) => ResourceAttributes::of(privilege),
        RequiredPermission::Create(name) => {
            if !kinds.contains_key(name) {
                kinds.insert(name.clone(), find_served_resource(cluster, name).await?);
            }
            let Some(Some(resource)) = kinds.get(name) else { return Ok(AccessReview::NoSuchKind) };
            ResourceAttributes::create(resource)
        }
    };
    let review = author.access_review(namespace, &asked);
    let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let said = cluster.review(&path, &review).await?;
    Ok(AccessReview::read(&said, asked))
}

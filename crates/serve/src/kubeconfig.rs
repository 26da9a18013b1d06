//! Writes kubeconfigs: the files by which clients of Kubernetes find a server and authenticate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::pki::Identity;

/// The names of the entries in a kubeconfig; users see them in `kubectl config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeconfigNames<'a> {
    /// The cluster.
    pub cluster: &'a str,
    /// The user.
    pub user: &'a str,
    /// The context, which is made the current one.
    pub context: &'a str,
}

impl Default for KubeconfigNames<'_> {
    fn default() -> Self {
        Self { cluster: "gantry", user: "gantry-admin", context: "gantry" }
    }
}

/// Returns the text of a kubeconfig that reaches `server` (a URL), trusts `authority` (PEM), and
/// uses a client certificate. All data is embedded, so the file can be moved.
///
/// It holds a private key: write it with [`crate::files::write_private`].
#[must_use]
pub fn kubeconfig(
    server: &str,
    authority: &str,
    user: &Identity,
    names: &KubeconfigNames<'_>,
) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    // Every JSON string is a valid quoted scalar of YAML.
    let quoted = |text: &str| json!(text).to_string();
    let KubeconfigNames { cluster, user: user_name, context } = *names;
    let (cluster, user_name, context) = (quoted(cluster), quoted(user_name), quoted(context));
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {cluster}\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {authority}\n\
         users:\n\
         - name: {user_name}\n\
         \x20 user:\n\
         \x20   client-certificate-data: {certificate}\n\
         \x20   client-key-data: {key}\n\
         contexts:\n\
         - name: {context}\n\
         \x20 context:\n\
         \x20   cluster: {cluster}\n\
         \x20   user: {user_name}\n\
         current-context: {context}\n\
         preferences: {{}}\n",
        server = quoted(server),
        authority = data(authority),
        certificate = data(&user.certificate),
        key = data(&user.key),
    )
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_kubeconfig_is_readable_by_clients() {
        let user = Identity { certificate: "CERT\n".into(), key: "KEY\n".into() };
        let odd = "a: b # \"c\" 'd' \\ ü\n- e";
        for names in
            [KubeconfigNames::default(), KubeconfigNames { cluster: odd, user: odd, context: odd }]
        {
            let text = kubeconfig("https://127.0.0.1:6443", "CA\n", &user, &names);
            let read = Kubeconfig::from_yaml(&text).unwrap();
            assert_eq!(read.current_context.as_deref(), Some(names.context));
            let cluster = read.clusters[0].cluster.as_ref().unwrap();
            assert_eq!(read.clusters[0].name, names.cluster);
            assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
            assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Q0EK"));
            let context = read.contexts[0].context.as_ref().unwrap();
            assert_eq!(read.contexts[0].name, names.context);
            assert_eq!(context.cluster, names.cluster);
            assert_eq!(context.user.as_deref(), Some(names.user));
            let auth = read.auth_infos[0].auth_info.as_ref().unwrap();
            assert_eq!(read.auth_infos[0].name, names.user);
            assert_eq!(auth.client_certificate_data.as_deref(), Some("Q0VSVAo="));
        }
    }
}

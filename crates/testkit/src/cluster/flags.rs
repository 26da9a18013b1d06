//! Writes the files and command lines of a control plane: RBAC on, TLS everywhere, nothing but
//! loopback.

use std::path::PathBuf;

use super::ports::Ports;
use super::user::kubeconfig;
use super::{StartError, text};
use crate::pki::{Authority, signing_key};
use crate::run::Run;

/// The service network; its first address is that of the server itself, and in its certificate.
const SERVICES: &str = "10.96.0.0/16";

/// Rate limits that are never reached.
const UNLIMITED_RATE_FLAGS: [&str; 2] = ["--kube-api-qps=5000", "--kube-api-burst=10000"];

/// The file of the certificate of a server that this cluster did not create.
const ROOT: &str = "root-ca.crt";

/// The certificates and keys of the programs, as files. One authority signs for all of them except
/// front proxies: the holder of a front proxy's certificate may impersonate any user.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(super) fn write(run: &Run, authority: &Authority) -> Result<Self, StartError> {
        let pair = |name: &str, issued: &crate::pki::Issued| -> Result<(), StartError> {
            run.write(&format!("{name}.crt"), &issued.certificate)?;
            run.write(&format!("{name}.key"), &issued.key)?;
            Ok(())
        };
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let etcd = Authority::new("gantry-testbed-etcd")?;
        let front = Authority::new("gantry-testbed-front")?;
        pair("ca", &authority.own)?;
        pair("etcd-ca", &etcd.own)?;
        pair("front-ca", &front.own)?;
        pair("etcd-server", &etcd.server("etcd", &[])?)?;
        pair("etcd-client", &etcd.client("kube-apiserver", &[])?)?;
        pair("server", &authority.server("kube-apiserver", &names)?)?;
        pair("kubelet-client", &authority.client("kubelet-client", &["system:masters"])?)?;
        pair("front", &front.client("front-proxy-client", &[])?)?;
        let (private, public) = signing_key()?;
        run.write("service-accounts.key", &private)?;
        run.write("service-accounts.pub", &public)?;
        Ok(Self { folder: run.folder().to_path_buf() })
    }

    /// Writes what controllers need beside a server that has its own certificates, signed by
    /// `root`. The controllers' own certificates are signed by `authority`.
    pub(super) fn write_for_external_server(
        run: &Run,
        authority: &Authority,
        root: &str,
    ) -> Result<Self, StartError> {
        let server = authority.server("controllers", &[])?;
        run.write("server.crt", &server.certificate)?;
        run.write("server.key", &server.key)?;
        run.write(ROOT, root)?;
        let (private, _) = signing_key()?;
        run.write("service-accounts.key", &private)?;
        Ok(Self { folder: run.folder().to_path_buf() })
    }

    /// Without `durable`, etcd does not wait for the disk: a test loses nothing by that.
    pub(super) fn etcd(&self, ports: &Ports, durable: bool) -> Vec<String> {
        let client = format!("https://127.0.0.1:{}", ports.etcd);
        let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
        let mut flags = vec![
            "--name=testbed".to_owned(),
            format!("--data-dir={}", text(&self.folder.join("etcd"))),
            "--log-level=warn".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=testbed={peer}"),
            "--client-cert-auth".to_owned(),
            self.file("trusted-ca-file", "etcd-ca.crt"),
            self.file("cert-file", "etcd-server.crt"),
            self.file("key-file", "etcd-server.key"),
            // Space for a benchmark: the default quota of 2 GB is soon full of history.
            "--quota-backend-bytes=8589934592".to_owned(),
        ];
        if !durable {
            flags.push("--unsafe-no-fsync".to_owned());
        }
        flags
    }

    pub(super) fn api_server(&self, ports: &Ports) -> Vec<String> {
        let issuer = "https://kubernetes.default.svc.cluster.local";
        vec![
            format!("--etcd-servers=https://127.0.0.1:{}", ports.etcd),
            self.file("etcd-cafile", "etcd-ca.crt"),
            self.file("etcd-certfile", "etcd-client.crt"),
            self.file("etcd-keyfile", "etcd-client.key"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", ports.api_server),
            "--endpoint-reconciler-type=none".to_owned(),
            self.file("tls-cert-file", "server.crt"),
            self.file("tls-private-key-file", "server.key"),
            self.file("client-ca-file", "ca.crt"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--service-account-issuer={issuer}"),
            self.file("service-account-key-file", "service-accounts.pub"),
            self.file("service-account-signing-key-file", "service-accounts.key"),
            format!("--service-cluster-ip-range={SERVICES}"),
            "--allow-privileged".to_owned(),
            self.file("kubelet-certificate-authority", "ca.crt"),
            self.file("kubelet-client-certificate", "kubelet-client.crt"),
            self.file("kubelet-client-key", "kubelet-client.key"),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
            self.file("requestheader-client-ca-file", "front-ca.crt"),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            self.file("proxy-client-cert-file", "front.crt"),
            self.file("proxy-client-key-file", "front.key"),
        ]
    }

    pub(super) fn controller_manager(&self, ports: &Ports) -> Vec<String> {
        let kubeconfig = kubeconfig("system:kube-controller-manager");
        let mut flags = self.any_controller_manager(&kubeconfig, ports);
        flags.extend([
            self.file("root-ca-file", "ca.crt"),
            self.file("cluster-signing-cert-file", "ca.crt"),
            self.file("cluster-signing-key-file", "ca.key"),
            "--use-service-account-credentials".to_owned(),
            "--leader-elect=false".to_owned(),
        ]);
        flags
    }

    pub(super) fn scheduler(&self, ports: &Ports) -> Vec<String> {
        let mut flags = self.component(&kubeconfig("system:kube-scheduler"), ports.scheduler);
        flags.push("--leader-elect=false".to_owned());
        flags
    }

    /// All controllers use the credentials of one kubeconfig, and elect a leader by a lease.
    pub(super) fn external_controller_manager(
        &self,
        kubeconfig: &str,
        ports: &Ports,
    ) -> Vec<String> {
        let mut flags = self.any_controller_manager(kubeconfig, ports);
        flags.push(self.file("root-ca-file", ROOT));
        // The usual 15 seconds are long for a test.
        flags.push("--horizontal-pod-autoscaler-sync-period=1s".to_owned());
        flags
    }

    /// As [`Files::external_controller_manager`].
    pub(super) fn external_scheduler(&self, kubeconfig: &str, ports: &Ports) -> Vec<String> {
        self.component(kubeconfig, ports.scheduler)
    }

    fn any_controller_manager(&self, kubeconfig: &str, ports: &Ports) -> Vec<String> {
        let mut flags = self.component(kubeconfig, ports.controller_manager);
        flags.extend([
            self.file("service-account-private-key-file", "service-accounts.key"),
            "--allocate-node-cidrs".to_owned(),
            "--cluster-cidr=10.244.0.0/16".to_owned(),
            format!("--service-cluster-ip-range={SERVICES}"),
            // Each of forty controllers requests a token first; at the default of 20 requests a
            // second that alone takes five seconds.
            "--kube-api-qps=300".to_owned(),
            "--kube-api-burst=600".to_owned(),
        ]);
        flags
    }

    /// Runs the two controllers that complete deletions, and no others.
    pub(super) fn housekeeping(&self, ports: &Ports) -> Vec<String> {
        let mut flags = self.controller_manager(ports);
        let these = ["namespace-controller", "garbage-collector-controller"];
        flags.push(format!("--controllers={}", these.join(",")));
        flags
    }

    /// Runs the controllers that clean up and that create device claims from templates, without a
    /// rate limit.
    pub(super) fn claims(&self, ports: &Ports) -> Vec<String> {
        let mut flags = self.controller_manager(ports);
        let these =
            ["namespace-controller", "garbage-collector-controller", "resourceclaim-controller"];
        flags.push(format!("--controllers={}", these.join(",")));
        flags.extend(UNLIMITED_RATE_FLAGS.map(str::to_owned));
        flags
    }

    /// A scheduler without a client rate limit, as in Kubernetes' own benchmarks.
    pub(super) fn unlimited_rate_scheduler(&self, ports: &Ports) -> Vec<String> {
        let mut flags = self.scheduler(ports);
        flags.extend(UNLIMITED_RATE_FLAGS.map(str::to_owned));
        flags
    }

    fn component(&self, kubeconfig: &str, port: u16) -> Vec<String> {
        vec![
            self.file("kubeconfig", kubeconfig),
            self.file("authentication-kubeconfig", kubeconfig),
            self.file("authorization-kubeconfig", kubeconfig),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            self.file("tls-cert-file", "server.crt"),
            self.file("tls-private-key-file", "server.key"),
        ]
    }

    fn file(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", text(&self.folder.join(name)))
    }
}

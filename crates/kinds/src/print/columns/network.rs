//! Columns of services, their endpoints, and ingresses.

use super::{AGE, Column, NAME, text, wide};

pub(in crate::print) const SERVICES: &[Column] = &[
    NAME,
    text(
        "Type",
        "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are \
         ExternalName, ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a \
         cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by \
         the selector or if that is not specified, by manual construction of an Endpoints object \
         or EndpointSlice objects. If clusterIP is \"None\", no virtual IP is allocated and the \
         endpoints are published as a set of endpoints rather than a virtual IP. \"NodePort\" \
         builds on ClusterIP and allocates a port on every node which routes to the same endpoints \
         as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external \
         load-balancer (if supported in the current cloud) which routes to the same endpoints as \
         the clusterIP. \"ExternalName\" aliases this service to the specified externalName. \
         Several other fields do not apply to ExternalName services. More info: \
         https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types",
    ),
    text(
        "Cluster-IP",
        "clusterIP is the IP address of the service and is usually assigned randomly. If an \
         address is specified manually, is in-range (as per system configuration), and is not in \
         use, it will be allocated to the service; otherwise creation of the service will fail. \
         This field may not be changed through updates unless the type field is also being changed \
         to ExternalName (which requires this field to be blank) or the type field is being \
         changed from ExternalName (in which case this field may optionally be specified, as \
         describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. \
         Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful \
         when direct endpoint connections are preferred and proxying is not required.  Only \
         applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when \
         creating a Service of type ExternalName, creation will fail. This field will be wiped \
         when updating a Service to type ExternalName. More info: \
         https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    text(
        "External-IP",
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept \
         traffic for this service.  These IPs are not managed by Kubernetes.  The user is \
         responsible for ensuring that traffic arrives at a node with this IP.  A common example \
         is external load-balancers that are not part of the Kubernetes system.",
    ),
    text(
        "Port(s)",
        "The list of ports that are exposed by this service. More info: \
         https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    AGE,
    wide(
        "Selector",
        "Route service traffic to pods with label keys and values matching this selector. If \
         empty or not present, the service is assumed to have an external process managing its \
         endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, \
         and LoadBalancer. Ignored if type is ExternalName. More info: \
         https://kubernetes.io/docs/concepts/services-networking/service/",
    ),
];

pub(in crate::print) const ENDPOINTS: &[Column] = &[
    NAME,
    text(
        "Endpoints",
        "The set of all endpoints is the union of all subsets. Addresses are placed into subsets \
         according to the IPs they share. A single address with multiple ports, some of which are \
         ready and some of which are not (because they come from different containers) will \
         result in the address being displayed in different subsets for the different ports. No \
         address will appear in both Addresses and NotReadyAddresses in the same subset. Sets of \
         addresses and ports that comprise a service.",
    ),
    AGE,
];

pub(in crate::print) const ENDPOINTSLICES: &[Column] = &[
    NAME,
    text(
        "AddressType",
        "addressType specifies the type of address carried by this EndpointSlice. All addresses \
         in this slice must be the same type. This field is immutable after creation. The \
         following address types are currently supported: * IPv4: Represents an IPv4 Address. * \
         IPv6: Represents an IPv6 Address. * FQDN: Represents a Fully Qualified Domain Name.",
    ),
    text(
        "Ports",
        "ports specifies the list of network ports exposed by each endpoint in this slice. Each \
         port must have a unique name. When ports is empty, it indicates that there are no \
         defined ports. When a port is defined with a nil port value, it indicates \"all ports\". \
         Each slice may include a maximum of 100 ports.",
    ),
    text(
        "Endpoints",
        "endpoints is a list of unique endpoints in this slice. Each slice may include a maximum \
         of 1000 endpoints.",
    ),
    AGE,
];

pub(in crate::print) const INGRESSES: &[Column] = &[
    NAME,
    text(
        "Class",
        "The name of the IngressClass resource that should be used for additional configuration",
    ),
    text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
    text("Address", "Address is a list containing ingress points for the load-balancer"),
    text("Ports", "Ports of TLS configurations that open"),
    AGE,
];

pub(in crate::print) const INGRESSCLASSES: &[Column] = &[
    NAME,
    text("Controller", "Controller that is responsible for handling this class"),
    text("Parameters", "A reference to a resource with additional parameters"),
    AGE,
];

pub(in crate::print) const IPADDRESSES: &[Column] = &[
    NAME,
    text(
        "ParentRef",
        "ParentRef references the resource that an IPAddress is attached to. An IPAddress must \
         reference a parent object.",
    ),
];

pub(in crate::print) const NETWORKPOLICIES: &[Column] = &[
    NAME,
    text(
        "Pod-Selector",
        "Selects the pods to which this NetworkPolicy object applies.  The array of ingress rules \
         is applied to any pods selected by this field. Multiple network policies can select the \
         same set of pods.  In this case, the ingress rules for each are combined additively. \
         This field is NOT optional and follows standard label selector semantics. An empty \
         podSelector matches all pods in this namespace.",
    ),
    AGE,
];

pub(in crate::print) const SERVICECIDRS: &[Column] = &[
    NAME,
    text(
        "CIDRs",
        "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \
         \"2001:db8::/64\") from which to assign service cluster IPs. Max of two CIDRs is \
         allowed, one of each IP family. This field is immutable.",
    ),
    AGE,
];

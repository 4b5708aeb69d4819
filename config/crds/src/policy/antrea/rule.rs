//! Rules.

use super::{
    applied_to::{ClusterEgressAppliedTo, ClusterIngressAppliedTo, RuleAppliedTo},
    peer::{ClusterEgressPeer, ClusterIngressPeer, EgressPeer, IngressPeer, Scope},
    selector::Named,
};
use crate::policy::parts::{holds, number_or_name, parts, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A rule of one kind and direction.
macro_rules! rule {
    ($(#[$attribute:meta])* $name:ident($applied_to:ty, $protocol:ty) {
        $($(#[$on_field:meta])* $field:ident: $kind:ty,)*
    }) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        $(#[$attribute])*
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Action for matching traffic.
            pub action: Action,
            /// Subject of the rule. If one rule has it, every rule has it, and the policy has none.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub applied_to: Option<Vec<$applied_to>>,
            /// Name of the rule, unique within the policy.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            $(
                $(#[$on_field])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$kind>,
            )*
            /// Matching ports. Without ports and protocols all traffic matches.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ports: Option<Vec<Port>>,
            /// Matching protocols without ports, in addition to ports.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub protocols: Option<Vec<$protocol>>,
            /// Matching requests of an application protocol.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub l7_protocols: Option<Vec<L7Protocol>>,
            /// Logs matching traffic.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub enable_logging: Option<bool>,
            /// Label of the rule in the log.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$"))]
            pub log_label: Option<String>,
        }
    };
}

rule! {
    /// ClusterIngressRule is a rule for incoming traffic.
    ClusterIngressRule(ClusterIngressAppliedTo, IngressProtocol) {
        /// Sources. An empty list matches every source.
        from: Vec<ClusterIngressPeer>,
    }
}

rule! {
    /// ClusterEgressRule is a rule for outgoing traffic.
    #[schemars(extend("x-kubernetes-validations" = holds(&[(TO_SERVICES, TO_SERVICES_SAYS)])))]
    ClusterEgressRule(ClusterEgressAppliedTo, EgressProtocol) {
        /// Destinations. An empty list matches every destination.
        to: Vec<ClusterEgressPeer>,
        /// Service destinations, by their own addresses. The rule then has no to, ports and protocols.
        to_services: Vec<ClusterServicePeer>,
    }
}

rule! {
    /// IngressRule is a rule for incoming traffic.
    IngressRule(RuleAppliedTo, IngressProtocol) {
        /// Sources. An empty list matches every source.
        from: Vec<IngressPeer>,
    }
}

rule! {
    /// EgressRule is a rule for outgoing traffic.
    #[schemars(extend("x-kubernetes-validations" = holds(&[(TO_SERVICES, TO_SERVICES_SAYS)])))]
    EgressRule(RuleAppliedTo, EgressProtocol) {
        /// Destinations. An empty list matches every destination.
        to: Vec<EgressPeer>,
        /// Service destinations, by their own addresses. The rule then has no to, ports and protocols.
        to_services: Vec<ServicePeer>,
    }
}

words! {
    /// Action is the decision for matching traffic.
    Action {
        /// The packet passes.
        Allow,
        /// The packet is dropped.
        Drop,
        /// The packet is dropped, and the sender receives a TCP reset or an ICMP error.
        Reject,
        /// Antrea's remaining rules are skipped; NetworkPolicies decide.
        Pass,
    }
}

parts! {
    /// Port selects ports of a protocol.
    #[schemars(extend("x-kubernetes-validations" = holds(&[
        ("!has(self.endPort) || (has(self.port) && type(self.port) == int)",
         "endPort requires a numeric port"),
        ("!has(self.endPort) || self.port <= self.endPort", "endPort must not be less than port"),
        ("!has(self.sourceEndPort) || (has(self.sourcePort) && \
          self.sourcePort <= self.sourceEndPort)",
         "sourceEndPort requires a sourcePort that is not greater"),
    ])))]
    Port {
        /// Protocol of the ports. The default is TCP.
        protocol: Transport,
        /// Number of the port, or its name in the destination pod.
        #[schemars(schema_with = "number_or_name")]
        port: Value,
        /// Last port of a range that starts at port.
        end_port: i32,
        /// Port of the sender.
        source_port: i32,
        /// Last port of a range that starts at sourcePort.
        source_end_port: i32,
    }
}

words! {
    /// Transport is a protocol with ports.
    Transport { TCP, UDP, SCTP, }
}

parts! {
    /// IngressProtocol is a protocol without ports. Exactly one field is set.
    #[schemars(extend("oneOf" = [{"required": ["icmp"]}, {"required": ["igmp"]}]))]
    IngressProtocol {
        /// ICMP for IPv4, ICMPv6 for IPv6.
        icmp: Icmp,
        /// IGMP queries of multicast routers.
        igmp: IgmpQuery,
    }
}

parts! {
    /// EgressProtocol is a protocol without ports. Exactly one field is set.
    #[schemars(extend("oneOf" = [{"required": ["icmp"]}, {"required": ["igmp"]}]))]
    EgressProtocol {
        /// ICMP for IPv4, ICMPv6 for IPv6.
        icmp: Icmp,
        /// IGMP reports of group members.
        igmp: IgmpReport,
    }
}

parts! {
    /// Icmp selects messages by type and code. ICMP and ICMPv6 have different numbers.
    Icmp {
        /// Type of the message. Without it every type matches.
        #[schemars(range(min = 0, max = 255))]
        icmp_type: i32,
        /// Code of the message. Without it every code matches.
        #[schemars(range(min = 0, max = 255))]
        icmp_code: i32,
    }
}

parts! {
    /// IgmpQuery selects queries for members of a multicast group.
    IgmpQuery {
        /// Type of the message: 17 is a query.
        #[schemars(extend("enum" = [17]))]
        igmp_type: i32,
        /// Address of the multicast group. Without it every group matches.
        #[schemars(extend("oneOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
        group_address: String,
    }
}

parts! {
    /// IgmpReport selects membership reports of a multicast group.
    IgmpReport {
        /// Type of the report: 18, 22 and 34 are versions 1, 2 and 3. Without it every version matches.
        #[schemars(extend("enum" = [18, 22, 34]))]
        igmp_type: i32,
        /// Address of the multicast group. Without it every group matches.
        #[schemars(extend("oneOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
        group_address: String,
    }
}

parts! {
    /// L7Protocol is an application protocol. Exactly one field is set.
    #[schemars(extend("oneOf" = [{"required": ["http"]}, {"required": ["tls"]}]))]
    L7Protocol {
        /// Matching HTTP requests.
        http: Http,
        /// Matching TLS handshakes.
        tls: Tls,
    }
}

parts! {
    /// Http selects HTTP requests.
    Http {
        /// Host of the request. Without it every host matches.
        host: String,
        /// Without it every method matches.
        method: Method,
        /// Path of the request. Without it every path matches.
        path: String,
    }
}

words! {
    /// Method is an HTTP method.
    Method { GET, POST, PUT, HEAD, DELETE, TRACE, OPTIONS, CONNECT, PATCH, }
}

parts! {
    /// Tls selects TLS handshakes.
    Tls {
        /// Server name indication of the handshake.
        sni: String,
    }
}

/// ClusterServicePeer is a Service as a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterServicePeer {
    /// Namespace and name of the Service.
    #[serde(flatten)]
    pub service: Named,
    /// A Service of this cluster (Cluster), or of the whole cluster set (ClusterSet).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// ServicePeer is a Service as a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServicePeer {
    /// The Service's name.
    pub name: String,
    /// The Service's namespace. The default is the policy's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A Service of this cluster (Cluster), or of the whole cluster set (ClusterSet).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

const TO_SERVICES: &str = "!has(self.toServices) || self.toServices.size() == 0 || \
     ((!has(self.to) || self.to.size() == 0) && (!has(self.ports) || self.ports.size() == 0) && \
     (!has(self.protocols) || self.protocols.size() == 0))";
const TO_SERVICES_SAYS: &str = "a rule with toServices cannot have to, ports or protocols";

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
            /// What becomes of what matches.
            pub action: Action,
            /// What it is about; then it is said in every rule and not of the policy.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub applied_to: Option<Vec<$applied_to>>,
            /// For people; no other rule of the policy has it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            $(
                $(#[$on_field])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$kind>,
            )*
            /// One of these, or of protocols; none of both: anything.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ports: Option<Vec<Port>>,
            /// One of these, or of ports.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub protocols: Option<Vec<$protocol>>,
            /// What of the application's protocol.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub l7_protocols: Option<Vec<L7Protocol>>,
            /// Whether what matches is logged.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub enable_logging: Option<bool>,
            /// What the log calls it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$"))]
            pub log_label: Option<String>,
        }
    };
}

rule! {
    /// ClusterIngressRule is about what comes.
    ClusterIngressRule(ClusterIngressAppliedTo, IngressProtocol) {
        /// From one of these; none: from everywhere.
        from: Vec<ClusterIngressPeer>,
    }
}

rule! {
    /// ClusterEgressRule is about what goes.
    #[schemars(extend("x-kubernetes-validations" = holds(&[(TO_SERVICES, TO_SERVICES_SAYS)])))]
    ClusterEgressRule(ClusterEgressAppliedTo, EgressProtocol) {
        /// To one of these; none: to everywhere.
        to: Vec<ClusterEgressPeer>,
        /// To one of these Services, as they are asked for; alone.
        to_services: Vec<ClusterServicePeer>,
    }
}

rule! {
    /// IngressRule is about what comes.
    IngressRule(RuleAppliedTo, IngressProtocol) {
        /// From one of these; none: from everywhere.
        from: Vec<IngressPeer>,
    }
}

rule! {
    /// EgressRule is about what goes.
    #[schemars(extend("x-kubernetes-validations" = holds(&[(TO_SERVICES, TO_SERVICES_SAYS)])))]
    EgressRule(RuleAppliedTo, EgressProtocol) {
        /// To one of these; none: to everywhere.
        to: Vec<EgressPeer>,
        /// To one of these Services, as they are asked for; alone.
        to_services: Vec<ServicePeer>,
    }
}

words! {
    /// Action is what becomes of what matches.
    Action {
        /// It goes on.
        Allow,
        /// It is dropped.
        Drop,
        /// It is dropped and the sender is told.
        Reject,
        /// On to NetworkPolicies.
        Pass,
    }
}

parts! {
    /// Port is ports of a protocol.
    #[schemars(extend("x-kubernetes-validations" = holds(&[
        ("!has(self.endPort) || (has(self.port) && type(self.port) == int)",
         "endPort needs a port that is a number"),
        ("!has(self.endPort) || self.port <= self.endPort", "endPort is not below port"),
        ("!has(self.sourceEndPort) || (has(self.sourcePort) && \
          self.sourcePort <= self.sourceEndPort)",
         "sourceEndPort needs a sourcePort that is not above it"),
    ])))]
    Port {
        /// Which; left out: TCP.
        protocol: Transport,
        /// A number, or a name of the destination pod's.
        #[schemars(schema_with = "number_or_name")]
        port: Value,
        /// The last of several from port on.
        end_port: i32,
        /// The sender's.
        source_port: i32,
        /// The last of several from sourcePort on.
        source_end_port: i32,
    }
}

words! {
    /// Transport is a protocol with ports.
    Transport { TCP, UDP, SCTP, }
}

parts! {
    /// IngressProtocol is a protocol without ports; exactly one.
    #[schemars(extend("oneOf" = [{"required": ["icmp"]}, {"required": ["igmp"]}]))]
    IngressProtocol {
        /// ICMP for IPv4, ICMPv6 for IPv6.
        icmp: Icmp,
        /// IGMP.
        igmp: IgmpQuery,
    }
}

parts! {
    /// EgressProtocol is a protocol without ports; exactly one.
    #[schemars(extend("oneOf" = [{"required": ["icmp"]}, {"required": ["igmp"]}]))]
    EgressProtocol {
        /// ICMP for IPv4, ICMPv6 for IPv6.
        icmp: Icmp,
        /// IGMP.
        igmp: IgmpReport,
    }
}

parts! {
    /// Icmp is messages, by the numbers of their own family.
    Icmp {
        /// Left out: every type.
        #[schemars(range(min = 0, max = 255))]
        icmp_type: i32,
        /// Left out: every code.
        #[schemars(range(min = 0, max = 255))]
        icmp_code: i32,
    }
}

parts! {
    /// IgmpQuery is what asks for members of a group.
    IgmpQuery {
        /// A query is 17.
        #[schemars(extend("enum" = [17]))]
        igmp_type: i32,
        /// Which group.
        #[schemars(extend("oneOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
        group_address: String,
    }
}

parts! {
    /// IgmpReport is what tells of members of a group.
    IgmpReport {
        /// 18, 22 and 34 are the reports of versions 1, 2 and 3; left out: all.
        #[schemars(extend("enum" = [18, 22, 34]))]
        igmp_type: i32,
        /// Which group.
        #[schemars(extend("oneOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
        group_address: String,
    }
}

parts! {
    /// L7Protocol is an application's protocol; exactly one.
    #[schemars(extend("oneOf" = [{"required": ["http"]}, {"required": ["tls"]}]))]
    L7Protocol {
        /// HTTP.
        http: Http,
        /// TLS.
        tls: Tls,
    }
}

parts! {
    /// Http is requests.
    Http {
        /// To which host.
        host: String,
        /// By which method.
        method: Method,
        /// Of which path.
        path: String,
    }
}

words! {
    /// Method is a method of HTTP.
    Method { GET, POST, PUT, HEAD, DELETE, TRACE, OPTIONS, CONNECT, PATCH, }
}

parts! {
    /// Tls is handshakes.
    Tls {
        /// With which server's name.
        sni: String,
    }
}

/// ClusterServicePeer is a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterServicePeer {
    /// Which.
    #[serde(flatten)]
    pub service: Named,
    /// Of this cluster, or of all that are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// ServicePeer is a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServicePeer {
    /// Its name.
    pub name: String,
    /// Its namespace; left out: the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Of this cluster, or of all that are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

const TO_SERVICES: &str = "!has(self.toServices) || self.toServices.size() == 0 || \
     ((!has(self.to) || self.to.size() == 0) && (!has(self.ports) || self.ports.size() == 0) && \
     (!has(self.protocols) || self.protocols.size() == 0))";
const TO_SERVICES_SAYS: &str = "toServices are without to, ports and protocols in their rule";

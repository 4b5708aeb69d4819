//! The annotation that describes a pod's branch.

use config_model::{EniId, Mac};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;
use std::{
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A branch, as in the annotation `vpc.amazonaws.com/pod-eni`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodEni {
    /// The branch.
    pub eni: EniId,
    pub mac: Mac,
    /// Its address.
    pub private_ip: Ipv4Addr,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Its VLAN on the trunk.
    pub vlan: u16,
    /// Its subnet's addresses.
    pub subnet_cidr: Ipv4Net,
    /// Its subnet's IPv6 addresses.
    pub subnet_v6_cidr: Option<Ipv6Net>,
    /// The association with the trunk.
    pub association: String,
}

impl PodEni {
    /// The annotation's value, with the controller's own field names.
    pub fn annotation(&self) -> String {
        let mut text = format!(
            "[{{\"eniId\":\"{}\",\"ifAddress\":\"{}\",\"privateIp\":\"{}\"",
            self.eni, self.mac, self.private_ip
        );
        if let Some(address) = self.ipv6 {
            let _ = write!(text, ",\"ipv6Addr\":\"{address}\"");
        }
        let _ = write!(text, ",\"vlanId\":{},\"subnetCidr\":\"{}\"", self.vlan, self.subnet_cidr);
        if let Some(cidr) = self.subnet_v6_cidr {
            let _ = write!(text, ",\"subnetV6Cidr\":\"{cidr}\"");
        }
        let _ = write!(text, ",\"associationID\":\"{}\"}}]", self.association);
        text
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    #[test]
    fn the_annotation_has_the_controllers_own_names() {
        let branch = PodEni {
            eni: EniId::new("eni-1"),
            mac: "02:00:00:00:00:07".parse().unwrap(),
            private_ip: "10.0.0.7".parse().unwrap(),
            ipv6: None,
            vlan: 7,
            subnet_cidr: "10.0.0.0/20".parse().unwrap(),
            subnet_v6_cidr: None,
            association: "trunk-assoc-1".to_owned(),
        };
        let plain = "[{\"eniId\":\"eni-1\",\"ifAddress\":\"02:00:00:00:00:07\",\
                     \"privateIp\":\"10.0.0.7\",\"vlanId\":7,\"subnetCidr\":\"10.0.0.0/20\",\
                     \"associationID\":\"trunk-assoc-1\"}]";
        assert_eq!(branch.annotation(), plain);
        let both = PodEni {
            ipv6: Some("2001:db8::7".parse().unwrap()),
            subnet_v6_cidr: Some("2001:db8::/64".parse().unwrap()),
            ..branch
        };
        let text = both.annotation();
        assert!(text.contains("\"ipv6Addr\":\"2001:db8::7\""), "{text}");
        assert!(text.contains("\"subnetV6Cidr\":\"2001:db8::/64\""), "{text}");
    }
}

//! The annotation with which the VPC resource controller assigns a branch ENI to a pod.

use crate::BranchEni;
use config_model::{EniId, Mac};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Deserialize;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Parses the annotation's value. Only the first entry of the list counts.
///
/// # Errors
/// The reason why it is not valid.
pub(crate) fn parse(annotation: &str) -> Result<BranchEni, String> {
    let all: Vec<Written> =
        serde_json::from_str(annotation).map_err(|error| format!("not JSON: {error}"))?;
    let first = all.into_iter().next().ok_or("the list is empty")?;
    if !first.eni_id.starts_with("eni-") {
        return Err(format!("eniId {:?} is not an ENI", first.eni_id));
    }
    let vlan = u16::try_from(first.vlan).ok().filter(|vlan| (1..=4094).contains(vlan));
    let branch = BranchEni {
        eni: EniId::new(first.eni_id),
        mac: first.mac.parse::<Mac>().map_err(|error| format!("ifAddress {error}"))?,
        address: field::<Ipv4Addr>("privateIp", &first.private_ip)?,
        address_v6: field::<Ipv6Addr>("ipv6Addr", &first.ipv6)?,
        vlan: vlan.ok_or_else(|| format!("vlanId {} is not a VLAN", first.vlan))?,
        subnet_cidr: field::<Ipv4Net>("subnetCidr", &first.subnet_cidr)?,
        subnet_cidr_v6: field::<Ipv6Net>("subnetV6Cidr", &first.subnet_v6_cidr)?,
    };
    if branch.address.is_none() && branch.address_v6.is_none() {
        return Err("neither privateIp nor ipv6Addr is set".to_owned());
    }
    Ok(branch)
}

/// An optional field: empty text means that it is absent.
fn field<T: std::str::FromStr>(name: &str, text: &str) -> Result<Option<T>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{name} {text:?} is not valid"))
}

/// The controller writes `vlanId`, amazon-vpc-cni reads `vlanID`, and Go accepts both.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "eniId", alias = "eniID")]
    eni_id: String,
    #[serde(rename = "ifAddress")]
    mac: String,
    #[serde(rename = "privateIp", alias = "privateIP", default)]
    private_ip: String,
    #[serde(rename = "ipv6Addr", default)]
    ipv6: String,
    #[serde(rename = "vlanId", alias = "vlanID")]
    vlan: i64,
    #[serde(rename = "subnetCidr", alias = "subnetCIDR", default)]
    subnet_cidr: String,
    #[serde(rename = "subnetV6Cidr", alias = "subnetV6CIDR", default)]
    subnet_v6_cidr: String,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    const GOOD: &str = r#"[{"eniId":"eni-0b","ifAddress":"0a:11:22:33:44:55","privateIp":"10.0.3.9",
        "vlanId":3,"subnetCidr":"10.0.3.0/24","associationID":"trunk-assoc-1"}]"#;

    #[test]
    fn both_spellings_of_the_vlan_are_read() {
        for spelling in ["vlanId", "vlanID"] {
            let branch = parse(&GOOD.replace("vlanId", spelling)).unwrap();
            assert_eq!(branch.vlan, 3);
            assert_eq!(branch.eni.as_str(), "eni-0b");
            assert_eq!(branch.address, Some(Ipv4Addr::new(10, 0, 3, 9)));
            assert_eq!(branch.subnet_cidr, Some("10.0.3.0/24".parse().unwrap()));
            assert_eq!(branch.address_v6, None);
        }
    }

    #[test]
    fn an_ipv6_branch_needs_no_ipv4_address() {
        let text = GOOD
            .replace(r#""privateIp":"10.0.3.9""#, r#""privateIp":"","ipv6Addr":"2600::9""#)
            .replace("subnetCidr\":\"10.0.3.0/24", "subnetV6Cidr\":\"2600::/64");
        let branch = parse(&text).unwrap();
        assert_eq!((branch.address, branch.subnet_cidr), (None, None));
        assert_eq!(branch.address_v6, Some("2600::9".parse().unwrap()));
        assert_eq!(branch.subnet_cidr_v6, Some("2600::/64".parse().unwrap()));
    }

    #[test]
    fn a_malformed_annotation_is_refused_with_its_field() {
        for (text, named) in [
            ("".to_owned(), "not JSON"),
            ("[]".to_owned(), "empty"),
            (GOOD.replace("0a:11", "0g:11"), "ifAddress"),
            (GOOD.replace(":3,", ":0,"), "vlanId"),
            (GOOD.replace(":3,", ":4095,"), "vlanId"),
            (GOOD.replace("10.0.3.9", "10.0.3"), "privateIp"),
            (GOOD.replace("10.0.3.9", ""), "neither"),
            (GOOD.replace("eni-0b", "b"), "eniId"),
            (GOOD.replace("10.0.3.0/24", "10.0.3.0/240"), "subnetCidr"),
        ] {
            let fault = parse(&text).unwrap_err();
            assert!(fault.contains(named), "{fault}");
        }
    }
}

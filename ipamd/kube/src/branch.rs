//! The annotation with which the VPC resource controller assigns a branch ENI to a pod.

use crate::BranchEni;
use config_model::{EniId, Mac};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

/// Maximum size of the annotation in bytes. A branch takes about 250.
const MOST_BYTES: usize = 16 << 10;
/// Prefix lengths of IPv4 subnets of a VPC (the EC2 user guide's "Subnet CIDR blocks").
const SUBNET_LENGTHS: RangeInclusive<u8> = 16..=28;
/// Prefix lengths of IPv6 subnets of a VPC, in steps of 4.
const SUBNET_LENGTHS_V6: RangeInclusive<u8> = 44..=64;

/// Parses the annotation's value. Only the first entry of the list counts.
///
/// # Errors
/// The reason why it is not valid.
pub(crate) fn parse(annotation: &str) -> Result<BranchEni, String> {
    if annotation.len() > MOST_BYTES {
        let length = annotation.len();
        return Err(format!("it has {length} bytes, and the maximum is {MOST_BYTES}"));
    }
    let all: Vec<Written> =
        serde_json::from_str(annotation).map_err(|error| format!("not JSON: {error}"))?;
    let first = all.into_iter().next().ok_or("the list is empty")?;
    if !is_eni(&first.eni_id) {
        return Err(format!("eniId {:?} is not an ENI", cut(&first.eni_id)));
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
    if let (Some(address), Some(subnet)) = (branch.address, branch.subnet_cidr) {
        within(address.into(), subnet.into())?;
    }
    if let (Some(address), Some(subnet)) = (branch.address_v6, branch.subnet_cidr_v6) {
        within(address.into(), subnet.into())?;
    }
    Ok(branch)
}

/// Checks that EC2 can have assigned the address: it reserves the first four addresses of a subnet and the last one.
fn within(address: IpAddr, subnet: IpNet) -> Result<(), String> {
    let lengths = if subnet.addr().is_ipv4() { SUBNET_LENGTHS } else { SUBNET_LENGTHS_V6 };
    if !lengths.contains(&subnet.prefix_len()) {
        return Err(format!("{subnet} is not a subnet of a VPC"));
    }
    if !subnet.contains(&address) {
        return Err(format!("{address} is not in the subnet {subnet}"));
    }
    let first_four = subnet.hosts().take(if subnet.addr().is_ipv4() { 3 } else { 4 });
    let mut reserved = first_four.chain([subnet.network(), subnet.broadcast()]);
    match reserved.any(|it| it == address) {
        true => Err(format!("{address} is a reserved address of the subnet {subnet}")),
        false => Ok(()),
    }
}

fn is_eni(id: &str) -> bool {
    let is_hex =
        |text: &str| text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    id.strip_prefix("eni-").is_some_and(|hex| (1..=17).contains(&hex.len()) && is_hex(hex))
}

/// The start of a value for a message.
fn cut(value: &str) -> &str {
    let end = value.char_indices().nth(64).map_or(value.len(), |(at, _)| at);
    &value[..end]
}

/// An optional field: empty text means that it is absent.
fn field<T: std::str::FromStr>(name: &str, text: &str) -> Result<Option<T>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{name} {:?} is not valid", cut(text)))
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
            (GOOD.replace("10.0.3.0/24", "10.0.3.0/-1"), "subnetCidr"),
            (GOOD.replace("eni-0b", &"eni-0".repeat(9)), "eniId"),
            (GOOD.replace("eni-0b", &format!("eni-{}", "b".repeat(250_000))), "bytes"),
            (GOOD.replace("10.0.3.0/24", "255.255.255.255/32"), "not a subnet"),
            (GOOD.replace("10.0.3.9", "169.254.169.254"), "not in the subnet"),
            (GOOD.replace("10.0.3.9", "10.0.4.9"), "not in the subnet"),
            (GOOD.replace("10.0.3.9", "10.0.3.0"), "reserved"),
            (GOOD.replace("10.0.3.9", "10.0.3.1"), "reserved"),
            (GOOD.replace("10.0.3.9", "10.0.3.3"), "reserved"),
            (GOOD.replace("10.0.3.9", "10.0.3.255"), "reserved"),
        ] {
            let fault = parse(&text).unwrap_err();
            assert!(fault.contains(named), "{fault}");
        }
    }
}

//! Requests that change nothing.

use super::{Filter, Page};
use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId, VpcId};

/// Lists ENIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeNetworkInterfaces {
    /// `NetworkInterfaceId.N`.
    pub network_interface_ids: Vec<EniId>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists the branches of trunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeTrunkInterfaceAssociations {
    /// `AssociationId.N`.
    pub association_ids: Vec<String>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists the reservations of a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetSubnetCidrReservations {
    /// `SubnetId`.
    pub subnet_id: Option<SubnetId>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeInstances {
    /// `InstanceId.N`.
    pub instance_ids: Vec<InstanceId>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists instance types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeInstanceTypes {
    /// `InstanceType.N`.
    pub instance_types: Vec<String>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeSubnets {
    /// `SubnetId.N`.
    pub subnet_ids: Vec<SubnetId>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists VPCs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeVpcs {
    /// `VpcId.N`.
    pub vpc_ids: Vec<VpcId>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists security groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeSecurityGroups {
    /// `GroupId.N`.
    pub group_ids: Vec<SecurityGroupId>,
    /// `Filter.N`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Lists tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeTags {
    /// `Filter.N`: `key`, `resource-id`, `resource-type`, `value`, `tag:…`.
    pub filters: Vec<Filter>,
    /// `MaxResults` and `NextToken`.
    pub page: Page,
    /// `DryRun`.
    pub dry_run: bool,
}

//! Tags: their rules, and the calls that change them.

use crate::{
    Cloud, CreateTags, DeleteTags, Ec2Error, Response, Tag, TagDescription,
    state::{State, View},
    table::Stamp,
};
use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId};
use std::{collections::BTreeMap, sync::Arc};

/// Tags per resource.
const MOST: usize = 50;
const KEY_LENGTH: usize = 128;
const VALUE_LENGTH: usize = 256;

/// Holds new tags against EC2's rules.
pub(crate) fn check(old: &BTreeMap<String, String>, new: &[Tag]) -> Result<(), Ec2Error> {
    let mut keys: Vec<&str> = new.iter().map(|tag| tag.key.as_str()).collect();
    keys.sort_unstable();
    if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("Duplicate tag key '{}' specified.", pair[0]);
        return Err(Ec2Error::invalid_value(message));
    }
    for tag in new {
        if tag.key.is_empty() || tag.key.chars().count() > KEY_LENGTH {
            let message = format!("Tag key exceeds the maximum length of {KEY_LENGTH} characters");
            return Err(Ec2Error::invalid_value(message));
        }
        if tag.value.chars().count() > VALUE_LENGTH {
            let message =
                format!("Tag value exceeds the maximum length of {VALUE_LENGTH} characters");
            return Err(Ec2Error::invalid_value(message));
        }
        if tag.key.to_ascii_lowercase().starts_with("aws:") {
            let message = "Tag keys starting with 'aws:' are reserved for internal use";
            return Err(Ec2Error::invalid_value(message));
        }
    }
    let added = new.iter().filter(|tag| !old.contains_key(&tag.key)).count();
    if old.len() + added > MOST {
        return Err(Ec2Error::new(
            "TagLimitExceeded",
            "More than 50 tags specified, or the resource would have more than 50 tags",
        ));
    }
    Ok(())
}

/// Every tag of every resource, by resource and key.
pub(crate) fn all(state: View<'_>) -> Vec<TagDescription> {
    let mut found = Vec::new();
    let mut add = |id: &str, resource_type: &'static str, tags: &BTreeMap<String, String>| {
        found.extend(tags.iter().map(|(key, value)| TagDescription {
            resource_id: id.to_owned(),
            resource_type,
            tag: Tag::new(key, value),
        }));
    };
    state.enis.values().for_each(|o| add(o.id.as_str(), "network-interface", &o.tags));
    state.groups.values().for_each(|o| add(o.id.as_str(), "security-group", &o.tags));
    state.instances.values().for_each(|o| add(o.id.as_str(), "instance", &o.tags));
    state.subnets.values().for_each(|o| add(o.id.as_str(), "subnet", &o.tags));
    add(state.vpc.id.as_str(), "vpc", &state.vpc.tags);
    found.sort_by(|a, b| (&a.resource_id, &a.tag.key).cmp(&(&b.resource_id, &b.tag.key)));
    found
}

/// Changes the tags of a resource, if there is one.
fn change_tags(
    state: &mut State,
    stamp: Stamp,
    id: &str,
    change: impl FnOnce(&mut BTreeMap<String, String>),
) {
    match id.split_once('-').map_or("", |(kind, _)| kind) {
        "eni" => state.change_eni(stamp, &EniId::new(id), |o| change(&mut o.tags)),
        "i" => {
            state.instances.change(stamp, &InstanceId::new(id), |o| change(&mut o.tags));
        }
        "sg" => {
            state.groups.change(stamp, &SecurityGroupId::new(id), |o| change(&mut o.tags));
        }
        "subnet" => {
            state.subnets.change(stamp, &SubnetId::new(id), |o| change(&mut o.tags));
        }
        "vpc" if state.vpc.id.as_str() == id => change(&mut Arc::make_mut(&mut state.vpc).tags),
        _ => {}
    }
}

fn tags_of<'a>(state: &'a State, id: &str) -> Result<&'a BTreeMap<String, String>, Ec2Error> {
    match id.split_once('-').map_or("", |(kind, _)| kind) {
        "eni" => state.enis.get(&EniId::new(id)).map(|o| &o.tags),
        "i" => state.instances.get(&InstanceId::new(id)).map(|o| &o.tags),
        "sg" => state.groups.get(&SecurityGroupId::new(id)).map(|o| &o.tags),
        "subnet" => state.subnets.get(&SubnetId::new(id)).map(|o| &o.tags),
        "vpc" if state.vpc.id.as_str() == id => Some(&state.vpc.tags),
        _ => return Err(Ec2Error::no_such_resource(id)),
    }
    .ok_or_else(|| match id.split_once('-').map_or("", |(kind, _)| kind) {
        "eni" => Ec2Error::no_such_eni(id),
        "i" => Ec2Error::no_such_instance(id),
        "sg" => Ec2Error::no_such_group(id),
        "subnet" => Ec2Error::no_such_subnet(id),
        _ => Ec2Error::no_such_resource(id),
    })
}

impl Cloud {
    pub(crate) fn create_tags(&mut self, request: CreateTags) -> Result<Response, Ec2Error> {
        if request.resources.is_empty() {
            return Err(Ec2Error::missing_parameter("resourceIdSet"));
        }
        if request.tags.is_empty() {
            return Err(Ec2Error::missing_parameter("tagSet"));
        }
        for id in &request.resources {
            check(tags_of(&self.state, id)?, &request.tags)?;
        }
        self.edit(|state, stamp| {
            for id in &request.resources {
                let new = request.tags.iter().map(|t| (t.key.clone(), t.value.clone()));
                change_tags(state, stamp, id, |tags| tags.extend(new));
            }
        });
        Ok(Response::CreateTags)
    }

    pub(crate) fn delete_tags(&mut self, request: DeleteTags) -> Result<Response, Ec2Error> {
        if request.resources.is_empty() {
            return Err(Ec2Error::missing_parameter("resourceIdSet"));
        }
        for id in &request.resources {
            tags_of(&self.state, id)?;
        }
        let asked = |key: &String, value: &String| {
            let same = |tag: &crate::TagToDelete| {
                tag.key == *key && tag.value.as_ref().is_none_or(|wanted| wanted == value)
            };
            request.tags.is_empty() || request.tags.iter().any(same)
        };
        self.edit(|state, stamp| {
            for id in &request.resources {
                change_tags(state, stamp, id, |tags| tags.retain(|key, value| !asked(key, value)));
            }
        });
        Ok(Response::DeleteTags)
    }
}

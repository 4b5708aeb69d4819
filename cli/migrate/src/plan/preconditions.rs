//! Preconditions of a takeover, known before its first step: Ferrule's image, its role, and the settings of `aws-node`.
//!
//! These are facts, not refusals, because each can change while `apply` waits.

use super::Draft;
use crate::{Ferrule, Settings};

pub(super) fn describe(ferrule: &Ferrule, settings: &Settings, draft: &mut Draft) {
    describe_daemon(ferrule, draft);
    describe_settings(settings, draft);
}

fn describe_daemon(ferrule: &Ferrule, draft: &mut Draft) {
    draft.facts.push(if ferrule.runs {
        "ferrule-ipamd runs: its image is on the node".to_owned()
    } else {
        "ferrule-ipamd does not run here yet, so its image and its role are not checked; put the node into Ferrule's \
         DaemonSet and run this again"
            .to_owned()
    });
    if !ferrule.runs {
        return;
    }
    for reason in &ferrule.unavailable {
        draft.facts.push(format!("ferrule-ipamd does not serve yet: {reason}"));
    }
    let about_role = |reason: &&String| {
        let reason = reason.to_ascii_lowercase();
        OF_THE_ROLE.iter().any(|word| reason.contains(word))
    };
    if ferrule.unavailable.iter().any(|reason| about_role(&reason)) {
        draft.facts.push(
            "ferrule-ipamd has no role: a role of amazon-vpc-cni trusts the service account kube-system:aws-node only; \
             add the one of Ferrule to its trust policy or its Pod Identity association"
                .to_owned(),
        );
    }
}

fn describe_settings(settings: &Settings, draft: &mut Draft) {
    let theirs = match &settings.vpc_cni {
        Ok(Some(theirs)) => theirs,
        Ok(None) => {
            draft.facts.push(
                "aws-node does not run here, so its settings are not compared; run this before the node gets its label"
                    .to_owned(),
            );
            return;
        }
        Err(why) => {
            draft.facts.push(format!("the settings of aws-node are not compared: {why}"));
            return;
        }
    };
    let mut differ = false;
    for (name, default) in &settings.defaults {
        let their_value = theirs.get(name).unwrap_or(default);
        let (our_value, whose) = match &settings.ferrule {
            Some(ours) => (ours.get(name).unwrap_or(default), "ferrule-ipamd"),
            None => (default, "Ferrule by default"),
        };
        if are_equal(their_value, our_value) {
            continue;
        }
        differ = true;
        draft.facts.push(format!(
            "setting {name}: aws-node has {their_value:?}, {whose} has {our_value:?}; compare it with the values of \
             Ferrule's chart"
        ));
    }
    if !differ {
        draft.facts.push("the settings of aws-node and Ferrule do not differ".to_owned());
    }
}

/// Compares values as the daemons read them: booleans have several forms.
fn are_equal(one: &str, other: &str) -> bool {
    let plain = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
        "1" | "t" | "true" => "true".to_owned(),
        "0" | "f" | "false" => "false".to_owned(),
        text => text.to_owned(),
    };
    plain(one) == plain(other)
}

/// Words of the errors of IRSA, Pod Identity and the instance's role.
const OF_THE_ROLE: [&str; 4] =
    ["assumerolewithwebidentity", "credential", "web identity", "pod identity"];

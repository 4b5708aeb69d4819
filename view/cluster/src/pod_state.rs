//! Problems in a pod's status.

use crate::objects::{ContainerStatus, Pod};
use view_node::{Severity, Trouble};
use view_text::counted;

/// The setting that turns a daemon's introspection off.
pub(crate) const INTROSPECTION_OFF: &str = "DISABLE_INTROSPECTION";

impl Pod {
    /// Returns true if the pod template turns introspection off.
    pub fn introspection_is_off(&self) -> bool {
        let values = self.spec.containers.iter().filter_map(|it| it.value(INTROSPECTION_OFF));
        let words = ["1", "t", "true"];
        values.map(str::to_ascii_lowercase).any(|value| words.contains(&value.as_str()))
    }
}

/// Returns the reasons why a Ferrule pod does not run.
pub fn of_pod(pod: &Pod) -> Vec<Trouble> {
    let shown = format!("-n {} {}", pod.metadata.namespace, pod.metadata.name);
    let mut found = Vec::new();
    let scheduled = pod.status.conditions.iter().find(|it| it.kind == "PodScheduled");
    if let Some(condition) = scheduled.filter(|it| it.status == "False") {
        let next = format!("kubectl describe pod {shown}");
        found.push(trouble("unscheduled", &pod.metadata.name, &condition.message, next));
    }
    if pod.status.phase == "Failed" {
        let cause = reason_text(&pod.status.reason, &pod.status.message);
        let next = format!("fix the cause, then run kubectl delete pod {shown}");
        found.push(trouble("failed", &pod.metadata.name, &cause, next));
    }
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    found.extend(statuses.filter_map(|status| of_container(status, pod, &shown)));
    found
}

fn of_container(status: &ContainerStatus, pod: &Pod, shown: &str) -> Option<Trouble> {
    let name = &status.name;
    let Some(waiting) = &status.state.waiting else {
        let restarts = status.restart_count;
        let again = restarts > 0 && !status.ready && status.state.terminated.is_none();
        let times = counted(restarts, "time", "times");
        let cause = format!("it was restarted {times}{}", ending(status));
        let next = format!("kubectl logs {shown} -c {name} --previous");
        return again.then(|| trouble("restarts", &container(name), &cause, next));
    };
    let cause = reason_text(&waiting.reason, &waiting.message);
    match waiting.reason.as_str() {
        "ImagePullBackOff"
        | "ErrImagePull"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable" => {
            let image = wanted_image(pod, name).unwrap_or(&status.image);
            let next = "check that the image name is right, that the node reaches its registry and that \
                        it may pull (imagePullSecrets, the node's role)";
            Some(trouble("image", image, &cause, next.to_owned()))
        }
        "CrashLoopBackOff" => {
            let cause = format!("it exits repeatedly{}", ending(status));
            let next = format!("kubectl logs {shown} -c {name} --previous");
            Some(trouble("crash", &container(name), &cause, next))
        }
        // The container is starting.
        "PodInitializing" | "ContainerCreating" | "" => None,
        _ => {
            let next = format!("kubectl describe pod {shown}");
            Some(trouble("container", &container(name), &cause, next))
        }
    }
}

fn wanted_image<'a>(pod: &'a Pod, container: &str) -> Option<&'a str> {
    let found = pod.spec.containers.iter().find(|it| it.name == container)?;
    Some(found.image.as_str()).filter(|image| !image.is_empty())
}

fn ending(status: &ContainerStatus) -> String {
    let Some(ended) = &status.last_state.terminated else { return String::new() };
    let code = ended.exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
    let reason = reason_text(&ended.reason, &ended.message);
    format!(", last{code} ({reason})")
}

fn container(name: &str) -> String {
    format!("container {name}")
}

fn reason_text(reason: &str, message: &str) -> String {
    match (reason, message.trim()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn trouble(kind: &str, object: &str, cause: &str, next_step: String) -> Trouble {
    Trouble {
        kind: kind.to_owned(),
        severity: Severity::Trouble,
        since: None,
        object: object.to_owned(),
        cause: cause.to_owned(),
        next_step,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde_json::{Value, json};

    fn troubles(status: Value) -> Vec<Trouble> {
        let pod = json!({
            "metadata": { "namespace": "kube-system", "name": "ferrule-x" },
            "spec": { "containers": [{ "name": "ipamd", "image": "repo/ferrule:9" }] },
            "status": status,
        });
        of_pod(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_failed_image_pull_is_reported_with_name_and_registry_error() {
        let message = "Back-off pulling image \"repo/ferrule:9\": not found";
        let found = troubles(json!({ "phase": "Pending", "containerStatuses": [{
            "name": "ipamd", "image": "repo/ferrule:9",
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": message } },
        }] }));
        let [found] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((found.kind.as_str(), found.object.as_str()), ("image", "repo/ferrule:9"));
        assert!(found.cause.contains("not found") && found.next_step.contains("registry"));
    }

    #[test]
    fn a_crashed_container_is_reported_with_its_end_and_the_next_step() {
        let found = troubles(json!({ "containerStatuses": [{
            "name": "ipamd", "restartCount": 4,
            "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 5m0s" } },
            "lastState": { "terminated": { "reason": "Error", "exitCode": 2 } },
        }] }));
        assert_eq!(found[0].cause, "it exits repeatedly, last with exit code 2 (Error)");
        let wanted = "kubectl logs -n kube-system ferrule-x -c ipamd --previous";
        assert_eq!(found[0].next_step, wanted);
    }

    #[test]
    fn a_starting_or_running_container_is_no_problem() {
        let starting = json!({ "containerStatuses": [{
            "name": "ipamd", "state": { "waiting": { "reason": "PodInitializing" } },
        }] });
        assert_eq!(troubles(starting), []);
        assert_eq!(
            troubles(json!({ "containerStatuses": [{ "name": "ipamd", "ready": true }] })),
            []
        );
    }
}

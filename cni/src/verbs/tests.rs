#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use serde_json::Value;

fn call(vars: &[(&str, &str)], stdin: &str) -> Reply {
    let var = |name: &str| {
        vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(*value))
    };
    run(var, stdin.as_bytes())
}

fn answer(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.stdout).unwrap()
}

const QUIET: &str = r#"{"cniVersion":"0.4.0","name":"aws-cni","pluginLogFile":"/dev/null","pluginLogLevel":"error"}"#;

#[test]
fn a_call_without_a_command_prints_the_programs_name_and_succeeds() {
    let reply = call(&[], "");
    assert!(!reply.failed && reply.stdout.is_empty());
    assert!(reply.stderr.contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{}", reply.stderr);
}

#[test]
fn version_answers_in_the_version_of_the_question() {
    for (stdin, version) in [
        ("", "1.1.0"),
        (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
        (r#"{"cniVersion":"1.1.0"}"#, "1.1.0"),
        (r#"{"cniVersion":"9.9.9"}"#, "1.1.0"),
    ] {
        let reply = call(&[("CNI_COMMAND", "VERSION")], stdin);
        assert!(!reply.failed);
        let expected = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
        assert_eq!(answer(&reply)["supportedVersions"], serde_json::json!(expected));
        assert_eq!(answer(&reply)["cniVersion"], version);
    }
}

#[test]
fn an_error_is_in_the_version_of_the_question() {
    let reply = call(&[("CNI_COMMAND", "NONSENSE")], QUIET);
    assert!(reply.failed);
    let object = answer(&reply);
    assert_eq!((&object["cniVersion"], &object["code"]), (&"0.4.0".into(), &4.into()));
    assert!(object["msg"].is_string() && object["details"].is_string());
}

#[test]
fn the_environment_is_judged_before_the_configuration() {
    let reply = call(&[("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "eth0")], QUIET);
    assert_eq!(answer(&reply)["code"], 4);
}

#[test]
fn an_invalid_identifier_is_named_by_place_and_not_by_value() {
    let args = ("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b");
    let with = |id: &str, ifname: &str, conf: &str| {
        let vars = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", id),
            ("CNI_IFNAME", ifname),
            ("CNI_NETNS", "/no/such"),
            args,
        ];
        call(&vars, conf)
    };
    let other_name = QUIET.replace("aws-cni", "../canary");
    for (reply, code) in [
        (with("../canary", "eth0", QUIET), 4),
        (with("a", "canary/0", QUIET), 4),
        (with("a", "sixteen-bytes-xx", QUIET), 4),
        (with("a", "eth0", &other_name), 7),
    ] {
        assert_eq!(answer(&reply)["code"], code);
        assert!(!answer(&reply).to_string().contains("canary"));
    }
    assert_eq!(answer(&with("a", "eth0", QUIET))["code"], 8);
}

#[test]
fn an_endless_input_is_refused_half_read() {
    assert_eq!(read(std::io::repeat(b' ')).unwrap_err().code, Code::Io);
}

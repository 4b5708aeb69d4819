//! An unmodified boto3 lives the whole life of an ENI against the lab's EC2 and IMDS.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics and tells its skips")]

use config_model::{Span, Time};
use lab_cloud::{Action, CloudSpec, Fault, Launch, Throttling, Timing};
use lab_server::{LiveCloud, ReplyLoss, serve_loopback};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

#[tokio::test(flavor = "multi_thread")]
async fn boto3_lives_the_whole_life_of_an_eni() {
    plays("boto3_life.py", stage()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_sees_ipv6_prefixes_trunks_and_adapters() {
    plays("boto3_modes.py", stage_of_modes()).await;
}

/// Runs a script against a cloud.
async fn plays(script: &str, (cloud, instance): (LiveCloud, config_model::InstanceId)) {
    let python = match python_with_boto3() {
        Ok(python) => python,
        Err(reason) => {
            println!("SKIP boto3: {reason}");
            return;
        }
    };
    let served = serve_loopback(cloud, instance).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = tokio::process::Command::new(python)
        .arg(script)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("AWS_ENDPOINT_URL_EC2", served.ec2_endpoint())
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", served.imds_endpoint())
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    println!("{}", String::from_utf8_lossy(&output.stdout));
}

fn stage_of_modes() -> (LiveCloud, config_model::InstanceId) {
    let mut spec = CloudSpec::two_zones().with_ipv6();
    spec.throttling = Throttling::Off;
    spec.timing = Timing { attach: Span::millis(100), ..Timing::INSTANT };
    for subnet in &mut spec.subnets {
        subnet.assign_ipv6_address_on_creation = true;
    }
    let cloud = LiveCloud::new(spec, 1).unwrap();
    let launch = |cloud: &mut lab_cloud::Cloud, now: Time| {
        let full = cloud.subnet_named("b").unwrap().id.clone();
        cloud.fragment_subnet(now, &full).unwrap();
        let subnet = cloud.subnet_named("a").unwrap().id.clone();
        cloud.launch(now, Launch::new("node", "c5.xlarge", subnet)).unwrap()
    };
    let instance = cloud.with(launch);
    (cloud, instance)
}

fn stage() -> (LiveCloud, config_model::InstanceId) {
    let mut spec = CloudSpec::two_zones();
    spec.throttling = Throttling::Off;
    spec.timing = Timing {
        create: Span::millis(50),
        attach: Span::millis(200),
        detach: Span::millis(200),
        mutate_latency: Span::millis(2),
        ..Timing::INSTANT
    };
    let cloud = LiveCloud::new(spec, 1).unwrap();
    let launch = |cloud: &mut lab_cloud::Cloud, now: Time| {
        let subnet = cloud.subnet_named("a").unwrap().id.clone();
        cloud.launch(now, Launch::new("node", "c5.xlarge", subnet)).unwrap()
    };
    let instance = cloud.with(launch);
    let throttled = Fault::ThrottleEveryNth { action: Some(Action::DescribeVpcs), nth: 2 };
    cloud.with(|cloud, now| cloud.set_fault(now, throttled));
    cloud.lose_replies(Some(ReplyLoss { action: Some(Action::DeleteTags), every: 1, calls: 0 }));
    (cloud, instance)
}

/// The machine's own, or one in a virtual environment in the user's cache.
fn python_with_boto3() -> Result<PathBuf, String> {
    let own = PathBuf::from("python3");
    if has_boto3(&own) {
        return Ok(own);
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let venv = cache.ok_or("no HOME to keep a virtual environment in")?.join("ferrule/boto3");
    let python = venv.join("bin/python3");
    if !has_boto3(&python) {
        run(Command::new(&own).args(["-m", "venv"]).arg(&venv))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "boto3>=1.34,<2"]))?;
    }
    Ok(python)
}

fn has_boto3(python: &Path) -> bool {
    Command::new(python).args(["-c", "import boto3"]).output().is_ok_and(|o| o.status.success())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|err| format!("{command:?}: {err}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {}", output_text(&output)))
    }
}

fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

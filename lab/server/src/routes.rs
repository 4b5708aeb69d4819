//! The server's end of the control socket: each route is one verb of the lab.

use crate::{
    control::{
        BalancerOrder, BalancerSpec, BalancerView, BranchSpec, BranchView, CheckSpec, CheckView,
        CountersView, DaemonOrder, EniOrder, EniSpec, FaultSpec, FaultView, GroupSpec, GroupView,
        IamView, InterfaceView, NodeSpec, NodeView, PodSpec, PodView, Refusal, StatusView,
        SubnetOrder, SubnetSpec, SubnetView,
    },
    lab::{Lab, LabError},
};
use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use config_model::PodName;
use serde::Deserialize;
use std::sync::Arc;

type Shared = State<Arc<Lab>>;
type Answer<T> = Result<Json<T>, LabError>;

/// All routes of a lab.
pub(crate) fn router(lab: Arc<Lab>) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/nodes", get(nodes).post(add_node))
        .route("/nodes/{node}", delete(remove_node))
        .route("/nodes/{node}/daemon", post(order_daemon))
        .route("/nodes/{node}/{order}", post(order_node))
        .route("/pods", get(pods).post(add_pod))
        .route("/pods/{namespace}/{name}", get(pod).delete(delete_pod))
        .route("/pods/{namespace}/{name}/check", post(check_pod))
        .route("/faults", get(faults).post(set_fault).delete(clear_faults))
        .route("/subnets", get(subnets).post(add_subnet))
        .route("/subnets/{subnet}", post(order_subnet))
        .route("/enis", get(enis).post(add_eni))
        .route("/enis/{eni}", post(order_eni))
        .route("/groups", get(groups).post(add_group))
        .route("/iam", get(iam).post(set_iam))
        .route("/branches", get(branches).post(add_branch))
        .route("/branches/{namespace}/{name}", delete(remove_branch))
        .route("/balancers", get(balancers).post(add_balancer))
        .route("/balancers/{name}", post(order_balancer).delete(remove_balancer))
        .route("/check", post(check))
        .route("/counters", get(counters))
        .with_state(lab)
}

impl IntoResponse for LabError {
    fn into_response(self) -> Response {
        let error = self.chain();
        let cni = if let Self::Plugin { object, .. } = self { object } else { None };
        (StatusCode::CONFLICT, Json(Refusal { error, cni })).into_response()
    }
}

async fn status(State(lab): Shared) -> Json<StatusView> {
    Json(lab.status())
}

async fn nodes(State(lab): Shared) -> Json<Vec<NodeView>> {
    Json(lab.node_views())
}

async fn add_node(State(lab): Shared, Json(spec): Json<NodeSpec>) -> Answer<NodeView> {
    // A request whose client went away is still carried out to its end.
    let name = finish(async move {
        let name = lab.add_node(spec).await?;
        lab.node_view(&name)
    });
    name.await.map(Json)
}

async fn remove_node(State(lab): Shared, Path(node): Path<String>) -> Answer<()> {
    finish(async move { lab.remove_node(&node).await }).await.map(Json)
}

async fn order_node(
    State(lab): Shared,
    Path((node, order)): Path<(String, String)>,
) -> Answer<NodeView> {
    let view = finish(async move {
        match order.as_str() {
            "reboot" => lab.reboot_node(&node).await?,
            "stop" => lab.stop_node(&node).await?,
            "start" => lab.start_node(&node).await?,
            "terminate" => lab.terminate_node(&node).await?,
            "trunk" => return lab.request_trunk(&node),
            _ => return Err(LabError::BadOrder(order)),
        }
        lab.node_view(&node)
    });
    view.await.map(Json)
}

async fn order_daemon(
    State(lab): Shared,
    Path(node): Path<String>,
    Json(order): Json<DaemonOrder>,
) -> Answer<NodeView> {
    let view = finish(async move {
        lab.order_daemon(&node, order).await?;
        lab.node_view(&node)
    });
    view.await.map(Json)
}

async fn pods(State(lab): Shared) -> Json<Vec<PodView>> {
    Json(lab.pod_views())
}

async fn pod(State(lab): Shared, Path(key): Path<(String, String)>) -> Answer<PodView> {
    lab.pod(&key).map(Json)
}

async fn add_pod(State(lab): Shared, Json(spec): Json<PodSpec>) -> Answer<PodView> {
    finish(async move { lab.add_pod(spec).await }).await.map(Json)
}

async fn delete_pod(State(lab): Shared, Path(key): Path<(String, String)>) -> Answer<()> {
    finish(async move { lab.delete_pod(&key).await }).await.map(Json)
}

async fn check_pod(State(lab): Shared, Path(key): Path<(String, String)>) -> Answer<()> {
    finish(async move { lab.check_pod(&key).await }).await.map(Json)
}

async fn faults(State(lab): Shared) -> Json<Vec<FaultView>> {
    Json(lab.faults())
}

async fn set_fault(State(lab): Shared, Json(spec): Json<FaultSpec>) -> Answer<Vec<FaultView>> {
    lab.set_fault(spec).map(Json)
}

#[derive(Deserialize)]
struct FaultQuery {
    which: Option<String>,
}

async fn clear_faults(State(lab): Shared, Query(of): Query<FaultQuery>) -> Answer<Vec<FaultView>> {
    lab.clear_faults(of.which.as_deref()).map(Json)
}

async fn subnets(State(lab): Shared) -> Json<Vec<SubnetView>> {
    Json(lab.subnet_views())
}

async fn add_subnet(State(lab): Shared, Json(spec): Json<SubnetSpec>) -> Answer<SubnetView> {
    finish(async move { lab.add_subnet(spec).await }).await.map(Json)
}

async fn order_subnet(
    State(lab): Shared,
    Path(subnet): Path<String>,
    Json(order): Json<SubnetOrder>,
) -> Answer<SubnetView> {
    lab.order_subnet(&subnet, order).map(Json)
}

async fn enis(State(lab): Shared) -> Json<Vec<InterfaceView>> {
    Json(lab.interface_views())
}

async fn add_eni(State(lab): Shared, Json(spec): Json<EniSpec>) -> Answer<InterfaceView> {
    lab.add_eni(spec).map(Json)
}

async fn order_eni(
    State(lab): Shared,
    Path(eni): Path<String>,
    Json(order): Json<EniOrder>,
) -> Answer<InterfaceView> {
    lab.order_eni(&eni, order).map(Json)
}

async fn groups(State(lab): Shared) -> Json<Vec<GroupView>> {
    Json(lab.group_views())
}

async fn add_group(State(lab): Shared, Json(spec): Json<GroupSpec>) -> Answer<GroupView> {
    lab.add_group(spec).map(Json)
}

async fn iam(State(lab): Shared) -> Json<Vec<IamView>> {
    Json(lab.iam_views())
}

async fn set_iam(State(lab): Shared, Json(spec): Json<IamView>) -> Json<Vec<IamView>> {
    Json(lab.set_iam(&spec))
}

async fn branches(State(lab): Shared) -> Json<Vec<BranchView>> {
    Json(lab.branch_views())
}

async fn add_branch(State(lab): Shared, Json(spec): Json<BranchSpec>) -> Answer<BranchView> {
    lab.add_branch(spec).map(Json)
}

async fn remove_branch(
    State(lab): Shared,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer<()> {
    lab.remove_branch(&PodName { namespace, name }).map(Json)
}

async fn balancers(State(lab): Shared) -> Json<Vec<BalancerView>> {
    Json(lab.balancer_views())
}

async fn add_balancer(State(lab): Shared, Json(spec): Json<BalancerSpec>) -> Answer<BalancerView> {
    lab.add_balancer(spec).map(Json)
}

async fn order_balancer(
    State(lab): Shared,
    Path(name): Path<String>,
    Json(order): Json<BalancerOrder>,
) -> Answer<BalancerView> {
    lab.order_balancer(&name, order).map(Json)
}

async fn remove_balancer(State(lab): Shared, Path(name): Path<String>) -> Answer<()> {
    lab.remove_balancer(&name).map(Json)
}

async fn check(State(lab): Shared, Json(spec): Json<CheckSpec>) -> Answer<CheckView> {
    lab.check(spec).await.map(Json)
}

async fn counters(State(lab): Shared) -> Answer<CountersView> {
    lab.counters().map(Json)
}

/// Runs a verb in a task of its own: a client that goes away must not leave half of it.
async fn finish<T: Send + 'static>(
    verb: impl Future<Output = Result<T, LabError>> + Send + 'static,
) -> Result<T, LabError> {
    match tokio::spawn(verb).await {
        Ok(outcome) => outcome,
        Err(err) => std::panic::resume_unwind(err.into_panic()),
    }
}

//! Concurrent writes to the cluster, also while the API server is away.

use super::{
    AWAY,
    plan::{Phase, Step},
};
use crate::world::{PATIENCE, api};
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tests_eventually::eventually_async;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// Number of concurrent writers.
const WRITERS: usize = 16;

/// Planned writes, and their progress.
pub(crate) struct Writing {
    steps: usize,
    done: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Writing {
    pub(crate) fn begin(client: &Client, phase: &Phase) -> Self {
        let (done, next) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let steps: Arc<[Step]> = phase.steps.clone().into();
        let mut tasks = JoinSet::new();
        for _ in 0..WRITERS {
            let (client, steps) = (client.clone(), steps.clone());
            let (done, next) = (done.clone(), next.clone());
            tasks.spawn(async move {
                while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                    write(&client, step).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { steps: steps.len(), done, tasks }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.steps
    }

    pub(crate) async fn reaches(&self, wanted: usize) {
        eventually_async(&format!("{wanted} steps"), 4 * PATIENCE, async || {
            let done = self.done.load(Ordering::Relaxed);
            if done >= wanted { Ok(()) } else { Err(format!("{done} steps")) }
        })
        .await;
    }

    pub(crate) async fn end(mut self) {
        self.reaches(self.steps).await;
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

async fn write(client: &Client, step: &Step) {
    match step {
        Step::Make(object) => make(client, object).await,
        Step::MakeAndDelete(object) => {
            make(client, object).await;
            delete(client, object).await;
        }
        Step::Delete(object) => delete(client, object).await,
        Step::Relabel(object) => {
            let labels = &object["metadata"]["labels"];
            let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
            let (api, params) = (api(client, object), PatchParams::default());
            again(|| async { api.patch(name(object), &params, &patch).await.map(drop) }).await;
        }
    }
}

async fn make(client: &Client, object: &Value) {
    let wanted: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let api = api(client, object);
    again(|| async {
        match api.create(&PostParams::default(), &wanted).await {
            // An earlier attempt succeeded, and its answer was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
    if object["status"].is_object() {
        let patch = Patch::Merge(json!({ "status": object["status"] }));
        let params = PatchParams::default();
        again(|| async { api.patch_status(name(object), &params, &patch).await.map(drop) }).await;
    }
}

async fn delete(client: &Client, object: &Value) {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let api = api(client, object);
    again(|| async {
        match api.delete(name(object), &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

/// Retries until the API server accepts the write.
async fn again<F>(what: impl Fn() -> F)
where
    F: Future<Output = kube::Result<()>>,
{
    let last = Instant::now() + AWAY + PATIENCE;
    while let Err(error) = what().await {
        // A permanent refusal would only repeat.
        let is_refused =
            matches!(&error, kube::Error::Api(status) if matches!(status.code, 400 | 422));
        assert!(!is_refused && Instant::now() < last, "{error}");
        sleep(Duration::from_millis(250)).await;
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

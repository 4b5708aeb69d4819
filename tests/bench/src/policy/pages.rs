//! A data set as pages of lists.

use super::{ObjectForm, Scale, Size, template::Template};
use anyhow::{Context as _, Result};
use std::{fmt::Write as _, io::Write};

/// The kinds in a data set, in the order of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    Namespaces,
    Pods,
    Policies,
}

/// Writes all pages of a data set. Each page has a header: a byte for its kind and its length in eight bytes.
///
/// # Errors
/// If a write fails.
pub fn pages(size: Size, form: ObjectForm, scale: Scale, into: &mut impl Write) -> Result<()> {
    let mut writer = Writer { into, items: 0, page: Vec::new(), kind: Kinds::Namespaces };
    let mut values = Values::default();
    let names: Vec<String> =
        (0..size.namespaces(scale)).map(|at| format!("team-{}", word(at as u64, 8))).collect();
    let template = Template::new(form.namespace());
    for namespace in &names {
        values.next(namespace, "", "", "");
        writer.item(|page| values.fill(&template, page))?;
    }
    writer.next(Kinds::Pods)?;
    let template = Template::new(form.pod());
    let pods = size.pods(scale);
    for namespace in &names {
        for (key, value) in &pods {
            let labels = format!("\"{key}\":\"{value}\"");
            values.next(namespace, value, &labels, "");
            writer.item(|page| values.fill(&template, page))?;
        }
    }
    writer.next(Kinds::Policies)?;
    let template = Template::new(form.policy());
    let policies = size.policies(scale);
    for namespace in &names {
        for (at, policy) in policies.iter().enumerate() {
            let spec = match policy {
                None => "\"podSelector\":{}".to_owned(),
                Some([of, from]) => format!(
                    "\"podSelector\":{},\"ingress\":[{{\"from\":[{{\"podSelector\":{}}}]}}]",
                    selector(of),
                    selector(from)
                ),
            };
            values.next(namespace, &format!("np-{at}"), "", &spec);
            writer.item(|page| values.fill(&template, page))?;
        }
    }
    writer.end()
}

/// Page size of a usual client.
const ITEMS: usize = 500;
/// Number of nodes that the pods are spread over.
const NODES: u64 = 1000;

fn selector((key, value): &(String, String)) -> String {
    format!("{{\"matchLabels\":{{\"{key}\":\"{value}\"}}}}")
}

struct Writer<'a, W> {
    into: &'a mut W,
    items: usize,
    page: Vec<u8>,
    kind: Kinds,
}

impl<W: Write> Writer<'_, W> {
    fn item(&mut self, item: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        if self.items == ITEMS {
            self.end()?;
        }
        if self.items == 0 {
            let (kind, version) = match self.kind {
                Kinds::Namespaces => ("NamespaceList", "v1"),
                Kinds::Pods => ("PodList", "v1"),
                Kinds::Policies => ("NetworkPolicyList", "networking.k8s.io/v1"),
            };
            let head = format!(
                "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{{\"resourceVersion\":\
                 \"812345\",\"continue\":\"eyJ2IjoibWV0YS5rOHMuaW8vdjEi\"}},\"items\":["
            );
            self.page.extend_from_slice(head.as_bytes());
        } else {
            self.page.push(b',');
        }
        self.items += 1;
        item(&mut self.page)
    }

    fn end(&mut self) -> Result<()> {
        if self.items > 0 {
            self.page.extend_from_slice(b"]}\n");
            let length = self.page.len() as u64;
            self.into.write_all(&[self.kind as u8]).context("write a page")?;
            self.into.write_all(&length.to_le_bytes()).context("write a page")?;
            self.into.write_all(&self.page).context("write a page")?;
        }
        self.items = 0;
        self.page.clear();
        Ok(())
    }

    fn next(&mut self, kind: Kinds) -> Result<()> {
        self.end()?;
        self.kind = kind;
        Ok(())
    }
}

/// The values of one object for its template.
#[derive(Default)]
struct Values {
    count: u64,
    name: String,
    namespace: String,
    app: String,
    labels: String,
    spec: String,
    uid: String,
    owner: String,
    version: String,
    second: String,
    hash: String,
    node: String,
    host: String,
    ip: String,
}

impl Values {
    fn next(&mut self, namespace: &str, app: &str, labels: &str, spec: &str) {
        self.count += 1;
        let count = self.count;
        let [a, b, c] = [1, 2, 3].map(|salt| mix(count << 2 | salt));
        let same =
            mix(app.bytes().fold(count_of(namespace), |sum, byte| mix(sum ^ u64::from(byte))));
        self.namespace = namespace.to_owned();
        (self.app, self.labels, self.spec) = (app.to_owned(), labels.to_owned(), spec.to_owned());
        self.hash = word(same, 9);
        self.name = match spec {
            "" => format!("{app}-{}-{}", self.hash, spelled(count, 5)),
            _ => app.to_owned(),
        };
        self.uid = uuid(a, b);
        self.owner = uuid(same, mix(same));
        self.version = (800_000 + count).to_string();
        self.second = format!("{:02}", count % 60);
        let node = c % NODES;
        self.node = format!("ip-10-0-{}-{}.eu-central-1.compute.internal", node / 250, node % 250);
        self.host = format!("10.0.{}.{}", node / 250, node % 250);
        self.ip.clear();
        let _ = write!(self.ip, "10.{}.{}.{}", 16 + (count >> 16), count >> 8 & 255, count & 255);
    }

    fn fill(&self, template: &Template, page: &mut Vec<u8>) -> Result<()> {
        template.fill(page, |hole| {
            Some(match hole {
                "NAME" => &self.name,
                "NAMESPACE" => &self.namespace,
                "APP" => &self.app,
                "LABELS" => &self.labels,
                "SPEC" => &self.spec,
                "UID" => &self.uid,
                "OWNER" => &self.owner,
                "VERSION" => &self.version,
                "SECOND" => &self.second,
                "HASH" => &self.hash,
                "NODE" => &self.node,
                "HOST" => &self.host,
                "IP" => &self.ip,
                _ => return None,
            })
        })
    }
}

fn count_of(text: &str) -> u64 {
    text.bytes().fold(7, |sum, byte| mix(sum ^ u64::from(byte)))
}

/// Splitmix64: a pseudorandom number for each input.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn word(number: u64, length: usize) -> String {
    spelled(mix(number), length)
}

/// A word for each number. Different numbers have different words if the length is sufficient.
fn spelled(number: u64, length: usize) -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = number;
    let mut word = String::with_capacity(length);
    for _ in 0..length {
        let of = letters.len() as u64;
        word.push(char::from(letters[usize::try_from(rest % of).unwrap_or_default()]));
        rest /= of;
    }
    word
}

fn uuid(a: u64, b: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

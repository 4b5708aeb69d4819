//! Pages of lists: the borrowed reader returns the same objects as the reader of single values.

use super::places;
use policy_core::compile;
use policy_core::index::{Event, Index};
use policy_objects::page::{self, Page, PageError, PolicyItem, PolicyView};
use policy_objects::{Kind, Namespace, Object, Pod};
use serde_json::{Value, json};

/// A page has the same items as its values read one by one. A cut page is an error.
pub fn page(data: &[u8]) {
    let end = data.trim_ascii_end().len();
    let whole = serde_json::from_slice::<Value>(data);
    for kind in [Kind::Pod, Kind::Namespace, Kind::NetworkPolicy] {
        let (page, items) = items(kind, data);
        if let (Ok(page), Ok(whole)) = (&page, &whole) {
            let empty = Vec::new();
            let expected = whole["items"].as_array().unwrap_or(&empty);
            assert_eq!((page.items, items.len()), (expected.len(), expected.len()));
            for (item, expected) in items.iter().zip(expected) {
                assert_eq!(*item, object(kind, expected), "of {kind:?}");
            }
            expected.iter().take(2).for_each(|item| twice(kind, item));
        }
        for cut in [1, 2, 7, 40] {
            if page.is_ok() && cut < end {
                assert!(self::items(kind, &data[..end - cut]).0.is_err(), "cut by {cut}");
            }
        }
    }
    if let Ok(whole) = &whole
        && let Some(all) = whole["items"].as_array()
    {
        [false, true].into_iter().for_each(|loaded| indexed(data, all, loaded));
    }
}

fn items(kind: Kind, page: &[u8]) -> (Result<Page, PageError>, Vec<Option<Object>>) {
    let mut read = Vec::new();
    let page = if kind == Kind::Pod {
        page::pods(page, |item| read.push(item.ok().map(|pod| Object::Pod(Pod::from(pod)))))
    } else if kind == Kind::Namespace {
        page::namespaces(page, |item| {
            read.push(item.ok().map(|one| Object::Namespace(Namespace::from(one))));
        })
    } else {
        page::objects(kind, page, |item| read.push(item.ok().map(|parsed| parsed.object)))
    };
    (page, read)
}

fn object(kind: Kind, item: &Value) -> Option<Object> {
    Object::read_as(kind, item).ok().map(|parsed| parsed.object)
}

/// If a key occurs twice, the last one counts.
fn twice(kind: Kind, item: &Value) {
    let all = places(item, "");
    for place in all.iter().step_by(all.len() / FEW + 1) {
        let Some((above, key)) = place.rsplit_once('/') else { continue };
        let key = key.replace("~1", "/").replace("~0", "~");
        let others = [(FIRST, json!({"name": "b"})), (LAST, json!("x")), (LAST, json!([]))];
        for (marker, other) in others {
            let mut item = item.clone();
            let Some(Value::Object(map)) = item.pointer_mut(above) else { continue };
            map.insert(marker.to_owned(), other);
            let written = format!("{{\"items\":[{item}]}}");
            let written = written.replacen(&json!(marker).to_string(), &json!(key).to_string(), 1);
            // A further level may exceed the maximum depth of the parser.
            let Ok(whole) = serde_json::from_str::<Value>(&written) else { continue };
            let (page, read) = items(kind, written.as_bytes());
            assert!(page.is_ok(), "{written}");
            assert_eq!(read, [object(kind, &whole["items"][0])], "{written}");
        }
    }
}

/// The borrowed views of a page change an index as whole objects do, during the load and after it. Each item
/// becomes a namespace, a pod and a NetworkPolicy in turn.
fn indexed(data: &[u8], all: &[Value], loaded: bool) {
    let mut pair = Pair { borrowed: Index::new(1), read: Index::new(2) };
    if loaded {
        pair.loaded();
    }
    let mut expected = all.iter().map(|item| object(Kind::Namespace, item));
    let page = page::namespaces(data, |item| {
        let read = expected.next().flatten();
        if let (Ok(view), Some(Object::Namespace(read))) = (&item, &read) {
            pair.apply(Event::NamespaceView(view), Event::Namespace(read));
        }
    });
    let mut expected = all.iter().map(|item| object(Kind::Pod, item));
    let pods = page::pods(data, |item| {
        let read = expected.next().flatten();
        if let (Ok(view), Some(Object::Pod(read))) = (&item, &read) {
            pair.apply(Event::PodView(view), Event::Pod(read));
        }
    });
    let mut expected = all.iter().map(|item| object(Kind::NetworkPolicy, item));
    let policies = page::network_policies(data, |item| {
        let Some(read) = expected.next().flatten() else { return };
        let Some(policy) = compile(&read) else { return };
        match (item, &read) {
            (Ok(PolicyItem::Borrowed(view)), Object::NetworkPolicy(read)) => {
                assert_eq!(Some(&view), PolicyView::of(read).as_ref());
                pair.apply(Event::PolicyView(&view), Event::Policy(&policy));
            }
            (Ok(PolicyItem::Read(parsed)), _) => {
                let own = compile(&parsed.object).expect("a NetworkPolicy compiles");
                pair.apply(Event::Policy(&own), Event::Policy(&policy));
            }
            (item, _) => panic!("{item:?} is\n{read:?}"),
        }
    });
    assert_eq!((page.is_ok(), pods.is_ok()), (policies.is_ok(), policies.is_ok()));
    if !loaded {
        pair.loaded();
    }
    pair.agree();
}

/// An index fed with borrowed views, and one fed with whole objects.
struct Pair {
    borrowed: Index,
    read: Index,
}

impl Pair {
    fn loaded(&mut self) {
        self.borrowed.loaded();
        self.read.loaded();
    }

    fn apply(&mut self, borrowed: Event<'_>, read: Event<'_>) {
        assert_eq!(
            self.borrowed.apply(borrowed),
            self.read.apply(read),
            "{borrowed:?} differs from\n{read:?}"
        );
    }

    fn agree(&self) {
        assert_eq!(self.borrowed.snapshot(), self.read.snapshot());
    }
}

/// Keys that sort before and after most others.
const FIRST: &str = "!zz-twice";
const LAST: &str = "~zz-twice";

/// Number of places of an item that are tried.
const FEW: usize = 8;

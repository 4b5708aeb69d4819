//! The schedule of event writes: repeats are counted, and the rate is bounded per pod and in total.

use crate::event_queue::{About, EventRequest};
use crate::fault::Kind;
use config_model::{Span, Time};
use std::collections::BTreeMap;

/// The requested and the written events.
#[derive(Debug)]
pub(crate) struct EventSeries {
    /// The shortest time between two writes of the same event about the same pod.
    spacing: Span,
    series: BTreeMap<(About, String), Series>,
    spent: Spent,
}

/// A repeated event.
#[derive(Clone, Debug)]
struct Series {
    asked: EventRequest,
    /// The name of the written event.
    name: Option<String>,
    /// The number of requests since the event was created.
    count: i32,
    /// The time of the last write.
    written: Option<Time>,
    /// The time of the first request that is not written yet.
    unwritten: Option<Time>,
    /// The time of the first request with this text.
    begun: Time,
    /// Consecutive failed attempts.
    failures: u32,
}

/// A due write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) asked: EventRequest,
    /// The event whose count increases; `None` creates an event.
    pub(crate) series_of: Option<String>,
    pub(crate) count: i32,
}

impl EventSeries {
    pub(crate) fn new(spacing: Span) -> Self {
        Self { spacing, series: BTreeMap::new(), spent: Spent::default() }
    }

    pub(crate) fn take_in(&mut self, asked: EventRequest, now: Time) {
        self.series.retain(|_, series| {
            series.unwritten.is_some() || series.written.is_some_and(|at| now.since(at) < KEPT)
        });
        let key = (asked.about.clone(), asked.reason.clone());
        if !self.series.contains_key(&key) && self.series.len() >= SERIES_MAX {
            return;
        }
        let series = self.series.entry(key).or_insert_with(|| Series {
            asked: asked.clone(),
            name: None,
            count: 0,
            written: None,
            unwritten: None,
            begun: now,
            failures: 0,
        });
        // The text of a written event does not change. After a while another text justifies another event.
        let stands = series.name.is_some() && now.since(series.begun) < TEXT_STANDS;
        if asked.note != series.asked.note && !stands {
            let written = series.written;
            *series = Series {
                asked,
                name: None,
                count: 0,
                written,
                unwritten: None,
                begun: now,
                failures: 0,
            };
        }
        series.count = series.count.saturating_add(1);
        series.unwritten.get_or_insert(now);
    }

    /// The due write that has waited longest.
    pub(crate) fn next(&mut self, now: Time) -> Option<Write> {
        if !self.spent.has_room(now) {
            return None;
        }
        let due = self
            .series
            .values()
            .filter(|series| series.due(self.spacing).is_some_and(|at| at <= now));
        let first = due.min_by_key(|series| series.unwritten)?;
        Some(Write {
            asked: first.asked.clone(),
            series_of: first.name.clone(),
            count: first.count,
        })
    }

    /// Records the result of a write; on success the event's name.
    pub(crate) fn wrote(&mut self, write: &Write, done: Result<String, Kind>, now: Time) {
        self.spent.spend(now);
        let key = (write.asked.about.clone(), write.asked.reason.clone());
        let Some(series) = self.series.get_mut(&key) else { return };
        match done {
            Ok(name) => {
                series.name = Some(name);
                series.written = Some(now);
                series.unwritten = None;
                series.failures = 0;
            }
            Err(Kind::Unreachable | Kind::Conflict) if series.failures < ATTEMPTS => {
                series.failures += 1;
                series.written = Some(now);
            }
            // A permanent failure: the namespace or the permission is missing. The next request retries.
            Err(_) => {
                series.written = Some(now);
                series.unwritten = None;
                series.failures = 0;
            }
        }
    }

    /// The time at which [`EventSeries::next`] may return a write, without further requests.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let due = self.series.values().filter_map(|series| series.due(self.spacing)).min()?;
        Some(due.max(self.spent.room_at()))
    }
}

impl Series {
    /// The time at which it may be written; `None` if nothing is unwritten.
    fn due(&self, spacing: Span) -> Option<Time> {
        let since = self.unwritten?;
        Some(self.written.map_or(since, |at| at + spacing))
    }
}

/// The token bucket of all events.
#[derive(Debug, Default)]
struct Spent {
    /// The time at which the bucket is full again.
    paid_off: Time,
}

impl Spent {
    fn has_room(&self, now: Time) -> bool {
        self.room_at() <= now
    }

    fn room_at(&self) -> Time {
        self.paid_off - Span(COST.0 * (BURST - 1))
    }

    fn spend(&mut self, now: Time) {
        self.paid_off = self.paid_off.max(now) + COST;
    }
}

/// The size of the bucket.
const BURST: u64 = 25;
const COST: Span = Span::seconds(3);
/// The time for which a written text does not change.
const TEXT_STANDS: Span = Span::seconds(300);
/// A series without requests is dropped after this time.
const KEPT: Span = Span::seconds(600);
/// The most series. Events of further ones are dropped.
const SERIES_MAX: usize = 512;
const ATTEMPTS: u32 = 5;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use crate::EventKind;
    use config_model::PodName;

    const SPACING: Span = Span::seconds(20);

    fn asked(pod: usize, note: &str) -> EventRequest {
        EventRequest {
            about: About::Pod(PodName { namespace: "n".into(), name: format!("p{pod}") }),
            kind: EventKind::Warning,
            reason: "FailedAddressAssignment".into(),
            action: "AssignAddress".into(),
            note: note.into(),
        }
    }

    fn write_all(series_of_events: &mut EventSeries, now: Time) -> Vec<Write> {
        let mut written = Vec::new();
        while let Some(write) = series_of_events.next(now) {
            let name = write.series_of.clone().unwrap_or_else(|| format!("e{}", now.0));
            series_of_events.wrote(&write, Ok(name), now);
            written.push(write);
        }
        written
    }

    #[test]
    fn repeats_are_counted_in_one_series_and_written_seldom() {
        let mut series_of_events = EventSeries::new(SPACING);
        let start = Time(1_000_000);
        series_of_events.take_in(asked(1, "none free"), start);
        assert_eq!(write_all(&mut series_of_events, start).len(), 1);
        for second in 1..=10 {
            series_of_events.take_in(asked(1, "none free"), start + Span::seconds(second));
            assert_eq!(write_all(&mut series_of_events, start + Span::seconds(second)), []);
        }
        assert_eq!(series_of_events.wake_at(), Some(start + SPACING));
        let later = write_all(&mut series_of_events, start + SPACING);
        assert_eq!(later.len(), 1);
        assert_eq!(later[0].series_of.as_deref(), Some("e1000000"));
        assert_eq!(later[0].count, 11);
        assert_eq!(series_of_events.wake_at(), None);
    }

    #[test]
    fn another_text_is_another_event_but_not_at_once() {
        let mut series_of_events = EventSeries::new(SPACING);
        let start = Time(1_000_000);
        series_of_events.take_in(asked(1, "none free"), start);
        write_all(&mut series_of_events, start);
        let soon = start + SPACING;
        series_of_events.take_in(asked(1, "throttled"), soon);
        let written = write_all(&mut series_of_events, soon);
        assert!(written[0].series_of.is_some(), "the first text still stands");
        let late = start + TEXT_STANDS;
        series_of_events.take_in(asked(1, "throttled"), late);
        let written = write_all(&mut series_of_events, late);
        assert_eq!((written[0].series_of.as_ref(), written[0].count), (None, 1));
        assert_eq!(written[0].asked.note, "throttled");
    }

    #[test]
    fn a_storm_is_written_as_a_burst_and_then_slowly_and_loses_no_pod() {
        let mut series_of_events = EventSeries::new(SPACING);
        let start = Time(1_000_000);
        for pod in 0..110 {
            series_of_events.take_in(asked(pod, "none free"), start);
        }
        let mut written = write_all(&mut series_of_events, start).len();
        assert_eq!(written, 25);
        let mut now = start;
        while let Some(at) = series_of_events.wake_at() {
            assert!(at > now);
            now = at;
            let more = write_all(&mut series_of_events, now).len();
            assert_eq!(more, 1);
            written += more;
        }
        assert_eq!(written, 110);
        assert_eq!(now.since(start), Span(COST.0 * 85));
    }

    #[test]
    fn a_failed_write_is_retried_unless_it_can_never_succeed() {
        let mut series_of_events = EventSeries::new(SPACING);
        let start = Time(1_000_000);
        series_of_events.take_in(asked(1, "x"), start);
        let write = series_of_events.next(start).unwrap();
        series_of_events.wrote(&write, Err(Kind::Unreachable), start);
        assert_eq!(series_of_events.next(start), None);
        let again = series_of_events.wake_at().unwrap();
        let write = series_of_events.next(again).unwrap();
        series_of_events.wrote(&write, Err(Kind::Forbidden), again);
        assert_eq!(series_of_events.wake_at(), None);
    }

    #[test]
    fn the_event_series_are_bounded() {
        let mut series_of_events = EventSeries::new(SPACING);
        for pod in 0..SERIES_MAX * 2 {
            series_of_events.take_in(asked(pod, "x"), Time(1_000_000));
        }
        assert_eq!(series_of_events.series.len(), SERIES_MAX);
        let write = series_of_events.next(Time(1_000_000)).unwrap();
        series_of_events.wrote(&write, Ok("e".into()), Time(1_000_000));
        series_of_events.take_in(asked(9999, "x"), Time(1_000_000) + KEPT);
        assert_eq!(series_of_events.series.len(), SERIES_MAX, "what is written makes room in time");
    }
}

//! The messages of a replica's stream.

use super::*;

impl Node {
    /// The first message to a replica.
    pub fn hello(&self, take_behind: bool) -> Hello {
        let hello = self.held.hello(take_behind, self.serves);
        if !self.resync {
            return hello;
        }
        // A change that did not fit would not fit again: everything is compared.
        Hello { epoch: Vec::new(), generation: 0, ..hello }
    }

    /// The lag of a replica, which has read so far, behind the snapshot.
    pub fn lag(&self, theirs: &BTreeMap<String, u64>) -> u64 {
        let lag = |(kind, ours): (&String, &u64)| {
            ours.saturating_sub(theirs.get(kind).copied().unwrap_or(*ours))
        };
        self.held.reached.iter().map(lag).fold(0, u64::saturating_add)
    }

    /// A stream has started; `behind` if the replica had read less than this node holds.
    pub fn began(&mut self, at: SocketAddr, epoch: &[u8], behind: bool) {
        Arc::make_mut(&mut self.held).start_stream(epoch);
        self.parts.clear();
        self.ignoring_stream = false;
        let lacks = if behind { self.held.reached.clone() } else { BTreeMap::new() };
        self.contact = Contact::With { at, lacks };
        self.effects.push(Effect::Persist(vec![Record::Begun { epoch: epoch.to_vec() }]));
    }

    /// The node follows no replica; why.
    pub fn disconnected(&mut self, why: String) {
        self.contact = Contact::None(why);
        self.ignoring_stream = true;
        self.discard_parts();
    }

    /// The replicas cannot be listed; why. A stream that exists continues.
    pub fn not_listed(&mut self, why: String) {
        if let Contact::None(known) = &mut self.contact {
            *known = why;
        }
    }

    /// A part of a generation was received.
    pub fn part(&mut self, part: proto::Part, now: Time) {
        if self.ignoring_stream {
            return;
        }
        let generation = part.generation;
        self.parts.push(Record::Part(part.encode_to_vec()));
        let taken = match self.parts.len() > PARTS_MAX {
            true => Err(Fault::OutOfOrder { generation, held: self.held.generation }),
            false => Arc::make_mut(&mut self.held).receive(part),
        };
        match taken {
            Ok(Progress::Incomplete) => {}
            Ok(Progress::Applied(changed)) => {
                let touched: BTreeSet<_> = changed.iter().map(|(id, _)| id.clone()).collect();
                self.resync = false;
                let had_snapshot = mem::replace(&mut self.has_snapshot, true);
                let mut records = mem::take(&mut self.parts);
                let gone: Vec<String> = pods_among(&touched)
                    .filter(|uid| !self.held.pods.contains_key(*uid))
                    .filter(|uid| self.local.contains_key(*uid))
                    .map(str::to_owned)
                    .collect();
                for uid in gone {
                    Arc::make_mut(&mut self.local).remove(&uid);
                    self.remove_endpoint(&uid);
                    records.push(Record::Ended { uid });
                }
                self.effects.push(Effect::Persist(records));
                self.effects.push(Effect::Acknowledge(generation));
                if pods_among(&touched).next().is_some() {
                    self.adopt();
                }
                // A generation without changes is in force if the earlier one is.
                if !touched.is_empty() || !had_snapshot {
                    self.changed.objects.merge(changed);
                    self.changed(now);
                }
            }
            Err(fault) => {
                (self.ignoring_stream, self.resync) = (true, true);
                self.discard_parts();
                self.effects.push(Effect::Resync(fault));
            }
        }
    }

    /// A bookmark was received: how far the cluster was read, and the recipient of reports.
    pub fn bookmark(&mut self, bookmark: &proto::Bookmark, now: Time) {
        if self.ignoring_stream {
            return;
        }
        let reached = bookmark.reached.iter();
        let reached: BTreeMap<_, _> =
            reached.map(|reached| (reached.kind.clone(), reached.version)).collect();
        self.caught_up(&reached);
        if reached != self.held.reached {
            Arc::make_mut(&mut self.held).apply_bookmark(bookmark);
            let record = Record::Bookmark(bookmark.encode_to_vec());
            self.effects.push(Effect::Persist(vec![record]));
        }
        if bookmark.generation <= self.held.generation && self.marks.len() < MARKS_MAX {
            self.marks.push_back((self.revision, self.held.reached.clone()));
            self.report_reached(now);
        }
        let epoch = self.held.epoch.clone();
        let to = bookmark.reports_to.parse().ok().map(|at| ReportTo { at, epoch });
        self.reports.set_recipient(to, now);
        self.tick(now);
    }

    /// Ends the state `behind` once the replica has read as much as the snapshot. A kind that it does not know is ignored.
    fn caught_up(&mut self, reached: &BTreeMap<String, u64>) {
        let Contact::With { lacks, .. } = &mut self.contact else { return };
        let has = |(kind, was): (&String, &u64)| reached.get(kind).is_none_or(|is| is >= was);
        if lacks.iter().all(has) {
            lacks.clear();
        }
    }

    /// Discards the parts of an incomplete generation, both for the disk and in the snapshot.
    fn discard_parts(&mut self) {
        self.parts.clear();
        let held = Arc::make_mut(&mut self.held);
        let epoch = held.epoch.clone();
        held.start_stream(&epoch);
    }
}

//! The messages of a replica's stream.

use super::*;

impl Node {
    /// The first message to a replica.
    pub fn hello(&self, take_behind: bool) -> Hello {
        let hello = self.held.hello(take_behind);
        if !self.distrust {
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
        self.deaf = false;
        let lacks = if behind { self.held.reached.clone() } else { BTreeMap::new() };
        self.contact = Contact::With { at, lacks };
        self.effects.push(Effect::Keep(vec![Record::Begun { epoch: epoch.to_vec() }]));
    }

    /// The node follows no replica; why.
    pub fn alone(&mut self, why: String) {
        self.contact = Contact::None(why);
        self.deaf = true;
        self.forget_parts();
    }

    /// The replicas cannot be listed; why. A stream that exists continues.
    pub fn unlisted(&mut self, why: String) {
        if let Contact::None(known) = &mut self.contact {
            *known = why;
        }
    }

    /// A part of a generation was received.
    pub fn part(&mut self, part: proto::Part, now: Time) {
        if self.deaf {
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
                self.distrust = false;
                let was_told = mem::replace(&mut self.told, true);
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
                self.effects.push(Effect::Keep(records));
                self.effects.push(Effect::Holds(generation));
                // A generation without changes is in force if the earlier one is.
                if !touched.is_empty() || !was_told {
                    self.changed.objects.extend(touched);
                    self.changed(now);
                }
            }
            Err(fault) => {
                (self.deaf, self.distrust) = (true, true);
                self.forget_parts();
                self.effects.push(Effect::FollowAnew(fault));
            }
        }
    }

    /// A bookmark was received: how far the cluster was read, and the recipient of reports.
    pub fn bookmark(&mut self, bookmark: &proto::Bookmark, now: Time) {
        if self.deaf {
            return;
        }
        let told = bookmark.reached.iter();
        let told: BTreeMap<_, _> = told.map(|told| (told.kind.clone(), told.version)).collect();
        self.caught_up(&told);
        if told != self.held.reached {
            Arc::make_mut(&mut self.held).apply_bookmark(bookmark);
            let record = Record::Bookmark(bookmark.encode_to_vec());
            self.effects.push(Effect::Keep(vec![record]));
        }
        if bookmark.generation <= self.held.generation && self.marks.len() < MARKS_MAX {
            self.marks.push_back((self.revision, self.held.reached.clone()));
            self.marked(now);
        }
        let epoch = self.held.epoch.clone();
        let to = bookmark.reports_to.parse().ok().map(|at| ReportTo { at, epoch });
        self.reports.to(to, now);
        self.tick(now);
    }

    /// Ends the state `behind` once the replica has read as much as the snapshot. A kind that it does not know is ignored.
    fn caught_up(&mut self, told: &BTreeMap<String, u64>) {
        let Contact::With { lacks, .. } = &mut self.contact else { return };
        let has = |(kind, was): (&String, &u64)| told.get(kind).is_none_or(|is| is >= was);
        if lacks.iter().all(has) {
            lacks.clear();
        }
    }

    /// Discards the parts of an incomplete generation, both for the disk and in the snapshot.
    fn forget_parts(&mut self) {
        self.parts.clear();
        let held = Arc::make_mut(&mut self.held);
        let epoch = held.epoch.clone();
        held.start_stream(&epoch);
    }
}

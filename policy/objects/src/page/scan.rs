//! JSON read forward, without a tree and without a copy.
//!
//! `None` stands for any odd input, also for input that is not JSON. The caller then uses the slow reader, which
//! reports the cause. Skipped values are checked only for strings and brackets.

/// A page: its bytes, and its text if all of it is UTF-8. The check runs once: texts of an item are short, and
/// a check of each would take longer than reading it.
#[derive(Clone, Copy)]
pub(super) struct Text<'p> {
    bytes: &'p [u8],
    whole: Option<&'p str>,
}

impl<'p> Text<'p> {
    /// Of bytes.
    pub(super) fn new(bytes: &'p [u8]) -> Self {
        Self { bytes, whole: std::str::from_utf8(bytes).ok() }
    }

    fn part(self, start: usize, end: usize) -> Option<&'p str> {
        match self.whole {
            Some(whole) => whole.get(start..end),
            None => std::str::from_utf8(self.bytes.get(start..end)?).ok(),
        }
    }
}

/// A place in a text.
pub(super) struct Scan<'p> {
    whole: Text<'p>,
    text: &'p [u8],
    at: usize,
}

impl<'p> Scan<'p> {
    /// At a byte.
    pub(super) fn at(whole: Text<'p>, at: usize) -> Self {
        Self { whole, text: whole.bytes, at }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Reads an object; `field` reads the value of a key.
    pub(super) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &'p str) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.eat(b'}') {
            return Some(());
        }
        loop {
            let key = self.text()?;
            self.expect(b':')?;
            field(self, key)?;
            if !self.eat(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// As [`Scan::object`]; `null` is an empty one.
    pub(super) fn some_object(
        &mut self,
        field: impl FnMut(&mut Self, &'p str) -> Option<()>,
    ) -> Option<()> {
        if self.null() { Some(()) } else { self.object(field) }
    }

    /// Reads a list; `null` is an empty one.
    pub(super) fn list(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.null() {
            return Some(());
        }
        self.expect(b'[')?;
        if self.eat(b']') {
            return Some(());
        }
        loop {
            item(self)?;
            if !self.eat(b',') {
                return self.expect(b']');
            }
        }
    }

    /// A text in which nothing is escaped.
    pub(super) fn text(&mut self) -> Option<&'p str> {
        self.expect(b'"')?;
        let start = self.at;
        self.plain(CONTROLS)?;
        if *self.text.get(self.at)? != b'"' {
            return None;
        }
        let text = self.whole.part(start, self.at)?;
        self.at += 1;
        Some(text)
    }

    /// Goes to the next quote or backslash, or byte below a limit, sixteen at a time: as long as most texts.
    fn plain(&mut self, limit: u64) -> Option<()> {
        while let Some((low, rest)) = self.text.get(self.at..).and_then(<[u8]>::split_first_chunk)
            && let Some(high) = rest.first_chunk()
        {
            let low = stops(u64::from_le_bytes(*low), limit);
            let high = stops(u64::from_le_bytes(*high), limit);
            if low | high != 0 {
                // The first one of either is exact; those behind it need not be.
                let stops = u128::from(high) << 64 | u128::from(low);
                self.at += stops.trailing_zeros() as usize / 8;
                return Some(());
            }
            self.at += 16;
        }
        let below = limit & 0xff;
        let stop = |byte: &u8| matches!(byte, b'"' | b'\\') || u64::from(*byte) < below;
        self.at += self.text.get(self.at..)?.iter().position(stop)?;
        Some(())
    }

    /// As [`Scan::text`]; `null` is empty.
    pub(super) fn some_text(&mut self) -> Option<&'p str> {
        if self.null() { Some("") } else { self.text() }
    }

    /// `true` or `false`; `null` is the latter.
    pub(super) fn flag(&mut self) -> Option<bool> {
        if self.word(b"true") {
            return Some(true);
        }
        (self.word(b"false") || self.null()).then_some(false)
    }

    pub(super) fn port(&mut self) -> Option<u16> {
        self.digits().and_then(|digits| digits.parse().ok()).filter(|port| *port > 0)
    }

    /// A whole number that is not negative.
    pub(super) fn count(&mut self) -> Option<i64> {
        self.digits()?.parse().ok()
    }

    /// True if a string is next.
    pub(super) fn is_text(&mut self) -> bool {
        self.next() == Some(b'"')
    }

    /// True if `null` was next; consumes it.
    pub(super) fn null(&mut self) -> bool {
        self.word(b"null")
    }

    /// Leaves out a value.
    pub(super) fn skip(&mut self) -> Option<()> {
        match self.next()? {
            b'"' => self.skip_text(),
            b'{' | b'[' => self.skip_within(),
            b',' | b':' | b'}' | b']' => None,
            _ => {
                while !matches!(self.text.get(self.at)?, b',' | b'}' | b']' | b' ' | b'\n') {
                    self.at += 1;
                }
                Some(())
            }
        }
    }

    fn skip_within(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match *self.text.get(self.at)? {
                b'"' => {
                    self.skip_text()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn skip_text(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.plain(0)?;
            match *self.text.get(self.at)? {
                b'"' => break,
                _ => self.at += 2,
            }
        }
        self.at += 1;
        Some(())
    }

    fn digits(&mut self) -> Option<&'p str> {
        self.next()?;
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = self.whole.part(start, self.at)?;
        (digits.len() == 1 || !digits.starts_with('0')).then_some(digits)
    }

    fn word(&mut self, word: &[u8]) -> bool {
        self.next();
        let is = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word));
        if is {
            self.at += word.len();
        }
        is
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is = self.next() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.eat(byte).then_some(())
    }

    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }
}

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; 8]);
/// Below these are characters that JSON has only escaped.
const CONTROLS: u64 = u64::from_le_bytes([0x20; 8]);

/// The high bit of each of eight bytes that is a quote, a backslash or below the limit's.
fn stops(eight: u64, limit: u64) -> u64 {
    is_below(eight ^ QUOTES, ONES) | is_below(eight ^ BACKSLASHES, ONES) | is_below(eight, limit)
}

/// The high bit of each of eight bytes that is below the limit's, which is at most 128: exact up to the first.
fn is_below(eight: u64, limit: u64) -> u64 {
    eight.wrapping_sub(limit) & !eight & HIGHS
}

/// Keys that were there: one that comes twice is odd.
#[derive(Default)]
pub(super) struct Once(u16);

impl Once {
    /// Sees a key by its number.
    pub(super) fn see(&mut self, number: u8) -> Option<()> {
        let bit = 1 << number;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new.then_some(())
    }
}

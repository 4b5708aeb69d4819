//! JSON read forward, without a tree and without a copy.
//!
//! `None` stands for anything odd, also for what is no JSON: whoever reads goes back and takes the slow
//! way, which says what it is. What is skipped is followed by its texts and brackets alone.

/// A place in a text.
pub(super) struct Scan<'p> {
    text: &'p [u8],
    at: usize,
}

impl<'p> Scan<'p> {
    /// At a byte.
    pub(super) fn at(text: &'p [u8], at: usize) -> Self {
        Self { text, at }
    }

    /// How far it came.
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
        loop {
            match *self.text.get(self.at)? {
                b'"' => break,
                b'\\' | 0..0x20 => return None,
                _ => self.at += 1,
            }
        }
        let text = self.text.get(start..self.at)?;
        self.at += 1;
        std::str::from_utf8(text).ok()
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

    /// A port.
    pub(super) fn port(&mut self) -> Option<u16> {
        self.digits().and_then(|digits| digits.parse().ok()).filter(|port| *port > 0)
    }

    /// A whole number that is not negative.
    pub(super) fn count(&mut self) -> Option<i64> {
        self.digits()?.parse().ok()
    }

    /// Whether a text is next.
    pub(super) fn is_text(&mut self) -> bool {
        self.next() == Some(b'"')
    }

    /// Whether `null` was next; it is taken.
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
            match *self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
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
        let digits = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
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

//! Numbers into bytes and back.

use super::error::{Place, ReadError, ReadErrorKind, Tag};
use super::Limits;

/// Signed into unsigned numbers, so that small ones stay small: 0, -1, 1, -2, ...
#[expect(clippy::cast_sign_loss, reason = "it is the bits that count")]
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(code: u64) -> i64 {
    (code >> 1) as i64 ^ -((code & 1) as i64)
}

/// Values of one kind behind each other.
#[derive(Debug, Default)]
pub(super) struct Column(Vec<u8>);

impl Column {
    #[inline]
    pub(super) fn uint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    #[inline]
    pub(super) fn size(&mut self, number: usize) {
        self.uint(number as u64);
    }

    pub(super) fn int(&mut self, number: i64) {
        self.uint(zigzag(number));
    }

    /// How far a number is from what was expected.
    #[inline]
    pub(super) fn near(&mut self, number: usize, expected: usize) {
        self.uint(near(number, expected));
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// The code for how far a number is from what was expected.
#[inline]
pub(super) fn near(number: usize, expected: usize) -> u64 {
    zigzag(number as i64 - expected as i64)
}

/// Adds a section of these columns to a payload.
pub(super) fn push_section(payload: &mut Vec<u8>, tag: Tag, columns: &[Column]) {
    let mut body = Column::default();
    for column in columns {
        body.size(column.0.len());
        body.raw(&column.0);
    }
    payload.extend_from_slice(&tag.0);
    let mut length = Column::default();
    length.size(body.0.len());
    payload.extend_from_slice(&length.0);
    payload.extend_from_slice(&body.0);
}

/// What may still be made of a file.
#[derive(Debug)]
pub(super) struct Budget {
    entries: u64,
    text: u64,
    limits: Limits,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { entries: limits.entries, text: limits.text_bytes, limits: limits.clone() }
    }

    fn take_entries(&mut self, count: u64, place: Place) -> Result<(), ReadError> {
        let Some(left) = self.entries.checked_sub(count) else {
            let limit = self.limits.entries;
            let found = (limit - self.entries).saturating_add(count);
            return Err(ReadError::new(place, ReadErrorKind::TooLarge { what: "entries", found, limit }));
        };
        self.entries = left;
        Ok(())
    }

    pub(super) fn take_text(&mut self, bytes: usize, at: &Cursor<'_>) -> Result<(), ReadError> {
        let Some(left) = self.text.checked_sub(bytes as u64) else {
            let limit = self.limits.text_bytes;
            let found = (limit - self.text).saturating_add(bytes as u64);
            return Err(at.error(ReadErrorKind::TooLarge { what: "bytes of text", found, limit }));
        };
        self.text = left;
        Ok(())
    }
}

/// Reads a part of the payload.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the part starts in the payload.
    base: usize,
    /// In which section it is.
    section: Option<Tag>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self { bytes: payload, at: 0, base: 0, section: None }
    }

    /// The same part, as the body of a section.
    pub(super) fn in_section(mut self, tag: Tag) -> Self {
        self.section = Some(tag);
        self
    }

    pub(super) fn place(&self) -> Place {
        let offset = (self.base + self.at) as u64;
        self.section.map_or(Place::Payload(offset), |tag| Place::Section(tag, offset))
    }

    pub(super) fn error(&self, kind: ReadErrorKind) -> ReadError {
        ReadError::new(self.place(), kind)
    }

    pub(super) fn malformed(&self, what: &'static str) -> ReadError {
        self.error(ReadErrorKind::Malformed { what })
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(super) fn uint(&mut self) -> Result<u64, ReadError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_uint(),
        }
    }

    fn long_uint(&mut self) -> Result<u64, ReadError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(self.error(ReadErrorKind::Truncated { what: "the column", needed: 1 }));
            };
            if shift == 63 && byte > 1 || shift > 0 && byte == 0 {
                return Err(self.malformed("a number is longer than it has to be, or has more than 64 bits"));
            }
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        unreachable!("the tenth byte ends the number or is refused")
    }

    #[inline]
    pub(super) fn int(&mut self) -> Result<i64, ReadError> {
        Ok(unzigzag(self.uint()?))
    }

    pub(super) fn uint32(&mut self, what: &'static str) -> Result<u32, ReadError> {
        let code = self.uint()?;
        u32::try_from(code).map_err(|_| self.error(ReadErrorKind::Code { what, code }))
    }

    /// A number below `count`.
    #[inline]
    pub(super) fn index(&mut self, what: &'static str, count: usize) -> Result<usize, ReadError> {
        let before = self.at;
        let number = self.uint()?;
        self.check_index(what, number, count, before)
    }

    #[inline]
    fn check_index(&self, what: &'static str, number: u64, count: usize, before: usize) -> Result<usize, ReadError> {
        if number < count as u64 {
            Ok(number as usize)
        } else {
            let here = Self { at: before, ..self.clone() };
            Err(here.error(ReadErrorKind::Reference { what, index: number as i64, count: count as u64 }))
        }
    }

    /// A number below `count` by how far it is from what was expected, as [`near`] codes it.
    #[inline]
    pub(super) fn near(&mut self, what: &'static str, expected: usize, count: usize) -> Result<usize, ReadError> {
        let code = self.uint()?;
        self.near_of(code, what, expected, count)
    }

    /// As [`Cursor::near`], of a code that was read before.
    #[inline]
    pub(super) fn near_of(
        &self,
        code: u64,
        what: &'static str,
        expected: usize,
        count: usize,
    ) -> Result<usize, ReadError> {
        let number = (expected as i64).wrapping_add(unzigzag(code));
        match usize::try_from(number) {
            Ok(number) if number < count => Ok(number),
            _ => Err(self.error(ReadErrorKind::Reference { what, index: number, count: count as u64 })),
        }
    }

    /// How many things follow in `column`, in which each takes at least one byte.
    pub(super) fn count(
        &mut self,
        what: &'static str,
        column: &Cursor<'_>,
        budget: &mut Budget,
    ) -> Result<usize, ReadError> {
        let place = self.place();
        let count = self.count_within(what, column)?;
        budget.take_entries(count as u64, place)?;
        Ok(count)
    }

    /// As [`Cursor::count`], for what takes no more memory than a few times its bytes.
    #[inline]
    pub(super) fn count_within(&mut self, what: &'static str, column: &Cursor<'_>) -> Result<usize, ReadError> {
        let place = self.place();
        let (count, left) = (self.uint()?, column.left() as u64);
        if count > left {
            return Err(ReadError::new(place, ReadErrorKind::Count { what, count, left }));
        }
        Ok(count as usize)
    }

    pub(super) fn raw(&mut self, length: u64, what: &'static str) -> Result<&'a [u8], ReadError> {
        let left = self.left() as u64;
        if length > left {
            return Err(self.error(ReadErrorKind::Truncated { what, needed: length - left }));
        }
        let bytes = &self.bytes[self.at..self.at + length as usize];
        self.at += length as usize;
        Ok(bytes)
    }

    /// The next bytes as a part of their own.
    pub(super) fn part(&mut self, length: u64, what: &'static str) -> Result<Self, ReadError> {
        let base = self.base + self.at;
        Ok(Self { bytes: self.raw(length, what)?, at: 0, base, section: self.section })
    }

    /// The next column of a section.
    pub(super) fn column(&mut self) -> Result<Self, ReadError> {
        let length = self.uint()?;
        self.part(length, "the section")
    }

    /// The columns that a section is made of; there are no others.
    pub(super) fn columns<const N: usize>(mut self) -> Result<[Self; N], ReadError> {
        let mut columns = std::array::from_fn(|_| self.clone());
        for column in &mut columns {
            *column = self.column()?;
        }
        self.end("the columns of the section")?;
        Ok(columns)
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self, what: &'static str) -> Result<(), ReadError> {
        match self.left() {
            0 => Ok(()),
            count => Err(self.error(ReadErrorKind::Trailing { what, count: count as u64 })),
        }
    }
}

/// Checks that nothing is left in any column.
pub(super) fn end_columns(columns: &[Cursor<'_>]) -> Result<(), ReadError> {
    columns.iter().try_for_each(|column| column.end("the last entry of the column"))
}

/// Which numbers were not taken so far, to tell which one is likely next.
///
/// A disjoint-set forest with path halving: logarithmic at most, in whatever order they are taken.
#[derive(Debug)]
pub(super) struct Unused {
    /// Itself if it was not taken, otherwise a later number before which all from here on are taken.
    later: Vec<u32>,
}

impl Unused {
    /// All numbers below `count`.
    pub(super) fn new(count: usize) -> Self {
        Self { later: (0..=count as u32).collect() }
    }

    /// The first number from `start` on that was not taken, or their count.
    #[inline]
    pub(super) fn from(&mut self, start: usize) -> usize {
        let mut at = start;
        while self.later[at] as usize != at {
            let later = self.later[at] as usize;
            self.later[at] = self.later[later];
            at = later;
        }
        at
    }

    /// Takes a number; returns the next one that is expected.
    #[inline]
    pub(super) fn take(&mut self, number: usize) -> usize {
        if self.later[number] as usize == number {
            self.later[number] = number as u32 + 1;
        }
        self.from(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_only_in_their_shortest_form() {
        let numbers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        for number in numbers {
            let mut column = Column::default();
            column.uint(number);
            column.int(number as i64);
            let mut cursor = Cursor::new(&column.0);
            assert_eq!((cursor.uint().unwrap(), cursor.int().unwrap()), (number, number as i64));
            assert_eq!(cursor.left(), 0);
        }
        for bytes in [&[0x80][..], &[0x80, 0], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert!(Cursor::new(bytes).uint().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn numbers_are_taken_in_any_order() {
        let mut unused = Unused::new(5);
        assert_eq!(unused.from(0), 0);
        assert_eq!((unused.take(2), unused.take(1), unused.take(0)), (3, 3, 3));
        assert_eq!((unused.take(4), unused.take(3), unused.take(0)), (5, 5, 5));
        assert_eq!(unused.from(5), 5);
    }
}

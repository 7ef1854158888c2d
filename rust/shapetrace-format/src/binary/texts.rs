//! The section `TEXT`: every text once.
//!
//! A text is a stem and, if it ends in digits, a number: of `t1`, `t2`, `t3` the stem is there
//! once, and the numbers are coded by how they go on.

use rustc_hash::FxHashMap;

use super::codec::{end_columns, near, push_section, Budget, Column, Cursor};
use super::error::{ReadError, ReadErrorKind, Tag};
use super::Limits;

pub(super) const TAG: Tag = Tag(*b"TEXT");

/// Numbers at the end of a text have at most so many digits.
const DIGITS: usize = 9;

/// One more than the largest such number.
const NUMBERS: usize = 1_000_000_000;

/// Splits the number off the end of a text. Never one that would be spelled otherwise.
fn split(text: &str) -> (&str, Option<usize>) {
    let bytes = text.as_bytes();
    let digits = bytes.iter().rev().take(DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
    let mut start = bytes.len() - digits;
    while start + 1 < bytes.len() && bytes[start] == b'0' {
        start += 1;
    }
    (&text[..start], text[start..].parse().ok())
}

/// The texts of a file, in the order in which they are first used.
#[derive(Debug, Default)]
pub(super) struct TextWriter<'a> {
    texts: Vec<&'a str>,
    indices: FxHashMap<&'a str, usize>,
}

/// What the next text of a column is expected to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected(usize);

impl<'a> TextWriter<'a> {
    /// The code of a text: 0 for one that is new, or how far it is from the one that would follow
    /// the last known one.
    pub(super) fn code(&mut self, text: &'a str, expected: &mut Expected) -> u64 {
        let new = self.texts.len();
        let index = *self.indices.entry(text).or_insert(new);
        if index == new {
            self.texts.push(text);
            return 0;
        }
        let code = 1 + near(index, expected.0);
        expected.0 = index + 1;
        code
    }

    pub(super) fn finish(self, payload: &mut Vec<u8>) {
        let [mut head, mut stems, mut numbers, mut lengths, mut bytes] = std::array::from_fn(|_| Column::default());
        head.size(self.texts.len());
        // The index of each stem, and the number that is expected behind it.
        let mut known: FxHashMap<&str, (usize, usize)> = FxHashMap::default();
        for text in self.texts {
            let (stem, number) = split(text);
            let new = known.len();
            let (index, expected) = known.entry(stem).or_insert((new, 0));
            let is_new = *index == new;
            stems.size(if is_new { 0 } else { 2 + 2 * *index } + usize::from(number.is_some()));
            if is_new {
                lengths.size(stem.len());
                bytes.raw(stem.as_bytes());
            }
            if let Some(number) = number {
                numbers.near(number, *expected);
                *expected = number + 1;
            }
        }
        push_section(payload, TAG, &[head, stems, numbers, lengths, bytes]);
    }
}

/// The texts of a file that is read.
#[derive(Debug)]
pub(super) struct TextReader {
    arena: String,
    ends: Vec<usize>,
    used: usize,
}

impl TextReader {
    pub(super) fn new(section: Cursor<'_>, limits: &Limits, budget: &mut Budget) -> Result<Self, ReadError> {
        let [mut head, mut stems, mut numbers, mut lengths, mut bytes] = section.columns()?;
        let count = head.count("texts", &stems, budget)?;
        let mut known: Vec<(&str, usize)> = Vec::new();
        let mut reader = Self { arena: String::new(), ends: Vec::with_capacity(count), used: 0 };
        // What the texts take here is counted apart from what is made of them.
        let mut own = Budget::new(limits);
        for _ in 0..count {
            let code = stems.uint()?;
            let index = if code < 2 {
                let raw = bytes.raw(lengths.uint()?, "the texts")?;
                let Ok(stem) = std::str::from_utf8(raw) else {
                    return Err(bytes.malformed("a text that ends here is not in UTF-8"));
                };
                known.push((stem, 0));
                known.len() - 1
            } else {
                let index = code / 2 - 1;
                if index >= known.len() as u64 {
                    let kind =
                        ReadErrorKind::Reference { what: "stem", index: index as i64, count: known.len() as u64 };
                    return Err(stems.error(kind));
                }
                index as usize
            };
            let (stem, expected) = &mut known[index];
            own.take_text(stem.len() + DIGITS, &stems)?;
            reader.arena.push_str(stem);
            if code % 2 == 1 {
                let number = numbers.near("number", *expected, NUMBERS)?;
                *expected = number + 1;
                std::fmt::Write::write_fmt(&mut reader.arena, format_args!("{number}")).expect("memory only");
            }
            reader.ends.push(reader.arena.len());
        }
        end_columns(&[head, stems, numbers, lengths, bytes])?;
        Ok(reader)
    }

    fn get(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.arena[start..self.ends[index]]
    }

    /// The text of a code; what is made of it counts against the budget.
    pub(super) fn text(
        &mut self,
        code: u64,
        expected: &mut Expected,
        at: &Cursor<'_>,
        budget: &mut Budget,
    ) -> Result<&str, ReadError> {
        let index = if code == 0 {
            if self.used == self.ends.len() {
                let count = self.ends.len() as u64;
                return Err(at.error(ReadErrorKind::Reference { what: "text", index: count as i64, count }));
            }
            self.used += 1;
            self.used - 1
        } else {
            let index = at.near_of(code - 1, "text", expected.0, self.used)?;
            expected.0 = index + 1;
            index
        };
        let text = self.get(index);
        budget.take_text(text.len(), at)?;
        Ok(text)
    }

    /// Checks that every text was used.
    pub(super) fn end(&self, at: &Cursor<'_>) -> Result<(), ReadError> {
        if self.used == self.ends.len() {
            Ok(())
        } else {
            Err(at.malformed("a text is used nowhere"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_split_text_is_spelled_as_before() {
        let texts = ["", "t", "t0", "t00", "t1", "t01", "42", "0", "00", "x999999999", "x1234567890", "x1000000000"];
        for text in texts.into_iter().chain(["é7", "t٣", "a1b"]) {
            let (stem, number) = split(text);
            assert_eq!(format!("{stem}{}", number.map(|number| number.to_string()).unwrap_or_default()), text);
            assert!(number.is_none_or(|number| number < super::NUMBERS), "{text}");
        }
        assert_eq!((split("t12"), split("t012"), split("a1b")), (("t", Some(12)), ("t0", Some(12)), ("a1b", None)));
    }
}
